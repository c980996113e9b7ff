"""What a move notes on the target: topic ``headrace.moves``, so that it knows its own topics when it is started again.

Key ``SOURCE/TOPIC``, where SOURCE is the id of the cluster that is moved; value ``{"topic_id", "state", "ends"}``: the
id of the topic on the target, ``copying`` or ``verified``, and up to where it was verified. Key ``SOURCE/`` says
``{"state": "finished", "ends": {topic: ends}}`` when all is done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from headrace.errors import ServerAway, UnknownTopic
from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic, read_table

__all__ = ["COPYING", "FINISHED", "MOVES", "VERIFIED", "Notes"]

MOVES = "headrace.moves"
COPYING, VERIFIED, FINISHED = "copying", "verified", "finished"
_PATIENCE_S = 30.0

Ends = Mapping[int, int]


class Notes:
    """The notes of one move. Their topic is made for the first of them: to look at a target is to change nothing."""

    def __init__(self, target: Cluster, source_id: str) -> None:
        self._target = target
        self._source_id = source_id
        self._producer: Producer | None = None
        self._entries = _read(target, f"{source_id}/")

    def of(self, topic: str) -> dict[str, Any] | None:
        """What is noted of a topic."""
        return self._entries.get(f"{self._source_id}/{topic}")

    def note(self, topic: str, topic_id: str | None, state: str, ends: Ends | None = None) -> None:
        """Note something of a topic; it is on disk when this is back."""
        named = {str(index): end for index, end in (ends or {}).items()}
        self._put(f"{self._source_id}/{topic}", {"topic_id": topic_id, "state": state, "ends": named})

    @property
    def finished(self) -> dict[str, Any] | None:
        """The ends of all topics when the move was finished."""
        found = self._entries.get(f"{self._source_id}/")
        return None if found is None else found["ends"]

    def finish(self, ends: Mapping[str, Ends]) -> None:
        """Note that all is done."""
        named = {topic: {str(index): end for index, end in found.items()} for topic, found in ends.items()}
        self._put(f"{self._source_id}/", {"state": FINISHED, "ends": named})

    def _put(self, key: str, value: dict[str, Any]) -> None:
        self._entries[key] = value
        if self._producer is None:
            ensure_topic(self._target, MOVES)
            self._producer = Producer(self._target.config(enable_idempotence=True))
        self._producer.produce(MOVES, key=key, value=json.dumps(value, separators=(",", ":")).encode())
        if self._producer.flush(_PATIENCE_S):
            raise ServerAway(f"the target did not take a note of the move in {_PATIENCE_S:.0f} s.")


def _read(target: Cluster, prefix: str) -> dict[str, dict[str, Any]]:
    """What is noted: nothing, if no move has come that far."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            target.partitions(MOVES)
            return {key: json.loads(value) for key, value in read_table(target, MOVES, prefix).items()}
        except UnknownTopic:
            return {}
        except ServerAway:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
