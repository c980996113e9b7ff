"""MATCH_RECOGNIZE, the part of SQL that NEXMark's CEP suite uses, as a pattern.

::

    [SELECT columns FROM stream] MATCH_RECOGNIZE (
        [PARTITION BY columns] ORDER BY time [, columns] [MEASURES value AS name, ...] [ONE ROW PER MATCH]
        [AFTER MATCH SKIP PAST LAST ROW | TO NEXT ROW | TO [FIRST | LAST] variable]
        PATTERN (...) [WITHIN INTERVAL '5' SECOND] [DEFINE variable AS condition, ...]
    ) [AS name]

Everything in the pattern and the conditions that ``hr.match`` knows works here too. A whole number divided by another
is not cut off, as in Spark's SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.pipelines.patterns.declaration import MAX_PARTIALS, After, Pattern, Skip, checked, located
from headrace.pipelines.patterns.expressions import Expression, parse_expression, parse_interval
from headrace.pipelines.patterns.sequence import Shape, parse_sequence
from headrace.pipelines.patterns.tokens import Mistake, Sort, Tokens
from headrace.pipelines.places import Place, caller

__all__ = ["Recognized", "recognize"]


@dataclass(frozen=True, slots=True)
class Recognized:
    """What a SQL text asks for: the stream, the columns of the result (None: all) with their new names, the pattern."""

    source: str | None
    columns: tuple[tuple[str, str], ...] | None
    pattern: Pattern


def recognize(
    sql: str,
    *,
    timeouts: bool = False,
    partials: bool = False,
    rows: bool = False,
    max_partials: int = MAX_PARTIALS,
    place: Place | None = None,
) -> Recognized:
    """Read a SQL text; InvalidDeclaration if it is not of the known form. The rest is as in ``pattern``."""
    place = place or caller()
    try:
        found = _Reader(Tokens(sql), place).statement()
    except Mistake as mistake:
        raise located("MATCH_RECOGNIZE", sql, mistake, place) from None
    more = replace(found.pattern, timeouts=timeouts, partials=partials, rows=rows, max_partials=max_partials)
    return replace(found, pattern=checked(more))


class _Reader:
    def __init__(self, tokens: Tokens, place: Place) -> None:
        self._tokens = tokens
        self._place = place

    def statement(self) -> Recognized:
        tokens = self._tokens
        columns, source = None, None
        if tokens.skip_word("select"):
            columns = self._columns()
            tokens.need_word("from")
            source = tokens.need_name("the name of a stream").text
        tokens.need_word("match_recognize")
        tokens.need_sign("(", "after MATCH_RECOGNIZE")
        pattern = self._clauses()
        tokens.need_sign(")", "to close MATCH_RECOGNIZE")
        if tokens.skip_word("as") or tokens.here.sort is not Sort.END:
            tokens.need_name("a name")
        tokens.need_end()
        return Recognized(source, columns, pattern)

    def _columns(self) -> tuple[tuple[str, str], ...] | None:
        tokens = self._tokens
        if tokens.skip_sign("*"):
            return None
        found: list[tuple[str, str]] = []
        while True:
            name = tokens.need_name("a column's name").text
            if tokens.skip_sign("."):
                if tokens.skip_sign("*"):
                    return None
                name = tokens.need_name("a column's name").text
            alias = tokens.need_name("a new name").text if tokens.skip_word("as") else name
            found.append((name, alias))
            if not tokens.skip_sign(","):
                return tuple(found)

    def _clauses(self) -> Pattern:
        tokens = self._tokens
        by = self._names() if tokens.skip_word("partition", "by") else ()
        tokens.need_word("order", "by")
        time, *order = self._ordering()
        measures = self._measures() if tokens.skip_word("measures") else ()
        if tokens.is_word("all", "rows"):
            raise tokens.wrong(
                "ALL ROWS PER MATCH is not supported",
                "leave it out, and say rows=True beside the SQL: a list of the rows",
            )
        tokens.skip_word("one", "row", "per", "match")
        after = self._after() if tokens.skip_word("after", "match", "skip") else After(Skip.PAST_LAST_ROW)
        tokens.need_word("pattern")
        shape, text = self._pattern()
        within = parse_interval(tokens) * 1000 if tokens.skip_word("within") else None
        if tokens.is_word("subset"):
            raise tokens.wrong("SUBSET is not supported", "write the conditions for each variable")
        define = self._define() if tokens.skip_word("define") else ()
        return Pattern(
            by=by,
            time=time,
            text=text,
            shape=shape,
            define=define,
            measures=measures,
            within_us=within,
            after=after,
            relaxed=False,
            order=tuple(order),
            timeouts=False,
            partials=False,
            rows=False,
            max_partials=MAX_PARTIALS,
            place=self._place,
        )

    def _names(self) -> tuple[str, ...]:
        found = [self._tokens.need_name("a column's name").text]
        while self._tokens.skip_sign(","):
            found.append(self._tokens.need_name("a column's name").text)
        return tuple(found)

    def _ordering(self) -> list[str]:
        tokens = self._tokens
        found: list[str] = []
        while True:
            found.append(tokens.need_name("a column's name").text)
            tokens.skip_word("asc")
            if tokens.is_word("desc"):
                raise tokens.wrong("streams are in ascending order", "remove DESC")
            if not tokens.skip_sign(","):
                return found

    def _measures(self) -> tuple[tuple[str, str, Expression], ...]:
        tokens = self._tokens
        found: list[tuple[str, str, Expression]] = []
        while True:
            value = parse_expression(tokens)
            tokens.need_word("as")
            found.append((tokens.need_name("a name for the measure").text, tokens.text, value))
            if not tokens.skip_sign(","):
                return tuple(found)

    def _after(self) -> After:
        tokens = self._tokens
        if tokens.skip_word("past", "last", "row"):
            return After(Skip.PAST_LAST_ROW)
        if tokens.skip_word("to", "next", "row"):
            return After(Skip.TO_NEXT_ROW)
        tokens.need_word("to")
        skip = Skip.TO_FIRST if tokens.skip_word("first") else Skip.TO_LAST
        tokens.skip_word("last")
        return After(skip, tokens.need_name("the name of a variable").text)

    def _pattern(self) -> tuple[Shape, str]:
        tokens = self._tokens
        tokens.need_sign("(", "after PATTERN")
        start = tokens.here.at
        shape = parse_sequence(tokens)
        end = tokens.need_sign(")", "to close PATTERN").at
        return shape, tokens.text[start:end].strip()

    def _define(self) -> tuple[tuple[str, str, Expression], ...]:
        tokens = self._tokens
        found: list[tuple[str, str, Expression]] = []
        while True:
            name = tokens.need_name("the name of a variable").text
            tokens.need_word("as")
            condition = parse_expression(tokens)
            found.append((name, tokens.text, condition))
            if not tokens.skip_sign(","):
                return tuple(found)
