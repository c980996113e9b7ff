"""The runs of a share partition against a model that knows every record by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.shares.window import Ack, AckBatch, AckRefused, Acquired, Dead, Kept, Reason, Rules, State, Window

RULES = Rules(delivery_limit=3, lock_ms=100, max_locks=40, backoff_ms=10, backoff_max_ms=15)


@dataclass
class Record:
    state: State = State.AVAILABLE
    count: int = 0
    member: str = ""
    until: float = 0


@dataclass
class Model:
    """One entry per record."""

    start: int
    end: int
    records: dict[int, Record] = field(default_factory=dict)

    def look(self, offset: int) -> Record:
        return self.records.setdefault(offset, Record())

    def extend(self, last: int) -> None:
        self.end = max(self.end, last + 1)

    def advance(self) -> None:
        while self.start < self.end and self.look(self.start).state in (State.ACKNOWLEDGED, State.ARCHIVED):
            self.start += 1

    def acquire(self, member: str, spans: list[tuple[int, int]], limit: int, now: float) -> set[tuple[int, int]]:
        got: set[tuple[int, int]] = set()
        for offset in (offset for first, last in spans for offset in range(first, last + 1)):
            record = self.look(offset)
            if not self.start <= offset < self.end or record.state is not State.AVAILABLE or record.until > now:
                continue
            if len(got) >= limit:
                break
            alone = record.count + 1 >= RULES.delivery_limit
            if alone and got:
                break
            self.records[offset] = Record(State.ACQUIRED, record.count + 1, member, now + RULES.lock_ms)
            got.add((offset, record.count + 1))
            if alone:
                break
        return got

    def settle(self, offset: int, kind: Ack, now: float, dead: set[tuple[int, int, Reason]]) -> None:
        record = self.look(offset)
        if kind is Ack.ACCEPT:
            self.records[offset] = Record(State.ACKNOWLEDGED)
        elif kind is Ack.GAP:
            self.records[offset] = Record(State.ARCHIVED)
        elif kind is Ack.RENEW:
            record.until = now + RULES.lock_ms
        elif kind is Ack.REJECT or record.count >= RULES.delivery_limit:
            dead.add((offset, record.count, Reason.REJECTED if kind is Ack.REJECT else Reason.TRIED_TOO_OFTEN))
            self.records[offset] = Record(State.ARCHIVED)
        else:
            self.records[offset] = Record(State.AVAILABLE, record.count, "", now + RULES.pause(record.count))

    def acknowledge(self, member: str, first: int, last: int, types: bytes, now: float) -> object:
        wanted = {
            offset: Ack(types[0] if len(types) == 1 else types[offset - first])
            for offset in range(first, last + 1)
            if offset >= self.start
        }
        if wanted and last >= self.end:
            return "refused"
        if any(self.look(one).state is not State.ACQUIRED or self.look(one).member != member for one in wanted):
            return "refused"
        return self.settle_all(wanted, now)

    def settle_all(self, wanted: dict[int, Ack], now: float) -> set[tuple[int, int, Reason]]:
        dead: set[tuple[int, int, Reason]] = set()
        for offset, kind in wanted.items():
            self.settle(offset, kind, now, dead)
        self.advance()
        return dead

    def held(self, member: str | None, now: float) -> dict[int, Ack]:
        return {
            offset: Ack.RELEASE
            for offset in range(self.start, self.end)
            if (record := self.look(offset)).state is State.ACQUIRED
            and (record.member == member if member else record.until <= now)
        }


def each(acquired: list[Acquired]) -> set[tuple[int, int]]:
    return {(offset, one.attempts) for one in acquired for offset in range(one.first, one.last + 1)}


def each_dead(dead: list[Dead]) -> set[tuple[int, int, Reason]]:
    return {(offset, one.attempts, one.reason) for one in dead for offset in range(one.first, one.last + 1)}


def ensure_alike(window: Window, model: Model, now: float) -> None:
    assert (window.start, window.end) == (model.start, model.end)
    at = window.start
    for run in window.runs:
        assert run.first == at <= run.last
        at = run.last + 1
        for offset in range(run.first, run.last + 1):
            record = model.look(offset)
            assert run.state is record.state, offset
            if run.state in (State.AVAILABLE, State.ACQUIRED):
                assert (run.count, run.member) == (record.count, record.member)
                assert run.until == record.until or run.until <= now >= record.until
    assert all(not a.says_the_same(b) for a, b in zip(window.runs, window.runs[1:], strict=False))
    again = Window.restored(window.start, window.kept())
    assert again.start == window.start
    assert again.kept() == window.kept()


MEMBERS = st.sampled_from(["a", "b", "c"])
OFFSET = st.integers(0, 45)
STEP = st.one_of(
    st.tuples(st.just("extend"), OFFSET),
    st.tuples(
        st.just("acquire"), MEMBERS, st.lists(st.tuples(OFFSET, st.integers(0, 9)), max_size=3), st.integers(0, 9)
    ),
    st.tuples(st.just("ack"), MEMBERS, OFFSET, st.integers(0, 6), st.binary(min_size=7, max_size=7), st.booleans()),
    st.tuples(st.just("leave"), MEMBERS),
    st.tuples(st.just("wait"), st.sampled_from([1, 7, 10, 60])),
    st.tuples(st.just("skip"), OFFSET, st.integers(0, 4)),
    st.tuples(st.just("start"), OFFSET),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_runs_say_what_a_table_of_all_records_says(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    window, model, now = Window(3), Model(3, 3), 1.0
    for name, *given_values in steps:
        if name == "extend":
            window.extend(given_values[0])
            model.extend(given_values[0])
        elif name == "acquire":
            member, pieces, limit = given_values
            spans, at = [], 0
            for gap, size in pieces:
                spans.append((at + gap, at + gap + size))
                at = spans[-1][1] + 1
            assert each(window.acquire(member, spans, limit, RULES, now)) == model.acquire(member, spans, limit, now)
        elif name == "ack":
            member, first, size, raw, single = given_values
            types = bytes(byte % 5 for byte in raw[: 1 if single else size + 1])
            try:
                found: object = each_dead(
                    window.acknowledge(member, [AckBatch(first, first + size, types)], RULES, now)
                )
            except AckRefused:
                found = "refused"
            assert found == model.acknowledge(member, first, first + size, types, now)
        elif name == "leave":
            dead = each_dead(window.release_member(given_values[0], RULES, now))
            assert dead == model.settle_all(model.held(given_values[0], now), now)
        elif name == "wait":
            now += given_values[0]
            assert each_dead(window.expire(RULES, now)) == model.settle_all(model.held(None, now), now)
        elif name == "skip":
            first, last = given_values[0], given_values[0] + given_values[1]
            window.skip(first, last)
            for offset in range(max(first, model.start), min(last + 1, model.end)):
                if model.look(offset).state is State.AVAILABLE:
                    model.records[offset] = Record(State.ARCHIVED)
            model.advance()
        else:
            window.move_start(given_values[0])
            if given_values[0] > model.start:
                model.start, model.end = given_values[0], max(model.end, given_values[0])
            model.advance()
        ensure_alike(window, model, now)


def test_what_is_held_at_a_crash_comes_back_and_what_is_settled_does_not() -> None:
    window = Window(0)
    window.extend(9)
    window.acquire("a", [(0, 9)], 10, RULES, 0)
    window.acknowledge("a", [AckBatch(2, 3, b"\1"), AckBatch(5, 5, b"\2"), AckBatch(7, 7, b"\3")], RULES, 0)
    kept = window.kept()
    assert kept == [
        Kept(2, 3, State.ACKNOWLEDGED, 0),
        Kept(5, 5, State.AVAILABLE, 1),
        Kept(7, 7, State.ARCHIVED, 0),
    ]
    again = Window.restored(0, kept)
    again.extend(9)
    assert each(again.acquire("b", [(0, 9)], 10, RULES, 0)) == {(o, 2 if o == 5 else 1) for o in (0, 1, 4, 5, 6, 8, 9)}


def test_a_limit_is_stretched_to_the_end_of_a_batch_if_batches_are_given() -> None:
    for ends, last in (((), 6), ((4, 9, 14), 9), ((6, 9), 6)):
        window = Window(0)
        window.extend(14)
        assert window.acquire("a", [(0, 14)], 7, RULES, 0, ends=ends) == [Acquired(0, last, 1)]


def test_settled_runs_become_one_and_the_start_moves_over_them() -> None:
    window = Window(0)
    window.extend(99)
    window.acquire("a", [(0, 99)], 100, RULES, 0)
    for offset in range(1, 100, 2):
        window.acknowledge("a", [AckBatch(offset, offset, b"\1")], RULES, 0)
    assert len(window.runs) == 100
    assert window.settled == 50
    for offset in range(98, -1, -2):
        window.acknowledge("a", [AckBatch(offset, offset, b"\1")], RULES, 0)
    assert (window.start, window.runs) == (100, [])


def test_the_last_attempt_is_made_with_one_record_alone() -> None:
    window = Window(0)
    window.extend(3)
    for attempt in (1, 2):
        assert window.acquire("a", [(0, 3)], 10, RULES, 50 * attempt) == [Acquired(0, 3, attempt)]
        window.acknowledge("a", [AckBatch(0, 3, b"\2")], RULES, 50 * attempt)
    assert window.acquire("a", [(0, 3)], 10, RULES, 200) == [Acquired(0, 0, 3)]
    assert window.acknowledge("a", [AckBatch(0, 0, b"\2")], RULES, 200) == [Dead(0, 0, 3, Reason.TRIED_TOO_OFTEN)]
    assert window.start == 1


def test_a_back_off_doubles_up_to_its_maximum() -> None:
    rules = Rules(backoff_ms=10, backoff_max_ms=35)
    assert [rules.pause(count) for count in (1, 2, 3, 4, 100)] == [10, 20, 35, 35, 35]
    assert Rules().pause(5) == 0


def test_nothing_of_a_refused_acknowledgement_counts() -> None:
    window = Window(0)
    window.extend(9)
    window.acquire("a", [(0, 4)], 10, RULES, 0)
    for wrong in (AckBatch(3, 5, b"\1"), AckBatch(4, 12, b"\1")):
        with pytest.raises(AckRefused):
            window.acknowledge("a", [AckBatch(0, 1, b"\1"), wrong], RULES, 0)
    with pytest.raises(AckRefused, match="renewed"):
        window.acknowledge("a", [AckBatch(0, 1, b"\1\4")], RULES, 0, may_renew=False)
    assert window.start == 0
