"""Signals that ask a command to stop."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

__all__ = ["stop_signals"]


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP ask to stop; a second one ends the process at once."""
    asked = 0

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            os._exit(128 + number)
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
