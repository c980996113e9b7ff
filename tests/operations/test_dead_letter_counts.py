"""Dead letters are counted by reading them, and no more often than they change."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.operations import dead_letters
from headrace.operations.cluster import PartitionOffsets
from headrace.operations.dead_letters import LetterCounts


class Lies:
    """A cluster with one topic, of one partition."""

    def __init__(self) -> None:
        self.end = 3

    def partitions(self, topic: str) -> list[tuple[str, int]]:
        return [(topic, 0)]

    def offsets(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], PartitionOffsets]:
        return {place: PartitionOffsets(0, self.end) for place in places}


def test_a_topic_is_read_again_only_after_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    monkeypatch.setattr(dead_letters, "_letters", lambda _, bounds: read.append(bounds) or ["a letter"] * len(read))
    cluster: Any = Lies()
    count = LetterCounts()
    assert [count(cluster, "mails.dead") for _ in range(3)] == [1, 1, 1]
    cluster.end = 5
    assert [count(cluster, "mails.dead") for _ in range(2)] == [2, 2]
    assert count(cluster, "others.dead") == 3
    assert len(read) == 3
