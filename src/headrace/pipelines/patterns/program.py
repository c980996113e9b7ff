"""A pattern compiled for the columns of a stream: what the kernel runs, and how to give it rows and read its answers.

The bytes are drawn in ``native/core/src/patterns/program.rs``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.pipelines.patterns.automaton import Absent, Accept, Automaton, Item, Taking, Waiting, build
from headrace.pipelines.patterns.conditions import Coder, Tables, conjuncts, is_local, joined, may_fail
from headrace.pipelines.patterns.declaration import Pattern, in_text
from headrace.pipelines.patterns.expressions import Expression
from headrace.pipelines.patterns.possible import ensure_possible
from headrace.pipelines.patterns.tokens import Mistake
from headrace.pipelines.places import wrong

__all__ = ["Measure", "Program", "compile_pattern"]

_VERSION = 1
_KINDS = {"bool": 0, "int": 1, "time": 1, "date": 1, "interval": 1, "null": 1, "float": 2, "decimal": 2, "text": 3}


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the result."""

    name: str
    kind: str
    column: str | None
    """The column of a row whose value it is, as it is: the kernel says of which row."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled pattern: plain data, to be sent to workers."""

    code: bytes
    by: tuple[str, ...]
    time: str
    order: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    """The columns that conditions and measures look at, and their types."""
    kept: tuple[str, ...]
    """The columns that the state keeps of a row."""
    measures: tuple[Measure, ...]
    variables: tuple[str, ...]
    rows: bool
    max_partials: int
    text: str


def compile_pattern(pattern: Pattern, schema: Mapping[str, pl.DataType]) -> Program:
    """Compile a pattern for rows of a schema. All columns of a row are kept where they are shown with a match, or where
    a condition or measure may fail on a row that has waited: its dead letter is then the whole row."""
    place = pattern.place
    for name in (*pattern.by, pattern.time, *pattern.order):
        if name not in schema:
            raise wrong(f"there is no column {name!r}.", place, f"the columns are {', '.join(schema)}")
    types = {name: _type(kind) for name, kind in schema.items()}
    if types[pattern.time] not in ("time", "date"):
        raise wrong(f"column {pattern.time!r} is no time.", place, "name a column of timestamps")
    tables = Tables(types, pattern.variables)
    conditions = _conditions(pattern, tables)
    running = len(tables.slots)
    measures = _measures(pattern, tables)
    automaton = build(pattern.shape, relaxed=pattern.relaxed)
    ensure_possible(pattern, automaton)
    later = {history for _, history in conditions} | {code for _, _, code in tables.slots} | {c for _, c in measures}
    fails_later = any(may_fail(tables.codes[code]) for code in later if code >= 0)
    free_of_history = running == 0
    writer = _Writer(pattern, tables)
    code = writer.write(automaton, conditions, running, measures, free_of_history)
    needed = (*pattern.by, pattern.time, *pattern.order, *tables.columns, *(m.column for m, _ in measures if m.column))
    return Program(
        code=code,
        by=pattern.by,
        time=pattern.time,
        order=pattern.order,
        columns=tuple((name, types[name]) for name in tables.columns),
        kept=tuple(schema) if pattern.rows or fails_later else tuple(dict.fromkeys(needed)),
        measures=tuple(measure for measure, _ in measures),
        variables=pattern.variables,
        rows=pattern.rows,
        max_partials=pattern.max_partials,
        text=pattern.text,
    )


def _type(kind: pl.DataType) -> str:
    if kind == pl.Boolean:
        return "bool"
    if kind.is_integer():
        return "int"
    if kind.is_float():
        return "float"
    if kind.is_decimal():
        return "decimal"
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return "text"
    if kind == pl.Datetime:
        return "time"
    if kind == pl.Date:
        return "date"
    if kind == pl.Duration:
        return "interval"
    return str(kind)


def _conditions(pattern: Pattern, tables: Tables) -> list[tuple[int, int]]:
    """For each variable its local code and its code with history; -1 for none."""
    known = {name.lower(): (text, tree) for name, text, tree in pattern.define}
    found: list[tuple[int, int]] = []
    for variable in pattern.variables:
        if variable.lower() not in known:
            found.append((-1, -1))
            continue
        text, tree = known[variable.lower()]
        coder = Coder(tables, variable)
        codes = in_text(f"define {variable}", text, pattern.place, lambda _, c=coder, t=tree: _split(c, t))  # type: ignore[misc]
        found.append(codes)
    return found


