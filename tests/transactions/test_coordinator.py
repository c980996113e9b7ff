"""The coordinator over a real log: what is durable when, what a crash leaves, who is fenced, what time does."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from headrace import _kernel
from headrace.broker import error_codes as codes
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.records import CommittedOffset
from headrace.broker.transactions.coordinator import Producer
from headrace.broker.transactions.journal import STATE_TOPIC
from headrace.broker.transactions.records import Phase
from headrace.errors import InvalidTransactionState
from tests.transactions.bench import Bench


def story(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


async def begun(bench: Bench, value: bytes = b"a", *, name: str = "x", timeout_ms: int = 60_000) -> Producer:
    """An old client with one batch in partition 0."""
    producer = await bench.producer(name, timeout_ms)
    await bench.ask(bench.add(producer, 0))
    assert bench.send(producer, value).code == 0
    await bench.sync_all()
    return producer


# --- committing and aborting ---


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
@story
async def test_a_transaction_becomes_visible_as_a_whole_or_not_at_all(version: int, commit: bool) -> None:
    bench = Bench()
    producer = await bench.producer()
    produce_version = 9 if version == 0 else 13
    if version == 0:
        await bench.ask(bench.add(producer, 0, 1))
    for partition in (0, 1):
        assert bench.send(producer, b"v%d" % partition, partition=partition, version=produce_version).code == 0
    await bench.sync_all()
    assert [bench.committed(0), bench.committed(1)] == [[], []]
    await bench.ask(bench.end(producer, commit, version=version))
    assert [bench.committed(0), bench.committed(1)] == ([[b"v0"], [b"v1"]] if commit else [[], []])
    assert bench.log(0).last_stable_offset == bench.log(0).end_offset == 2


@story
async def test_the_end_is_answered_after_the_decision_and_the_markers_are_on_disk() -> None:
    bench = Bench()
    producer = await begun(bench)
    task = await bench.start(bench.end(producer, True))
    assert bench.state().phase is Phase.PREPARE_COMMIT
    assert bench.log().end_offset == 1, "a marker before the decision is durable"
    await bench.sync()
    assert bench.log().end_offset == 2
    assert not task.done()
    await bench.sync()
    assert task.result() == (producer.producer_id, producer.epoch)
    assert bench.state().phase is Phase.COMPLETE_COMMIT


@pytest.mark.parametrize("how", ["kill", "lose_power"])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("syncs", [0, 1, 2])
@story
async def test_a_crash_between_prepare_and_complete_is_made_good_at_the_start(
    how: str, commit: bool, syncs: int
) -> None:
    bench = Bench()
    producer = await begun(bench)
    await bench.ask(bench.add_offsets(producer))
    assert await bench.ask(bench.commit_offset(producer, 7)) == 0
    await bench.start(bench.end(producer, commit))
    for _ in range(syncs):
        await bench.sync()
    getattr(bench, how)()
    await bench.sync_all()
    if how == "lose_power" and syncs == 0 and bench.state().phase is Phase.ONGOING:
        assert bench.committed() == []
        return
    assert bench.state().phase is (Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT)
    assert bench.committed() == ([b"a"] if commit else [])
    assert bench.offset() == (7 if commit else None)
    assert bench.log().last_stable_offset == bench.log().end_offset


@story
async def test_a_new_client_gets_a_new_epoch_with_each_end() -> None:
    bench = Bench()
    producer = await bench.producer()
    for number in range(3):
        assert bench.send(producer, b"%d" % number, version=12).code == 0
        await bench.sync_all()
        producer_id, epoch = await bench.ask(bench.end(producer, True, version=2))
        assert (producer_id, epoch) == (producer.producer_id, producer.epoch + 1)
        producer = Producer("x", producer_id, epoch)
    assert bench.committed() == [b"0", b"1", b"2"]


@story
async def test_epochs_that_run_out_give_a_new_producer_id() -> None:
    bench = Bench()
    producer = await bench.producer()
    last = replace(bench.state(), epoch=32_766)
    bench.transactions._write("x", last, lambda error: None)
    producer = producer._replace(epoch=32_766)
    assert bench.send(producer, b"a", version=12).code == 0
    after = Producer("x", *await bench.ask(bench.end(producer, True, version=2)))
    assert after.epoch == 0
    assert after.producer_id != producer.producer_id
    assert await bench.ask(bench.end(producer, True, version=2)) == tuple(after)[1:], "the same request again"
    assert bench.send(after, b"b", version=12).code == 0
    await bench.ask(bench.end(after, True, version=2))
    assert bench.committed() == [b"a", b"b"]


# --- late and wrong requests ---


@story
async def test_a_late_end_of_a_new_client_does_not_touch_the_next_transaction() -> None:
    bench = Bench()
    first = await bench.producer()
    bench.send(first, b"a", version=12)
    second = Producer("x", *await bench.ask(bench.end(first, True, version=2)))
    bench.send(second, b"b", version=12)
    assert await bench.refusal(bench.end(first, True, version=2)) == codes.PRODUCER_FENCED
    assert await bench.refusal(bench.end(first, False, version=2)) == codes.PRODUCER_FENCED
    assert bench.state().phase is Phase.ONGOING
    assert bench.committed() == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
@story
async def test_a_late_end_of_an_old_client_does_not_touch_a_transaction_of_a_later_connection(commit: bool) -> None:
    bench = Bench()
    producer = await begun(bench)
    await bench.ask(bench.end(producer, commit, connection_id=2))
    await bench.ask(bench.add(producer, 0, connection_id=2))
    bench.send(producer, b"b", 1)
    assert await bench.refusal(bench.end(producer, commit, connection_id=1)) == codes.INVALID_TXN_STATE
    assert bench.state().phase is Phase.ONGOING
    await bench.ask(bench.end(producer, True, connection_id=2))
    assert bench.committed() == ([b"a", b"b"] if commit else [b"b"])


@story
async def test_an_end_that_is_under_way_is_not_ended_otherwise() -> None:
    bench = Bench()
    producer = await begun(bench)
    task = await bench.start(bench.end(producer, True))
    assert await bench.refusal(bench.end(producer, False)) == codes.INVALID_TXN_STATE
    await bench.sync_all()
    assert task.done()
    assert bench.committed() == [b"a"]


@story
async def test_nothing_is_added_to_a_transaction_that_is_ending() -> None:
    bench = Bench()
    producer = await begun(bench)
    await bench.start(bench.end(producer, True))
    with pytest.raises(Exception, match="still being completed"):
        await bench.add(producer, 1)
    assert bench.send(producer, b"late", 1).code == codes.NOT_ENOUGH_REPLICAS
    assert bench.send(producer, b"late", 1, version=12).code == codes.CONCURRENT_TRANSACTIONS
    await bench.sync_all()
    assert bench.committed() == [b"a"]


@story
async def test_an_old_client_must_add_a_partition_before_it_writes_there() -> None:
    bench = Bench()
    producer = await begun(bench)
    assert bench.send(producer, b"b", partition=1, version=10).code == codes.INVALID_TXN_STATE
    assert bench.send(producer, b"b", partition=1, version=11).code == codes.TRANSACTION_ABORTABLE
    assert bench.log(1).end_offset == 0


@story
async def test_a_transaction_is_never_begun_by_someone_unknown() -> None:
    bench = Bench()
    nobody = Producer("nobody", 77, 0)
    for call in (bench.add(nobody, 0), bench.add_offsets(nobody), bench.end(nobody, True)):
        assert await bench.refusal(call) == codes.INVALID_PRODUCER_ID_MAPPING
    assert bench.send(nobody, b"v", version=12).code == codes.INVALID_PRODUCER_ID_MAPPING
    assert bench.transactions.transactions() == {}


@story
async def test_a_plain_batch_of_a_producer_in_a_transaction_is_refused() -> None:
    bench = Bench()
    producer = await begun(bench)
    plain = _kernel.build_batch(
        [(0, None, b"v", [])], producer_id=producer.producer_id, producer_epoch=0, base_sequence=1
    )
    with pytest.raises(InvalidTransactionState):
        bench.log().append(plain, acks_all=True)


# --- zombies ---


@pytest.mark.parametrize("version", [0, 2])
@story
async def test_who_takes_an_id_fences_its_predecessor_and_aborts_its_transaction(version: int) -> None:
    bench = Bench()
    zombie = await begun(bench)
    assert await bench.refusal(bench.init()) == codes.CONCURRENT_TRANSACTIONS
    successor = await bench.producer()
    assert successor.producer_id == zombie.producer_id
    assert successor.epoch > zombie.epoch + 1
    assert bench.committed() == []
    assert bench.send(zombie, b"z", 1).code == codes.INVALID_PRODUCER_EPOCH
    assert bench.send(zombie, b"z", 1, version=12).code == codes.INVALID_PRODUCER_EPOCH
    assert await bench.refusal(bench.add(zombie, 0)) == codes.PRODUCER_FENCED
    assert await bench.refusal(bench.end(zombie, True, version=version)) == codes.PRODUCER_FENCED
    assert await bench.refusal(bench.commit_offset(zombie, 1)) == codes.PRODUCER_FENCED
    assert await bench.refusal(bench.init(expected=(zombie.producer_id, zombie.epoch))) == codes.PRODUCER_FENCED


@story
async def test_a_zombie_that_names_its_epoch_does_not_abort_its_successor() -> None:
    bench = Bench()
    zombie = await bench.producer()
    successor = await begun(bench)
    assert await bench.refusal(bench.init(expected=(zombie.producer_id, zombie.epoch))) == codes.PRODUCER_FENCED
    assert bench.state().phase is Phase.ONGOING
    await bench.ask(bench.end(successor, True))
    assert bench.committed() == [b"a"]


@story
async def test_an_answer_that_got_lost_is_given_again_also_after_a_restart() -> None:
    bench = Bench()
    first = await bench.producer()
    expected = (first.producer_id, first.epoch)
    given = await bench.ask(bench.init(expected=expected))
    bench.kill()
    assert await bench.ask(bench.init(expected=expected)) == given


# --- time ---


@story
async def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced() -> None:
    bench = Bench()
    producer = await begun(bench, timeout_ms=5_000)
    await bench.pass_time(4_900)
    assert bench.state().phase is Phase.ONGOING
    await bench.pass_time(200)
    assert bench.state().phase is Phase.COMPLETE_ABORT
    assert bench.log().last_stable_offset == bench.log().end_offset
    assert await bench.refusal(bench.end(producer, True)) == codes.PRODUCER_FENCED
    assert bench.send(producer, b"b", 1).code == codes.INVALID_PRODUCER_EPOCH
    assert bench.committed() == []


@story
async def test_a_new_client_goes_on_after_its_transaction_was_too_slow() -> None:
    bench = Bench()
    producer = await bench.producer(timeout_ms=5_000)
    bench.send(producer, b"a", version=12)
    await bench.sync_all()
    await bench.pass_time(6_000)
    assert await bench.refusal(bench.end(producer, True, version=2)) == codes.INVALID_TXN_STATE
    after = Producer("x", *await bench.ask(bench.end(producer, False, version=2)))
    assert bench.send(after, b"b", version=12).code == 0
    await bench.ask(bench.end(after, True, version=2))
    assert bench.committed() == [b"b"]


@pytest.mark.parametrize("offline_ms", [0, 3_000, 60_000])
@story
async def test_the_time_goes_on_while_the_node_is_down(offline_ms: int) -> None:
    bench = Bench()
    await begun(bench, timeout_ms=5_000)
    bench.clock.advance(offline_ms)
    bench.kill()
    await bench.pass_time(max(4_900 - offline_ms, 0))
    assert (bench.state().phase is Phase.ONGOING) == (offline_ms < 5_000)
    await bench.pass_time(200)
    assert bench.state().phase is Phase.COMPLETE_ABORT


@story
async def test_a_clock_that_jumps_does_not_end_transactions() -> None:
    bench = Bench()
    producer = await begun(bench, timeout_ms=5_000)
    bench.clock.jump(24 * 3_600_000)
    await bench.pass_time(1_000)
    bench.clock.jump(-48 * 3_600_000)
    await bench.pass_time(1_000)
    await bench.ask(bench.end(producer, True))
    assert bench.committed() == [b"a"]


@story
async def test_ids_that_nobody_uses_are_forgotten_but_not_open_ones() -> None:
    bench = Bench()
    await begun(bench, name="open", timeout_ms=900_000)
    await bench.producer("idle")
    bench.clock.jump(8 * 24 * 3_600_000)
    bench.transactions.expire()
    await bench.sync_all()
    assert list(bench.transactions.transactions()) == ["open"]
    bench.kill()
    assert list(bench.transactions.transactions()) == ["open"]


# --- offsets ---


@story
async def test_offsets_of_a_transaction_are_committed_with_it() -> None:
    bench = Bench()
    producer = await begun(bench)
    await bench.ask(bench.add_offsets(producer))
    assert await bench.ask(bench.commit_offset(producer, 5)) == 0
    assert bench.offset() is None
    assert bench.groups.is_unstable("g", "t", 0)
    await bench.ask(bench.end(producer, True))
    assert bench.offset() == 5
    assert not bench.groups.is_unstable("g", "t", 0)


@story
async def test_of_two_commits_the_one_whose_end_came_last_counts_also_after_compaction() -> None:
    bench = Bench()
    producer = await begun(bench)
    await bench.ask(bench.add_offsets(producer))
    assert await bench.ask(bench.commit_offset(producer, 5)) == 0
    plain = CommittedOffset(9, -1, "", bench.clock.now_ms())
    assert await bench.ask(bench.groups.commit("g", "", None, -1, [("t", 0, plain)])) == 0
    assert bench.offset() == 9
    await bench.ask(bench.end(producer, True))
    assert bench.offset() == 5
    compact(bench)
    bench.kill()
    assert bench.offset() == 5


def compact(bench: Bench) -> None:
    """Let compaction pass over all of the groups' log."""
    partition = bench.store.partition(OFFSETS_TOPIC, 0)
    bench.store.set_overrides(
        OFFSETS_TOPIC, {**bench.store.topic(OFFSETS_TOPIC).overrides, "min.cleanable.dirty.ratio": "0.01"}
    )
    before = len(list(partition.replay()))
    partition.roll()
    for job in bench.store.jobs():
        job.run()
        job.finish()
    assert len(list(partition.replay())) < before


