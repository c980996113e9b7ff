"""Laws of a classic group, on the state machine alone."""

from __future__ import annotations

import pytest

from headrace.broker.groups.codes import Code
from headrace.broker.groups.messages import JoinAnswer, Leaver, Phase
from headrace.broker.groups.records import GroupMetadata
from headrace.broker.groups.settings import GroupSettings
from tests.groups.lab import Lab, subscription

# --- joining ---


def test_a_new_member_is_given_an_id_and_must_come_back_with_it() -> None:
    lab = Lab()
    first = lab.join(client="app")
    assert first.answer == JoinAnswer(Code.MEMBER_ID_REQUIRED, "app-1")
    assert lab.group.phase is Phase.EMPTY
    second = lab.join("app-1", client="app")
    assert second.answer is None
    assert lab.group.phase is Phase.PREPARING


def test_an_old_client_joins_in_one_step() -> None:
    lab = Lab()
    waiting = lab.join(must_know_id=False)
    lab.pass_time(3000)
    assert waiting.joined.generation == 1
    assert waiting.joined.member_id == "c-1"


def test_a_given_id_is_forgotten_after_the_session_timeout() -> None:
    lab = Lab()
    member_id = lab.join(session_ms=10_000).joined.member_id
    lab.pass_time(10_000)
    assert lab.join(member_id).code is Code.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_waits_for_more_members_and_then_answers_all() -> None:
    lab = Lab()
    a, join_a = lab.join_dynamic()
    lab.pass_time(2999)
    b, join_b = lab.join_dynamic()
    lab.pass_time(1)
    assert join_a.answer is None
    lab.pass_time(3000)
    assert join_a.joined.generation == join_b.joined.generation == 1
    assert join_a.joined.leader == join_b.joined.leader == a
    assert [member.member_id for member in join_a.joined.members] == [a, b]
    assert join_b.joined.members == ()


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    lab = Lab()
    _, first = lab.join_dynamic(rebalance_ms=10_000)
    for _ in range(6):
        lab.join_dynamic(rebalance_ms=10_000)
        lab.pass_time(2000)
    assert first.joined.generation == 1


def test_with_no_delay_a_lone_member_is_answered_at_the_next_tick() -> None:
    lab = Lab(GroupSettings(initial_rebalance_delay_ms=0))
    _, waiting = lab.join_dynamic()
    lab.pass_time(0)
    assert waiting.joined.generation == 1


def test_the_protocol_that_all_know_and_most_prefer_is_chosen() -> None:
    lab = Lab()
    m = b""
    joins = [
        lab.join_dynamic(protocols=(("a", m), ("b", m), ("c", m)))[1],
        lab.join_dynamic(protocols=(("b", m), ("c", m)))[1],
        lab.join_dynamic(protocols=(("c", m), ("b", m)))[1],
    ]
    lab.pass_time(20_000)
    assert {waiting.joined.protocol for waiting in joins} == {"b"}


def test_a_member_without_a_common_protocol_or_type_is_refused() -> None:
    lab = Lab()
    lab.stable(1)
    assert lab.join(protocols=(("other", b""),)).code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert lab.join(protocol_type="connect").code is Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ())])
