"""What a pattern means, said as plainly as possible: all ways to match are tried in the order of preference.

A pattern is a tuple: ("take", V), ("seq", *parts), ("or", *parts), ("many", part, low, high, greedy), ("permute",
*parts), ("gap", *forbidden) between two parts of a "seq", and ("absent", *forbidden) at its end. Rows are dicts with
``time``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[Any, ...]
Taken = tuple[tuple[str, int], ...]
"""Variables and the numbers of their rows."""
Condition = Callable[[list[dict[str, Any]], int, Taken], bool]
"""Rows, the row that may be taken, what is taken including it. It may fail."""


class FailedError(Exception):
    """A condition has no answer."""


def text(shape: Shape) -> str:
    """The pattern as a user writes it."""
    kind, *parts = shape
    if kind == "take":
        return str(parts[0])
    if kind == "seq":
        return " ".join(text(part) for part in parts)
    if kind == "gap":
        return " ".join(f"!{name}" for name in parts) or "->>"
    if kind == "absent":
        return " ".join(f"!{name}" for name in parts)
    if kind == "or":
        return "(" + " | ".join(text(part) for part in parts) + ")"
    if kind == "permute":
        return "PERMUTE(" + ", ".join(text(part) for part in parts) + ")"
    part, low, high, greedy = parts
    often = f"{{{low},{'' if high is None else high}}}"
    return f"({text(part)}){often}{'' if greedy else '?'}"


@dataclass
class Model:
    """Finds the matches of one key whose rows, in order, are all those up to the watermark."""

    shape: Shape
    conditions: dict[str, Condition]
    rows: list[dict[str, Any]]
    watermark: int
    within: int | None
    relaxed: bool
    after: str
    aggregated: Callable[[str, dict[str, Any]], bool] = lambda _, __: True
    """Whether the aggregates of all conditions can take in a row that is taken for a variable."""
    matches: list[tuple[int, int, Taken]] = field(default_factory=list)
    timeouts: list[tuple[int, int, Taken]] = field(default_factory=list)
    under_way: list[tuple[int, int, Taken]] = field(default_factory=list)
    """What starts that are not decided took by the way that they prefer of those still open, if anything."""
    failed: set[int] = field(default_factory=set)
    """Rows that ended a way because a condition had no answer, of the ways before the match only."""

    def run(self) -> None:
        start = 0
        while start < len(self.rows):
            attempt = _Attempt(self, start)
            found = next(attempt.search((self.shape,), start, ()), None)
            if attempt.undecided:
                if attempt.open:
                    self.under_way.append((start, self.rows[attempt.open[-1][1]]["time"], attempt.open))
                if self.after != "to next row":
                    return
            elif found is not None:
                taken, absent = found
                end = attempt.deadline if absent else self.rows[taken[-1][1]]["time"]
                self.matches.append((start, end, taken))
                start = max(self.next_start(taken), start + 1) - 1
            elif attempt.out_of_time is not None:
                self.timeouts.append((start, attempt.deadline, attempt.out_of_time))
            start += 1

    def next_start(self, taken: Taken) -> int:
        past = taken[-1][1] + 1
        if self.after == "to next row":
            return 0
        if self.after == "past last row":
            return past
        _, which, name = self.after.split()
        numbers = [number for variable, number in taken if variable == name]
        return (numbers[0] if which == "first" else numbers[-1]) if numbers else past


class _Attempt:
    """To match from one row on."""

    def __init__(self, model: Model, start: int) -> None:
        self.model = model
        within = model.within
        self.deadline = 2**62 if within is None else model.rows[start]["time"] + within
        self.rows = [row for row in model.rows if row["time"] <= self.deadline]
        self.time_ran_out = self.deadline <= model.watermark or len(self.rows) < len(model.rows)
        self.undecided = False
        self.open: Taken = ()
        self.out_of_time: Taken | None = None

    def holds(self, name: str, number: int, taken: Taken) -> bool | None:
        """None if nobody can say: whatever way this is on is over."""
        condition = self.model.conditions.get(name)
        try:
            return condition is None or condition(self.rows, number, (*taken, (name, number)))
        except FailedError:
            self.model.failed.add(number)
            return None

    def takes(self, name: str, number: int, taken: Taken) -> bool | None:
        found = self.holds(name, number, taken)
        if found and not self.model.aggregated(name, self.rows[number]):
            self.model.failed.add(number)
            return None
        return found

    def any_holds(self, names: tuple[str, ...], number: int, taken: Taken) -> bool:
        """Is a row of one of these variables? Where nobody can say it counts as one."""
        return any(self.holds(name, number, taken) is not False for name in names)

    def search(self, left: tuple[Shape, ...], number: int, taken: Taken) -> Iterator[tuple[Taken, bool]]:
        """All ways to go on from a row with what is left of the pattern, the preferred first."""
        for way in self.ways(left):
            if self.undecided:
                return
            kind, *rest = way
            if kind == "accept":
                yield taken, False
            elif kind == "absent":
                if any(self.any_holds(tuple(rest), later, taken) for later in range(number, len(self.rows))):
                    continue
                if not self.at_end(taken):
                    yield taken, True
            elif kind == "take":
                if number == len(self.rows):
                    self.at_end(taken)
                elif self.takes(rest[0], number, taken):
                    yield from self.search(rest[1], number + 1, (*taken, (rest[0], number)))
            else:
                yield from self.wait(rest[0], rest[1], number, taken)

    def wait(self, takes: list[Any], forbidden: tuple[str, ...], number: int, taken: Taken) -> Iterator[Any]:
        while number < len(self.rows):
            waits = True
            for _, name, rest in takes:
                fits = self.takes(name, number, taken)
                waits = waits and fits is False
                if fits:
                    yield from self.search(rest, number + 1, (*taken, (name, number)))
            if not waits or self.any_holds(forbidden, number, taken):
                return
            number += 1
        self.at_end(taken)

    def at_end(self, taken: Taken) -> bool:
        """There are no more rows: is that because more may come?"""
        if not self.time_ran_out:
            self.undecided, self.open = True, self.open or taken
        elif self.out_of_time is None and taken:
            self.out_of_time = taken
        return self.undecided

    def ways(self, left: tuple[Shape, ...]) -> list[Any]:
        """What can come next."""
        if not left:
            return [("accept",)]
        (kind, *parts), rest = left[0], left[1:]
        if kind == "take":
            return [("take", parts[0], ((("gap",), *rest) if self.model.relaxed else rest))]
        if kind == "seq":
            return self.ways((*parts, *rest))
        if kind == "or":
            return _until_accept([way for part in parts for way in self.ways((part, *rest))])
        if kind == "permute":
            return _until_accept([way for i in range(len(parts)) for way in self.ways(_permuted(parts, i, rest))])
        if kind == "absent":
            return [("absent", *parts)]
        if kind == "gap":
            return _waiting(self.ways(rest), tuple(parts))
        return self.ways_to_repeat(parts, rest)

    def ways_to_repeat(self, parts: list[Any], rest: tuple[Shape, ...]) -> list[Any]:
        part, low, high, greedy = parts
        if high == 0:
            return self.ways(rest)
        again = ("many", part, max(low - 1, 0), None if high is None else high - 1, greedy)
        more = self.ways((part, again, *rest))
        if low > 0:
            return more
        enough = self.ways(rest)
        return _until_accept(more + enough if greedy else enough + more)


def _permuted(parts: list[Shape], first: int, rest: tuple[Shape, ...]) -> tuple[Shape, ...]:
    others = [part for i, part in enumerate(parts) if i != first]
    return (parts[first], *((("permute", *others),) if others else ()), *rest)


def _until_accept(ways: list[Any]) -> list[Any]:
    return ways[: ways.index(("accept",)) + 1] if ("accept",) in ways else ways


def _waiting(ways: list[Any], forbidden: tuple[str, ...]) -> list[Any]:
    takes: list[Any] = []
    others: list[Any] = []
    for way in ways:
        if way[0] == "take":
            takes.append(way)
        elif way[0] == "wait":
            takes += way[1]
            forbidden += tuple(way[2])
        else:
            others.append(way)
    return [*([("wait", takes, forbidden)] if takes else []), *others]
