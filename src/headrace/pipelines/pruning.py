"""Which columns of operators' results nothing looks at: they need not be in their state.

Seen as for sources (``needed_columns``): Spark optimises the query over empty relations, and what is left tells. An
operator looks at all columns that it gets; so when the columns that it only passes on are known not to be needed, those
of the operators before it may not be, either, and the query is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.pipelines.building import Building
from headrace.pipelines.catalyst import each, looked_at, nodes
from headrace.pipelines.state.packing import PACKED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["unneeded_columns"]

Unneeded = frozenset[tuple[int, str]]
_OURS = [column.split()[0] for column in PACKED.split(", ")]
_LOOKS = 4
"""So often at most: each costs a part of a second, and few queries have as many operators one after the other."""


def unneeded_columns(build: Callable[[Building], DataFrame]) -> Unneeded:
    """Columns by operator. ``build`` makes the query's result over empty relations, knowing what it is given."""
    found: Unneeded = frozenset()
    for _ in range(_LOOKS):
        known = Building(unneeded=found)
        plan: Any = build(known)
        if not known.outputs:
            return found
        more = found | _left_out(plan, known.outputs)
        if more == found:
            return found
        found = more
    return found


def _left_out(frame: Any, outputs: dict[int, tuple[int, str]]) -> Unneeded:
    plan = frame._jdf.queryExecution().optimizedPlan()
    there: set[int] = set()
    for node in nodes(plan):
        if node.nodeName() == "MapInArrow":
            if not _is_known(node, outputs):
                return frozenset()
            there |= {attribute.exprId().id() for attribute in each(node.output().toList())}
    left = there - looked_at(plan)
    return frozenset(place for identity, place in outputs.items() if identity in left)


def _is_known(node: Any, outputs: dict[int, tuple[int, str]]) -> bool:
    """Whether it is an operator's; Spark gives the columns of a result that is used twice other ids."""
    columns = each(node.output().toList())
    return [one.name() for one in columns] == _OURS or all(one.exprId().id() in outputs for one in columns)
