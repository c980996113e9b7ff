"""What the sink makes of the net changes of a table, which come from several buckets in no order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.pipelines.sink import Target, _encoded

ROWS = [(1, "new", False), (1, "old", True), (None, "alone", False), (2, "gone", True)]


@pytest.mark.parametrize("rows", [ROWS, ROWS[::-1]])
def test_of_one_key_the_deletion_counts_first_and_keys_may_be_null(rows: list[tuple[object, ...]]) -> None:
    columns = dict(zip(("id", "text", "_deleted"), map(list, zip(*rows, strict=True)), strict=True))
    target = Target("q", "t", ("id",), ("id", "text"), 1, "f", deletes=True, net=True)
    written, dead = _encoded(pa.table(columns), target)
    assert dict(written.select("key", "value").rows()) == {
        b'{"id":1}': b'{"id":1,"text":"new"}',
        b'{"id":null}': b'{"id":null,"text":"alone"}',
        b'{"id":2}': None,
    }
    assert dead == []
