"""The data folder: topics, their settings and their partitions.

::

    DATA/
      node                     a checked file: format, cluster id, node id, leader epoch, stopped cleanly or not
      producer-ids             a checked file: the next producer id that was never given out
      lock                     held by the one process that owns the folder
      restoring                only while a backup is restored into it: no node starts on it
      topics/NAME/topic        a checked file: id, partitions, settings
      topics/NAME/0/           a partition (see partition.py)
      topics/~deleted-ID/      a topic on its way out

The leader epoch grows by one whenever the last process did not stop cleanly: records written with acks=1 may then be
gone with the machine's page cache, and clients can ask where an epoch ended.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from headrace.clock import Clock, SystemClock
from headrace.errors import (
    FolderTooNew,
    InvalidPartitions,
    InvalidTopicName,
    StorageError,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from headrace.log.checked_file import DamagedFile, read_checked, write_checked
from headrace.log.files import DiskFiles, Files, Lock
from headrace.log.job import Job
from headrace.log.maintenance import CheckpointJob, Trash, partition_jobs
from headrace.log.partition import PartitionLog, PartitionPlace, storage_error
from headrace.log.recovery import open_partition
from headrace.log.segment import OpenFiles
from headrace.log.topic_config import TopicConfig

__all__ = ["FORMAT", "RESTORING", "LogStore", "Topic", "ensure_topic_name"]

_logger = logging.getLogger(__name__)

FORMAT = 1
"""The format of the data folder that this version writes."""

RESTORING = "restoring"
"""A file of this name is in a data folder while a backup is being restored into it."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PRODUCER_ID_BLOCK = 1000
_CLOSING_THREADS = 8
_DELETED = "~deleted-"
_CREATING = "~creating-"


def ensure_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless a topic may have this name."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        shown = name if len(name) <= 60 else f"{name[:60]}..."
        raise InvalidTopicName(
            f"{shown!r} is not a topic name.",
            hint="Use 1 to 249 letters, digits, dots, underscores and hyphens.",
        )


@dataclass(slots=True)
class Topic:
    """A topic: a name, an id that no other topic ever had, settings and partitions."""

    name: str
    id: UUID
    internal: bool
    partitions: list[PartitionLog]
    overrides: dict[str, str]
    config: TopicConfig
    created_ms: int


