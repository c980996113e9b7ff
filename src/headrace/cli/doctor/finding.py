"""What a check says: how it went, what it saw, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Check", "Finding", "Verdict", "bad", "findings_of", "fine", "so_so"]


class Verdict(StrEnum):
    """How it went. What fails keeps something from working; a warning may, or may later."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's."""

    check: str
    verdict: Verdict
    seen: str
    todo: str | None = None


Check = Callable[[], Iterable[Finding]]


def fine(check: str, seen: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.OK, seen)


def so_so(check: str, seen: str, todo: str) -> Finding:
    """Something may not work."""
    return Finding(check, Verdict.WARN, seen, todo)


def bad(check: str, seen: str, todo: str) -> Finding:
    """Something does not work."""
    return Finding(check, Verdict.FAIL, seen, todo)


def findings_of(name: str, check: Check) -> Iterator[Finding]:
    """What a check says; one that breaks says that."""
    try:
        yield from check()
    except Exception as error:
        yield bad(
            name, f"it could not be checked: {type(error).__name__}: {error}", "report this with all of the output"
        )
