"""Dead letters: every record that a group gives up is copied once, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace import _kernel
from headrace.broker.broker import Broker
from headrace.broker.shares.journal import STATE_TOPIC
from headrace.broker.shares.records import DeadLetters, ShareChange, ShareKey, decode, encode
from headrace.broker.shares.window import Dead, Reason
from headrace.errors import StorageFull
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.testing.broker import EmbeddedBroker
from tests.shares.member import ACCEPT, REJECT, RELEASE, Bench, until

ODD = (("name", b"\xff\x00"), ("name", None), ("ümlaut", b""))


def letters(broker: EmbeddedBroker, topic: str) -> list[Any]:
    def look(running: Broker) -> list[Any]:
        found = running.store.topics.get(topic)
        return [] if found is None else [one for log in found.partitions for one in log.replay()]

    return broker.look(look)


def told(headers: list[tuple[str, bytes | None]]) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in headers if name.startswith("__dlq.errors.")}


def waiting(bench: Bench) -> int:
    def look(broker: Broker) -> int:
        share = broker.shares.look(ShareKey(bench.group, bench.topic_id.bytes, 0))
        return sum(run.last - run.first + 1 for run in share.dead.runs) if share and share.dead else 0

    return bench.broker.look(look)


def test_a_copy_is_the_original_and_says_where_it_came_from(bench: Bench) -> None:
    bench.set(headrace_dead_letter_topic="dead.one", share_delivery_count_limit="2")
    bench.write([(5, b"\x00key", b"value", ODD), (6, None, None, ()), (7, b"fine", b"fine", ())])
    one = bench.member("one")
    one.opened()
    one.settle((0, 0, REJECT), (1, 1, RELEASE), (2, 2, ACCEPT))
    assert one.got() == [(1, 1, 2)]
    one.settle((1, 1, RELEASE))
    found = until(lambda: len(copies := letters(bench.broker, "dead.one")) == 2 and copies)
    assert [(key, value) for _, _, key, value, _ in found] == [(b"\x00key", b"value"), (None, None)]
    assert tuple(found[0][4][:3]) == ODD
    assert told(found[0][4]) == {
        "topic": bench.topic.encode(),
        "partition": b"0",
        "offset": b"0",
        "group": bench.group.encode(),
        "delivery.count": b"1",
        "message": b"rejected by a consumer",
        "timestamp": b"5",
    }
    assert told(found[1][4])["message"] == b"delivered too often"
    assert told(found[1][4])["delivery.count"] == b"2"


def test_many_at_once_and_compressed(bench: Bench) -> None:
    bench.set(headrace_dead_letter_topic="dead.many")
    for codec in range(5):
        bench.write([(5, b"k", b"x" * 3000, ())] * 300, codec=codec)
    one = bench.member("one")
    got: list[tuple[int, int, int]] = []
    while not got or got[-1][1] < 1499:
        got += one.got(wait=5000, records=2000, max_bytes=1 << 24)
    one.settle((0, 1499, REJECT))
    found = until(lambda: len(copies := letters(bench.broker, "dead.many")) == 1500 and copies)
    assert [int(told(headers)["offset"] or b"") for *_, headers in found] == list(range(1500))
    until(lambda: waiting(bench) == 0)


def test_a_topic_that_cannot_be_written_holds_up_nobody(bench: Bench, monkeypatch: Any) -> None:
    bench.set(headrace_dead_letter_topic="dead.full", share_partition_max_record_locks="100")
    bench.create("dead.full")
    append = PartitionLog.append

    def full(self: PartitionLog, *given: Any, **how: Any) -> Any:
        if self.topic == "dead.full":
            raise StorageFull("no room")
        return append(self, *given, **how)

    monkeypatch.setattr(PartitionLog, "append", full)
    for _ in range(30):
        bench.fill(*[b"x"] * 10)
    one = bench.member("one")
    assert one.opened(records=100) == [(0, 99, 1)]
    one.settle((0, 99, REJECT))
    assert one.got(records=100) == [(100, 199, 1)]
    one.settle((100, 199, ACCEPT))
    assert waiting(bench) == 100
    monkeypatch.undo()
    until(lambda: len(letters(bench.broker, "dead.full")) == 100)
    until(lambda: waiting(bench) == 0)


def test_another_topic_takes_what_waits(bench: Bench) -> None:
    bench.set(headrace_dead_letter_topic="..dead")
    bench.create("__dead")
    bench.fill(b"x")
    one = bench.member("one")
    one.opened()
    one.settle((0, 0, REJECT))
    assert waiting(bench) == 1, "there cannot be two topics whose names differ in dots and underscores"
    bench.set(headrace_dead_letter_topic="dead.other")
    until(lambda: len(letters(bench.broker, "dead.other")) == 1)


def test_a_crash_between_the_copy_and_the_note_of_it_copies_nothing_twice(folder: Path) -> None:
    with EmbeddedBroker(folder) as broker:
        bench = Bench(broker, headrace_dead_letter_topic="dead")
        bench.fill(*[b"%d" % n for n in range(6)])
        one = bench.member("one")
        one.opened()
        one.settle((0, 3, REJECT))
        until(lambda: len(letters(broker, "dead")) == 4)
        until(lambda: waiting(bench) == 0)
        bench.close()
    _say_that_they_wait(folder, [Dead(1, 2, 1, Reason.REJECTED), Dead(5, 5, 1, Reason.REJECTED)])
    with EmbeddedBroker(folder) as broker:
        bench.broker = broker
        found = until(lambda: len(copies := letters(broker, "dead")) == 5 and copies)
        assert [int(told(headers)["offset"] or b"") for *_, headers in found] == [0, 1, 2, 3, 5]
        until(lambda: waiting(bench) == 0)


def _say_that_they_wait(folder: Path, runs: list[Dead]) -> None:
    """Write the state record that the crash left as the last one."""
    store = LogStore.open(folder)
    log = store.partition(STATE_TOPIC, 0)
    *_, (_, _, key, value, _) = log.replay()
    change = decode(key, value)
    assert change is not None
    assert change.value is not None
    dead = DeadLetters("dead", store.topic("dead").id.bytes, 0, 0, tuple(runs))
    record = encode(ShareChange(change.key, _with(change.value, dead)))
    log.append_records([(0, *record, ())], acks_all=True)
    store.close()


def _with(state: Any, dead: DeadLetters) -> Any:
    from dataclasses import replace

    return replace(state, dead=dead)


def test_states_are_read_as_they_were_written() -> None:
    from headrace.broker.shares.records import ShareState
    from headrace.broker.shares.window import Kept, State

    key = ShareKey("grüppe", b"i" * 16, 3)
    dead = DeadLetters("dead", b"d" * 16, 2, 77, (Dead(1, 2, 3, Reason.REJECTED),))
    runs = (Kept(5, 6, State.AVAILABLE, 2), Kept(9, 2**40, State.ARCHIVED, 0))
    for value in (None, ShareState(1, 2, 3, 4, 5, 6, runs, 9, dead), ShareState(1, 2, 3, 4, 5, 6, ())):
        change = ShareChange(key, value)
        assert decode(*encode(change)) == change
    assert _kernel.copy_records(b"", [], now_ms=0, offset_header=b"o", timestamp_header=b"t") == (b"", 0)