@story
async def test_an_offset_does_not_expire_while_a_transaction_may_change_it() -> None:
    bench = Bench()
    plain = CommittedOffset(9, -1, "", bench.clock.now_ms())
    await bench.ask(bench.groups.commit("g", "", None, -1, [("t", 0, plain), ("t", 1, plain)]))
    producer = await begun(bench, timeout_ms=900_000)
    await bench.ask(bench.add_offsets(producer))
    await bench.ask(bench.commit_offset(producer, 5))
    bench.clock.jump(30 * 24 * 3_600_000)
    bench.groups.expire()
    await bench.sync_all()
    assert (bench.offset(0), bench.offset(1)) == (9, None)
    await bench.ask(bench.end(producer, False))
    assert bench.offset() == 9


@story
async def test_offsets_of_a_topic_that_was_deleted_meanwhile_are_not_kept() -> None:
    bench = Bench()
    producer = await begun(bench)
    await bench.ask(bench.add_offsets(producer))
    await bench.ask(bench.commit_offset(producer, 5))
    bench.store.delete_topic("t")
    bench.groups.on_topic_deleted("t")
    bench.transactions.on_topic_deleted("t")
    await bench.ask(bench.end(producer, True))
    assert bench.offset() is None
    assert bench.state().phase is Phase.COMPLETE_COMMIT


