"""The clock. Everything that asks for the time is given one of these, so that tests can move it, also backwards."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where the time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes; it may jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for timeouts."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
