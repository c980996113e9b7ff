"""What an append accepts, refuses and answers."""

from __future__ import annotations

import struct

import pytest

from headrace import _kernel
from headrace.errors import (
    CorruptMessage,
    InvalidConfig,
    InvalidPartitions,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicName,
    OutOfOrderSequence,
    RecordTooLarge,
    TopicExists,
)
from headrace.log import Origin
from tests.log.conftest import Bench

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def batch(
    *values: bytes | None, key: bytes | None = b"k", timestamp: int = 1_700_000_000_000, **fields: int
) -> bytearray:
    return _kernel.build_batch([(timestamp, key, value, []) for value in values], **fields)


def test_bytes_are_stored_as_sent_but_for_offset_and_epoch(bench: Bench) -> None:
    bench.append(b"first")
    sent = batch(b"a", b"b", codec=4)
    original = bytes(sent)
    bench.log.append(sent, acks_all=False)
    stored = bytes(bench.log.read(1, 1000).data)
    assert stored[8:12] == original[8:12]
    assert stored[16:] == original[16:]
    assert struct.unpack_from(">q", stored)[0] == 1


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda b: b[:-1], CorruptMessage),
        (lambda b: b[:20], CorruptMessage),
        (lambda b: bytearray(), CorruptMessage),
        (lambda b: b[:70] + bytes([b[70] ^ 1]) + b[71:], CorruptMessage),
        (lambda b: b[:16] + b"\x01" + b[17:], CorruptMessage),
        (lambda b: b + b, InvalidRecord),
    ],
)
def test_a_bad_batch_is_refused_and_changes_nothing(bench: Bench, spoil: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        bench.log.append(bytearray(spoil(batch(b"value"))), acks_all=False)  # type: ignore[operator]
    assert (bench.log.end_offset, bench.log.size) == (0, 0)


def test_a_batch_over_the_limit_is_refused() -> None:
    bench = Bench({"max.message.bytes": "200"})
    bench.append(b"x" * 100)
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        bench.append(b"x" * 200)


def test_a_compacted_topic_wants_keys_in_every_codec() -> None:
    bench = Bench({"cleanup.policy": "compact"})
    for codec in CODECS.values():
        with pytest.raises(InvalidRecord):
            bench.log.append(batch(b"v", key=None, codec=codec), acks_all=False)
        bench.log.append(batch(b"v", codec=codec), acks_all=False)


def test_clients_may_not_write_control_batches(bench: Bench) -> None:
    control = batch(b"\0\0\0\0\0\0", key=b"\0\0\0\1", producer_id=1, producer_epoch=0, transactional=True, control=True)
    with pytest.raises(InvalidRecord):
        bench.log.append(control, acks_all=False)


def test_timestamps_out_of_bounds_are_refused() -> None:
    bench = Bench({"message.timestamp.after.max.ms": "1000", "message.timestamp.before.max.ms": "1000"})
    now = bench.clock.now_ms()
    for timestamp in (now + 1001, now - 1001):
        with pytest.raises(InvalidTimestamp):
            bench.log.append(batch(b"v", timestamp=timestamp), acks_all=False)
    bench.log.append(batch(b"v", timestamp=now), acks_all=False)


def test_append_time_replaces_the_producers_and_never_goes_back_with_the_clock() -> None:
    bench = Bench({"message.timestamp.type": "LogAppendTime"})
    now = bench.clock.now_ms()
    first = bench.log.append(batch(b"a", timestamp=5), acks_all=False)
    bench.clock.jump(-60_000)
    second = bench.log.append(batch(b"b", timestamp=6), acks_all=False)
    assert first.log_append_time_ms == second.log_append_time_ms == now
    assert {r[1] for r in bench.log.replay()} == {now}


@pytest.mark.parametrize("wanted", CODECS)
def test_the_topics_codec_replaces_the_producers(wanted: str) -> None:
    bench = Bench({"compression.type": wanted, "internal.segment.bytes": "100000"})
    for codec in CODECS.values():
        bench.log.append(batch(b"v" * 300, b"w", codec=codec), acks_all=False)
    attributes = {h[4] for h in _kernel.scan(bench.log.read(0, 10**6).data)[0]}
    assert attributes == {CODECS[wanted]}
    assert bench.values() == [b"v" * 300, b"w"] * 5


class TestIdempotence:
    """Sequences of one producer."""

    def send(self, bench: Bench, sequence: int, *, epoch: int = 0, count: int = 1) -> tuple[int, bool]:
        data = batch(*[b"v"] * count, producer_id=9, producer_epoch=epoch, base_sequence=sequence)
        info = bench.log.append(data, acks_all=False)
        return info.base_offset, info.duplicate

    def test_a_repeated_batch_gets_its_first_answer(self, bench: Bench) -> None:
        assert [self.send(bench, s) for s in (0, 1, 2, 0, 1, 2)] == [
            (0, False),
            (1, False),
            (2, False),
            (0, True),
            (1, True),
            (2, True),
        ]

    def test_only_the_last_five_batches_are_remembered(self, bench: Bench) -> None:
        for sequence in range(6):
            self.send(bench, sequence)
        assert self.send(bench, 1) == (1, True)
        with pytest.raises(OutOfOrderSequence):
            self.send(bench, 0)

    def test_a_gap_is_refused(self, bench: Bench) -> None:
        self.send(bench, 0)
        with pytest.raises(OutOfOrderSequence):
            self.send(bench, 2)

    def test_sequences_wrap(self, bench: Bench) -> None:
        self.send(bench, 2**31 - 2, count=2)
        assert self.send(bench, 0) == (2, False)

    def test_a_batch_may_wrap_inside(self, bench: Bench) -> None:
        self.send(bench, 2**31 - 2, count=4)
        assert self.send(bench, 2) == (4, False)
        assert self.send(bench, 2**31 - 2, count=4) == (0, True)

    def test_an_older_epoch_is_fenced_and_a_newer_starts_at_zero(self, bench: Bench) -> None:
        self.send(bench, 0, epoch=3)
        with pytest.raises(InvalidProducerEpoch):
            self.send(bench, 1, epoch=2)
        with pytest.raises(OutOfOrderSequence):
            self.send(bench, 1, epoch=4)
        assert self.send(bench, 0, epoch=4) == (1, False)

    @pytest.mark.parametrize("stop", ["reopen", "kill", "lose_power"])
    def test_sequences_are_remembered_over_every_kind_of_stop(self, bench: Bench, stop: str) -> None:
        for sequence in range(8):
            self.send(bench, sequence)
        bench.sync()
        getattr(bench, stop)()
        assert self.send(bench, 6) == (6, True)
        with pytest.raises(OutOfOrderSequence):
            self.send(bench, 9)
        assert self.send(bench, 8) == (8, False)

    def test_a_producer_is_forgotten_after_a_day(self, bench: Bench) -> None:
        self.send(bench, 0)
        bench.clock.advance(25 * 3_600_000)
        bench.maintain()
        assert bench.log.producers() == []


class TestTransactions:
    """The engine's part: last stable offset and aborted transactions."""

    def send(self, bench: Bench, producer: int, sequence: int = 0) -> None:
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        bench.log.append(batch(b"v", transactional=True, **fields), acks_all=False)

    def end(self, bench: Bench, producer: int, *, commit: bool) -> None:
        marker = batch(
            b"\0\0\0\0\0\0",
            key=b"\0\0\0\1" if commit else b"\0\0\0\0",
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        bench.log.append(marker, acks_all=False, origin=Origin.COORDINATOR)

    def test_readers_of_committed_records_stop_at_the_first_open_transaction(self, bench: Bench) -> None:
        bench.append(b"plain")
        self.send(bench, 1)
        self.send(bench, 2)
        assert bench.log.last_stable_offset == 1
        assert bench.log.read(0, 1000, committed=True).next_offset == 1
        self.end(bench, 1, commit=True)
        assert bench.log.last_stable_offset == 2
        self.end(bench, 2, commit=False)
        assert bench.log.last_stable_offset == 5
        result = bench.log.read(0, 10_000, committed=True)
        assert result.aborted == [(2, 2)]

    @pytest.mark.parametrize("stop", ["reopen", "kill"])
    def test_open_and_aborted_transactions_are_found_again(self, bench: Bench, stop: str) -> None:
        self.send(bench, 1)
        self.end(bench, 1, commit=False)
        for _ in range(20):
            bench.append(b"x" * 60)
        self.send(bench, 2)
        getattr(bench, stop)()
        assert bench.log.last_stable_offset == 22
        assert bench.log.read(0, 100, committed=True).aborted == [(1, 0)]
        assert bench.log.read(5, 100, committed=True).aborted == []

    def test_compaction_stops_before_an_open_transaction_and_drops_aborted_records(self) -> None:
        bench = Bench(
            {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "200"}
        )
        bench.log.append(batch(b"committed", key=b"other"), acks_all=False)
        fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        bench.log.append(batch(b"aborted", key=b"other", transactional=True, **fields), acks_all=False)
        self.end(bench, 1, commit=False)
        for i in range(6):
            bench.append(b"%d" % i)
        self.send(bench, 2)
        for i in range(6, 12):
            bench.append(b"%d" % i)
        bench.sync()
        bench.maintain()
        kept = [o for o, _, _ in bench.read_all()]
        assert (0, b"other", b"committed") in bench.read_all()
        assert 1 not in kept
        assert kept[-7:] == list(range(9, 16))
        assert len(kept) < 15


class TestTopics:
    """Names and settings."""

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\0", "~deleted-1", "a\n"])
    def test_bad_names_are_refused(self, bench: Bench, name: str) -> None:
        with pytest.raises(InvalidTopicName):
            bench.store.create_topic(name, 1)

    def test_names_that_clash_in_metrics_are_refused(self, bench: Bench) -> None:
        bench.store.create_topic("a.b", 1)
        with pytest.raises(InvalidTopicName, match="clash"):
            bench.store.create_topic("a_b", 1)

    def test_a_topic_exists_once(self, bench: Bench) -> None:
        with pytest.raises(TopicExists):
            bench.store.create_topic("t", 1)

    def test_partitions_only_grow(self, bench: Bench) -> None:
        with pytest.raises(InvalidPartitions):
            bench.store.create_topic("x", 0)
        with pytest.raises(InvalidPartitions):
            bench.store.add_partitions("t", 1)
        bench.store.add_partitions("t", 3)
        bench.kill()
        assert len(bench.store.topic("t").partitions) == 3

    def test_settings_are_checked_and_kept(self, bench: Bench) -> None:
        with pytest.raises(InvalidConfig):
            bench.store.set_overrides("t", {"retention.ms": "soon"})
        bench.store.set_overrides("t", {"retention.ms": "5"})
        assert bench.log.config.retention_ms == 5
        bench.kill()
        assert bench.log.config.retention_ms == 5
