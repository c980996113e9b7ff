"""A consumer group (KIP-848): the broker assigns, and heartbeats carry everything.

A member joins with epoch 0, leaves with -1, or with -2 if it is static and means to come back. Its heartbeats say what
it owns, and the answers what it shall own: never more than what others have let go. Members that speak the classic
protocol may be in the group too (``classic_members.py``).
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from headrace.broker.groups.assignors import CONSUMER_ASSIGNORS, Assignor
from headrace.broker.groups.codes import Code, Refusal
from headrace.broker.groups.modern_group import ModernGroup
from headrace.broker.groups.modern_messages import JOIN, LEAVE_FOR_A_WHILE, HeartbeatAnswer, HeartbeatRequest
from headrace.broker.groups.modern_records import (
    CurrentAssignment,
    CurrentChange,
    GroupType,
    Partitions,
    RegexChange,
    ResolvedRegex,
    Subscription,
    SubscriptionChange,
    TargetChange,
    partitions_of,
)
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.reconciliation import Target, reconciled
from headrace.broker.groups.topic_pattern import BadPattern, TopicPattern

__all__ = ["DEFAULT_ASSIGNOR", "ConsumerGroup", "assignor_of"]

DEFAULT_ASSIGNOR = next(iter(CONSUMER_ASSIGNORS))


class ConsumerGroup(ModernGroup):
    """A piece of work on a consumer group."""

    type = GroupType.CONSUMER

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat of a member that joins or stays. Refusal if it cannot."""
        self.ensure_room(request.member_id)
        member_id = request.member_id or self.around.new_id()
        old = self._take_in(member_id, request)
        before = self.state.current_of(member_id)
        self.update(member_id, _merged(old, request), request.owned)
        now = self.state.current_of(member_id)
        told = request.member_epoch == JOIN or request.is_full or not _same_partitions(before, now)
        return HeartbeatAnswer(
            Code.NONE,
            None,
            member_id,
            now.epoch,
            self.around.settings.heartbeat_interval_ms,
            partitions_of(now.assigned) if told else None,
        )

    def leaving(self, request: HeartbeatRequest) -> str:
        """The member that a heartbeat with epoch -1 or -2 is about. Refusal if it is not there."""
        if request.instance_id is None:
            self.known(request.member_id)
        else:
            self.ensure_holder(request.instance_id, request.member_id)
        return request.member_id

    def go_for_a_while(self, member_id: str) -> HeartbeatAnswer:
        """A static member means to come back: what it has is kept for it, until its session ends."""
        current = self.state.current_of(member_id)
        self.set_current(member_id, current._replace(epoch=LEAVE_FOR_A_WHILE, revoking={}))
        return HeartbeatAnswer(Code.NONE, None, member_id, LEAVE_FOR_A_WHILE)

    def go(self, member_ids: list[str]) -> None:
        """Members are gone, and with them the regular expressions that only they had."""
        for member_id in member_ids:
            self.strike_off(member_id)
        self._drop_regexes()
        self.refresh(bump=True)

    def update(self, member_id: str, subscription: Subscription, owned: Partitions | None) -> bool:
        """Take in what a member says of itself, and take it a step further; True if it wants other topics."""
        old = self.state.subscriptions.get(member_id)
        new_regex = (subscription.regex or "") != ((old.regex or "") if old is not None else "")
        changed = self.subscribe(member_id, subscription) or new_regex
        self._resolve_regexes()
        self.refresh(bump=changed)
        self.assign()
        self.reconcile(member_id, owned, changed)
        return changed

    def reconcile(self, member_id: str, owned: Partitions | None, changed: bool) -> None:
        """Take a member one step towards its target."""
        state = self.state
        if not changed and state.is_reconciled(member_id):
            return
        subscribed = self.subscribed_ids(state.subscriptions[member_id])
        target = Target(state.target_epoch.epoch, state.target_of(member_id), subscribed)
        self.set_current(member_id, reconciled(state.current_of(member_id), target, owned, self._is_free, changed))

    def assignor(self) -> Assignor:
        """The one that most members ask for."""
        return CONSUMER_ASSIGNORS[assignor_of(self.state)]

    # --- who it is ---

    def _take_in(self, member_id: str, request: HeartbeatRequest) -> Subscription | None:
        """The member as it was; None if it is new. A static member may take the place of its former self."""
        state = self.state
        joins = request.member_epoch == JOIN
        if request.instance_id is None:
            if joins:
                return state.subscriptions.get(member_id)
            known = self.known(member_id)
        elif joins:
            return self.take_place(request.instance_id, member_id, speaks_classic=False)
        else:
            self.ensure_holder(request.instance_id, member_id)
            known = self.known(member_id)
        _check_epoch(state.current_of(member_id), request)
        return known

    def ensure_holder(self, instance_id: str, member_id: str) -> None:
        """Refuse a member that says it is static, and is not the one of that name."""
        holder = self.state.instances.get(instance_id)
        if holder is None:
            raise Refusal(Code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder != member_id:
            raise Refusal(
                Code.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
            )

    def take_place(self, instance_id: str, member_id: str, *, speaks_classic: bool) -> Subscription | None:
        """A static member comes (back): it gets all that its former self has, if that has left."""
        holder = self.state.instances.get(instance_id)
        if holder is None:
            return self.state.subscriptions.get(member_id)
        former = self.state.subscriptions[holder]
        current, target = self.state.current_of(holder), self.state.target_of(holder)
        if not speaks_classic and former.classic is None and current.epoch != LEAVE_FOR_A_WHILE:
            raise Refusal(
                Code.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {holder} member.",
            )
        self.strike_off(holder)
        self.do(SubscriptionChange(self.type, self.group_id, member_id, former))
        self.do(TargetChange(self.type, self.group_id, member_id, target))
        self.do(CurrentChange(self.type, self.group_id, member_id, current._replace(epoch=0, previous_epoch=0)))
        return former

    def _is_free(self, topic: UUID, partition: int) -> bool:
        return (topic, partition) not in self.state.owners

    # --- regular expressions ---

    def _resolve_regexes(self) -> None:
        """Find the topics of new expressions, and of all of them when topics have come or gone."""
        self._drop_regexes()
        state = self.state
        for regex in sorted({each.regex for each in state.subscriptions.values() if each.regex}):
            known = state.regexes.get(regex)
            if known is not None and not self.around.moved:
                continue
            pattern = _compiled(regex)
            topics = tuple(sorted(filter(pattern.matches, self.around.topics.names())))
            if known is None or known.topics != topics:
                resolved = ResolvedRegex(topics, 0, self.around.now_ms)
                self.do(RegexChange(self.type, self.group_id, regex, resolved))
                if known is not None:
                    self.refresh(bump=True)

    def _drop_regexes(self) -> None:
        wanted = {each.regex for each in self.state.subscriptions.values()}
        for regex in [regex for regex in self.state.regexes if regex not in wanted]:
            self.do(RegexChange(self.type, self.group_id, regex, None))


def assignor_of(state: ModernState) -> str:
    """The assignor that most members ask for."""
    asked = Counter(each.assignor for each in state.subscriptions.values() if each.assignor is not None)
    return asked.most_common(1)[0][0] if asked else DEFAULT_ASSIGNOR


def _compiled(regex: str) -> TopicPattern:
    try:
        return TopicPattern(regex)
    except BadPattern as bad:
        raise Refusal(
            Code.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {bad}."
        ) from None


def _merged(old: Subscription | None, request: HeartbeatRequest) -> Subscription:
    """What is known of a member, with what it says now. It speaks the consumer protocol, whatever it spoke before."""
    known = old or Subscription("", "")
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        request.client_id,
        request.client_host,
        known.rack_id if request.rack_id is None else request.rack_id,
        known.topics if request.topics is None else tuple(sorted(set(request.topics))),
        known.instance_id if request.instance_id is None else request.instance_id,
        known.regex if request.regex is None else request.regex,
        known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        known.assignor if request.assignor is None else request.assignor,
    )


def _check_epoch(current: CurrentAssignment, request: HeartbeatRequest) -> None:
    """An answer may have been lost: then the member has the epoch before, and nothing that is not its own."""
    epoch = request.member_epoch
    if epoch == current.epoch:
        return
    if epoch == current.previous_epoch and epoch < current.epoch and _is_subset(request.owned, current):
        return
    than = "greater" if epoch > current.epoch else "smaller"
    raise Refusal(
        Code.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({current.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Partitions | None, current: CurrentAssignment) -> bool:
    if owned is None:
        return False
    return all(partitions <= current.assigned.get(topic, {}).keys() for topic, partitions in owned.items())


def _same_partitions(one: CurrentAssignment, other: CurrentAssignment) -> bool:
    return partitions_of(one.assigned) == partitions_of(other.assigned)
