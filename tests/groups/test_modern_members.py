"""Consumer groups and share groups over the real log: what is answered is on disk, who is late is out, and a group
changes its protocol while it works."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from headrace.broker.groups.codes import Code
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.messages import Leaver, Phase
from headrace.broker.groups.modern_group import phase_of
from headrace.broker.groups.modern_messages import HeartbeatAnswer, HeartbeatRequest, ModernPhase
from headrace.broker.groups.modern_records import GroupType, MemberState, Partitions
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.groups.subscription import encode_assignment
from tests.groups.bench import Bench
from tests.groups.lab import subscription


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def beat(
    bench: Bench,
    member_id: str,
    epoch: int = 0,
    *,
    group: str = "g",
    kind: GroupType = GroupType.CONSUMER,
    topics: tuple[str, ...] | None = ("t",),
    owned: Partitions | None = None,
    instance: str | None = None,
    regex: str | None = None,
    timeout_ms: int = 60_000,
) -> Coroutine[Any, Any, HeartbeatAnswer]:
    owned = {} if epoch == 0 and owned is None else owned
    request = HeartbeatRequest(member_id, epoch, "c", "/h", instance, None, timeout_ms, topics, regex, None, owned)
    call = bench.groups.share_heartbeat if kind is GroupType.SHARE else bench.groups.consumer_heartbeat
    return call(group, request)


def size(answer: HeartbeatAnswer) -> int | None:
    return None if answer.assignment is None else sum(map(len, answer.assignment.values()))


def phase(bench: Bench, group: str = "g") -> str | None:
    listed = bench.groups.listed(group)
    return None if listed is None else f"{listed.type} {listed.state}"


@in_loop
async def test_a_join_is_answered_and_visible_once_it_is_on_disk() -> None:
    bench = Bench()
    waiting = await bench.start(beat(bench, "m1"))
    assert not waiting.done()
    assert bench.groups.describe_modern("g") is None
    await bench.sync()
    assert size(waiting.result()) == 4
    assert phase(bench) == "consumer Stable"


@in_loop
async def test_a_heartbeat_that_changes_nothing_waits_for_what_it_saw() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1"))
    joining = await bench.start(beat(bench, "m2"))
    quiet = await bench.start(beat(bench, "m1", 2, topics=None))
    assert not joining.done()
    assert not quiet.done()
    await bench.sync()
    assert quiet.result().code is Code.NONE


@in_loop
async def test_a_restarted_broker_knows_its_members_and_gives_them_time() -> None:
    bench = Bench()
    for kind, group in ((GroupType.CONSUMER, "g"), (GroupType.SHARE, "s")):
        await bench.ask(beat(bench, "m1", group=group, kind=kind))
    await bench.pass_time(30_000)
    bench.crash(0)
    await bench.pass_time(30_000)
    for kind, group in ((GroupType.CONSUMER, "g"), (GroupType.SHARE, "s")):
        answer = await bench.ask(beat(bench, "m1", 2, group=group, kind=kind, topics=None))
        assert (answer.code, answer.member_epoch) == (Code.NONE, 2)
    await bench.pass_time(46_000)
    assert (phase(bench), phase(bench, "s")) == ("consumer Empty", "share Empty")


@in_loop
async def test_a_silent_member_is_out_after_its_session_timeout() -> None:
    bench = Bench()
    for kind, group in ((GroupType.CONSUMER, "g"), (GroupType.SHARE, "s")):
        await bench.ask(beat(bench, "m1", group=group, kind=kind))
        await bench.pass_time(44_000)
        assert (await bench.ask(beat(bench, "m1", 2, group=group, kind=kind, topics=None))).code is Code.NONE
        await bench.pass_time(44_000)
        await bench.ask(beat(bench, "m2", group=group, kind=kind))
        await bench.pass_time(2_000)
        late = await bench.ask(beat(bench, "m1", 2, group=group, kind=kind, topics=None))
        assert late.code is Code.UNKNOWN_MEMBER_ID
        state = bench.groups.describe_modern(group)
        assert state is not None
        assert list(state.subscriptions) == ["m2"]


@in_loop
async def test_a_member_that_does_not_let_go_in_time_is_out() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1", timeout_ms=10_000))
    await bench.pass_time(1000)
    await bench.ask(beat(bench, "m2"))
    await bench.ask(beat(bench, "m1", 2, topics=None, timeout_ms=-1))
    state = bench.groups.describe_modern("g")
    assert state is not None
    assert state.current_of("m1").state is MemberState.UNREVOKED
    await bench.pass_time(9_000)
    assert (await bench.ask(beat(bench, "m1", 2, topics=None, timeout_ms=-1))).code is Code.NONE
    await bench.pass_time(2_000)
    assert (await bench.ask(beat(bench, "m1", 2, topics=None, timeout_ms=-1))).code is Code.UNKNOWN_MEMBER_ID
    answer = await bench.ask(beat(bench, "m2", 3, topics=None))
    assert size(answer) == 4


@in_loop
async def test_a_static_member_that_left_for_a_while_has_its_session_timeout_to_come_back() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1", instance="i"))
    await bench.ask(beat(bench, "m1", -2, instance="i"))
    await bench.pass_time(44_000)
    back = await bench.ask(beat(bench, "m2", instance="i"))
    assert (back.code, size(back)) == (Code.NONE, 4)
    await bench.ask(beat(bench, "m2", -2, instance="i"))
    await bench.pass_time(46_000)
    assert phase(bench) == "consumer Empty"


@in_loop
async def test_a_target_that_had_to_wait_is_made_without_a_heartbeat() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1"))
    await bench.ask(beat(bench, "m2"))
    assert phase(bench) == "consumer Assigning"
    await bench.pass_time(1_000)
    assert phase(bench) == "consumer Reconciling"


@in_loop
async def test_topics_that_grow_are_assigned_at_the_next_heartbeat() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1"))
    await bench.ask(beat(bench, "m2", group="r", topics=None, regex="t|u"))
    bench.store.add_partitions("t", 6)
    bench.store.create_topic("u", 2)
    await bench.pass_time(1_000)
    assert size(await bench.ask(beat(bench, "m1", 2, topics=None))) == 6
    assert size(await bench.ask(beat(bench, "m2", 2, group="r", topics=None))) == 8


@in_loop
async def test_a_full_disk_refuses_a_join_and_nothing_has_happened() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1"))
    bench.files.fail("write", OFFSETS_TOPIC, errno.ENOSPC)
    assert (await bench.ask(beat(bench, "m2"))).code is Code.NOT_COORDINATOR
    assert (await bench.ask(beat(bench, "m1", -1))).code is Code.NOT_COORDINATOR
    bench.files.heal()
    state = bench.groups.modern("g")
    assert state is not None
    assert list(state.subscriptions) == ["m1"]
    assert (await bench.ask(beat(bench, "m2"))).code is Code.NONE


@in_loop
async def test_names_that_cannot_be_stored_are_refused() -> None:
    bench = Bench()
    assert (await bench.ask(beat(bench, "m1", group="é" * 20_000))).code is Code.INVALID_REQUEST
    assert (await bench.ask(beat(bench, "m" * 40_000))).code is Code.INVALID_REQUEST
    assert (await bench.ask(beat(bench, "m1", topics=None, regex="a" * 40_000))).code is not Code.NONE
    assert (await bench.ask(beat(bench, "m1"))).code is Code.NONE


@in_loop
async def test_an_empty_group_goes_with_its_last_offset_and_a_share_group_stays() -> None:
    bench = Bench()
    for kind, group in ((GroupType.CONSUMER, "g"), (GroupType.SHARE, "s")):
        await bench.ask(beat(bench, "m1", group=group, kind=kind))
    await bench.ask(bench.commit(5, member_id="m1", generation=2))
    await bench.ask(beat(bench, "m1", -1))
    await bench.ask(beat(bench, "m1", -1, group="s", kind=GroupType.SHARE))
    bench.clock.jump(6 * 86_400_000)
    bench.groups.expire()
    await bench.sync()
    assert bench.groups.group_ids() == ["g", "s"]
    bench.clock.jump(2 * 86_400_000)
    bench.groups.expire()
    await bench.sync()
    assert bench.groups.group_ids() == ["s"]


# --- two protocols in one group ---


async def classic(bench: Bench, group: str = "g") -> str:
    """A stable classic group of one consumer that has all of the topic."""
    joining = await bench.start(bench.join(group))
    while not joining.done():
        await bench.pass_time(100)
    member_id = joining.result().member_id
    given = encode_assignment(1, {"t": (0, 1, 2, 3)})
    answer = await bench.ask(bench.sync_group(member_id, 1, {member_id: given}, group))
    assert answer.assignment == given
    return member_id


def owning(*partitions: int) -> tuple[tuple[str, bytes], ...]:
    owned = (
        b""
        if not partitions
        else struct.pack(">hc", 1, b"t") + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    )
    head = b"\x00\x01" + subscription("t")[2:]
    return (("range", head + struct.pack(">i", bool(partitions)) + owned),)


@in_loop
async def test_a_group_is_upgraded_and_downgraded_while_it_works() -> None:
    bench = Bench()
    old = await classic(bench)
    assert size(await bench.ask(beat(bench, "m1"))) == 0
    assert phase(bench) == "consumer Reconciling"
    assert bench.groups.heartbeat("g", old, None, 1) is Code.REBALANCE_IN_PROGRESS
    joined = await bench.ask(bench.join("g", old, protocols=owning(0, 1, 2, 3)))
    assert (joined.code, joined.generation) == (Code.NONE, 1)
    assert bench.groups.heartbeat("g", old, None, 1) is Code.REBALANCE_IN_PROGRESS
    joined = await bench.ask(bench.join("g", old, protocols=owning()))
    assert joined.generation == 2
    assert (await bench.ask(bench.sync_group(old, 2, {}))).assignment == encode_assignment(1, {"t": (0, 1)})
    assert size(await bench.ask(beat(bench, "m1", 2, topics=None))) == 2
    bench.crash(0)
    assert bench.groups.heartbeat("g", old, None, 2) is Code.NONE
    assert await bench.ask(bench.commit(7, member_id=old, generation=2)) is Code.NONE
    await bench.ask(beat(bench, "m1", -1))
    assert phase(bench) == "classic PreparingRebalance"
    assert bench.groups.heartbeat("g", old, None, 2) is Code.REBALANCE_IN_PROGRESS
    again = await bench.start(bench.join("g", old))
    assert again.result().leader == old
    assert bench.groups.offset("g", "t", 0) is not None


@in_loop
async def test_a_downgraded_group_is_a_classic_group_after_a_crash_too() -> None:
    bench = Bench()
    old = await classic(bench)
    await bench.ask(beat(bench, "m1"))
    await bench.ask(beat(bench, "m1", -1))
    bench.crash(0)
    group = bench.groups.describe("g")
    assert group is not None
    assert (group.phase, list(group.members), group.generation) == (Phase.STABLE, [old], 2)


@in_loop
async def test_a_classic_member_that_never_syncs_or_never_comes_back_is_out() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1"))
    joined = await bench.ask(bench.join("g", rebalance_timeout_ms=20_000, session_timeout_ms=60_000))
    for _ in range(4):
        await bench.pass_time(6_000)
        await bench.ask(beat(bench, "m1", 2, topics=None, owned={}))
    code = bench.groups.heartbeat("g", joined.member_id, None, joined.generation)
    assert code is Code.UNKNOWN_MEMBER_ID


@in_loop
async def test_the_last_consumer_that_is_lost_leaves_a_classic_group() -> None:
    bench = Bench()
    old = await classic(bench)
    await bench.ask(beat(bench, "m1"))
    for _ in range(6):
        await bench.pass_time(8_000)
        generation = 1 if bench.groups.modern("g") is not None else 2
        bench.groups.heartbeat("g", old, None, generation)
    assert phase(bench) == "classic PreparingRebalance"


@in_loop
async def test_a_failed_write_of_a_downgrade_leaves_the_group_as_it_was() -> None:
    bench = Bench()
    old = await classic(bench)
    await bench.ask(beat(bench, "m1"))
    bench.files.fail("write", OFFSETS_TOPIC, errno.ENOSPC)
    assert (await bench.ask(beat(bench, "m1", -1))).code is Code.NOT_COORDINATOR
    bench.files.heal()
    assert phase(bench) == "consumer Reconciling"
    assert bench.groups.heartbeat("g", old, None, 1) is Code.REBALANCE_IN_PROGRESS
    assert (await bench.ask(beat(bench, "m1", -1))).code is Code.NONE
    assert phase(bench) == "classic PreparingRebalance"


@in_loop
async def test_waiting_members_of_an_upgraded_group_are_told_to_join_again() -> None:
    bench = Bench()
    await classic(bench)
    guest = await bench.start(bench.join("g"))
    assert not guest.done()
    await bench.ask(beat(bench, "m1"))
    assert guest.result().code is Code.REBALANCE_IN_PROGRESS
    assert phase(bench) == "consumer Reconciling"


@pytest.mark.parametrize(("policy", "upgrades", "downgrades"), [("upgrade", True, False), ("downgrade", False, True)])
def test_the_migration_policy_is_kept(policy: str, upgrades: bool, downgrades: bool) -> None:
    async def tell() -> None:
        bench = Bench(GroupSettings(may_upgrade=policy == "upgrade", may_downgrade=policy == "downgrade"))
        await classic(bench)
        code = (await bench.ask(beat(bench, "m1"))).code
        assert code is (Code.NONE if upgrades else Code.GROUP_ID_NOT_FOUND)
        await bench.ask(beat(bench, "n1", group="h"))
        await bench.ask(bench.join("h"))
        await bench.ask(beat(bench, "n1", -1, group="h"))
        assert str(phase(bench, "h")).startswith("classic" if downgrades else "consumer")

    asyncio.run(tell())


@in_loop
async def test_classic_members_leave_a_consumer_group() -> None:
    bench = Bench()
    await bench.ask(beat(bench, "m1"))
    joined = await bench.ask(bench.join("g"))
    code, codes = await bench.ask(bench.groups.leave("g", [Leaver(joined.member_id, None), Leaver("nobody", None)]))
    assert (code, codes) == (Code.NONE, [Code.NONE, Code.UNKNOWN_MEMBER_ID])
    state = bench.groups.modern("g")
    assert state is not None
    assert phase_of(state) is ModernPhase.ASSIGNING