class LogStore:
    """All topics of one data folder; one process at a time owns it.

    ``topics_version`` grows when a topic comes, goes or gets partitions: who keeps something of them can tell.
    """

    def __init__(self, path: Path, files: Files, clock: Clock, defaults: Mapping[str, str]) -> None:
        self.path = path
        self.clock = clock
        self.defaults = dict(defaults)
        self.topics: dict[str, Topic] = {}
        self.topics_version = 0
        self.cluster_id = ""
        self.node_id = 1
        self.leader_epoch = 0
        self._files = files
        self._open_files = OpenFiles()
        self._by_id: dict[bytes, Topic] = {}
        self._trash = Trash(files)
        self._next_producer_id = self._producer_ids_end = 0
        self._deleting: list[Path] = []
        self._lock: Lock | None = None
        self.on_sync_wanted: Callable[[PartitionLog], None] | None = None
        self.on_removal_wanted: Callable[[PartitionLog], None] | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> LogStore:
        """Take the folder, recover what is in it, and own it until ``close``."""
        store = cls(path, files or DiskFiles(), clock or SystemClock(), defaults or {})
        store._files.make_folder(path / "topics")
        store._lock = store._files.lock(path / "lock")
        try:
            store._ensure_restored()
            store._read_node()
            store._read_topics()
            store._read_producer_ids()
        except BaseException:
            store._release()
            raise
        return store

    # Topics ----------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of this name, or UnknownTopic."""
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopic(f"there is no topic {name!r}.") from None

    def topic_by_id(self, topic_id: UUID | bytes) -> Topic:
        """The topic of this id (also as its 16 bytes), or UnknownTopicId."""
        raw = topic_id if isinstance(topic_id, bytes) else topic_id.bytes
        try:
            return self._by_id[raw]
        except KeyError:
            raise UnknownTopicId(f"there is no topic with id {UUID(bytes=raw)}.") from None

    def partition(self, name: str, index: int) -> PartitionLog:
        """A partition, or UnknownTopic."""
        topic = self.topic(name)
        if not 0 <= index < len(topic.partitions):
            raise UnknownTopic(f"topic {name!r} has {len(topic.partitions)} partitions, not {index + 1}.")
        return topic.partitions[index]

    def check_new_topic(self, name: str, partitions: int, overrides: Mapping[str, str]) -> TopicConfig:
        """Raise what creating this topic would raise, without creating it; its settings."""
        ensure_topic_name(name)
        if name in self.topics:
            raise TopicExists(f"topic {name!r} already exists.")
        alike = name.replace(".", "_")
        if "." in name or "_" in name:
            for other in self.topics:
                if other.replace(".", "_") == alike:
                    raise InvalidTopicName(
                        f"topic {name!r} would clash with {other!r}: '.' and '_' count as the same in metric names."
                    )
        if partitions < 1:
            raise InvalidPartitions(f"a topic needs at least one partition, not {partitions}.")
        return TopicConfig.parse(overrides, self.defaults)

    def create_topic(
        self, name: str, partitions: int, overrides: Mapping[str, str] | None = None, *, internal: bool = False
    ) -> Topic:
        """Make a topic; it is on disk when this returns."""
        overrides = dict(overrides or {})
        config = self.check_new_topic(name, partitions, overrides)
        topic = Topic(name, uuid4(), internal, [], overrides, config, self.clock.now_ms())
        folder = self._folder(name)
        if self._files.exists(folder):
            raise StorageError(
                f"the folder {folder} exists, but its topic could not be read.", hint="See the log of the start-up."
            )
        building = self.path / "topics" / f"{_CREATING}{topic.id}"
        try:
            for index in range(partitions):
                self._files.make_folder(building / str(index))
            self._write_topic(topic, building, partitions)
            self._files.rename(building, folder)
            self._files.sync_folder(folder.parent)
        except OSError as error:
            self._files.remove_folder(building)
            raise storage_error(error, f"topic {name!r}") from error
        self._open_partitions(topic, partitions)
        self._register(topic)
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic; it is gone for good when this returns, its files a little later."""
        topic = self.topic(name)
        aside = self.path / "topics" / f"{_DELETED}{topic.id}"
        try:
            self._files.rename(self._folder(name), aside)
            self._files.sync_folder(aside.parent)
        except OSError as error:
            raise storage_error(error, f"topic {name!r}") from error
        del self.topics[name], self._by_id[topic.id.bytes]
        self.topics_version += 1
        for partition in topic.partitions:
            partition.deleted = True
            partition.close()
            partition.notify()
        self._deleting.append(aside)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, ``total`` in all."""
        topic = self.topic(name)
        if total <= len(topic.partitions):
            raise InvalidPartitions(
                f"topic {name!r} has {len(topic.partitions)} partitions; it can only get more, not {total}."
            )
        folder = self._folder(name)
        try:
            for index in range(len(topic.partitions), total):
                self._files.make_folder(folder / str(index))
            self._write_topic(topic, folder, total)
        except OSError as error:
            raise storage_error(error, f"topic {name!r}") from error
        self._open_partitions(topic, total)
        self.topics_version += 1

    def set_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace a topic's own settings by these."""
        topic = self.topic(name)
        config = TopicConfig.parse(overrides, self.defaults)
        before, topic.overrides = topic.overrides, dict(overrides)
        try:
            if topic.config.ring is not None:  # its start may no longer follow from the new settings
                for partition in topic.partitions:
                    partition.write_checkpoint()
            self._write_topic(topic, self._folder(name), len(topic.partitions))
        except OSError as error:
            topic.overrides = before
            raise storage_error(error, f"topic {name!r}") from error
        topic.config = config
        for partition in topic.partitions:
            partition.config = config
            partition.maybe_drop_oldest()

    # Producer ids ----------------------------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """A producer id that was never given out."""
        if self._next_producer_id == self._producer_ids_end:
            end = self._producer_ids_end + _PRODUCER_ID_BLOCK
            try:
                write_checked(self._files, self.path / "producer-ids", str(end).encode(), keep_previous=True)
            except OSError as error:
                raise storage_error(error, "producer ids") from error
            self._producer_ids_end = end
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # Maintenance and the end -----------------------------------------------------------------------------------

    def jobs(self, *, retention: bool = True) -> Iterator[Job]:
        """What is due, with or without retention; run and finish each job before asking for the next."""
        self._trash.empty(self.clock.now_ms())
        for topic in list(self.topics.values()):
            for partition in topic.partitions:
                yield from self.jobs_of(partition, retention=retention)

    def jobs_of(self, partition: PartitionLog, *, retention: bool = True) -> Iterator[Job]:
        """What is due for one partition."""
        if not partition.deleted:
            yield from partition_jobs(partition, self._trash, retention=retention)

    def remove_deleted(self) -> None:
        """Remove the files of deleted topics; may be called on any thread."""
        while self._deleting:
            self._files.remove_folder(self._deleting.pop())

    def close(self) -> None:
        """Sync and checkpoint everything, note the clean stop and let the folder go."""
        partitions = [p for topic in self.topics.values() for p in topic.partitions]
        jobs = [CheckpointJob(p) for p in partitions if not p.failed and p.checkpointed_offset != p.end_offset]
        with ThreadPoolExecutor(_CLOSING_THREADS) as pool:
            saved = list(pool.map(_run, jobs))
        for job in jobs:
            job.finish()
        for partition in partitions:
            partition.close()
        self.remove_deleted()
        if all(saved) and not any(p.failed for p in partitions):
            self._write_node(clean=True)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Reading the folder ----------------------------------------------------------------------------------------

    def _ensure_restored(self) -> None:
        if self._files.exists(self.path / RESTORING):
            raise StorageError(
                f"the data folder {self.path} holds a restored backup that is not whole.",
                hint="Do it again: headrace restore BACKUP --data DIR.",
            )

    def _read_node(self) -> None:
        payload = read_checked(self._files, self.path / "node")
        if payload is None:
            self.cluster_id = _new_cluster_id()
            for folder in (self.path, *self.path.absolute().parents):
                self._files.sync_folder(folder)
        else:
            node = json.loads(payload)
            if node["format"] > FORMAT:
                raise FolderTooNew(
                    f"the data folder {self.path} has format {node['format']}, this version knows up to {FORMAT}.",
                    hint="Upgrade Headrace, or choose another folder with --data.",
                )
            self.cluster_id, self.node_id = node["cluster_id"], node["node_id"]
            self.leader_epoch = node["leader_epoch"] + (0 if node["clean"] else 1)
        self._write_node(clean=False)

    def _write_node(self, *, clean: bool) -> None:
        write_checked(self._files, self.path / "node", self._node(clean=clean), keep_previous=True)

    def _node(self, *, clean: bool) -> bytes:
        node = {
            "format": FORMAT,
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "leader_epoch": self.leader_epoch,
            "clean": clean,
        }
        return json.dumps(node).encode()

    def _read_producer_ids(self) -> None:
        payload = read_checked(self._files, self.path / "producer-ids")
        self._next_producer_id = self._producer_ids_end = int(payload) if payload else 0

    def _read_topics(self) -> None:
        folder = self.path / "topics"
        for name in self._files.names(folder):
            if name.startswith(_CREATING):
                self._files.remove_folder(folder / name)
            elif name.startswith(_DELETED):
                self._deleting.append(folder / name)
            else:
                self._read_topic(name)

    def _read_topic(self, name: str) -> None:
        try:
            payload = read_checked(self._files, self._folder(name) / "topic")
        except DamagedFile as damaged:
            payload = None
            _logger.error("%s", damaged)
        if payload is None:
            _logger.error("topic %r cannot be served: its settings are lost; its data is kept", name)
            return
        fields = json.loads(payload)
        config = TopicConfig.parse(fields["overrides"], self.defaults)
        topic = Topic(
            name, UUID(fields["id"]), fields["internal"], [], fields["overrides"], config, fields["created_ms"]
        )
        self._open_partitions(topic, fields["partitions"])
        self._register(topic)

    def _write_topic(self, topic: Topic, folder: Path, partitions: int) -> None:
        write_checked(self._files, folder / "topic", self.topic_file(topic, partitions), keep_previous=True)

    def topic_file(self, topic: Topic, partitions: int) -> bytes:
        """What the file ``topic`` says of it."""
        fields = {
            "id": str(topic.id),
            "internal": topic.internal,
            "partitions": partitions,
            "overrides": topic.overrides,
            "created_ms": topic.created_ms,
        }
        return json.dumps(fields).encode()

    def own_files(self) -> dict[str, bytes]:
        """What the files ``node`` and ``producer-ids`` say while it runs."""
        return {"node": self._node(clean=False), "producer-ids": str(self._producer_ids_end).encode()}

    def _open_partitions(self, topic: Topic, total: int) -> None:
        for index in range(len(topic.partitions), total):
            place = PartitionPlace(
                topic.name,
                topic.id,
                index,
                self._folder(topic.name) / str(index),
                self._files,
                self.clock,
                self._open_files,
            )
            partition = open_partition(place, topic.config, self.leader_epoch)
            partition.sync_wanted = self.sync_wanted
            partition.removal_wanted = self.removal_wanted
            topic.partitions.append(partition)

    def sync_wanted(self, partition: PartitionLog) -> None:
        """A partition has reached ``flush.messages``; whoever runs the group commit listens here."""
        if self.on_sync_wanted is not None:
            self.on_sync_wanted(partition)

    def removal_wanted(self, partition: PartitionLog) -> None:
        """Segments of a ring lie before its start; whoever runs the jobs listens here."""
        if self.on_removal_wanted is not None:
            self.on_removal_wanted(partition)

    def _register(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_version += 1
        self._by_id[topic.id.bytes] = topic

    def _folder(self, name: str) -> Path:
        return self.path / "topics" / name


def _run(job: CheckpointJob) -> bool:
    try:
        job.run()
    except OSError as error:
        _logger.error("partition %s could not be saved: %s", job.partition.name, error)
        return False
    return True


def _new_cluster_id() -> str:
    """22 characters of URL-safe base 64, as Kafka's are."""
    return base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