# --- bad days ---


@story
async def test_what_a_partition_has_open_and_nobody_knows_is_aborted_at_the_start() -> None:
    bench = Bench()
    producer = await bench.producer()
    bench.send(producer, b"a", version=12)
    log = bench.log()
    job = log.start_sync()
    assert job is not None
    job.run()
    log.finish_sync(job)
    for seed in range(50):
        lost = Bench.__new__(Bench)
        lost.__dict__.update(bench.__dict__)
        lost.lose_power(seed)
        if lost.state().phase is not Phase.ONGOING:
            break
    else:
        pytest.fail("no crash lost the state's record")
    await lost.sync_all()
    assert lost.log().end_offset == 2
    assert lost.log().last_stable_offset == 2
    assert lost.committed() == []
    assert lost.send(producer, b"a", version=12).code == codes.INVALID_PRODUCER_EPOCH, "a repeat is not taken for done"
    after = Producer("x", *await lost.ask(lost.end(producer, False, version=2)))
    assert lost.send(after, b"b", version=12).code == 0
    await lost.ask(lost.end(after, True, version=2))
    assert lost.committed() == [b"b"]


@story
async def test_a_batch_is_acknowledged_after_the_record_that_makes_it_part_of_the_transaction() -> None:
    bench = Bench()
    producer = await bench.producer()
    sent = bench.send(producer, b"a", version=12)
    again = bench.send(producer, b"b", 1, version=12)
    for partition in (bench.log(),):
        job = partition.start_sync()
        assert job is not None
        job.run()
        partition.finish_sync(job)
    assert not sent.acknowledged
    assert not again.acknowledged
    await bench.sync_all()
    assert sent.acknowledged
    assert again.acknowledged


