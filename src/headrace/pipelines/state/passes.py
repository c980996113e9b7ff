"""The inputs of an operator that are made from the same rows, made in one pass over them.

Spark reads a stream once for every input that is made from it. Where inputs are conditions and columns over the same
rows, as the kinds of events in one topic are, the rows of all of them are columns of one plan: an input's columns are
null where its conditions do not hold, and rows of no input are left out::

    left  = events.where(A).select(x)      events ─► x where A, y where B ─► those of either ─► packed
    right = events.where(B).select(y)

A column is computed only where the conditions before it hold, as it was: what would fail elsewhere does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.pipelines.catalyst import Catalyst, each, is_a

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Pass", "passes"]

_CANNOT_FAIL = ("AttributeReference", "GetStructField", "Literal")
_APART = ("PYTHON_UDF", "PLAN_EXPRESSION")
"""Expressions that Spark computes apart from others, so that a condition around them does not hold them back."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Rows, and which of their columns are those of each input, under which names."""

    frame: DataFrame
    columns: Mapping[str, Mapping[str, str]]


def passes(inputs: Mapping[str, DataFrame]) -> list[Pass]:
    """As few passes as there can be for these inputs."""
    if len(inputs) == 1:
        return [_alone(tag, frame) for tag, frame in inputs.items()]
    catalyst = Catalyst(next(iter(inputs.values())).sparkSession)
    groups: list[list[_Chain]] = []
    for tag, frame in inputs.items():
        chain = _chain(catalyst, tag, frame)
        found = next((group for group in groups if group[0].base.equals(chain.base)), None)
        if found is None:
            groups.append([chain])
        else:
            found.append(chain)
    made: list[Pass] = []
    for group in groups:
        together = _together(catalyst, group) if len(group) > 1 else None
        made += [_alone(one.tag, inputs[one.tag]) for one in group] if together is None else [together]
    return made


def _alone(tag: str, frame: DataFrame) -> Pass:
    return Pass(frame, {tag: {name: name for name in frame.columns}})


@dataclass(frozen=True, slots=True)
class _Chain:
    """An input: conditions and choices of columns, the lowest first, over rows that may be those of others too."""

    tag: str
    base: Any
    nodes: Sequence[Any]
    output: Sequence[Any]


def _chain(catalyst: Catalyst, tag: str, frame: Any) -> _Chain:
    plan = top = frame._jdf.queryExecution().analyzed()
    nodes: list[Any] = []
    while is_a(plan, "SubqueryAlias") or _can_be_shared(catalyst, plan):
        if not is_a(plan, "SubqueryAlias"):
            nodes.insert(0, plan)
        plan = plan.child()
    return _Chain(tag, plan, nodes, each(top.output()))


def _can_be_shared(catalyst: Catalyst, node: Any) -> bool:
    if is_a(node, "Project"):
        known = all(is_a(one, "AttributeReference") or is_a(one, "Alias") for one in each(node.projectList()))
    else:
        known = is_a(node, "Filter")
    if not known or not node.deterministic():
        return False
    return not any(catalyst.mentions(one, kind) for one in each(node.expressions()) for kind in _APART)


def _together(catalyst: Catalyst, chains: Sequence[_Chain]) -> Pass | None:
    """One pass for inputs over the same rows; None if there cannot be one."""
    same = 0
    while all(same < len(one.nodes) and one.nodes[same].equals(chains[0].nodes[same]) for one in chains):
        same += 1
    stack = _Stack(catalyst, chains[0].nodes[same - 1] if same else chains[0].base)
    keeps, columns, names = [], [], {}
    for chain in chains:
        keep = stack.add(chain.nodes[same:])
        if keep is _CLASH:
            return None
        keeps.append(keep)
        columns += [stack.shown(one, keep, f"{chain.tag}:{one.name()}") for one in chain.output]
        names[chain.tag] = {f"{chain.tag}:{one.name()}": one.name() for one in chain.output}
    return Pass(catalyst.frame(catalyst.project(columns, stack.of_any(keeps))), names)


_CLASH = object()
"""Two inputs compute a column under different conditions that is one column to Spark."""


@dataclass(slots=True)
class _Stack:
    """A plan that grows by columns and loses none."""

    catalyst: Catalyst
    plan: Any
    _there: dict[int, Any] = field(init=False)
    _guards: dict[int, Any] = field(default_factory=dict)
    """The condition that a column is computed under, where it is."""

    def __post_init__(self) -> None:
        self._there = {one.exprId().id(): one for one in each(self.plan.output())}

    def add(self, nodes: Sequence[Any]) -> Any:
        """Add an input's columns; returns the column that says which rows are its own, None if all are."""
        keep = None
        for node in nodes:
            if is_a(node, "Filter"):
                held = node.condition() if keep is None else self.catalyst.both(keep, node.condition())
                (keep,) = self._with([self.catalyst.named(held, "~keep")])
                continue
            new = [one for one in each(node.projectList()) if is_a(one, "Alias")]
            if any(one.exprId().id() in self._there for one in new):
                return _CLASH
            self._with([self._guarded(one, keep) for one in new])
        return keep

    def _guarded(self, column: Any, keep: Any) -> Any:
        if keep is None or any(is_a(column.child(), kind) for kind in _CANNOT_FAIL):
            return column
        self._guards[column.exprId().id()] = keep
        return self.catalyst.standing_for(self.catalyst.where(keep, column.child()), column)

    def _with(self, columns: list[Any]) -> list[Any]:
        if columns:
            self.plan = self.catalyst.project([*self._there.values(), *columns], self.plan)
        added = [column.toAttribute() for column in columns]
        self._there |= {one.exprId().id(): one for one in added}
        return added

    def shown(self, column: Any, keep: Any, name: str) -> Any:
        """A column of an input: null where a row is not its own, so that it costs little to pass on."""
        if keep is not None and self._guards.get(column.exprId().id()) is not keep:
            column = self.catalyst.where(keep, column)
        return self.catalyst.named(column, name)

    def of_any(self, keeps: Sequence[Any]) -> Any:
        """The rows that are of some input."""
        found = keeps[0]
        for keep in keeps:
            if keep is None:
                return self.plan
            found = keep if keep is keeps[0] else self.catalyst.either(found, keep)
        return self.catalyst.filter(found, self.plan)
