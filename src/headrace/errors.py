"""The exception tree.

::

    HeadraceError
    ├── InvalidInput                 the caller sent something wrong
    │   ├── InvalidTopicName · InvalidConfig · InvalidPartitions · InvalidRequest
    │   ├── InvalidRecord · CorruptMessage · RecordTooLarge · InvalidTimestamp
    │   ├── OutOfOrderSequence · InvalidProducerEpoch · InvalidTransactionState
    │   ├── OffsetOutOfRange · InvalidQuery
    │   └── InvalidDeclaration       a mistake in an app; the detail says where
    ├── NotFound
    │   └── UnknownTopic · UnknownTopicId · UnknownView
    ├── AlreadyExists
    │   └── TopicExists
    ├── NotNow                       the state of what is asked for is another one
    ├── ServerAway                   a broker that was asked does not answer (yet)
    ├── TooManyPartialMatches        a pattern holds more of one key than its limit
    └── StorageError                 the disk, not the caller
        ├── StorageFull              refused now, accepted again when there is room
        ├── PartitionFailed          an fsync failed: this partition takes no more writes
        ├── CorruptRange             bytes on disk that fail their checksum; never cut away
        ├── FolderInUse              another process owns the data folder
        ├── FolderTooNew             written by a later version
        ├── StoreAway                a store of views that does not answer, or refuses us
        ├── ViewNotKept              one view that its store cannot take; others can be
        └── Fenced                   another process has taken over what this one kept

Every error has a sentence, and may have a detail and a hint; ``kafka_code`` is what a Kafka client is told.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "CorruptMessage",
    "CorruptRange",
    "Fenced",
    "FolderInUse",
    "FolderTooNew",
    "HeadraceError",
    "InvalidConfig",
    "InvalidDeclaration",
    "InvalidInput",
    "InvalidPartitions",
    "InvalidProducerEpoch",
    "InvalidQuery",
    "InvalidRecord",
    "InvalidRequest",
    "InvalidTimestamp",
    "InvalidTopicName",
    "InvalidTransactionState",
    "NotFound",
    "NotNow",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "PartitionFailed",
    "RecordTooLarge",
    "ServerAway",
    "StorageError",
    "StorageFull",
    "StoreAway",
    "TooManyPartialMatches",
    "TopicExists",
    "UnknownTopic",
    "UnknownTopicId",
    "UnknownView",
    "ViewNotKept",
]


class HeadraceError(Exception):
    """Base of all errors: a sentence, perhaps a detail and a hint."""

    kafka_code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.detail:
            parts.append(f"Detail: {self.detail}")
        if self.hint:
            parts.append(f"Hint: {self.hint}")
        return " ".join(parts)


class InvalidInput(HeadraceError):
    """The caller sent something wrong."""


class InvalidTopicName(InvalidInput):
    """A name that is not ``[a-zA-Z0-9._-]{1,249}``, or is ``.`` or ``..``."""

    kafka_code = 17


class InvalidConfig(InvalidInput):
    """An unknown setting, or a value that does not fit it."""

    kafka_code = 40


class InvalidPartitions(InvalidInput):
    """A partition count that cannot be."""

    kafka_code = 37


class InvalidRequest(InvalidInput):
    """A request that contradicts itself."""

    kafka_code = 42


class InvalidRecord(InvalidInput):
    """A batch that is whole but breaks a rule (no key on a compacted topic, several batches, wrong counts)."""

    kafka_code = 87


class CorruptMessage(InvalidInput):
    """A batch that fails its checksum, is cut short or has the wrong format."""

    kafka_code = 2
    retriable = True


class RecordTooLarge(InvalidInput):
    """A batch over ``max.message.bytes``."""

    kafka_code = 10


class InvalidTimestamp(InvalidInput):
    """A timestamp outside ``message.timestamp.before/after.max.ms``."""

    kafka_code = 32


class OutOfOrderSequence(InvalidInput):
    """An idempotent producer's batch came before the one that precedes it."""

    kafka_code = 45


class InvalidProducerEpoch(InvalidInput):
    """An older incarnation of a producer."""

    kafka_code = 47


class InvalidTransactionState(InvalidInput):
    """Something that the producer's transaction, or the lack of one, does not allow."""

    kafka_code = 48


class OffsetOutOfRange(InvalidInput):
    """A read before the log's start or after its end."""

    kafka_code = 1


class InvalidQuery(InvalidInput):
    """A question to a view that cannot be answered: unknown column, bad SQL, or more work than is allowed."""


class InvalidDeclaration(InvalidInput):
    """A mistake in what an app declares; the detail says in which file and line."""


class NotFound(HeadraceError):
    """What was named does not exist."""


class UnknownTopic(NotFound):
    """No such topic, or no such partition of it."""

    kafka_code = 3
    retriable = True


class UnknownTopicId(NotFound):
    """No topic has this id (any more)."""

    kafka_code = 100
    retriable = True


class UnknownView(NotFound):
    """No view of this name, or no row of this key in it."""


class AlreadyExists(HeadraceError):
    """What was to be made is there already."""


class TopicExists(AlreadyExists):
    """A topic of this name exists."""

    kafka_code = 36


class NotNow(HeadraceError):
    """What is asked for cannot be done as things are: a group that has members, a query whose run is gone."""


class ServerAway(HeadraceError):
    """A broker that was asked does not answer; it may be back later."""

    retriable = True


class TooManyPartialMatches(HeadraceError):
    """A pattern has more partial matches in one key than it may: it would take ever more memory and time."""


class StorageError(HeadraceError):
    """The disk, not the caller."""

    kafka_code = 56
    retriable = True


class StorageFull(StorageError):
    """No room: the write was refused and undone; it works again when there is room."""


class PartitionFailed(StorageError):
    """A sync failed, so what is on disk is unknown: this partition takes no writes until the node is restarted."""


class CorruptRange(StorageError):
    """Bytes on disk that fail their checksum. They are kept, and the range answers this error."""

    kafka_code = 2


class FolderInUse(StorageError):
    """Another process owns the data folder."""


class FolderTooNew(StorageError):
    """The data folder was written by a later version of Headrace."""


class StoreAway(StorageError):
    """A store of views that does not answer or refuses us now; it is tried again."""


class ViewNotKept(StorageError):
    """A view that its store cannot take as it is; the other views of the store can be kept."""


class Fenced(StorageError):
    """Another process has taken over what this one kept: nothing was written."""