@story
async def test_a_marker_that_finds_no_room_is_written_when_there_is_some() -> None:
    bench = Bench()
    producer = await bench.producer()
    await bench.ask(bench.add(producer, 0, 1))
    bench.send(producer, b"a")
    bench.send(producer, b"b", partition=1)
    await bench.sync_all()
    bench.files.fail("write", "topics/t/1", errno.ENOSPC)
    await bench.ask(bench.end(producer, True))
    assert bench.state().phase is Phase.PREPARE_COMMIT
    assert (bench.committed(0), bench.committed(1)) == ([b"a"], [])
    assert await bench.refusal(bench.add(producer, 0)) == codes.CONCURRENT_TRANSACTIONS
    bench.files.heal()
    await bench.pass_time(2_000)
    assert bench.state().phase is Phase.COMPLETE_COMMIT
    assert (bench.committed(0), bench.committed(1)) == ([b"a"], [b"b"])


@story
async def test_a_topic_that_is_deleted_does_not_hold_up_the_end() -> None:
    bench = Bench()
    producer = await begun(bench)
    bench.store.delete_topic("t")
    bench.transactions.on_topic_deleted("t")
    await bench.ask(bench.end(producer, True))
    assert bench.state().phase is Phase.COMPLETE_COMMIT


@story
async def test_without_the_state_topic_open_transactions_are_aborted() -> None:
    bench = Bench()
    producer = await begun(bench)
    bench.store.delete_topic(STATE_TOPIC)
    bench.transactions.on_topic_deleted(STATE_TOPIC)
    await bench.sync_all()
    assert bench.log().last_stable_offset == bench.log().end_offset
    assert bench.committed() == []
    assert await bench.refusal(bench.end(producer, True)) == codes.INVALID_PRODUCER_ID_MAPPING


