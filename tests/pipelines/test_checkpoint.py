"""Spark's notes put right from the mark, and the rows of windows that close."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipelines.checkpoint import Checkpoint, source_offsets, watermark_ms
from headrace.pipelines.folders import LocalFolder
from headrace.pipelines.sink import _with_finals


def entry(batch: int) -> str:
    source = {"topic": "orders", "from": {"0": batch * 10}, "offsets": {"0": batch * 10 + 10}, "largest": batch}
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": batch * 1000}), json.dumps(source, separators=(",", ":"))])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Batches 0 to 4, all done; state of versions 1 to 5."""
    for batch in range(5):
        for folder in ("offsets", "commits"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / str(batch)).write_text(entry(batch) if folder == "offsets" else "v1\n{}")
        store = tmp_path / "state" / "0" / "1"
        store.mkdir(parents=True, exist_ok=True)
        (store / f"{batch + 1}.changelog").write_text("state")
    (tmp_path / "metadata").write_text("{}")
    return Checkpoint(LocalFolder(tmp_path))


def lose(checkpoint: Checkpoint, *files: str) -> None:
    for file in files:
        (Path(checkpoint.where) / file).unlink()


def files(checkpoint: Checkpoint, folder: str) -> list[str]:
    return sorted(file.name for file in (Path(checkpoint.where) / folder).iterdir())


def test_an_entry_says_its_watermark_and_where_its_sources_end() -> None:
    assert watermark_ms(entry(3)) == 3000
    assert source_offsets(entry(3) + "\n-") == [
        {"topic": "orders", "from": {"0": 30}, "offsets": {"0": 40}, "largest": 3},
        None,
    ]


def test_a_checkpoint_that_is_whole_is_left_alone(checkpoint: Checkpoint) -> None:
    assert checkpoint.restore(4, entry(4)) == (4, entry(4))
    lose(checkpoint, "commits/4")
    assert checkpoint.restore(4, entry(4)) == (4, entry(4))
    assert files(checkpoint, "state/0/1")[-1] == "5.changelog"


def test_a_forgotten_batch_is_put_back_word_for_word(checkpoint: Checkpoint) -> None:
    lose(checkpoint, "commits/4", "offsets/4")
    assert checkpoint.restore(4, entry(4)) == (4, entry(4))
    assert checkpoint.entry(4) == entry(4)
    assert files(checkpoint, "commits") == ["0", "1", "2", "3"]
    assert files(checkpoint, "state/0/1") == ["1.changelog", "2.changelog", "3.changelog", "4.changelog"]


def test_several_forgotten_batches_become_one_over_all_their_rows(checkpoint: Checkpoint) -> None:
    lose(checkpoint, "commits/4", "offsets/4", "offsets/3", "commits/2")
    batch, restored = checkpoint.restore(4, entry(4))
    assert (batch, checkpoint.entry(2)) == (2, restored)
    assert source_offsets(restored)[0] == {"topic": "orders", "from": {"0": 20}, "offsets": {"0": 50}, "largest": 1}
    assert watermark_ms(restored) == 4000
    assert (files(checkpoint, "offsets"), files(checkpoint, "commits")) == (["0", "1", "2"], ["0", "1"])
    assert files(checkpoint, "state/0/1") == ["1.changelog", "2.changelog"]
    assert checkpoint.restore(batch, restored) == (batch, restored)


def test_syncing_wants_nothing_that_is_not_there(checkpoint: Checkpoint) -> None:
    checkpoint.sync(4)
    checkpoint.sync(40)


Rows = list[tuple[int, int]]
batches = st.lists(st.tuples(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3))), st.integers(0, 60)), max_size=8)


def frame(rows: Rows) -> pl.DataFrame:
    latest = {(window, key): number for number, (window, key) in enumerate(rows)}
    return pl.DataFrame(
        {
            "key": [f"{w}/{k}".encode() for w, k in latest],
            "value": [f'{{"n":{n},"final":false}}'.encode() for n in latest.values()],
            "end": [w * 10 + 10 for w, _ in latest],
        },
        schema={"key": pl.Binary, "value": pl.Binary, "end": pl.Int64},
    )


@settings(max_examples=60, deadline=None)
@given(batches)
def test_every_window_gets_one_final_row_with_its_last_value_when_the_watermark_has_passed(
    given_batches: list[tuple[Rows, int]],
) -> None:
    open_, watermark = frame([]), 0
    last: dict[bytes, bytes] = {}
    finals: dict[bytes, list[bytes]] = {}
    for rows, step in given_batches:
        watermark = max(watermark, step)
        new = frame([row for row in rows if row[0] * 10 + 10 > watermark])
        written, open_ = _with_finals(open_, new, watermark)
        for key, value in zip(written["key"], written["value"], strict=True):
            if value.endswith(b'"final":true}'):
                finals.setdefault(key, []).append(value.replace(b"true", b"false"))
            else:
                last[key] = value
        assert all(end > watermark for end in open_["end"])
        closed = {key for key in last if int(key.split(b"/")[0]) * 10 + 10 <= watermark}
        assert closed == set(finals)
    assert all(values == [last[key]] for key, values in finals.items())
