"""Where in the user's file something was declared, so that an error can say it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import InvalidDeclaration

__all__ = ["Place", "caller", "of_function", "wrong"]

_OURS = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def caller() -> Place:
    """The line of the user's file that called into Headrace."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def of_function(function: Callable[..., Any]) -> Place:
    """Where a function of the user's begins."""
    code = getattr(function, "__code__", None)
    return caller() if code is None else Place(code.co_filename, code.co_firstlineno)


def wrong(sentence: str, place: Place, hint: str) -> InvalidDeclaration:
    """The error for a mistake in a declaration: what, where, and what to do."""
    return InvalidDeclaration(sentence, detail=str(place), hint=hint)
