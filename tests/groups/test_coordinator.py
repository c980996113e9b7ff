"""The coordinator over the real log: what is answered is on disk, what is on disk comes back."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from headrace.broker.groups.codes import Code
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.messages import Leaver, Phase
from headrace.broker.groups.records import CommittedOffset
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.latest_records import last_of_each_key
from tests.groups.bench import Bench

DAY_MS = 24 * 3_600_000


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


# --- offsets ---


@in_loop
async def test_a_commit_is_answered_and_visible_once_it_is_on_disk() -> None:
    bench = Bench()
    waiting = await bench.start(bench.commit(5))
    assert not waiting.done()
    assert bench.groups.offset("g", "t", 0) is None
    await bench.sync()
    assert waiting.result() is Code.NONE
    committed = bench.groups.offset("g", "t", 0)
    assert committed is not None
    assert committed.offset == 5


@in_loop
async def test_what_was_answered_survives_a_crash_and_what_was_not_may_not() -> None:
    for seed in range(20):
        bench = Bench()
        await bench.ask(bench.commit(5))
        late = await bench.start(bench.commit(6))
        bench.crash(seed)
        committed = bench.groups.offset("g", "t", 0)
        assert committed is not None
        assert committed.offset in (5, 6)
        assert not late.done()
        late.cancel()


@in_loop
async def test_a_fetch_of_stable_offsets_waits_for_commits_under_way() -> None:
    bench = Bench()
    await bench.start(bench.commit(5))
    settled = await bench.start(bench.groups.settle())
    assert not settled.done()
    await bench.sync()
    assert settled.result() is Code.NONE
    assert bench.groups.offset("g", "t", 0) is not None


@in_loop
async def test_a_commit_into_an_unknown_group_needs_no_member_but_no_generation_either() -> None:
    bench = Bench()
    assert await bench.ask(bench.commit(1, generation=3, member_id="m")) is Code.GROUP_ID_NOT_FOUND
    assert await bench.ask(bench.commit(1)) is Code.NONE
    group = bench.groups.describe("g")
    assert group is not None
    assert group.phase is Phase.EMPTY
    assert group.protocol_type is None


@in_loop
async def test_one_request_is_one_batch() -> None:
    bench = Bench()
    value = CommittedOffset(1, -1, "", 0)
    before = bench.groups.journal.partition().end_offset
    await bench.ask(bench.groups.commit("g", "", None, -1, [("t", index, value) for index in range(4)]))
    partition = bench.groups.journal.partition()
    assert partition.end_offset - before == 4
    assert partition.read(before, 1).data[61 - 4 : 61] == (4).to_bytes(4, "big")


@in_loop
async def test_the_latest_of_many_commits_under_way_wins_before_and_after_a_restart() -> None:
    bench = Bench()
    tasks = [await bench.start(bench.commit(offset)) for offset in range(50)]
    await bench.sync()
    assert {task.result() for task in tasks} == {Code.NONE}
    for _ in range(2):
        committed = bench.groups.offset("g", "t", 0)
        assert committed is not None
        assert committed.offset == 49
        bench.crash(0)


@in_loop
async def test_a_full_disk_refuses_a_commit_and_works_again_when_there_is_room() -> None:
    bench = Bench()
    await bench.ask(bench.commit(1))
    bench.files.fail("write", OFFSETS_TOPIC, errno.ENOSPC)
    assert await bench.ask(bench.commit(2)) is Code.NOT_COORDINATOR
    bench.files.heal()
    committed = bench.groups.offset("g", "t", 0)
    assert committed is not None
    assert committed.offset == 1
    assert await bench.ask(bench.commit(3)) is Code.NONE


@in_loop
async def test_a_failed_sync_is_never_answered_as_success_and_reads_go_on() -> None:
    bench = Bench()
    await bench.ask(bench.commit(1))
    bench.files.fail("sync", OFFSETS_TOPIC)
    assert await bench.ask(bench.commit(2)) is Code.NOT_COORDINATOR
    bench.files.heal()
    assert await bench.ask(bench.commit(3)) is Code.NOT_COORDINATOR
    committed = bench.groups.offset("g", "t", 0)
    assert committed is not None
    assert committed.offset == 1


@in_loop
async def test_offsets_of_a_deleted_topic_are_removed() -> None:
    bench = Bench()
    bench.store.create_topic("u", 1)
    await bench.ask(bench.commit(1))
    await bench.ask(bench.commit(2, topic="u"))
    bench.store.delete_topic("u")
    bench.groups.on_topic_deleted("u")
    await bench.sync()
    assert list(bench.groups.offsets("g")) == [("t", 0)]
    bench.crash(0)
    assert list(bench.groups.offsets("g")) == [("t", 0)]


@in_loop
async def test_an_offset_of_an_earlier_topic_of_the_same_name_is_not_told() -> None:
    bench = Bench()
    await bench.ask(bench.commit(1))
    bench.store.delete_topic("t")
    bench.store.create_topic("t", 4)
    assert bench.groups.offset("g", "t", 0) is None
    await bench.ask(bench.commit(2))
    assert bench.groups.offset("g", "t", 0) is not None


@in_loop
async def test_when_the_offsets_topic_is_deleted_everything_begins_anew() -> None:
    bench = Bench()
    await bench.stable()
    await bench.ask(bench.commit(1, group="other"))
    waiting = await bench.start(bench.commit(2, group="other"))
    bench.store.delete_topic(OFFSETS_TOPIC)
    bench.groups.on_topic_deleted(OFFSETS_TOPIC)
    await bench.sync()
    assert waiting.result() is Code.NOT_COORDINATOR
    assert bench.groups.group_ids() == []
    assert await bench.ask(bench.commit(3)) is Code.NONE


# --- groups ---


@in_loop
async def test_a_stable_group_survives_a_crash_with_its_assignments() -> None:
    bench = Bench()
    a, b = await bench.stable(2)
    bench.crash(1)
    assert bench.groups.heartbeat("g", a, None, 1) is Code.NONE
    assert (await bench.ask(bench.sync_group(b, 1, {}))).assignment == b.encode()
    assert await bench.ask(bench.commit(5, member_id=b, generation=1)) is Code.NONE


@in_loop
async def test_after_a_crash_silent_members_are_dropped_and_the_empty_group_is_stored() -> None:
    bench = Bench()
    await bench.stable(2)
    bench.crash(1)
    await bench.pass_time(10_000)
    group = bench.groups.describe("g")
    assert group is not None
    assert group.phase is Phase.EMPTY
    assert bench.groups.journal.durable.groups["g"].members == ()


@in_loop
async def test_a_group_that_has_become_too_large_sends_its_last_members_away() -> None:
    bench = Bench()
    a, b = await bench.stable(2)
    bench.settings = GroupSettings(max_size=1)
    bench.crash(1)
    assert bench.groups.heartbeat("g", a, None, 1) is Code.REBALANCE_IN_PROGRESS
    first = await bench.start(bench.join(member_id=b))
    assert (await bench.ask(bench.join(member_id=a))).code is Code.GROUP_MAX_SIZE_REACHED
    assert first.result().generation == 2


@in_loop
async def test_a_leave_is_answered_when_the_empty_group_is_on_disk() -> None:
    bench = Bench()
    (a,) = await bench.stable()
    waiting = await bench.start(bench.groups.leave("g", [Leaver(a, None)]))
    assert not waiting.done()
    await bench.sync()
    assert waiting.result() == (Code.NONE, [Code.NONE])


@in_loop
async def test_a_group_whose_assignment_cannot_be_stored_rebalances_again() -> None:
    bench = Bench()
    waiting = await bench.start(bench.join())
    await bench.pass_time(100)
    member_id = waiting.result().member_id
    bench.groups.ensure_log()
    bench.files.fail("write", OFFSETS_TOPIC, errno.ENOSPC)
    assert (await bench.ask(bench.sync_group(member_id, 1, {}))).code is Code.NOT_COORDINATOR
    assert bench.groups.heartbeat("g", member_id, None, 1) is Code.REBALANCE_IN_PROGRESS
    bench.files.heal()
    again = await bench.start(bench.join(member_id=member_id))
    assert again.result().generation == 2
    assert (await bench.ask(bench.sync_group(member_id, 2, {}))).code is Code.NONE


@in_loop
async def test_a_member_without_heartbeats_is_dropped_by_the_clock() -> None:
    bench = Bench()
    (a,) = await bench.stable()
    await bench.pass_time(9_000)
    assert bench.groups.heartbeat("g", a, None, 1) is Code.NONE
    await bench.pass_time(9_999)
    assert bench.groups.heartbeat("g", a, None, 1) is Code.NONE
    await bench.pass_time(10_000)
    assert bench.groups.heartbeat("g", a, None, 1) is Code.UNKNOWN_MEMBER_ID


@in_loop
async def test_a_stall_of_the_broker_is_not_held_against_its_members() -> None:
    bench = Bench()
    (a,) = await bench.stable()
    bench.clock.advance(60_000)
    call = bench.timers.next_due(10**9)
    assert call is not None
    call[1]()
    assert bench.groups.heartbeat("g", a, None, 1) is Code.NONE
    await bench.pass_time(9_999)
    assert bench.groups.heartbeat("g", a, None, 1) is Code.NONE


@in_loop
async def test_a_client_that_goes_away_while_it_waits_does_no_harm() -> None:
    bench = Bench()
    waiting = await bench.start(bench.join())
    waiting.cancel()
    await bench.pass_time(100)
    (group_id,) = bench.groups.group_ids()
    assert group_id == "g"
    await bench.pass_time(10_000)
    group = bench.groups.describe("g")
    assert group is not None
    assert group.phase is Phase.EMPTY


@in_loop
async def test_joins_that_cannot_be_are_refused() -> None:
    bench = Bench()
    assert (await bench.ask(bench.join(""))).code is Code.INVALID_GROUP_ID
    assert (await bench.ask(bench.join("é" * 20_000))).code is Code.INVALID_GROUP_ID
    assert (await bench.ask(bench.join(session_timeout_ms=5_999))).code is Code.INVALID_SESSION_TIMEOUT
    assert (await bench.ask(bench.join(session_timeout_ms=1_800_001))).code is Code.INVALID_SESSION_TIMEOUT
    assert (await bench.ask(bench.join(member_id="m"))).code is Code.UNKNOWN_MEMBER_ID
    assert (await bench.ask(bench.join(instance="i" * 40_000))).code is Code.INVALID_REQUEST
    assert bench.groups.group_ids() == []


@in_loop
async def test_whoever_waits_is_told_at_shutdown() -> None:
    bench = Bench()
    waiting = await bench.start(bench.join())
    bench.groups.close()
    await bench.settle()
    assert waiting.result().code is Code.NOT_COORDINATOR


# --- deletion ---


@in_loop
async def test_a_group_without_members_is_deleted_with_its_offsets() -> None:
    bench = Bench()
    (a,) = await bench.stable()
    await bench.ask(bench.commit(5, member_id=a, generation=1))
    assert await bench.ask(bench.groups.delete_groups(["g", "none", "g"])) == {
        "g": Code.NON_EMPTY_GROUP,
        "none": Code.GROUP_ID_NOT_FOUND,
    }
    await bench.ask(bench.groups.leave("g", [Leaver(a, None)]))
    assert await bench.ask(bench.groups.delete_groups(["g"])) == {"g": Code.NONE}
    for _ in range(2):
        assert bench.groups.group_ids() == []
        assert bench.groups.offsets("g") == {}
        assert bench.groups.describe("g") is None
        bench.crash(2)


@in_loop
async def test_a_deletion_takes_a_commit_that_was_under_way_along() -> None:
    bench = Bench()
    commit = await bench.start(bench.commit(5))
    deletion = await bench.start(bench.groups.delete_groups(["g"]))
    await bench.sync()
    assert commit.result() is Code.NONE
    assert deletion.result() == {"g": Code.NONE}
    for _ in range(2):
        assert bench.groups.group_ids() == []
        assert bench.groups.offsets("g") == {}
        bench.crash(3)


@in_loop
async def test_who_joins_a_group_that_is_being_deleted_is_in_a_new_one() -> None:
    bench = Bench()
    await bench.ask(bench.commit(5))
    deletion = await bench.start(bench.groups.delete_groups(["g"]))
    joined = await bench.start(bench.join())
    await bench.sync()
    assert deletion.result() == {"g": Code.NONE}
    await bench.pass_time(100)
    assert joined.result().generation == 1


@in_loop
async def test_offsets_of_topics_that_are_read_cannot_be_deleted() -> None:
    bench = Bench()
    bench.store.create_topic("u", 1)
    (a,) = await bench.stable()
    await bench.ask(bench.commit(1, member_id=a, generation=1))
    await bench.ask(bench.commit(2, member_id=a, generation=1, topic="u"))
    assert await bench.ask(bench.groups.delete_offsets("g", [("t", 0), ("u", 0)])) == (
        Code.NONE,
        {("t", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): Code.NONE},
    )
    assert list(bench.groups.offsets("g")) == [("t", 0)]
    assert (await bench.ask(bench.groups.delete_offsets("none", [])))[0] is Code.GROUP_ID_NOT_FOUND
    assert (await bench.ask(bench.groups.delete_offsets("", [])))[0] is Code.INVALID_GROUP_ID


@in_loop
async def test_offsets_of_a_group_of_another_kind_cannot_be_deleted_while_it_has_members() -> None:
    bench = Bench()
    await bench.start(bench.join(protocol_type="connect"))
    assert (await bench.ask(bench.groups.delete_offsets("g", [("t", 0)])))[0] is Code.NON_EMPTY_GROUP


# --- expiry ---


@in_loop
async def test_a_groups_offsets_expire_a_week_after_its_last_member_left() -> None:
    bench = Bench()
    (a,) = await bench.stable()
    await bench.ask(bench.commit(5, member_id=a, generation=1))
    bench.clock.jump(30 * DAY_MS)
    bench.groups.expire()
    await bench.sync()
    assert bench.groups.offsets("g")
    await bench.ask(bench.groups.leave("g", [Leaver(a, None)]))
    bench.clock.jump(7 * DAY_MS - 1)
    bench.groups.expire()
    await bench.sync()
    assert bench.groups.offsets("g")
    bench.clock.jump(1)
    bench.groups.expire()
    await bench.sync()
    for _ in range(2):
        assert bench.groups.group_ids() == []
        assert bench.groups.offsets("g") == {}
        bench.crash(4)


@in_loop
async def test_offsets_of_a_simple_group_expire_a_week_after_their_commit() -> None:
    bench = Bench()
    await bench.ask(bench.commit(1, partition=0))
    bench.clock.jump(4 * DAY_MS)
    await bench.ask(bench.commit(2, partition=1))
    bench.clock.jump(3 * DAY_MS)
    bench.groups.expire()
    await bench.sync()
    assert list(bench.groups.offsets("g")) == [("t", 1)]


@in_loop
async def test_a_commit_into_an_empty_group_lives_for_a_week_of_its_own() -> None:
    bench = Bench()
    (a,) = await bench.stable()
    await bench.ask(bench.commit(5, member_id=a, generation=1))
    await bench.ask(bench.groups.leave("g", [Leaver(a, None)]))
    bench.clock.jump(6 * DAY_MS)
    await bench.ask(bench.commit(6, partition=1))
    bench.clock.jump(DAY_MS)
    bench.groups.expire()
    await bench.sync()
    assert list(bench.groups.offsets("g")) == [("t", 1)]


@in_loop
async def test_a_stable_group_forgets_topics_that_it_no_longer_reads() -> None:
    bench = Bench()
    bench.store.create_topic("u", 1)
    (a,) = await bench.stable()
    await bench.ask(bench.commit(5, member_id=a, generation=1))
    await bench.ask(bench.commit(5, member_id=a, generation=1, topic="u"))
    bench.clock.jump(7 * DAY_MS)
    bench.groups.expire()
    await bench.sync()
    assert list(bench.groups.offsets("g")) == [("t", 0)]


@in_loop
async def test_an_offset_with_its_own_retention_expires_by_it() -> None:
    bench = Bench()
    now_ms = bench.clock.now_ms()
    value = CommittedOffset(1, -1, "", now_ms, expire_ms=now_ms + 1000)
    await bench.ask(bench.groups.commit("g", "", None, -1, [("t", 0, value)]))
    bench.clock.jump(1000)
    bench.groups.expire()
    await bench.sync()
    assert bench.groups.group_ids() == []


@in_loop
async def test_an_empty_group_without_offsets_goes_at_the_next_check() -> None:
    bench = Bench(GroupSettings(offsets_retention_check_interval_ms=60_000))
    (a,) = await bench.stable()
    await bench.ask(bench.groups.leave("g", [Leaver(a, None)]))
    await bench.pass_time(60_000)
    assert bench.groups.group_ids() == []
    bench.crash(5)
    assert bench.groups.group_ids() == []


@in_loop
async def test_a_group_that_was_asked_for_and_never_joined_leaves_nothing() -> None:
    bench = Bench()
    answer = await bench.ask(bench.join(must_know_id=True))
    assert answer.code is Code.MEMBER_ID_REQUIRED
    await bench.pass_time(10_000)
    bench.groups.expire()
    assert bench.groups.group_ids() == []
    assert bench.changes() == []


@in_loop
async def test_a_clock_that_goes_back_expires_nothing() -> None:
    bench = Bench()
    await bench.ask(bench.commit(1))
    bench.clock.jump(-400 * DAY_MS)
    bench.groups.expire()
    await bench.sync()
    assert bench.groups.offsets("g")


# --- the log ---


@in_loop
async def test_a_record_that_cannot_be_read_is_left_out_and_the_rest_counts() -> None:
    bench = Bench()
    await bench.ask(bench.commit(1))
    partition = bench.groups.journal.partition()
    partition.append_records([(0, b"\x00\x01\x00", b"", []), (0, b"\x00\x09", b"x", [])], acks_all=True)
    await bench.ask(bench.commit(2, partition=1))
    bench.crash(6)
    assert list(bench.groups.offsets("g")) == [("t", 0), ("t", 1)]


@in_loop
async def test_very_many_changes_are_written_in_several_batches() -> None:
    bench = Bench()
    value = CommittedOffset(1, -1, "", bench.clock.now_ms())
    offsets = [("t", index, replace_metadata(value, str(index))) for index in range(21_000)]
    assert await bench.ask(bench.groups.commit("g", "", None, -1, offsets)) is Code.NONE
    assert len(bench.groups.offsets("g")) == 21_000
    assert await bench.ask(bench.groups.delete_groups(["g"])) == {"g": Code.NONE}
    assert bench.folded().offsets == {}


def replace_metadata(value: CommittedOffset, metadata: str) -> CommittedOffset:
    return value._replace(metadata=metadata)


@in_loop
async def test_the_offsets_topic_is_internal_compacted_and_has_one_partition() -> None:
    bench = Bench()
    assert OFFSETS_TOPIC not in bench.store.topics
    bench.groups.ensure_log()
    topic = bench.store.topics[OFFSETS_TOPIC]
    assert topic.internal
    assert topic.config.compact
    assert len(topic.partitions) == 1


@in_loop
async def test_a_damaged_part_of_the_log_is_told_and_the_rest_counts() -> None:
    bench = Bench()
    small = {"cleanup.policy": "compact", "internal.segment.bytes": "300"}
    bench.store.create_topic(OFFSETS_TOPIC, 1, small, internal=True)
    for number in range(20):
        await bench.ask(bench.commit(number, group=f"g{number}"))
    bench.store.close()
    first = bench.store.partition(OFFSETS_TOPIC, 0).segments[0].path
    bench.files.flip_bit(first, 100)
    bench.open()
    found = bench.groups.group_ids()
    assert 15 <= len(found) < 20
    assert found == [f"g{number}" for number in range(20)][-len(found) :]


@in_loop
async def test_only_the_last_record_of_a_key_is_decoded_at_start_up() -> None:
    bench = Bench()
    for number in range(300):
        await bench.ask(bench.commit(number, partition=number % 3))
    partition = bench.groups.journal.partition()
    records = list(last_of_each_key(partition))
    assert [record[0] for record in records] == [297, 298, 299]
    bench.crash(0)
    assert [committed.offset for committed in bench.groups.offsets("g").values()] == [297, 298, 299]
