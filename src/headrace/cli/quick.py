"""``headrace up`` without the command line library, which takes longer to import than a node takes to start.

Only plain command lines are read here: known options, each followed by its value, and no settings in the environment
or in a file. Everything else (``--help``, mistakes, a log elsewhere) is left to the library, which is the authority: a
test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cli.failures import explained, report
from headrace.cli.start import DEFAULT_DATA, DEFAULT_HTTP, DEFAULT_LISTEN, DEFAULT_SETTINGS, start_node

__all__ = ["UpOptions", "quick_up", "read_options"]

_NAMES = (
    *("DATA", "LISTEN", "ADVERTISE", "HTTP", "METRICS", "VIEWS", "LOG", "TOKEN", "READ_TOKEN", "LOGS"),
    *("OUTPUT", "DEBUG", "SETTINGS"),
)
_SETTINGS = {f"HEADRACE_{name}" for name in _NAMES}
"""The variables of the environment that stand for an option."""


@dataclass(slots=True)
class UpOptions:
    """What ``headrace up`` was asked to do."""

    data: str = DEFAULT_DATA
    listen: str = DEFAULT_LISTEN
    advertise: str | None = None
    http: str = DEFAULT_HTTP
    metrics: str | None = None
    views: str | None = None
    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    logs: str = "text"
    settings: tuple[str, ...] = ()
    output: str = "text"


def quick_up(arguments: Sequence[str]) -> int | None:
    """Run the node and return the exit code; None if these arguments are for the library."""
    options = read_options(arguments)
    if options is None:
        return None
    as_json = options.output == "json"
    if options.logs == "json":
        os.environ["HEADRACE_LOGS"] = "json"
    try:
        where = Path(options.data), options.listen, options.advertise
        start_node(
            *where,
            options.settings,
            http=options.http,
            metrics=options.metrics,
            views=options.views,
            token=options.token,
            read_token=options.read_token,
            as_json=as_json,
        )
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        report(explained(error), as_json=as_json)
        return 1
    return 0


def read_options(arguments: Sequence[str]) -> UpOptions | None:
    """The options that follow ``up``, if they are plain."""
    options = UpOptions()
    if len(arguments) % 2 or not _SETTINGS.isdisjoint(os.environ) or os.path.exists(DEFAULT_SETTINGS):
        return None
    for flag, value in zip(arguments[::2], arguments[1::2], strict=True):
        match flag:
            case "--data" | "-d":
                options.data = value
            case "--listen" | "-l":
                options.listen = value
            case "--advertise":
                options.advertise = value
            case "--http":
                options.http = value
            case "--metrics":
                options.metrics = value
            case "--views":
                options.views = value
            case "--token":
                options.token = value
            case "--read-token":
                options.read_token = value
            case "--logs" if value in ("text", "json"):
                options.logs = value
            case "--set" | "-c":
                options.settings += (value,)
            case "--output" | "-o" if value in ("text", "json"):
                options.output = value
            case _:
                return None
    return options
