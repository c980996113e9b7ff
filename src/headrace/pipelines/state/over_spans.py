"""Aggregates over many spans of one column: each costs the logarithm of the column's length, however long it is.

A span is from ``first`` up to, not including, ``last``. Spans overlap as they like: windows that slide do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["distinct", "exact_sums", "extremes", "totals"]

_LIMB, _MASK = 32, 2**32 - 1


def totals(values: Ints, first: Ints, last: Ints) -> Ints:
    """The sums of whole numbers."""
    before = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    found: Ints = before[last] - before[first]
    return found


def extremes(values: pl.Series, first: Ints, last: Ints, *, largest: bool, nulls: bool = False) -> pl.Series:
    """The smallest or largest values. Null does not count, or, with ``nulls``, is the smallest of all."""
    order = values.arg_sort(descending=largest, nulls_last=largest if nulls else True).to_numpy().astype(np.int64)
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    found = np.full(len(first), -1)
    level = np.frexp((last - first).astype(np.float64))[1] - 1
    for power in range(int(level.max(initial=-1)) + 1):
        here = (level == power) & (last > first)
        found[here] = np.minimum(rank[first[here]], rank[last[here] - (1 << power)])
        rank = np.minimum(rank[: -(1 << power)], rank[1 << power :])
    row = pl.Series(np.append(order, -1)[found])
    return values.gather(row.set(row < 0, None))


def distinct(values: Ints, first: Ints, last: Ints) -> Ints:
    """How many different numbers; negative ones do not count.

    A number counts where it is first seen in the span: where the place that has it before is before the span. How many
    such places there are is counted bit by bit, over the places sorted by ever more bits (a wavelet matrix).
    """
    order = np.argsort(values, kind="stable")
    same = np.diff(values[order], prepend=values[order][:1] - 1) == 0
    before = np.zeros(len(values), np.int64)
    before[order] = np.where(same, np.concatenate([[0], order[:-1] + 1])[: len(order)], 0)
    before[values < 0] = len(values) + 1
    low, high, found = first, last, np.zeros(len(first), np.int64)
    for bit in reversed(range(int(len(values) + 1).bit_length())):
        one = (before >> bit) & 1 == 1
        zeros = np.concatenate([[0], np.cumsum(~one)])
        up = ((first + 1) >> bit) & 1 == 1
        found += np.where(up, zeros[high] - zeros[low], 0)
        low = np.where(up, zeros[-1] + low - zeros[low], zeros[low])
        high = np.where(up, zeros[-1] + high - zeros[high], zeros[high])
        before = np.concatenate([before[~one], before[one]])
    return found


def exact_sums(values: Floats, first: Ints, last: Ints) -> Floats:
    """The sums of numbers, rounded once: the order in which rows came does not matter, and nothing cancels out.

    Every number is a whole multiple of the smallest power of two in use: its bits are added up in limbs of 32.
    """
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    whole = (mantissa * 2.0**53).astype(np.int64)
    exponent = exponent.astype(np.int64)
    base = int(exponent[whole != 0].min(initial=2000))
    shift = np.where(whole != 0, exponent - base, 0)
    limbs = _limb_sums(whole, shift, first, last)
    sums = _rounded(limbs, base - 53)
    up, down, not_a_number = (
        totals(test.astype(np.int64), first, last) > 0
        for test in (np.isposinf(values), np.isneginf(values), np.isnan(values))
    )
    sums[up], sums[down], sums[not_a_number | (up & down)] = np.inf, -np.inf, np.nan
    return sums


def _limb_sums(whole: Ints, shift: Ints, first: Ints, last: Ints) -> list[Ints]:
    """The sums of ``whole * 2**shift`` as limbs, lowest first, not yet carried."""
    limb, bits = shift // _LIMB, shift % _LIMB
    low, high = (whole & _MASK).astype(np.uint64) << bits.astype(np.uint64), (whole >> _LIMB) << bits
    parts = ((low & _MASK).astype(np.int64), (low >> np.uint64(_LIMB)).astype(np.int64) + (high & _MASK), high >> _LIMB)
    count = int(limb.max(initial=0)) + 3
    found = []
    for at in range(count):
        of = sum(
            (np.where(limb == at - place, part, 0) for place, part in enumerate(parts)), np.zeros(len(whole), np.int64)
        )
        found.append(totals(of, first, last))
    return [*found, np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)]


def _carried(limbs: list[Ints]) -> tuple[list[Ints], Ints]:
    carry, found = np.zeros_like(limbs[0]), []
    for limb in limbs:
        total = limb + carry
        found.append(total & _MASK)
        carry = total >> _LIMB
    return found, carry


def _rounded(limbs: list[Ints], exponent: int) -> Floats:
    """The numbers in the limbs, times a power of two, as the nearest floats."""
    sign = np.where(_carried(limbs)[1] < 0, -1, 1)
    plain, _ = _carried([limb * sign for limb in limbs])
    table = np.stack([np.zeros_like(sign), np.zeros_like(sign), *plain])
    top = len(table) - 1 - np.argmax(table[::-1] != 0, axis=0)
    top = np.maximum(top, 2)
    each = np.arange(len(sign))
    first, second, third = (table[top - back, each].astype(np.uint64) for back in range(3))
    rest = np.cumsum(table != 0, axis=0)[np.maximum(top - 3, 0), each] * (top > 2) > 0
    free = np.uint64(_LIMB) - np.frexp(first.astype(np.float64))[1].astype(np.uint64)
    bits = (((first << np.uint64(_LIMB)) | second) << free) | (third >> (np.uint64(_LIMB) - free))
    rest |= (third & ((np.uint64(1) << (np.uint64(_LIMB) - free)) - np.uint64(1))) != 0
    bits |= rest.astype(np.uint64)
    power = (top - 2 - 1) * _LIMB - free.astype(np.int64) + exponent
    with np.errstate(over="ignore"):
        found: Floats = np.ldexp(bits.astype(np.float64), power.astype(np.int32)) * sign
    return found