def test_a_join_without_protocols_or_type_is_refused(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    assert Lab().join(protocol_type=protocol_type, protocols=protocols).code is Code.INCONSISTENT_GROUP_PROTOCOL


def test_other_protocol_types_work_as_consumers_do() -> None:
    lab = Lab()
    worker, waiting = lab.join_dynamic(protocol_type="connect", protocols=(("sessioned", b"\x00"),))
    lab.pass_time(3000)
    assert waiting.joined.protocol_type == "connect"
    assert lab.sync(worker, {worker: b"x"}, protocol_type="connect", protocol="sessioned").synced.assignment == b"x"
    assert lab.group.subscribed is None
    assert not lab.group.is_subscribed("t")


def test_a_full_group_takes_no_more_members() -> None:
    lab = Lab(GroupSettings(max_size=2))
    members = lab.stable(2)
    assert lab.join().code is Code.GROUP_MAX_SIZE_REACHED
    assert lab.heartbeat(members[0]) is Code.NONE


def test_a_group_that_rebalances_takes_members_up_to_its_size() -> None:
    lab = Lab(GroupSettings(max_size=1, initial_rebalance_delay_ms=3000))
    lab.join_dynamic()
    assert lab.join().code is Code.GROUP_MAX_SIZE_REACHED


def test_an_unknown_member_is_told_so() -> None:
    lab = Lab()
    lab.stable(1)
    assert lab.join("stranger").code is Code.UNKNOWN_MEMBER_ID
    assert lab.sync("stranger").code is Code.UNKNOWN_MEMBER_ID
    assert lab.heartbeat("stranger") is Code.UNKNOWN_MEMBER_ID
    assert lab.leave("stranger") == [Code.UNKNOWN_MEMBER_ID]


# --- syncing ---


def test_everyone_gets_the_assignment_that_the_leader_brings() -> None:
    lab = Lab()
    (a, _), (b, _) = lab.join_dynamic(), lab.join_dynamic()
    lab.pass_time(6000)
    follower = lab.sync(b)
    assert follower.answer is None
    leader = lab.sync(a, {a: b"one", b: b"two"})
    assert leader.synced.assignment == b"one"
    assert follower.synced.assignment == b"two"
    assert lab.group.phase is Phase.STABLE


def test_an_assignment_is_told_to_nobody_before_it_is_stored() -> None:
    lab = Lab()
    a, _ = lab.join_dynamic()
    lab.pass_time(3000)
    lab.hold = True
    waiting = lab.sync(a, {a: b"one"})
    assert waiting.answer is None
    assert lab.group.phase is Phase.COMPLETING
    lab.release()
    assert waiting.synced.assignment == b"one"


def test_an_assignment_that_could_not_be_stored_begins_a_new_rebalance() -> None:
    lab = Lab()
    a, _ = lab.join_dynamic()
    lab.pass_time(3000)
    lab.hold = True
    waiting = lab.sync(a, {a: b"one"})
    lab.release(Code.NOT_COORDINATOR)
    assert waiting.code is Code.NOT_COORDINATOR
    assert lab.group.phase is Phase.PREPARING
    assert lab.heartbeat(a) is Code.REBALANCE_IN_PROGRESS


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    lab = Lab()
    (a, _), (b, _) = lab.join_dynamic(), lab.join_dynamic()
    lab.pass_time(6000)
    lab.sync(a, {a: b"one"})
    assert lab.sync(b).synced.assignment == b""


def test_a_leader_that_syncs_twice_is_stored_once_and_its_first_assignment_holds() -> None:
    lab = Lab()
    a, _ = lab.join_dynamic()
    lab.pass_time(3000)
    lab.hold = True
    first, second = lab.sync(a, {a: b"one"}), lab.sync(a, {a: b"two"})
    assert len(lab.held) == 1
    lab.release()
    assert first.code is Code.REBALANCE_IN_PROGRESS
    assert second.synced.assignment == b"one"


def test_a_sync_in_a_stable_group_returns_the_assignment_again() -> None:
    lab = Lab()
    _, b = lab.stable(2)
    assert lab.sync(b).synced.assignment == b"1"


def test_a_sync_of_another_generation_or_protocol_is_refused() -> None:
    lab = Lab()
    (a,) = lab.stable(1)
    assert lab.sync(a, generation=7).code is Code.ILLEGAL_GENERATION
    assert lab.sync(a, protocol="sticky").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert lab.sync(a, protocol_type="connect").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert lab.sync(a, protocol=None, protocol_type=None).code is Code.NONE


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    lab = Lab()
    (a, _), (b, _) = lab.join_dynamic(session_ms=100_000), lab.join_dynamic(session_ms=100_000)
    lab.pass_time(6000)
    lab.sync(a, {a: b"one", b: b"two"})
    lab.pass_time(60_000)
    assert list(lab.group.members) == [a]
    assert lab.group.phase is Phase.PREPARING


def test_a_join_during_the_sync_sends_those_who_wait_back() -> None:
    lab = Lab()
    (a, _), (b, _) = lab.join_dynamic(), lab.join_dynamic()
    lab.pass_time(6000)
    follower = lab.sync(b)
    lab.join_dynamic()
    assert follower.code is Code.REBALANCE_IN_PROGRESS
    assert lab.sync(a, {}).code is Code.REBALANCE_IN_PROGRESS


def test_an_assignment_stored_too_late_is_ignored() -> None:
    lab = Lab()
    a, _ = lab.join_dynamic()
    lab.pass_time(3000)
    lab.hold = True
    waiting = lab.sync(a, {a: b"one"})
    lab.join_dynamic()
    assert waiting.code is Code.REBALANCE_IN_PROGRESS
    lab.release()
    assert lab.group.phase is Phase.PREPARING


# --- rebalancing ---


def test_a_rebalance_ends_when_all_have_joined_again() -> None:
    lab = Lab()
    a, b = lab.stable(2)
    c, join_c = lab.join_dynamic()
    assert lab.heartbeat(a) is Code.REBALANCE_IN_PROGRESS
    join_a = lab.join(a)
    assert join_a.answer is None
    join_b = lab.join(b)
    assert {waiting.joined.generation for waiting in (join_a, join_b, join_c)} == {2}
    assert [member.member_id for member in join_a.joined.members] == [a, b, c]
    assert lab.heartbeat(a, generation=1) is Code.ILLEGAL_GENERATION


def test_members_that_do_not_join_again_in_time_are_left_behind() -> None:
    lab = Lab()
    a, b = lab.stable(2, session_ms=100_000)
    _, join_c = lab.join_dynamic()
    join_b = lab.join(b, session_ms=100_000)
    lab.pass_time(59_999)
    assert join_b.answer is None
    lab.pass_time(1)
    assert join_b.joined.generation == join_c.joined.generation == 2
    assert join_b.joined.leader == b
    assert a not in lab.group.members


def test_a_follower_that_joins_unchanged_gets_the_generation_it_is_in() -> None:
    lab = Lab()
    a, b = lab.stable(2)
    assert lab.join(b).joined == JoinAnswer(Code.NONE, b, 1, "consumer", "range", a)
    assert lab.group.phase is Phase.STABLE


def test_a_leader_that_joins_again_wants_a_rebalance() -> None:
    lab = Lab()
    a, _ = lab.stable(2)
    assert lab.join(a).answer is None
    assert lab.group.phase is Phase.PREPARING


def test_a_member_with_a_new_subscription_begins_a_rebalance() -> None:
    lab = Lab()
    _, b = lab.stable(2)
    assert lab.join(b, protocols=(("range", subscription("other")),)).answer is None
    assert lab.group.phase is Phase.PREPARING


def test_a_leader_that_missed_the_answer_to_its_join_is_told_again() -> None:
    lab = Lab()
    (a, _), (b, _) = lab.join_dynamic(), lab.join_dynamic()
    lab.pass_time(6000)
    assert [member.member_id for member in lab.join(a).joined.members] == [a, b]
    assert lab.join(b).joined.members == ()
    assert lab.group.generation == 1


def test_a_lost_member_begins_a_rebalance() -> None:
    lab = Lab()
    a, b = lab.stable(2, session_ms=10_000)
    lab.pass_time(9000)
    assert lab.heartbeat(a) is Code.NONE
    lab.pass_time(1000)
    assert list(lab.group.members) == [a]
    assert lab.heartbeat(a) is Code.REBALANCE_IN_PROGRESS
    assert lab.heartbeat(b) is Code.UNKNOWN_MEMBER_ID


def test_members_that_wait_for_the_group_need_no_heartbeats() -> None:
    lab = Lab()
    a, b = lab.stable(2, session_ms=10_000)
    lab.join_dynamic(session_ms=10_000)
    waiting = lab.join(a, session_ms=10_000)
    for _ in range(5):
        lab.pass_time(9000)
        lab.heartbeat(b)
    assert waiting.answer is None
    assert a in lab.group.members


def test_a_new_member_whose_join_hangs_is_forgotten_after_five_minutes() -> None:
    lab = Lab()
    _, b = lab.stable(2, rebalance_ms=1_000_000, session_ms=900_000)
    c, waiting = lab.join_dynamic(rebalance_ms=1_000_000)
    lab.pass_time(300_000)
    assert waiting.code is Code.UNKNOWN_MEMBER_ID
    assert c not in lab.group.members
    assert b in lab.group.members


# --- leaving and emptiness ---


def test_when_the_last_member_leaves_the_empty_group_is_stored() -> None:
    lab = Lab()
    (a,) = lab.stable(1)
    assert lab.leave(a) == [Code.NONE]
    assert lab.group.phase is Phase.EMPTY
    assert lab.stored[-1] == GroupMetadata("consumer", 2, None, None, lab.clock.now_ms(), ())
    assert lab.group.subscribed == frozenset()


def test_one_request_may_send_many_away_and_each_has_its_own_answer() -> None:
    lab = Lab()
    a, _, c = lab.stable(3)
    assert lab.leave(a, "stranger", c) == [Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.NONE]
    assert lab.group.phase is Phase.PREPARING


def test_a_member_that_leaves_while_it_joins_is_answered() -> None:
    lab = Lab()
    a, waiting = lab.join_dynamic()
    assert lab.leave(a) == [Code.NONE]
    assert waiting.answer == JoinAnswer(Code.UNKNOWN_MEMBER_ID, "")


def test_an_id_that_was_given_but_not_used_can_leave() -> None:
    lab = Lab()
    member_id = lab.join().joined.member_id
    assert lab.leave(member_id) == [Code.NONE]
    assert lab.group.is_idle()


def test_a_leave_during_a_rebalance_may_complete_it() -> None:
    lab = Lab()
    a, b = lab.stable(2)
    _, join_c = lab.join_dynamic()
    lab.join(b)
    lab.leave(a)
    assert join_c.joined.generation == 2
    assert join_c.joined.leader == b


def test_an_empty_group_can_be_joined_with_another_type() -> None:
    lab = Lab()
    (a,) = lab.stable(1)
    lab.leave(a)
    _, waiting = lab.join_dynamic(protocol_type="connect")
    lab.wait_for([waiting])
    assert waiting.joined.protocol_type == "connect"
    assert waiting.joined.generation == 3


# --- static members ---


def test_a_static_member_joins_in_one_step() -> None:
    lab = Lab()
    waiting = lab.join(instance="i")
    lab.pass_time(3000)
    assert waiting.joined.member_id == "i-1"


def static_pair(lab: Lab) -> tuple[str, str]:
    joins = [lab.join(instance="x"), lab.join(instance="y")]
    lab.wait_for(joins)
    a, b = (waiting.joined.member_id for waiting in joins)
    lab.sync(a, {a: b"one", b: b"two"}, instance="x")
    lab.sync(b, instance="y")
    return a, b


def test_a_static_member_that_restarts_keeps_its_assignment_without_a_rebalance() -> None:
    lab = Lab()
    a, b = static_pair(lab)
    back = lab.join(instance="y")
    new_b = back.joined.member_id
    assert new_b != b
    assert back.joined == JoinAnswer(Code.NONE, new_b, 1, "consumer", "range", a)
    assert lab.group.phase is Phase.STABLE
    assert lab.sync(new_b, instance="y").synced.assignment == b"two"
    assert [member.member_id for member in lab.stored[-1].members] == [a, new_b]


def test_a_static_leader_that_restarts_is_told_to_skip_the_assignment() -> None:
    lab = Lab()
    _, b = static_pair(lab)
    back = lab.join(instance="x").joined
    assert back.leader == back.member_id
    assert back.skip_assignment
    assert [member.member_id for member in back.members] == [back.member_id, b]


def test_an_old_static_leader_that_restarts_is_not_told_that_it_leads() -> None:
    lab = Lab()
    a, _ = static_pair(lab)
    back = lab.join(instance="x", may_skip=False).joined
    assert back.leader == a
    assert back.members == ()


def test_the_replaced_id_of_a_static_member_is_fenced_everywhere() -> None:
    lab = Lab()
    _, b = static_pair(lab)
    lab.join(instance="y")
    fenced = Code.FENCED_INSTANCE_ID
    assert lab.heartbeat(b, instance="y") is fenced
    assert lab.sync(b, instance="y").code is fenced
    assert lab.join(b, instance="y").code is fenced
    assert lab.leave(Leaver(b, "y")) == [fenced]
    assert lab.group.check_commit(b, "y", 1) is fenced


def test_who_waits_under_the_replaced_id_is_fenced_at_once() -> None:
    lab = Lab()
    first = lab.join(instance="x")
    lab.join(instance="x")
    assert first.code is Code.FENCED_INSTANCE_ID


def test_a_static_member_that_restarts_during_the_sync_begins_a_rebalance() -> None:
    lab = Lab()
    joins = [lab.join(instance="x"), lab.join(instance="y")]
    lab.pass_time(9000)
    follower = lab.sync(joins[1].joined.member_id, instance="y")
    lab.join(instance="x")
    assert follower.code is Code.REBALANCE_IN_PROGRESS
    assert lab.group.phase is Phase.PREPARING


def test_a_static_member_that_changes_the_chosen_protocol_begins_a_rebalance() -> None:
    lab = Lab()
    both = (("range", subscription("t")), ("sticky", subscription("t")))
    waiting = lab.join(instance="x", protocols=both)
    lab.pass_time(3000)
    lab.sync(waiting.joined.member_id, instance="x")
    back = lab.join(instance="x", protocols=(both[1], both[0]))
    assert back.joined.generation == 2
    assert back.joined.protocol == "sticky"


def test_a_static_member_is_not_left_behind_while_its_session_lasts() -> None:
    lab = Lab()
    a, b = static_pair(lab)
    _, join_c = lab.join_dynamic()
    for _ in range(7):
        lab.pass_time(9000)
        for member_id, instance in ((a, "x"), (b, "y")):
            lab.heartbeat(member_id, instance=instance)
    assert join_c.joined.generation == 2
    assert set(lab.group.members) == {a, b, join_c.joined.member_id}
    assert join_c.joined.leader == join_c.joined.member_id


def test_a_static_member_does_not_leave_when_it_stops_but_when_its_session_ends() -> None:
    lab = Lab()
    static_pair(lab)
    lab.pass_time(10_000)
    assert lab.group.phase is Phase.EMPTY


def test_an_operator_sends_a_static_member_away_by_its_instance() -> None:
    lab = Lab()
    a, _ = static_pair(lab)
    assert lab.leave(Leaver("", "y"), Leaver("", "unknown"), Leaver("", None)) == [
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
        Code.UNKNOWN_MEMBER_ID,
    ]
    assert list(lab.group.members) == [a]


def test_a_static_member_whose_new_id_could_not_be_stored_has_its_old_one_again() -> None:
    lab = Lab()
    _, b = static_pair(lab)
    lab.hold = True
    back = lab.join(instance="y")
    assert back.answer is None
    lab.release(Code.NOT_COORDINATOR)
    assert back.code is Code.NOT_COORDINATOR
    assert lab.heartbeat(b, instance="y") is Code.NONE


def test_a_static_member_that_restarts_twice_before_it_is_stored_has_its_last_id() -> None:
    lab = Lab()
    static_pair(lab)
    lab.hold = True
    first, second = lab.join(instance="y"), lab.join(instance="y")
    assert first.code is Code.FENCED_INSTANCE_ID
    lab.release()
    assert second.code is Code.NONE
    assert lab.sync(second.joined.member_id, instance="y").synced.assignment == b"two"


# --- commits ---


def test_members_commit_in_their_generation_only() -> None:
    lab = Lab()
    (a,) = lab.stable(1)
    assert lab.group.check_commit(a, None, 1) is Code.NONE
    assert lab.group.check_commit(a, None, 0) is Code.ILLEGAL_GENERATION
    assert lab.group.check_commit("stranger", None, 1) is Code.UNKNOWN_MEMBER_ID
    assert lab.group.check_commit("", None, -1) is Code.UNKNOWN_MEMBER_ID


def test_members_may_commit_while_a_rebalance_is_prepared_but_not_while_it_completes() -> None:
    lab = Lab()
    (a,) = lab.stable(1)
    lab.join_dynamic()
    assert lab.group.check_commit(a, None, 1) is Code.NONE
    lab.join(a)
    assert lab.group.check_commit(a, None, 2) is Code.REBALANCE_IN_PROGRESS


def test_anyone_may_commit_into_an_empty_group_without_a_generation() -> None:
    lab = Lab()
    assert lab.group.check_commit("", None, -1) is Code.NONE
    assert lab.group.check_commit("someone", None, -1) is Code.NONE
    assert lab.group.check_commit("someone", None, 1) is Code.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life() -> None:
    lab = Lab()
    (a,) = lab.stable(1, session_ms=10_000)
    for _ in range(3):
        lab.pass_time(9000)
        assert lab.group.check_commit(a, None, 1) is Code.NONE
    assert lab.group.phase is Phase.STABLE


# --- restarts ---


def test_a_stable_group_comes_back_as_it_was() -> None:
    lab = Lab()
    members = lab.stable(3)
    again = Lab(stored=lab.stored[-1])
    assert again.group.phase is Phase.STABLE
    assert [again.sync(member_id).synced.assignment for member_id in members] == [b"0", b"1", b"2"]
    assert again.group.is_subscribed("t")
    assert not again.group.is_subscribed("other")


def test_after_a_restart_members_have_their_session_timeout_to_be_heard_of() -> None:
    lab = Lab()
    a, b = lab.stable(2, session_ms=10_000)
    again = Lab(stored=lab.stored[-1])
    again.pass_time(9999)
    assert again.heartbeat(b) is Code.NONE
    again.pass_time(1)
    assert list(again.group.members) == [b]
    assert a not in again.group.members


def test_whoever_waits_is_told_when_the_group_is_closed() -> None:
    lab = Lab()
    (a, _), (b, _) = lab.join_dynamic(), lab.join_dynamic()
    lab.pass_time(6000)
    sync = lab.sync(b)
    lab.run(lab.group.close(Code.NOT_COORDINATOR))
    assert sync.code is Code.NOT_COORDINATOR
    assert lab.group.phase is Phase.DEAD
    assert a in lab.group.members


def test_a_subscription_that_cannot_be_read_leaves_the_topics_unknown() -> None:
    lab = Lab()
    lab.stable(1, protocols=(("range", b"\x00\x00\x00\x00\x00\x09"),))
    assert lab.group.subscribed is None
    assert lab.group.is_subscribed("any")
