"""A clock that tests move, forwards and backwards."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """Stands still until told otherwise."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now_ms += ms
        self._monotonic += ms / 1000

    def jump(self, ms: int) -> None:
        """Set the wall clock forwards or back; no time passes."""
        self._now_ms += ms
