"""A move from its beginning to its end. It can be killed anywhere and started again.

The order is what makes that safe: all records are copied, every record is compared, the source is seen to have been
quiet; only then do groups, settings and local files follow, each of which may be done again without harm. Before it is
said that all is done, the source is looked at once more, and where the target's partitions end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.errors import AlreadyExists, HeadraceError
from headrace.feed.cluster import Cluster
from headrace.move.copying import Address, Part, compare_all, copy_all, ensure_ends
from headrace.move.groups import set_group
from headrace.move.local import LocalState, find_local, move_checkpoints, move_view_store
from headrace.move.notes import VERIFIED, Notes
from headrace.move.obstacles import obstacles
from headrace.move.plan import Plan, changes, make_plan
from headrace.move.target import TargetTopics
from headrace.views import places

__all__ = ["Move", "Moved", "Told"]


class Told(Protocol):
    """Whoever follows a move."""

    def say(self, sentence: str) -> None:
        """Something was done."""
        ...

    def progress(self, label: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A long step begins; gives the function that is told how many offsets more are done."""
        ...


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has done."""

    topics: int
    offsets: int
    groups: int
    views: int
    checkpoints: int
    was_done: bool = False


class Move:
    """The log at ``source`` to the cluster at ``target``, and what holds something for it: folders, and the database
    of views (``views``) if it has one."""

    def __init__(
        self, source: Address, target: Address, folders: list[Path], replication: int = -1, views: str | None = None
    ) -> None:
        self._source, self._target = source, target
        self._here, self._there = (Cluster(one.bootstrap, one.settings) for one in (source, target))
        self._folders = folders
        self._replication = replication
        self._views = views

    def plan(self) -> Plan:
        """Look at what there is."""
        brokers = self._source.brokers()
        try:
            return make_plan(self._here, brokers)
        finally:
            brokers.close()

    def local(self, plan: Plan) -> list[LocalState]:
        """What the folders hold for the source."""
        return find_local(self._folders, plan.cluster_id)

    def apps_in_database(self, plan: Plan) -> list[str]:
        """The apps whose views the database keeps for the source."""
        if self._views is None:
            return []
        return places.apps_at(self._views, plan.cluster_id, {topic.topic_id: "" for topic in plan.topics})

    def ensure_possible(self, plan: Plan, *, accept_losses: bool) -> None:
        """Raise if the source is in use, if the target cannot do what is asked of it, or if it is the source; nothing
        is written to either."""
        if self._views is not None:
            places.ensure_usable(self._views)
        self._ensure_welcome()
        if self._there.id() == plan.cluster_id:
            raise HeadraceError("the target is the log itself.", hint="--to names the cluster to move to")
        if plan.busy:
            raise HeadraceError(
                "the log is in use; a move needs it quiet.",
                detail="; ".join(plan.busy),
                hint="stop what runs (apps, captures, consumers) and start the move again",
            )
        if plan.losses and not accept_losses:
            raise HeadraceError(
                "some settings exist only on the embedded log and would be lost.",
                detail="; ".join(plan.losses),
                hint="--accept-losses moves without them",
            )
        notes = Notes(self._there, plan.cluster_id)
        if notes.finished is None:
            TargetTopics(self._there, notes).ensure_free(plan.topics)
        if found := self.obstacles(plan):
            raise HeadraceError(
                "the target is not ready for what is to be moved.",
                detail="; ".join(found),
                hint="--dry-run shows what is in the way",
            )

    def obstacles(self, plan: Plan) -> list[str]:
        """What stands in the way on the target; nothing is written there."""
        brokers = self._target.brokers()
        try:
            brokers.any()  # who does not let us in is told by its reason; the client library says that nobody answers
            notes = Notes(self._there, plan.cluster_id)
            return obstacles(brokers, TargetTopics(self._there, notes), notes, plan)
        finally:
            brokers.close()

    def _ensure_welcome(self) -> None:
        """Raise the reason if the target does not let us in: the client library only says that nobody answers."""
        brokers = self._target.brokers()
        try:
            brokers.any()
        finally:
            brokers.close()

    def run(self, plan: Plan, told: Told) -> Moved:
        """Do it all; a move that was finished before is left alone."""
        notes = Notes(self._there, plan.cluster_id)
        ends = {topic.name: topic.ends for topic in plan.topics}
        if notes.finished is not None:
            return self._again(plan, notes, ends, told)
        topics = TargetTopics(self._there, notes, self._replication)
        topics.ensure_free(plan.topics)
        ids = {topic.topic_id: topics.prepare(topic) for topic in plan.topics}
        wanted = [topic for topic in plan.topics if not topics.is_verified(topic)]
        parts = [part for topic in wanted for part in topic.parts]
        self._copy(plan, parts, told)
        self._ensure_quiet(plan)
        self._compare([part for part in _unverified(parts, notes) if part.start < part.end], told)
        self._ensure_true(plan)
        for topic in wanted:
            notes.note(topic.name, ids[topic.topic_id], VERIFIED, ends[topic.name])
        self._set_groups(plan, told)
        for topic in plan.topics:
            topics.settle(topic)
        views, checkpoints = self._move_local(plan, ids, told)
        self._ensure_true(plan)
        views += self._give_views(plan, ids, told)
        notes.finish(ends)
        offsets = sum(topic.offsets for topic in plan.topics)
        return Moved(len(plan.topics), offsets, len(plan.groups), views, checkpoints)

    def _again(self, plan: Plan, notes: Notes, ends: Mapping[str, Mapping[int, int]], told: Told) -> Moved:
        finished = notes.finished or {}
        now = {topic: {str(index): end for index, end in found.items()} for topic, found in ends.items()}
        if now != finished:
            changed = ", ".join(sorted(name for name in now if now[name] != finished.get(name)))
            raise AlreadyExists(
                "this log was moved to that cluster before, and was written to since.",
                detail=f"changed: {changed or 'topics were deleted'}",
                hint="what was moved may be in use there; to move anew, delete the topics there, headrace.moves too",
            )
        noted = {topic.topic_id: notes.of(topic.name) for topic in plan.topics}
        ids = {ours: str(found["topic_id"]) for ours, found in noted.items() if found is not None}
        return Moved(len(ends), 0, 0, self._give_views(plan, ids, told), 0, was_done=True)

    def _copy(self, plan: Plan, parts: list[Part], told: Told) -> None:
        with told.progress("copying", sum(part.end - part.start for part in parts)) as progress:
            copy_all(self._source, self._target, f"headrace-move-{plan.cluster_id}", parts, progress)
        told.say(f"copied {_count(parts)}")

    def _ensure_true(self, plan: Plan) -> None:
        """Raise unless the plan is still what there is, and the target has all of it and nothing else."""
        self._ensure_quiet(plan)
        ensure_ends(self._target, [part for topic in plan.topics for part in topic.parts])

    def _ensure_quiet(self, plan: Plan) -> None:
        told = changes(plan, self.plan())
        if told:
            raise HeadraceError(
                "the log was used while it was moved; it is to be quiet.",
                detail="; ".join(told),
                hint="stop what uses the log and start the move again: it goes on from where it is",
            )

    def _compare(self, parts: list[Part], told: Told) -> None:
        with told.progress("comparing", sum(part.end - part.start for part in parts)) as progress:
            found = compare_all(self._source, self._target, parts, progress)
        if found:
            raise HeadraceError(
                "the copy is not the same as the log.",
                detail="; ".join(f"{one.place}: {one.told}" for one in found),
                hint="delete these topics on the target and start the move again: it copies them anew",
            )
        told.say(f"compared {_count(parts)}: every record is the same, at the same offset")

    def _set_groups(self, plan: Plan, told: Told) -> None:
        brokers = self._target.brokers()
        try:
            for group in plan.groups:
                set_group(self._there, brokers, group)
        finally:
            brokers.close()
        told.say(f"{len(plan.groups)} groups are where they were")

    def _move_local(self, plan: Plan, ids: Mapping[str, str], told: Told) -> tuple[int, int]:
        views = checkpoints = 0
        for state in self.local(plan):
            move_checkpoints(state, self._there_id())
            checkpoints += len(state.apps)
            views += sum(move_view_store(store, ids) for store in state.stores)
            told.say(f"{state.folder}: checkpoints of {len(state.apps)} apps and {views} views go on with the target")
        return views, checkpoints

    def _give_views(self, plan: Plan, ids: Mapping[str, str], told: Told) -> int:
        if self._views is None:
            return 0
        given = places.give(self._views, plan.cluster_id, self._there_id(), ids)
        views = sum(given.values())
        told.say(f"the database: {views} views of {', '.join(given) or 'no app'} go on with the target")
        return views

    def _there_id(self) -> str:
        return self._there.id() or "unnamed"


def _unverified(parts: list[Part], notes: Notes) -> list[Part]:
    """What was not compared by an earlier attempt."""
    found = []
    for part in parts:
        noted = notes.of(part.topic)
        ends = noted["ends"] if noted is not None and noted["state"] == VERIFIED else {}
        found.append(part._replace(start=max(part.start, ends.get(str(part.partition), 0))))
    return found


def _count(parts: list[Part]) -> str:
    offsets = sum(part.end - part.start for part in parts)
    return f"{len(parts)} partitions, {offsets:,} offsets"
