"""A classic consumer group: the state machine behind JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

::

                   first join                 all joined, or time is up
    Empty  ───────────────────►  Preparing  ───────────────────────────►  Completing
      ▲                            │  ▲  ▲                                   │   │ leader's assignment is stored
      │  nobody joined             │  │  └──── join, leave, lost member ─────┘   ▼
      └────────────────────────────┘  └───────────────────────────────────────  Stable

A *generation* is one agreement on who the members are. Members join (their requests wait), the group chooses a protocol
that all of them know, the leader gets the list of members and returns everyone's assignment in its sync, and all syncs
are answered with it.

No I/O and no timers here. Methods return effects: answers to requests that waited (by their tickets) and group metadata
to be stored; the owner says ``stored`` when that is durable. ``wake_at`` is when ``tick`` wants to be called; it may be
too early, never too late. A generation becomes stable only when it is durable. What is not stored (who is joining, the
heartbeats) is lost in a crash, and clients then join again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from headrace.broker.groups.codes import Code
from headrace.broker.groups.member import NEVER, Member
from headrace.broker.groups.messages import (
    Answer,
    Effect,
    JoinAnswer,
    JoinMember,
    JoinRequest,
    Leaver,
    Phase,
    Protocols,
    Store,
    SyncAnswer,
    SyncRequest,
    Ticket,
)
from headrace.broker.groups.records import GroupMetadata
from headrace.broker.groups.roster import Roster
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.groups.subscription import CONSUMER_PROTOCOL
from headrace.clock import Clock

__all__ = ["ClassicGroup"]

log = logging.getLogger(__name__)


class ClassicGroup:
    """One group. Belongs to the event loop's thread, like all that calls it."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        clock: Clock,
        new_id: Callable[[], str],
        stored: GroupMetadata | None = None,
    ) -> None:
        metadata = stored or GroupMetadata(state_ms=clock.now_ms())
        self.group_id = group_id
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type or None
        self.protocol = metadata.protocol
        self.state_ms = metadata.state_ms
        self.roster = Roster(metadata.leader)
        self.joining: dict[str, float] = {}
        """Ids given out to members that have not come back with them yet, and until when they may."""
        self.wake_at = NEVER
        self._settings = settings
        self._clock = clock
        self._new_id = new_id
        self._effects: list[Effect] = []
        self._joins: dict[str, Ticket] = {}
        self._syncs: dict[str, Ticket] = {}
        self._unsynced: set[str] = set()
        self._join_deadline = NEVER
        self._initial_left_ms: int | None = None
        self._sync_deadline = NEVER
        self._newcomer = False
        self._storing = False
        self.phase = Phase.STABLE if metadata.members else Phase.EMPTY
        for member in metadata.members:
            self.roster.add(Member.restored(member, metadata.protocol))
        self.subscribed = self._subscribed_topics()
        for restored in self.members.values():
            self._heard_of(restored)

    @property
    def members(self) -> dict[str, Member]:
        """Members by id."""
        return self.roster.members

    @property
    def leader(self) -> str | None:
        """The member that assigns."""
        return self.roster.leader

    # --- what clients ask ---

    def join(self, request: JoinRequest, ticket: Ticket) -> list[Effect]:
        """JoinGroup: the answer comes when the next generation begins, or at once if nothing needs to change."""
        if not self._has_room_for(request.member_id):
            self._remove(request.member_id)
            self._answer_join(ticket, Code.GROUP_MAX_SIZE_REACHED, "")
            self._maybe_complete_join()
        elif not self._supports(request.protocol_type, request.protocols):
            self._answer_join(ticket, Code.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id:
            self._join_known(request, ticket)
        else:
            self._join_unknown(request, ticket)
        return self._take_effects()

    def sync(self, request: SyncRequest, ticket: Ticket) -> list[Effect]:
        """SyncGroup: the leader's brings the assignment, everybody's is answered with it."""
        code = self._check_sync(request)
        if code:
            self._effects.append(Answer(ticket, SyncAnswer(code)))
        elif self.phase is Phase.PREPARING:
            self._effects.append(Answer(ticket, SyncAnswer(Code.REBALANCE_IN_PROGRESS)))
        else:
            self._unsynced.discard(request.member_id)
            if not self._unsynced:
                self._sync_deadline = NEVER
            if self.phase is Phase.STABLE:
                assignment = self.members[request.member_id].assignment
                self._effects.append(
                    Answer(ticket, SyncAnswer(Code.NONE, self.protocol_type, self.protocol, assignment))
                )
            else:
                self._park_sync(request.member_id, ticket)
                if request.member_id == self.leader and not self._storing:
                    self._storing = True
                    self._effects.append(Store(self._metadata(request.assignments)))
        return self._take_effects()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> Code:
        """Heartbeat: the member is alive; it is told when it should join again."""
        code = self.roster.check(member_id, instance_id)
        if code:
            return code
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if self.phase is Phase.EMPTY:
            return Code.UNKNOWN_MEMBER_ID
        self._heard_of(self.members[member_id])
        return Code.REBALANCE_IN_PROGRESS if self.phase is Phase.PREPARING else Code.NONE

    def leave(self, leavers: Sequence[Leaver]) -> tuple[list[Code], list[Effect]]:
        """LeaveGroup: one code for each who is named, and the rebalance that follows."""
        codes = [self._leave(leaver) for leaver in leavers]
        if Code.NONE in codes:
            if self.phase in (Phase.STABLE, Phase.COMPLETING):
                self._prepare("members left")
            else:
                self._maybe_complete_join()
        return codes, self._take_effects()

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> Code:
        """May this member (or with -1 someone who is none) commit offsets? It counts as a heartbeat if so."""
        if generation < 0 and self.phase is Phase.EMPTY:
            return Code.NONE
        if generation < 0 and not member_id and instance_id is None:
            return Code.UNKNOWN_MEMBER_ID
        code = self.roster.check(member_id, instance_id)
        if code:
            return code
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if self.phase is Phase.COMPLETING:
            return Code.REBALANCE_IN_PROGRESS
        self._heard_of(self.members[member_id])
        return Code.NONE

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> Code:
        """May offsets be committed in a transaction? Old clients name no member; then nobody can be fenced here."""
        if generation < 0 and (self.phase is Phase.EMPTY or (not member_id and instance_id is None)):
            return Code.NONE
        code = self.roster.check(member_id, instance_id)
        if code:
            return code
        return Code.NONE if generation == self.generation else Code.ILLEGAL_GENERATION

    # --- what the owner says ---

    def tick(self) -> list[Effect]:
        """Do what is due by now, or within a millisecond: timers round."""
        now = self._clock.monotonic() + 0.001
        for member_id in [member_id for member_id, deadline in self.joining.items() if deadline <= now]:
            self._remove(member_id)
            if self.phase is Phase.PREPARING and self._all_joined():
                self._complete_join()
        for member in [member for member in self.members.values() if member.deadline <= now]:
            if member.deadline <= now:
                self._lose(member)
        if self._join_deadline <= now:
            self._join_time_is_up()
        if self._sync_deadline <= now:
            self._sync_time_is_up()
        deadlines = [self._join_deadline, self._sync_deadline, *self.joining.values()]
        deadlines += [member.deadline for member in self.members.values()]
        self.wake_at = min(deadlines)
        return self._take_effects()

    def learn_protocols(self, protocols: Mapping[str, Protocols]) -> None:
        """What members know besides the protocol that was chosen: it is not stored, so whoever made the group tells."""
        for member_id, known in protocols.items():
            self.roster.set_protocols(self.members[member_id], known)

    def rebalance(self, reason: str) -> list[Effect]:
        """Have all members join again."""
        self._prepare(reason)
        return self._take_effects()

    def stored(self, store: Store, code: Code) -> list[Effect]:
        """The metadata of a ``Store`` effect is durable, or (with an error code) it is not."""
        if store.replaced:
            self._stored_static_member(store, code)
        elif store.metadata.members:
            self._stored_assignment(store.metadata, code)
        elif code:
            log.warning(
                "group %s: its empty generation %d could not be stored", self.group_id, store.metadata.generation
            )
        return self._take_effects()

    def close(self, code: Code) -> list[Effect]:
        """The group is gone from here: everyone who waits is told, and it says Dead from now on."""
        for member_id, ticket in self._joins.items():
            self._answer_join(ticket, code, member_id)
        self._effects += [Answer(ticket, SyncAnswer(code)) for ticket in self._syncs.values()]
        self._joins.clear()
        self._syncs.clear()
        self.phase = Phase.DEAD
        self.wake_at = NEVER
        return self._take_effects()

    # --- what others want to know ---

    def uses_consumer_protocol(self) -> bool:
        """Are its members consumers (and not, say, Connect's workers)?"""
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed(self, topic: str) -> bool:
        """Does a member read this topic, as far as can be known?"""
        if self.subscribed is None:
            return self.uses_consumer_protocol()
        return topic in self.subscribed

    def is_idle(self) -> bool:
        """Nobody is in the group or about to be."""
        return self.phase is Phase.EMPTY and not self.joining

    # --- joining ---

    def _join_unknown(self, request: JoinRequest, ticket: Ticket) -> None:
        if request.instance_id is not None:
            member_id = f"{request.instance_id}-{self._new_id()}"
            known = self.roster.static_id(request.instance_id)
            if known is not None:
                self._replace_static(request, known, member_id, ticket)
            else:
                self._join_new(member_id, request, ticket)
            return
        member_id = f"{request.client_id}-{self._new_id()}"
        if request.must_know_id:
            self.joining[member_id] = self._deadline(request.session_timeout_ms)
            self._answer_join(ticket, Code.MEMBER_ID_REQUIRED, member_id)
        else:
            self._join_new(member_id, request, ticket)

    def _join_known(self, request: JoinRequest, ticket: Ticket) -> None:
        member_id = request.member_id
        if member_id in self.joining:
            if request.instance_id is not None:
                self._answer_join(ticket, Code.UNKNOWN_SERVER_ERROR, "")
            else:
                self._join_new(member_id, request, ticket)
            return
        code = self.roster.check(member_id, request.instance_id)
        if code or self.phase is Phase.EMPTY:
            self._answer_join(ticket, code or Code.UNKNOWN_MEMBER_ID, member_id)
            return
        changed = self.members[member_id].protocols != request.protocols
        leads_stable = self.phase is Phase.STABLE and member_id == self.leader
        if self.phase is Phase.PREPARING or changed or leads_stable:
            self._join_again(self.members[member_id], request, ticket)
        else:
            self._answer_generation(ticket, member_id, with_members=self.phase is Phase.COMPLETING)

    def _join_new(self, member_id: str, request: JoinRequest, ticket: Ticket) -> None:
        if self.phase is Phase.PREPARING and self._initial_left_ms is not None:
            self._newcomer = True
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member.joining(member_id, request)
        self.roster.add(member)
        self._joins[member_id] = ticket
        self.joining.pop(member_id, None)
        member.deadline = self._deadline(self._settings.new_member_join_timeout_ms)
        self._prepare_or_complete(f"{member_id} joined")

    def _join_again(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        self.roster.update(member, request)
        self._park_join(member.member_id, ticket)
        self._prepare_or_complete(f"{member.member_id} joined again")

    def _replace_static(self, request: JoinRequest, old_id: str, new_id: str, ticket: Ticket) -> None:
        """A static member comes back under a new id: the old id is fenced, and in a stable group that is all."""
        self._rename(old_id, new_id)
        member = self.members[new_id]
        self._heard_of(member)
        self.roster.update(member, request)
        self._park_join(new_id, ticket)
        if self.phase is Phase.STABLE and self.roster.choose_protocol() == self.protocol:
            assignments = {each.member_id: each.assignment for each in self.members.values()}
            self._effects.append(Store(self._metadata(assignments), (old_id, new_id), request.may_skip_assignment))
        else:
            self._prepare_or_complete(f"static member {request.instance_id} came back as {new_id}")

    def _stored_static_member(self, store: Store, code: Code) -> None:
        assert store.replaced is not None
        old_id, new_id = store.replaced
        if self.phase is not Phase.STABLE or new_id not in self._joins:
            return
        if code:
            self._answer_join(self._joins.pop(new_id), code, "")
            self._rename(new_id, old_id)
            self._heard_of(self.members[old_id])
            return
        self.subscribed = self._subscribed_topics()
        leads = new_id == self.leader
        ticket = self._joins.pop(new_id)
        self._heard_of(self.members[new_id])
        if store.may_skip_assignment:
            self._answer_generation(ticket, new_id, with_members=leads, skip_assignment=leads)
        else:
            self._answer_generation(ticket, new_id, leader=old_id if leads else None)

    # --- rebalancing ---

    def _prepare_or_complete(self, reason: str) -> None:
        if self.phase is Phase.PREPARING:
            self._maybe_complete_join()
        else:
            self._prepare(reason)

    def _prepare(self, reason: str) -> None:
        """Begin a rebalance: those who wait for an assignment must join again."""
        log.debug("group %s: rebalance after generation %d: %s", self.group_id, self.generation, reason)
        if self.phase is Phase.COMPLETING:
            self._drop_assignments(Code.REBALANCE_IN_PROGRESS)
        self._unsynced.clear()
        self._sync_deadline = NEVER
        first = self.phase is Phase.EMPTY
        self._enter(Phase.PREPARING)
        if first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._newcomer = False
            self._initial_left_ms = max(self.roster.rebalance_timeout_ms() - delay_ms, 0)
            self._join_deadline = self._deadline(delay_ms)
            return
        self._initial_left_ms = None
        if self._all_joined():
            self._complete_join()
        else:
            self._join_deadline = self._deadline(self.roster.rebalance_timeout_ms())

    def _join_time_is_up(self) -> None:
        delay_ms = self._settings.initial_rebalance_delay_ms
        if self._initial_left_ms and self._newcomer:
            self._newcomer = False
            self._join_deadline = self._deadline(min(delay_ms, self._initial_left_ms))
            self._initial_left_ms = max(self._initial_left_ms - delay_ms, 0)
        else:
            self._complete_join()

    def _maybe_complete_join(self) -> None:
        if self.phase is Phase.PREPARING and self._initial_left_ms is None and self._all_joined():
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation with those who joined. Static members may be late."""
        self._join_deadline = NEVER
        for member in [each for each in self.members.values() if each.member_id not in self._joins]:
            if member.instance_id is None:
                self._remove(member.member_id)
        if self.members and not self._joins:
            self._join_deadline = self._deadline(self.roster.rebalance_timeout_ms())
            return
        if self.members and self.leader not in self._joins:
            self.roster.leader = next(iter(self._joins))
        self._initial_left_ms = None
        self.generation += 1
        self._unsynced.clear()
        self.protocol = self.roster.choose_protocol() if self.members else None
        self.subscribed = self._subscribed_topics()
        if not self.members:
            self._enter(Phase.EMPTY)
            log.info("group %s: empty in generation %d", self.group_id, self.generation)
            self._effects.append(Store(self._metadata({})))
            return
        self._enter(Phase.COMPLETING)
        self._storing = False
        for member in self.members.values():
            ticket = self._joins.pop(member.member_id, None)
            if ticket is not None:
                self._answer_generation(ticket, member.member_id, with_members=True)
            member.new = False
            self._heard_of(member)
        self._unsynced.update(self.members)
        self._sync_deadline = self._deadline(self.roster.rebalance_timeout_ms())

    def _sync_time_is_up(self) -> None:
        self._sync_deadline = NEVER
        if self.phase in (Phase.COMPLETING, Phase.STABLE) and self._unsynced:
            for member_id in list(self._unsynced):
                self._remove(member_id)
            self._prepare("members did not sync in time")

    def _stored_assignment(self, metadata: GroupMetadata, code: Code) -> None:
        if self.phase is not Phase.COMPLETING or metadata.generation != self.generation:
            return
        self._storing = False
        if code:
            self._drop_assignments(code)
            self._prepare("the assignment could not be stored")
            return
        for stored in metadata.members:
            if stored.member_id in self.members:
                self.members[stored.member_id].assignment = stored.assignment
        self.phase = Phase.STABLE
        log.info("group %s: generation %d is stable, %d members", self.group_id, self.generation, len(self.members))
        for member_id, ticket in self._syncs.items():
            member = self.members[member_id]
            answer = SyncAnswer(Code.NONE, self.protocol_type, self.protocol, member.assignment)
            self._effects.append(Answer(ticket, answer))
            self._heard_of(member)
        self._syncs.clear()

    def _drop_assignments(self, code: Code) -> None:
        self._storing = False
        for member in self.members.values():
            member.assignment = b""
        for member_id, ticket in self._syncs.items():
            self._effects.append(Answer(ticket, SyncAnswer(code)))
            self._heard_of(self.members[member_id])
        self._syncs.clear()

    # --- leaving ---

    def _leave(self, leaver: Leaver) -> Code:
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            member_id = self.roster.static_id(leaver.instance_id) or ""
        if member_id not in self.joining:
            code = self.roster.check(member_id, leaver.instance_id)
            if code:
                return code
        self._remove(member_id)
        return Code.NONE

    def _lose(self, member: Member) -> None:
        """A member was not heard of in time. Those who wait for the group are excused, unless they are new."""
        member_id = member.member_id
        if member_id not in self.members:
            return
        if not member.new and (member_id in self._joins or member_id in self._syncs):
            member.deadline = NEVER
            return
        log.info("group %s: %s was not heard of in time", self.group_id, member_id)
        self._remove(member_id)
        if self.phase in (Phase.STABLE, Phase.COMPLETING):
            self._prepare(f"{member_id} was not heard of in time")
        elif self.phase is Phase.PREPARING and self._all_joined():
            self._complete_join()

    # --- the list of members ---

    def _remove(self, member_id: str) -> None:
        """Strike off a member or one that is about to be; if it waits, it is told that it is unknown."""
        self.joining.pop(member_id, None)
        self._unsynced.discard(member_id)
        self._turn_away(member_id, Code.UNKNOWN_MEMBER_ID, "")
        self.roster.remove(member_id)

    def _rename(self, old_id: str, new_id: str) -> None:
        """Give a static member a new id; whoever waits under the old one is fenced."""
        self._turn_away(old_id, Code.FENCED_INSTANCE_ID, old_id)
        self.roster.rename(old_id, new_id)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)

    def _turn_away(self, member_id: str, code: Code, told_id: str) -> None:
        join, sync = self._joins.pop(member_id, None), self._syncs.pop(member_id, None)
        if join is not None:
            self._answer_join(join, code, told_id)
        if sync is not None:
            self._effects.append(Answer(sync, SyncAnswer(code)))

    def _park_join(self, member_id: str, ticket: Ticket) -> None:
        former = self._joins.pop(member_id, None)
        if former is not None:
            self._answer_join(former, Code.REBALANCE_IN_PROGRESS, member_id)
        self._joins[member_id] = ticket

    def _park_sync(self, member_id: str, ticket: Ticket) -> None:
        former = self._syncs.pop(member_id, None)
        if former is not None:
            self._effects.append(Answer(former, SyncAnswer(Code.REBALANCE_IN_PROGRESS)))
        self._syncs[member_id] = ticket

    # --- rules ---

    def _check_sync(self, request: SyncRequest) -> Code:
        if self.phase is Phase.EMPTY:
            return Code.UNKNOWN_MEMBER_ID
        code = self.roster.check(request.member_id, request.instance_id)
        if code:
            return code
        if request.generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if _differ(request.protocol_type, self.protocol_type) or _differ(request.protocol, self.protocol):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.NONE

    def _has_room_for(self, member_id: str) -> bool:
        if self.phase is Phase.EMPTY:
            return True
        if self.phase is Phase.PREPARING:
            return member_id in self._joins or len(self._joins) < self._settings.max_size
        return member_id in self.members or len(self.members) < self._settings.max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.phase is Phase.EMPTY:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and self.roster.has_in_common(protocols)

    def _all_joined(self) -> bool:
        return len(self._joins) == len(self.members) and not self.joining

    def _subscribed_topics(self) -> frozenset[str] | None:
        return self.roster.topics(self.protocol) if self.uses_consumer_protocol() else None

    def _metadata(self, assignments: dict[str, bytes]) -> GroupMetadata:
        return GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_ms,
            tuple(
                member.stored(self.protocol, assignments.get(member.member_id, b"")) for member in self.members.values()
            ),
        )

    # --- answers and time ---

    def _answer_join(self, ticket: Ticket, code: Code, member_id: str) -> None:
        self._effects.append(Answer(ticket, JoinAnswer(code, member_id)))

    def _answer_generation(
        self,
        ticket: Ticket,
        member_id: str,
        *,
        with_members: bool = False,
        skip_assignment: bool = False,
        leader: str | None = None,
    ) -> None:
        members: tuple[JoinMember, ...] = ()
        if with_members and member_id == self.leader:
            members = tuple(
                JoinMember(each.member_id, each.instance_id, each.metadata(self.protocol))
                for each in self.members.values()
            )
        answer = JoinAnswer(
            Code.NONE,
            member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader or self.leader or "",
            skip_assignment,
            members,
        )
        self._effects.append(Answer(ticket, answer))

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.state_ms = self._clock.now_ms()

    def _heard_of(self, member: Member) -> None:
        member.deadline = self._deadline(member.session_timeout_ms)

    def _deadline(self, within_ms: int) -> float:
        deadline = self._clock.monotonic() + max(within_ms, 0) / 1000
        self.wake_at = min(self.wake_at, deadline)
        return deadline

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known