@story
async def test_an_id_whose_record_is_damaged_is_not_served_and_its_transactions_stay() -> None:
    bench = Bench()
    producer = await begun(bench)
    await begun(bench, b"b", name="other")
    state = bench.store.partition(STATE_TOPIC, 0)
    key = b"\0\0\0\1x"
    state.append_records([(bench.clock.now_ms(), key, b"\0\x07nonsense", [])], acks_all=True)
    bench.kill()
    await bench.sync_all()
    for call in (bench.init(), bench.end(producer, True), bench.add(producer, 1)):
        assert await bench.refusal(call) == codes.UNKNOWN_SERVER_ERROR
    assert bench.log().last_stable_offset == 0, "nobody knows how it ends"
    assert bench.state("other").phase is Phase.ONGOING
    assert [record[3] for record in state.replay()][-1] == b"\0\x07nonsense"


@pytest.mark.parametrize("name", ["", "x" * 40_000, "ü" * 20_000])
@story
async def test_names_that_cannot_be_stored_are_refused(name: str) -> None:
    bench = Bench()
    assert await bench.refusal(bench.init(name)) == codes.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
@story
async def test_timeouts_that_cannot_be_are_refused(timeout_ms: int) -> None:
    bench = Bench()
    assert await bench.refusal(bench.init(timeout_ms=timeout_ms)) == codes.INVALID_TRANSACTION_TIMEOUT
