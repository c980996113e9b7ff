"""Dead letters of queues, and how they get back to where they came from.

A redriven record is written to its old topic and partition with its own key, value and headers; in the same
transaction the dead-letter topic gets a note (a record without key and value, whose header ``__dlq.redriven`` lists the
offsets of its partition), so a record is redriven once, whoever asks how often. A second redrive at the same time
fences the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidRequest
from headrace.operations.cluster import Cluster, Partition, failure
from headrace.operations.queues import group_settings
from headrace.operations.ranges import messages_in
from headrace.operations.record_json import record_json
from headrace.operations.share_states import shared_by

__all__ = ["Letter", "LetterCounts", "Redrive", "dead_letter_topics", "letter_json", "letters_in", "place_of"]

Bounds = dict[Partition, tuple[int, int]]
"""Where partitions begin and end."""

_PREFIX = "__dlq.errors."
_REDRIVEN = "__dlq.redriven"
_SETTING = "headrace.dead.letter.topic"
_CHUNK = 500
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: where it lies, where it came from and why, and what it is."""

    partition: int
    offset: int
    topic: str
    came_from: int
    came_at: int
    group: str
    reason: str
    attempts: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class LetterCounts:
    """How many dead letters lie in topics, for who asks often: a topic whose bounds are as they were is not read again.
    Whatever changes the number, also a transaction that ends, moves them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Bounds, int]] = {}

    def __call__(self, cluster: Cluster, topic: str) -> int:
        """The dead letters of a topic."""
        bounds = _bounds(cluster, topic)
        known = self._known.get(topic)
        if known is None or known[0] != bounds:
            known = self._known[topic] = bounds, len(_letters(cluster, bounds))
        return known[1]


def dead_letter_topics(cluster: Cluster, count: Callable[[Cluster, str], int] | None = None) -> list[dict[str, Any]]:
    """The dead-letter topics of all queues: their groups, the letters that lie there, and those that wait to."""
    count = count or LetterCounts()
    waiting: dict[str, int] = {}
    for one in shared_by(cluster):
        waiting[one.group] = waiting.get(one.group, 0) + one.waiting_dead
    topics: dict[str, list[str]] = {}
    for group in waiting:
        topic = group_settings(cluster, group).get(_SETTING)
        if topic:
            topics.setdefault(topic, []).append(group)
    existing = set(cluster.topic_names())
    return [
        {
            "topic": topic,
            "groups": groups,
            "letters": count(cluster, topic) if topic in existing else 0,
            "waiting": sum(waiting[group] for group in groups),
        }
        for topic, groups in sorted(topics.items())
    ]


class Redrive:
    """One redrive: fence others, look what is left, send it in transactions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._cluster.partitions(topic)
        self._producer = cluster.producer(transactional_id=f"headrace-redrive-{topic}", linger_ms=5)

    def run(self, wanted: set[tuple[int, int]]) -> tuple[int, int]:
        """How many were sent, and how many have nowhere to go."""
        from confluent_kafka import KafkaException

        try:
            self._producer.init_transactions(_PATIENCE_S)
            found = letters_in(self._cluster, self._topic)
            chosen = [one for one in found if not wanted or (one.partition, one.offset) in wanted]
            homes = self._homes({one.topic for one in chosen})
            going = [one for one in chosen if (one.topic, one.came_from) in homes]
            for start in range(0, len(going), _CHUNK):
                self._send(going[start : start + _CHUNK])
        except KafkaException as error:
            raise failure(error.args[0], f"{self._topic} was not redriven to its end", self._cluster.server) from None
        return len(going), len(chosen) - len(going)

    def _homes(self, topics: set[str]) -> set[tuple[str, int]]:
        existing = set(self._cluster.topic_names())
        return {place for topic in sorted(topics & existing) for place in self._cluster.partitions(topic)}

    def _send(self, letters: Sequence[Letter]) -> None:
        producer = self._producer
        producer.begin_transaction()
        for one in letters:
            producer.produce(
                one.topic, one.value, one.key, partition=one.came_from, headers=list(one.headers), on_delivery=_ignore
            )
        for partition in sorted({one.partition for one in letters}):
            offsets = ",".join(str(one.offset) for one in letters if one.partition == partition)
            producer.produce(
                self._topic,
                None,
                None,
                partition=partition,
                headers=[(_REDRIVEN, offsets.encode())],
                on_delivery=_ignore,
            )
        producer.commit_transaction(_PATIENCE_S)


def _ignore(error: object, message: object) -> None:
    """The transaction says whether all arrived."""


def letters_in(cluster: Cluster, topic: str) -> list[Letter]:
    """The dead letters that were not redriven."""
    return _letters(cluster, _bounds(cluster, topic))


def _bounds(cluster: Cluster, topic: str) -> Bounds:
    bounds = cluster.offsets(cluster.partitions(topic))
    return {place: (bound.start, bound.end) for place, bound in bounds.items()}


def _letters(cluster: Cluster, bounds: Bounds) -> list[Letter]:
    found: dict[tuple[int, int], Letter] = {}
    gone: set[tuple[int, int]] = set()
    for message in messages_in(cluster, bounds):
        headers = message.headers() or []
        for name, value in headers:
            if name == _REDRIVEN:
                gone.update((message.partition(), int(offset)) for offset in (value or b"").split(b",") if offset)
        letter = _letter(message, headers)
        if letter is not None:
            found[letter.partition, letter.offset] = letter
    return [letter for place, letter in sorted(found.items()) if place not in gone]


def _letter(message: Any, headers: Sequence[tuple[str, bytes | None]]) -> Letter | None:
    """A record as a dead letter; None if its headers do not say that it is one."""
    said = {name.removeprefix(_PREFIX): (value or b"").decode() for name, value in _own(headers)}
    try:
        return Letter(
            message.partition(),
            message.offset(),
            said["topic"],
            int(said["partition"]),
            int(said["offset"]),
            said["group"],
            said.get("message", ""),
            int(said.get("delivery.count", "0")),
            int(said.get("timestamp", message.timestamp()[1])),
            message.key(),
            message.value(),
            tuple((name, value) for name, value in headers if not name.startswith(_PREFIX)),
        )
    except (KeyError, ValueError):
        return None


def _own(headers: Iterable[tuple[str, bytes | None]]) -> Iterable[tuple[str, bytes | None]]:
    return ((name, value) for name, value in headers if name.startswith(_PREFIX))


def letter_json(topic: str, letter: Letter) -> dict[str, Any]:
    """A dead letter as a JSON object."""
    origin = {
        "topic": letter.topic,
        "partition": letter.came_from,
        "offset": letter.came_at,
        "timestamp_ms": letter.timestamp_ms,
    }
    record = record_json(
        topic,
        letter.partition,
        letter.offset,
        letter.timestamp_ms,
        letter.key,
        letter.value,
        list(letter.headers),
    )
    del record["timestamp_ms"]
    why = {"group": letter.group, "reason": letter.reason, "attempts": letter.attempts}
    return {"letter": f"{letter.partition}:{letter.offset}", "from": origin, **why, **record}


def place_of(text: str) -> tuple[int, int]:
    """PARTITION:OFFSET as numbers."""
    found = re.fullmatch(r"(\d{1,10}):(\d{1,19})", text, re.ASCII)
    if found is None:
        raise InvalidRequest(f"{text!r} is not PARTITION:OFFSET.", hint="`headrace dlq show` names dead letters so")
    return int(found[1]), int(found[2])
