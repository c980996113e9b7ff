"""The engine against a plain list, in every order of appends, syncs, rolls, trims, cleanings, stops, power losses."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace import _kernel
from headrace.errors import OffsetOutOfRange
from headrace.testing.files import PowerLoss
from tests.log.conftest import Bench

pytestmark = pytest.mark.system

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
VALUES = st.one_of(st.none(), st.binary(max_size=60))


@dataclass
class Sent:
    """A batch that a producer sent, to be sent again."""

    sequence: int
    count: int
    offset: int


class EngineModel(RuleBasedStateMachine):
    """``records``: what the log should hold, (key, value) by offset; ``promised``: the end of what may not be lost."""

    @initialize(compact=st.booleans(), codec=st.sampled_from([0, 1, 2, 3, 4]))
    def start(self, compact: bool, codec: int) -> None:
        policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"} if compact else {}
        self.bench = Bench({"delete.retention.ms": "1000", "internal.segment.bytes": "600"} | policy)
        self.compact, self.codec = compact, codec
        self.records: list[tuple[bytes, bytes | None]] = []
        self.promised = 0
        self.trimmed_to = 0
        self.visible = 0
        self.sequence, self.sent = 0, list[Sent]()

    @rule(
        records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6), acks_all=st.booleans(), plain=st.booleans()
    )
    def append(self, records: list[tuple[bytes, bytes | None]], acks_all: bool, plain: bool) -> None:
        producer = {} if plain else {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.sequence}
        batch = self._batch(records, **producer)
        info = self.bench.log.append(batch, acks_all=acks_all)
        assert (info.base_offset, info.duplicate) == (len(self.records), False)
        self.records += records
        if not plain:
            self.sent = [*self.sent[-4:], Sent(self.sequence, len(records), info.base_offset)]
            self.sequence += len(records)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat_a_batch(self, data: st.DataObject) -> None:
        again = data.draw(st.sampled_from(self.sent))
        records = self.records[again.offset : again.offset + again.count]
        batch = self._batch(records, producer_id=7, producer_epoch=0, base_sequence=again.sequence)
        info = self.bench.log.append(batch, acks_all=False)
        assert (info.base_offset, info.duplicate) == (again.offset, True)

    @rule()
    def sync(self) -> None:
        self.bench.sync()
        self.promised = len(self.records)

    @rule()
    def roll(self) -> None:
        self.bench.log.roll()

    @rule(ms=st.integers(0, 5000))
    def maintain(self, ms: int) -> None:
        self.bench.clock.advance(ms)
        if "CheckpointJob" in self.bench.maintain():
            self.promised = len(self.records)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = int(self.bench.log.high_watermark * share)
        self.bench.log.delete_records(offset)
        self.trimmed_to = max(self.trimmed_to, offset)

    @rule(share=st.floats(0, 1.2), max_bytes=st.integers(1, 2000))
    def fetch(self, share: float, max_bytes: int) -> None:
        log = self.bench.log
        offset = int(log.end_offset * share)
        try:
            result = log.read(offset, max_bytes)
        except OffsetOutOfRange:
            assert not log.log_start <= offset <= log.end_offset
            return
        found = _kernel.records(result.data)
        assert all(r[0] < log.high_watermark for r in found)
        assert all((r[2], r[3]) == self.records[r[0]] for r in found)
        if not self.compact and offset < log.high_watermark:
            assert offset in [r[0] for r in found]
            assert len(result.data) <= max_bytes or len(_kernel.scan(result.data)[0]) == 1

    @rule()
    def stop_and_start(self) -> None:
        self.bench.reopen()
        assert self.bench.log.end_offset == len(self.records)
        self.promised = len(self.records)

    @rule()
    def kill_the_process(self) -> None:
        self.bench.kill()
        assert self.bench.log.end_offset == len(self.records)

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.bench.lose_power(seed)
        self._forget_what_was_lost()

    @rule(seed=st.integers(0, 2**32), changes=st.integers(0, 40), stop=st.booleans())
    def lose_power_in_the_middle(self, seed: int, changes: int, stop: bool) -> None:
        self.bench.files.crash_after(changes)
        try:
            if stop:
                self.bench.store.close()
            else:
                self.bench.clock.advance(100_000)
                self.bench.maintain()
                self.bench.sync()
        except PowerLoss:
            pass
        self.bench.lose_power(seed)
        self._forget_what_was_lost()

    def _forget_what_was_lost(self) -> None:
        end = self.bench.log.end_offset
        assert self.promised <= end <= len(self.records)
        del self.records[end:]
        remembered = [b for p in self.bench.log.producers() for b in p.batches]
        kept = {batch.first_offset for batch in remembered}
        assert kept >= {s.offset for s in self.sent if s.offset < self.promised}
        self.sent = [s for s in self.sent if s.offset in kept]
        self.sequence = remembered[-1].last_sequence + 1 if remembered else 0

    def _batch(self, records: list[tuple[bytes, bytes | None]], **producer: int) -> bytearray:
        now = self.bench.clock.now_ms()
        return _kernel.build_batch([(now, key, value, []) for key, value in records], codec=self.codec, **producer)

    @invariant()
    def everything_that_should_be_there_is(self) -> None:
        if not hasattr(self, "bench"):
            return
        log = self.bench.log
        assert log.log_start <= log.last_stable_offset <= log.high_watermark <= log.end_offset == len(self.records)
        assert log.log_start >= self.trimmed_to
        assert log.high_watermark >= min(self.promised, len(self.records))
        found = self.bench.read_all()
        assert [(key, value) for _, key, value in found] == [self.records[offset] for offset, _, _ in found]
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        missing = set(range(log.log_start, log.high_watermark)) - {offset for offset, _, _ in found}
        last = {key: offset for offset, (key, _) in enumerate(self.records)}
        for offset in missing:
            key, value = self.records[offset]
            assert self.compact, f"offset {offset} is lost"
            assert last[key] > offset or value is None, f"the latest record of {key!r}, offset {offset}, is lost"


TestEngineModel = EngineModel.TestCase
TestEngineModel.settings = settings(
    max_examples=int(os.environ.get("HEADRACE_MODEL_EXAMPLES", "300")),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