def _split(coder: Coder, tree: Expression) -> tuple[int, int]:
    """What can be said from a row alone apart from the rest: the kernel does that first, for all rows."""
    coder.condition(tree)
    parts = conjuncts(tree)
    alone = [part for part in parts if is_local(coder.condition(part))]
    rest = [part for part in parts if part not in alone]
    return _code(coder, joined(alone)), _code(coder, joined(rest))


def _code(coder: Coder, tree: Expression | None) -> int:
    return -1 if tree is None else coder.tables.code(coder.condition(tree))


def _measures(pattern: Pattern, tables: Tables) -> list[tuple[Measure, int]]:
    """The measures, each with its code."""
    found: list[tuple[Measure, int]] = []
    taken = {*pattern.by, "match_start", "match_end", "match_rows"}
    for name, text, tree in pattern.measures:
        if name in taken:
            raise wrong(f"measure {name!r}: the result has that column already.", pattern.place, "choose another name")
        coder = Coder(tables, None)
        code, kind, column = in_text(f"measure {name}", text, pattern.place, lambda _, c=coder, t=tree: _measure(c, t))  # type: ignore[misc]
        found.append((Measure(name, kind, column), code))
        taken.add(name)
    return found


def _measure(coder: Coder, tree: Expression) -> tuple[int, str, str | None]:
    """Code, type, and the column if it is one as it is."""
    code: list[tuple[int, ...]] = []
    column = coder.row(tree, code)
    if column is not None:
        return coder.tables.code(code), "int", column
    kind = coder.write(tree, code)
    if kind == "null":
        raise Mistake("this is always null", tree.at, "remove it")
    if kind == "decimal":
        hint = "say that it may be a double: cast(... as double); a column by itself, its min or max stay decimals"
        raise Mistake("what is computed from decimals would be rounded", tree.at, hint)
    return coder.tables.code(code), kind, None


class _Writer:
    """Writes a program's bytes."""

    def __init__(self, pattern: Pattern, tables: Tables) -> None:
        self._pattern = pattern
        self._tables = tables
        self._index = {name: index for index, name in enumerate(pattern.variables)}
        self._out = bytearray()

    def write(
        self,
        automaton: Automaton,
        conditions: list[tuple[int, int]],
        running: int,
        measures: list[tuple[Measure, int]],
        free_of_history: bool,
    ) -> bytes:
        pattern, tables = self._pattern, self._tables
        names = [tables.text(name) for name in pattern.variables]
        self._words(_VERSION)
        self._texts(list(tables.texts))
        within = -1 if pattern.within_us is None else pattern.within_us
        self._words(within, pattern.after.skip, self._skip_variable(), pattern.max_partials, tables.rows_before)
        numbered = any(op == (10,) for _, code in measures for op in tables.codes[code])
        flags = (free_of_history, numbered, pattern.timeouts, pattern.partials)
        self._words(sum(1 << bit for bit, flag in enumerate(flags) if flag))
        self._words(len(tables.columns), *(_KINDS[tables.types[name]] for name in tables.columns))
        self._words(running, len(tables.slots))
        for slot in tables.slots:
            self._words(*slot)
        self._words(len(tables.codes))
        for code in tables.codes:
            self._words(len(code), *(word for op in code for word in op))
        self._words(len(names))
        for name, codes in zip(names, conditions, strict=True):
            self._words(name, *codes)
        self._words(len(automaton.states))
        for items in automaton.states:
            self._words(len(items))
            for item in items:
                self._item(item)
        self._words(len(measures))
        for measure, number in measures:
            self._words(number, _KINDS[measure.kind])
        return bytes(self._out)

    def _words(self, *words: int) -> None:
        self._out += struct.pack(f"<{len(words)}q", *words)

    def _texts(self, texts: list[str]) -> None:
        self._words(len(texts))
        for text in texts:
            raw = text.encode()
            self._words(len(raw))
            self._out += raw

    def _skip_variable(self) -> int:
        wanted = self._pattern.after.variable
        names = [name.lower() for name in self._pattern.variables]
        return -1 if wanted is None else names.index(wanted.lower())

    def _item(self, item: Item) -> None:
        match item:
            case Taking():
                self._words(0, self._index[item.variable], item.state)
            case Waiting():
                self._words(1, len(item.takes))
                for take in item.takes:
                    self._words(self._index[take.variable], take.state)
                self._words(len(item.forbidden), *(self._index[name] for name in item.forbidden))
            case Accept():
                self._words(2)
            case Absent():
                self._words(3, len(item.variables), *(self._index[name] for name in item.variables))
