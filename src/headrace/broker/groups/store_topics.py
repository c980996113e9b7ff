"""The topics of the data folder as groups see them."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from headrace.broker.groups.modern_group import TopicInfo
from headrace.errors import UnknownTopicId
from headrace.log.store import LogStore

__all__ = ["StoreTopics"]


class StoreTopics:
    """Looks topics up in the store."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    @property
    def version(self) -> int:
        """Grows when topics come, go, or get partitions."""
        return self._store.topics_version

    def find(self, name: str) -> TopicInfo | None:
        """A topic by its name."""
        topic = self._store.topics.get(name)
        return None if topic is None else TopicInfo(topic.id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of a topic, if it still exists."""
        try:
            return self._store.topic_by_id(topic_id).name
        except UnknownTopicId:
            return None

    def names(self) -> Iterable[str]:
        """All topics but the internal ones: a consumer of everything must not read its own commits."""
        return [topic.name for topic in self._store.topics.values() if not topic.internal]
