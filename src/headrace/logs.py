"""What processes say while they run: lines of text for people, or one JSON object per line for programs.

::

    {"time": "2026-01-31T12:00:00.123Z", "level": "WARNING", "logger": "headrace.views.keeping", "message": "view ...",
     "pid": 4711}

``error`` is added where something was raised, and every field that was given in ``extra``. Which of the two it is says
the environment (``HEADRACE_LOGS=json``), so that a process says it to those that it starts.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import sys
import time
from enum import StrEnum
from typing import Any, Final, TextIO

__all__ = ["VARIABLE", "JsonLines", "LogForm", "chosen", "spoken", "to_stderr"]

VARIABLE: Final = "HEADRACE_LOGS"
_TEXT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_KNOWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogForm(StrEnum):
    """How a line looks."""

    text = "text"
    json = "json"


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        told = _told(record.created, record.levelname, record.name, record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = self.formatException(record.exc_info)
        told |= {name: value for name, value in vars(record).items() if name not in _KNOWN and name not in told}
        return json.dumps(told, default=str, ensure_ascii=False)


def chosen() -> LogForm:
    """What the environment says; text, if it says nothing that there is."""
    return LogForm.json if os.environ.get(VARIABLE, "").strip().lower() == LogForm.json else LogForm.text


def to_stderr() -> None:
    """Have this process say what it has to say on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if chosen() is LogForm.json else logging.Formatter(_TEXT, datefmt="%Y-%m-%dT%H:%M:%S")
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def spoken(logger: str, sentence: str, to: TextIO | None = None) -> None:
    """Say one sentence on standard output: what a command in the foreground tells its person."""
    if chosen() is LogForm.json:
        line = json.dumps(_told(time.time(), "INFO", logger, sentence), ensure_ascii=False)
    else:
        line = f"{time.strftime('%H:%M:%S')} {sentence}"
    print(line, file=to or sys.stdout, flush=True)


def _told(at: float, level: str, logger: str, message: str) -> dict[str, Any]:
    moment = dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": moment, "level": level, "logger": logger, "message": message, "pid": os.getpid()}
