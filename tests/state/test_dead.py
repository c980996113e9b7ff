"""Dead rows of operators as records of a compacted topic."""

from __future__ import annotations

import random

import polars as pl

from headrace.pipelines.state.dead import dead
from headrace.pipelines.state.processor import Address, letters

ADDRESS = Address("shop.totals", 1, "", (), 8)
ROWS = pl.DataFrame({"who": ["a", "b", "a", "a"], "n": [1, 2, 1, 3]})


def keys(order: list[int], before: int = 0, bucket: int = 0) -> list[str]:
    return [key for key, _, _ in letters(dead(ROWS[order], "nobody", "who"), ADDRESS, bucket, before)]


def test_every_dead_row_has_a_key_of_its_own_in_its_batch_and_in_later_ones_and_in_all_buckets() -> None:
    found = [keys([0, 1, 2, 3]), keys([0, 1, 2, 3], before=4), keys([0, 1, 2, 3], bucket=1)]
    assert len({key for batch in found for key in batch}) == 12


def test_a_batch_that_is_done_again_writes_the_same_keys_in_whatever_order_its_rows_come() -> None:
    chance = random.Random(5)
    assert len({tuple(sorted(keys(chance.sample(range(4), 4), before=7))) for _ in range(20)}) == 1


def test_a_letter_says_what_is_wrong_and_holds_the_row() -> None:
    (letter,) = letters(dead(ROWS[[1]], "nobody", "who is b"), ADDRESS, 3, 0)
    assert letter[0].startswith("shop.totals/1/3/8/0/")
    assert letter[1] == b'{"who":"b","n":2}'
    assert dict(letter[2]) == {
        "headrace.reason": b"nobody",
        "headrace.detail": b"who is b",
        "headrace.query": b"shop.totals",
    }
