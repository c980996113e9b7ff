"""Prometheus' text format: what ``GET /metrics`` answers with.

::

    # HELP kafka_consumergroup_lag How many records ...
    # TYPE kafka_consumergroup_lag gauge
    kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 17
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

__all__ = ["CONTENT_TYPE", "SECONDS", "Family", "Histogram", "Kind", "Sample", "lines"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of buckets for times, from a quick disk to a slow query."""

Kind = Literal["counter", "gauge", "histogram"]

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Histogram:
    """How often something took how long. One thread observes."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": round(self.sum, 6)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Histogram:
        """What ``to_json`` gave."""
        made = cls(found["bounds"])
        made.counts, made.sum = list(found["counts"]), found["sum"]
        return made


Sample = tuple[Sequence[str], float | Histogram]
"""The values of the labels, and the value."""


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: Kind
    help: str
    labels: Sequence[str]
    samples: Iterable[Sample]


def lines(family: Family) -> Iterator[str]:
    """The lines of one family, each with its end."""
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    for values, value in family.samples:
        pairs = [f'{name}="{text.translate(_ESCAPES)}"' for name, text in zip(family.labels, values, strict=True)]
        if isinstance(value, Histogram):
            yield from _of_histogram(family.name, pairs, value)
        else:
            yield _line(family.name, pairs, value)


def _of_histogram(name: str, pairs: list[str], value: Histogram) -> Iterator[str]:
    bounds = [*(repr(float(bound)) for bound in value.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        yield _line(f"{name}_bucket", [*pairs, f'le="{bound}"'], count)
    yield _line(f"{name}_sum", pairs, value.sum)
    yield _line(f"{name}_count", pairs, value.count)


def _line(name: str, pairs: list[str], value: float) -> str:
    labels = f"{{{','.join(pairs)}}}" if pairs else ""
    return f"{name}{labels} {value!r}\n"
