"""Who gets which partitions: the server-side assignors ``uniform``, ``range`` and (for share groups) ``simple``.

Pure functions of members with the topics they subscribe to, how many partitions each topic has, and what members were
to have before. Members are served in the order in which they are given. All of them keep what they can: balance comes
first, then members keep their partitions.

- ``uniform``: each partition to one member; loads differ by one at most, as far as subscriptions allow.
- ``range``: topic by topic, neighbouring partitions to one member. Topics with as many partitions and the same members
  are cut alike, so that they can be joined.
- ``simple``: every member gets something. A partition may have several members; there are no more than it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from uuid import UUID

from headrace.broker.groups.modern_records import Partitions

__all__ = ["CONSUMER_ASSIGNORS", "Assignment", "Assignor", "Members", "assign_range", "assign_simple", "assign_uniform"]

Members = Mapping[str, frozenset[UUID]]
Assignment = dict[str, Partitions]
Assignor = Callable[[Members, Mapping[UUID, int], Mapping[str, Partitions]], Assignment]

Place = tuple[UUID, int]


def assign_uniform(members: Members, counts: Mapping[UUID, int], before: Mapping[str, Partitions]) -> Assignment:
    """Each partition to one member, loads as even as subscriptions allow."""
    if len(set(members.values())) <= 1:
        held = _uniform_alike(members, counts, before)
    else:
        held = _uniform_mixed(members, counts, before)
    return {member: _by_topic(places) for member, places in held.items()}


def _uniform_alike(
    members: Members, counts: Mapping[UUID, int], before: Mapping[str, Partitions]
) -> dict[str, list[Place]]:
    """All subscribe to the same: everyone has the same share, and the first few one more."""
    free = dict.fromkeys(_places(next(iter(members.values()), ()), counts))
    held: dict[str, list[Place]] = {}
    quota, extra = divmod(len(free), len(members) or 1)
    for member in members:
        kept = [place for place in _flat(before.get(member, {})) if place in free]
        size = quota
        if extra and len(kept) > quota:
            size, extra = quota + 1, extra - 1
        held[member] = kept[:size]
        for place in held[member]:
            del free[place]
    left = iter(free)
    for places in held.values():
        size = quota
        if extra and len(places) <= quota:
            size, extra = quota + 1, extra - 1
        places.extend(islice(left, max(size - len(places), 0)))
    return held


def _uniform_mixed(
    members: Members, counts: Mapping[UUID, int], before: Mapping[str, Partitions]
) -> dict[str, list[Place]]:
    """Subscriptions differ: keep, hand out what is free to whoever has least, then even out."""
    interested = _subscribers(members)
    held: dict[str, dict[Place, None]] = {member: {} for member in members}
    taken: set[Place] = set()
    for member, topics in members.items():
        for place in _flat(before.get(member, {})):
            if place[0] in topics and place[1] < counts.get(place[0], 0) and place not in taken:
                held[member][place] = None
                taken.add(place)
    for topic in sorted(interested, key=lambda topic: (len(interested[topic]), topic.bytes)):
        heap = [(len(held[member]), number, member) for number, member in enumerate(interested[topic])]
        heapify(heap)
        for place in _places((topic,), counts):
            if place not in taken:
                load, number, member = heappop(heap)
                held[member][place] = None
                heappush(heap, (load + 1, number, member))
    while _even_out(held, interested):
        pass
    return {member: list(places) for member, places in held.items()}


def _even_out(held: dict[str, dict[Place, None]], interested: Mapping[UUID, Sequence[str]]) -> bool:
    """Move partitions from members to others that have at least two less; False if there was nothing to move."""
    moved = False
    for member in sorted(held, key=lambda member: -len(held[member])):
        by_topic: dict[UUID, list[Place]] = {}
        for place in held[member]:
            by_topic.setdefault(place[0], []).append(place)
        for topic, places in by_topic.items():
            heap = [(len(held[other]), number, other) for number, other in enumerate(interested[topic])]
            heapify(heap)
            while places and heap[0][0] + 1 < len(held[member]):
                load, number, other = heappop(heap)
                place = places.pop()
                del held[member][place]
                held[other][place] = None
                heappush(heap, (load + 1, number, other))
                moved = True
    return moved


def assign_range(members: Members, counts: Mapping[UUID, int], before: Mapping[str, Partitions]) -> Assignment:
    """Topic by topic, in ranges."""
    result: dict[str, dict[UUID, frozenset[int]]] = {member: {} for member in members}
    for topic, interested in _subscribers(members).items():
        for member, partitions in _ranges(topic, interested, counts.get(topic, 0), before).items():
            if partitions:
                result[member][topic] = frozenset(partitions)
    return dict(result)


def _ranges(
    topic: UUID, interested: Sequence[str], count: int, before: Mapping[str, Partitions]
) -> dict[str, list[int]]:
    quota, extra = divmod(count, len(interested))
    free = dict.fromkeys(range(count))
    held: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for member in interested:
        kept = [each for each in sorted(before.get(member, {}).get(topic, ())) if each in free]
        sizes[member] = quota
        if extra and len(kept) > quota:
            sizes[member], extra = quota + 1, extra - 1
        held[member] = kept[: sizes[member]]
        for partition in held[member]:
            del free[partition]
    left = iter(free)
    for member in interested:
        if extra and sizes[member] == quota:
            sizes[member], extra = quota + 1, extra - 1
        held[member].extend(islice(left, sizes[member] - len(held[member])))
    return held


def assign_simple(members: Members, counts: Mapping[UUID, int], before: Mapping[str, Partitions]) -> Assignment:
    """Share groups: everyone gets something to do. Who subscribes to the same shares all of it, else topic by topic."""
    held: dict[str, list[Place]] = {member: [] for member in members}
    if len(set(members.values())) <= 1:
        pools = [(list(members), list(_places(next(iter(members.values()), ()), counts)))]
    else:
        pools = [(interested, list(_places((topic,), counts))) for topic, interested in _subscribers(members).items()]
    for interested, places in pools:
        if interested and places:
            _share_out(interested, places, before, held)
    return {member: _by_topic(places) for member, places in held.items()}


def _share_out(
    members: Sequence[str], places: Sequence[Place], before: Mapping[str, Partitions], held: dict[str, list[Place]]
) -> None:
    """Every place to equally many members, and every member equally many places, as far as numbers allow."""
    sharing = -(-len(members) // len(places))
    shares = sharing * len(places)
    missing = dict.fromkeys(places, sharing)
    wanted: dict[str, int] = {}
    for number, member in enumerate(members):
        size = -(-shares * (number + 1) // len(members)) + (-shares * number // len(members))
        kept = [place for place in _flat(before.get(member, {})) if missing.get(place)][:size]
        for place in kept:
            missing[place] -= 1
        held[member].extend(kept)
        wanted[member] = size - len(kept)
    for place, count in missing.items():
        for member in sorted((each for each in members if wanted[each]), key=lambda each: -wanted[each]):
            if not count:
                break
            if place not in held[member]:
                held[member].append(place)
                wanted[member] -= 1
                count -= 1


CONSUMER_ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors that a consumer group's members may ask for; the first is the default."""


def _subscribers(members: Members) -> dict[UUID, list[str]]:
    interested: dict[UUID, list[str]] = {}
    for member, topics in members.items():
        for topic in topics:
            interested.setdefault(topic, []).append(member)
    return interested


def _places(topics: Iterable[UUID], counts: Mapping[UUID, int]) -> Iterable[Place]:
    for topic in sorted(topics, key=lambda topic: topic.bytes):
        for partition in range(counts.get(topic, 0)):
            yield topic, partition


def _flat(partitions: Partitions) -> Iterable[Place]:
    for topic, numbers in partitions.items():
        for partition in sorted(numbers):
            yield topic, partition


def _by_topic(places: Iterable[Place]) -> Partitions:
    grouped: dict[UUID, set[int]] = {}
    for topic, partition in places:
        grouped.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in grouped.items()}
