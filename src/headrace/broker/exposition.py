"""Prometheus' text format: what ``GET /metrics`` answers with.

::

    # HELP kafka_consumergroup_lag How many records ...
    # TYPE kafka_consumergroup_lag gauge
    kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 17
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

__all__ = ["CONTENT_TYPE", "Family", "Kind", "Sample", "lines"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "summary"]
Sample = tuple[Sequence[str], float]
"""The values of the labels, and the value."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple):
    """All samples of one name. A summary's are its count and its sum, in this order, without labels."""

    name: str
    kind: Kind
    help: str
    labels: Sequence[str]
    samples: Iterable[Sample]


def lines(family: Family) -> Iterator[str]:
    """The lines of one family, each with its end."""
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    if family.kind == "summary":
        (_, count), (_, total) = family.samples
        yield f"{family.name}_count {count!r}\n{family.name}_sum {total!r}\n"
        return
    for values, value in family.samples:
        labels = ",".join(
            f'{name}="{text.translate(_ESCAPES)}"' for name, text in zip(family.labels, values, strict=True)
        )
        yield f"{family.name}{{{labels}}} {value!r}\n" if labels else f"{family.name} {value!r}\n"
