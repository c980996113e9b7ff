"""``headrace up`` without the command line library, which takes longer to import than a node takes to start.

Only plain command lines are read here: known options, each followed by its value, and no settings in the environment.
Everything else (``--help``, mistakes) is left to the library, which is the authority: a test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.failures import explained, report
from headrace.cli.start import DEFAULT_DATA, DEFAULT_HTTP, DEFAULT_LISTEN, start_node

__all__ = ["UpOptions", "quick_up", "read_options"]

_SETTINGS = {f"HEADRACE_{name}" for name in ("DATA", "LISTEN", "ADVERTISE", "HTTP", "METRICS", "OUTPUT", "DEBUG")}
"""The variables of the environment that stand for an option."""


@dataclass(slots=True)
class UpOptions:
    """What ``headrace up`` was asked to do."""

    data: str = DEFAULT_DATA
    listen: str = DEFAULT_LISTEN
    advertise: str | None = None
    http: str = DEFAULT_HTTP
    metrics: str | None = None
    settings: tuple[str, ...] = ()
    output: str = "text"


def quick_up(arguments: Sequence[str]) -> int | None:
    """Run the node and return the exit code; None if these arguments are for the library."""
    options = read_options(arguments)
    if options is None:
        return None
    as_json = options.output == "json"
    try:
        where = Path(options.data), options.listen, options.advertise
        start_node(*where, options.settings, http=options.http, metrics=options.metrics, as_json=as_json)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        report(explained(error), as_json=as_json)
        return 1
    return 0


def read_options(arguments: Sequence[str]) -> UpOptions | None:
    """The options that follow ``up``, if they are plain."""
    options = UpOptions()
    if len(arguments) % 2 or not _SETTINGS.isdisjoint(os.environ):
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
            case "--set" | "-c":
                options.settings += (value,)
            case "--output" | "-o" if value in ("text", "json"):
                options.output = value
            case _:
                return None
    return options
