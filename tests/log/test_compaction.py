"""Of every key the latest record stays, and a reader can always get to the end."""

from __future__ import annotations

import pytest

from headrace import _kernel
from tests.log.conftest import Bench

DAY = 86_400_000


@pytest.fixture
def bench() -> Bench:
    return Bench({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "300"})


def put(bench: Bench, key: bytes, value: bytes | None, **batch: int) -> int:
    record = [(bench.clock.now_ms(), key, value, [])]
    return bench.log.append(_kernel.build_batch(record, **batch), acks_all=False).base_offset


def clean(bench: Bench) -> None:
    bench.log.roll()
    bench.sync()
    bench.maintain()


def test_the_latest_of_every_key_stays_at_its_offset(bench: Bench) -> None:
    for i in range(40):
        put(bench, b"k%d" % (i % 4), b"%d" % i)
    clean(bench)
    assert bench.read_all() == [(36, b"k0", b"36"), (37, b"k1", b"37"), (38, b"k2", b"38"), (39, b"k3", b"39")]
    assert bench.log.end_offset == 40
    bench.kill()
    assert len(bench.read_all()) == 4


def test_small_segments_become_one(bench: Bench) -> None:
    for i in range(40):
        put(bench, b"k%d" % (i % 4), b"%d" % i)
    before = len(bench.log.segments)
    clean(bench)
    put(bench, b"k0", b"new")
    clean(bench)
    assert len(bench.log.segments) < before / 2


def test_a_tombstone_goes_after_its_horizon_and_not_before(bench: Bench) -> None:
    put(bench, b"gone", b"x")
    put(bench, b"gone", None)
    put(bench, b"kept", b"y")
    clean(bench)
    assert [(k, v) for _, k, v in bench.read_all()] == [(b"gone", None), (b"kept", b"y")]
    bench.clock.advance(DAY // 2)
    put(bench, b"other", b"1")
    clean(bench)
    assert (b"gone", None) in [(k, v) for _, k, v in bench.read_all()]
    bench.clock.advance(DAY)
    put(bench, b"other", b"2")
    clean(bench)
    assert [(k, v) for _, k, v in bench.read_all()] == [(b"kept", b"y"), (b"other", b"2")]


def test_a_reader_gets_to_the_end_although_the_last_records_are_gone(bench: Bench) -> None:
    put(bench, b"a", b"1")
    put(bench, b"b", None)
    put(bench, b"c", None)
    clean(bench)
    bench.clock.advance(2 * DAY)
    bench.log.cleaned_to = 0
    clean(bench)
    assert [k for _, k, _ in bench.read_all()] == [b"a"]
    offset = 0
    while (result := bench.log.read(offset, 100)).data:
        offset = result.next_offset
    assert offset == bench.log.end_offset == 3


def test_a_producers_sequence_survives_the_loss_of_its_records(bench: Bench) -> None:
    for sequence in range(3):
        put(bench, b"k", b"old", producer_id=4, producer_epoch=0, base_sequence=sequence)
    put(bench, b"k", b"new")
    clean(bench)
    assert [v for _, _, v in bench.read_all()] == [b"new"]
    for name in ("producers", "producers.previous"):
        bench.files.remove(bench.folder / name)
    bench.kill()
    assert put(bench, b"k", b"next", producer_id=4, producer_epoch=0, base_sequence=3) == 4


def test_the_active_segment_and_unsynced_records_are_not_touched(bench: Bench) -> None:
    for i in range(4):
        put(bench, b"k", b"%d" % i)
    active = bench.log.active.base_offset
    bench.sync()
    bench.maintain()
    kept = [o for o, _, _ in bench.read_all()]
    assert [o for o in kept if o >= active] == list(range(active, 4))


def test_young_records_wait_for_the_compaction_lag() -> None:
    bench = Bench({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "5000"})
    put(bench, b"k", b"1")
    put(bench, b"k", b"2")
    clean(bench)
    assert len(bench.read_all()) == 2
    bench.clock.advance(5001)
    bench.maintain()
    assert len(bench.read_all()) == 1


def test_a_lag_that_is_too_long_cleans_and_rolls_an_idle_partition() -> None:
    bench = Bench({"cleanup.policy": "compact", "max.compaction.lag.ms": "5000"})
    put(bench, b"k", b"1")
    put(bench, b"k", b"2")
    bench.sync()
    bench.clock.advance(5001)
    bench.maintain()
    assert [v for _, _, v in bench.read_all()] == [b"2"]


def test_little_dirt_is_left_alone() -> None:
    bench = Bench({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"})
    for i in range(40):
        put(bench, b"k%d" % i, b"v" * 50)
    clean(bench)
    put(bench, b"k0", b"new")
    clean(bench)
    assert len(bench.read_all()) == 41


def test_a_damaged_segment_is_not_compacted_away(bench: Bench) -> None:
    for i in range(20):
        put(bench, b"k", b"%d" % i)
    bench.log.roll()
    bench.sync()
    bench.files.flip_bit(bench.log.segments[0].path, 70)
    bench.maintain()
    assert bench.files.exists(bench.log.segments[0].path)
    assert [v for _, _, v in bench.read_all(5)] == [b"%d" % i for i in range(5, 20)]


def test_more_keys_than_fit_the_map_take_several_rounds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.log.compaction.MAX_KEYS", 10)
    for i in range(120):
        put(bench, b"k%d" % (i % 40), b"%d" % i)
    bench.log.roll()
    bench.sync()
    for _ in range(20):
        bench.maintain()
    assert [v for _, _, v in bench.read_all()] == [b"%d" % i for i in range(80, 120)]


def test_a_cancelled_round_changes_nothing(bench: Bench) -> None:
    for i in range(20):
        put(bench, b"k", b"%d" % i)
    bench.log.roll()
    bench.sync()
    for job in bench.store.jobs():
        job.cancelled = True
        job.run()
        job.finish()
    assert len(bench.read_all()) == 20
    bench.maintain()
    assert len(bench.read_all()) == 1
