"""What a user declares of a pattern, checked and parsed: ``pattern(by="card", pattern="small{3,} big", ...)``.

A pattern is looked for in the rows of each key, in order of event time. From each row on, the preferred way to match
is looked for: quantifiers take as many rows as they can (reluctant ones as few), of alternatives the first counts.
After a match the search goes on where ``after`` says. ``within`` bounds the time from the first row to the last, both
included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeVar

from headrace.errors import InvalidDeclaration
from headrace.pipelines.durations import milliseconds
from headrace.pipelines.patterns.automaton import build
from headrace.pipelines.patterns.expressions import Expression, parse
from headrace.pipelines.patterns.sequence import Shape, parse_sequence, variables
from headrace.pipelines.patterns.tokens import Mistake, Tokens
from headrace.pipelines.places import Place, caller, wrong

__all__ = ["MAX_PARTIALS", "After", "Pattern", "Skip", "checked", "in_text", "located", "pattern"]

MAX_PARTIALS = 10_000
_T = TypeVar("_T")


class Skip(IntEnum):
    """Where the search goes on after a match."""

    PAST_LAST_ROW = 0
    TO_NEXT_ROW = 1
    TO_FIRST = 2
    TO_LAST = 3


@dataclass(frozen=True, slots=True)
class After:
    """Where the search goes on; ``variable`` for the last two. It always goes on after the first row of the match."""

    skip: Skip
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as it was declared. Texts are kept beside the trees, for errors."""

    by: tuple[str, ...]
    time: str
    text: str
    shape: Shape
    define: tuple[tuple[str, str, Expression], ...]
    """Variable, text and condition."""
    measures: tuple[tuple[str, str, Expression], ...]
    """Name, text and value."""
    within_us: int | None
    after: After
    relaxed: bool
    order: tuple[str, ...]
    timeouts: bool
    partials: bool
    rows: bool
    max_partials: int
    place: Place

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables of the pattern."""
        return variables(self.shape)

    def with_columns(self, columns: Iterable[str]) -> Pattern:
        """The same, its key, time and order written as the columns are: SQL's names are in any case."""
        known = {name.lower(): name for name in columns}

        def named(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(known.get(name.lower(), name) for name in names)

        (time,) = named((self.time,))
        return replace(self, by=named(self.by), time=time, order=named(self.order))


def pattern(
    *,
    by: str | Iterable[str] = (),
    time: str,
    pattern: str,
    define: Mapping[str, str] | None = None,
    measures: Mapping[str, str] | None = None,
    within: str | None = None,
    after: str = "past last row",
    contiguity: str = "strict",
    order: str | Iterable[str] = (),
    timeouts: bool = False,
    partials: bool = False,
    rows: bool = False,
    max_partials: int = MAX_PARTIALS,
    place: Place | None = None,
) -> Pattern:
    """Declare a pattern.

    ``by``: the columns of the key. ``time``: the event time. ``define``: a condition for each variable; one without any
    fits every row. ``measures``: what to say of a match, by name. ``after``: ``past last row``, ``to next row``, ``to
    first X``, ``to last X``. ``contiguity``: ``strict`` (each row of a match follows the one before it) or ``relaxed``
    (rows that fit nothing that may come next are passed over, everywhere). ``order``: columns that put rows of one time
    in order; without them they are in the order of arrival. ``timeouts``, ``partials``: tell also those. ``rows``: give
    the matched rows. ``max_partials``: how many partial matches one key may have at a time."""
    place = place or caller()
    shape = in_text("pattern", pattern, place, _shape)
    found = Pattern(
        by=(by,) if isinstance(by, str) else tuple(by),
        time=time,
        text=pattern,
        shape=shape,
        define=_parsed("define", define or {}, place),
        measures=_parsed("measure", measures or {}, place),
        within_us=_within(within, place),
        after=_after(after, place),
        relaxed=_relaxed(contiguity, place),
        order=(order,) if isinstance(order, str) else tuple(order),
        timeouts=timeouts,
        partials=partials,
        rows=rows,
        max_partials=max_partials,
        place=place,
    )
    return checked(found)


def in_text(what: str, text: str, place: Place, work: Callable[[str], _T]) -> _T:
    """Do work on a text of the user's; a mistake in it is an error that says where."""
    try:
        return work(text)
    except Mistake as mistake:
        raise located(what, text, mistake, place) from None


def located(what: str, text: str, mistake: Mistake, place: Place) -> InvalidDeclaration:
    """The error for a mistake in a text."""
    sentence = f"{what} {text!r}: {mistake.sentence}, at character {mistake.at + 1}."
    return wrong(sentence, place, mistake.hint)


def _shape(text: str) -> Shape:
    tokens = Tokens(text)
    shape = parse_sequence(tokens)
    tokens.need_end()
    return shape


def _parsed(what: str, texts: Mapping[str, str], place: Place) -> tuple[tuple[str, str, Expression], ...]:
    return tuple((name, text, in_text(f"{what} {name}", text, place, parse)) for name, text in texts.items())


def _within(text: str | None, place: Place) -> int | None:
    if text is None:
        return None
    try:
        found = milliseconds(text) * 1000
    except ValueError as error:
        raise wrong(f"within {text!r}: {error}.", place, 'write it like within="5 minutes"') from None
    if found <= 0:
        raise wrong(f"within {text!r} is no time at all.", place, 'write it like within="5 minutes"')
    return found


def _after(text: str, place: Place) -> After:
    words = text.split()
    match [word.lower() for word in words]:
        case ["past", "last", "row"]:
            return After(Skip.PAST_LAST_ROW)
        case ["to", "next", "row"]:
            return After(Skip.TO_NEXT_ROW)
        case ["to", "first", _]:
            return After(Skip.TO_FIRST, words[2])
        case ["to", "last", _] | ["to", _]:
            return After(Skip.TO_LAST, words[-1])
    raise wrong(
        f"after {text!r} is not known.", place, 'write "past last row", "to next row", "to first A" or "to last A"'
    )


def _relaxed(contiguity: str, place: Place) -> bool:
    if contiguity not in ("strict", "relaxed"):
        raise wrong(f"contiguity {contiguity!r} is not known.", place, 'write "strict" or "relaxed"')
    return contiguity == "relaxed"


def checked(found: Pattern) -> Pattern:
    """The pattern, if its parts fit each other."""
    names, place = found.variables, found.place
    known = f"the pattern's variables are {', '.join(names)}"
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise wrong(f"two variables are written {name!r} but for their case.", place, "give them different names")
    defined = [name for name, _, _ in found.define] + ([found.after.variable] if found.after.variable else [])
    for name in defined:
        if name.lower() not in lower:
            raise wrong(f"there is no variable {name!r} in the pattern {found.text!r}.", place, known)
    if found.max_partials < 1:
        raise wrong("max_partials must be at least 1.", place, "leave it out, or write a number")
    automaton = in_text("pattern", found.text, place, lambda _: build(found.shape, relaxed=found.relaxed))
    if found.within_us is None and (automaton.needs_time or found.timeouts):
        what = "time-outs need a time" if found.timeouts else "its end is known only when a time runs out"
        raise wrong(f"pattern {found.text!r}: {what}.", place, 'say how long a match may take: within="30 minutes"')
    return found
