"""One step of a member towards its target assignment: first give up, then take over.

::

              target changed, must give up            gave up (its heartbeat no longer lists them)
    STABLE ────────────────────────────► UNREVOKED ──────────────────────────────┐
       ▲ ▲                                                                        │
       │ └───────────────── all that it is to have is free ◄──────────────────────┤
       └──── the rest became free ──── UNRELEASED ◄── others still have a part ◄──┘

A member stays in its epoch until it has given up what is not its own any more; then it enters the target's epoch with
all that nobody else has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.broker.groups.modern_records import Assigned, CurrentAssignment, MemberState, Partitions

__all__ = ["Target", "reconciled"]


class Target(NamedTuple):
    """Where a member is heading: only topics that it subscribes to count."""

    epoch: int
    partitions: Partitions
    subscribed: Collection[UUID]


def reconciled(
    current: CurrentAssignment,
    target: Target,
    owned: Partitions | None,
    is_free: Callable[[UUID, int], bool],
    subscription_changed: bool,
) -> CurrentAssignment:
    """What the member has next. ``owned`` is what it says that it owns, None if it says nothing."""
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        return _without_unsubscribed(current, target, owned) if subscription_changed else current
    if current.state is MemberState.UNREVOKED and _owns_any(owned, current.revoking):
        return _without_unsubscribed(current, target, owned) if subscription_changed else current
    return _next(current, target, owned, is_free)


def _next(
    current: CurrentAssignment,
    target: Target,
    owned: Partitions | None,
    is_free: Callable[[UUID, int], bool],
) -> CurrentAssignment:
    kept: dict[UUID, dict[int, int]] = {}
    given_up: dict[UUID, dict[int, int]] = {}
    for topic, epochs in current.assigned.items():
        wanted = target.partitions.get(topic, frozenset()) if topic in target.subscribed else frozenset()
        for partition, epoch in epochs.items():
            side = kept if partition in wanted else given_up
            side.setdefault(topic, {})[partition] = epoch
    if given_up and _owns_any(owned, given_up):
        return _moved(current, current.epoch, MemberState.UNREVOKED, kept, given_up)
    waits = False
    for topic, wanted in target.partitions.items():
        for partition in wanted if topic in target.subscribed else ():
            if partition in kept.get(topic, ()):
                continue
            if is_free(topic, partition) or partition in current.revoking.get(topic, ()):
                kept.setdefault(topic, {})[partition] = target.epoch
            else:
                waits = True
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return _moved(current, target.epoch, state, kept, {})


def _without_unsubscribed(current: CurrentAssignment, target: Target, owned: Partitions | None) -> CurrentAssignment:
    """The member no longer wants some topics: it gives them up without waiting for the next target."""
    kept = {topic: epochs for topic, epochs in current.assigned.items() if topic in target.subscribed}
    if len(kept) == len(current.assigned):
        return current
    revoking: dict[UUID, Mapping[int, int]] = dict(current.revoking)
    for topic, epochs in current.assigned.items():
        if topic not in target.subscribed:
            revoking[topic] = {**revoking.get(topic, {}), **epochs}
    if _owns_any(owned, revoking):
        return _moved(current, current.epoch, MemberState.UNREVOKED, kept, revoking)
    return _moved(current, current.epoch, current.state, kept, current.revoking)


def _moved(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Assigned, revoking: Assigned
) -> CurrentAssignment:
    return CurrentAssignment(epoch, current.epoch, state, assigned, revoking)


def _owns_any(owned: Partitions | None, given_up: Assigned) -> bool:
    """Whether the member still has any of these; if it does not say, it has."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(given_up.get(topic, ())) for topic, partitions in owned.items())
