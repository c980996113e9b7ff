"""Records of ``__consumer_offsets`` about consumer groups (KIP-848) and share groups (KIP-932), in Kafka's formats.

A *change* is one record, decoded. A key is an i16 kind and plain strings; a value an i16 version (0) and flexible
fields.

::

    consumer share  key            value
       3       11   group          epoch i32, metadata hash i64 (of a consumer group tag 0)
       5       10   group, member  the member's subscription
       6       12   group          the epoch of the target assignment i32, tag 0: its time i64
       7       13   group, member  target: array of (topic id, array of partition)
       8       14   group, member  what the member has: epoch i32, previous epoch i32, state i8, assigned,
                                   of a consumer group: being revoked
      16            group, regex   array of topic, version i64, time i64

What a consumer group's member has is an array of (topic id, array of partition, tag 0: array of the epoch at which each
was assigned). A null value removes what the key names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from headrace.broker.groups.fields import (
    I16,
    I32,
    I64,
    Reader,
    compact_array,
    compact_bytes,
    compact_ints,
    compact_string,
    string,
    tagged,
)

__all__ = [
    "Assigned",
    "ClassicSide",
    "CurrentAssignment",
    "CurrentChange",
    "EpochChange",
    "GroupEpoch",
    "GroupType",
    "MemberState",
    "ModernChange",
    "Partitions",
    "RegexChange",
    "ResolvedRegex",
    "Subscription",
    "SubscriptionChange",
    "TargetChange",
    "TargetEpoch",
    "TargetEpochChange",
    "decode_modern",
    "encode_modern",
    "partitions_of",
]

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; never changed in place, and no topic without partitions."""

Assigned = Mapping[UUID, Mapping[int, int]]
"""By topic id the partitions that a member has, each with the epoch at which it got them; never changed in place."""


class GroupType(StrEnum):
    """What kind of group it is, in the words that clients are told."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class MemberState(IntEnum):
    """How far a member is on its way to its target, as Kafka numbers it."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


class GroupEpoch(NamedTuple):
    """Grows whenever members, subscriptions or the topics behind them change."""

    epoch: int
    metadata_hash: int


class ClassicSide(NamedTuple):
    """What a consumer group knows of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """What a member says of itself. Share groups have no more than a rack, a client and topic names."""

    client_id: str
    client_host: str
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    instance_id: str | None = None
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSide | None = None


class TargetEpoch(NamedTuple):
    """The group epoch that the target assignment was made for, and when."""

    epoch: int
    at_ms: int = 0


class CurrentAssignment(NamedTuple):
    """What a member has, and what it was told to give up but has not yet."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assigned
    revoking: Assigned


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression stood for, in alphabetical order."""

    topics: tuple[str, ...]
    version: int
    at_ms: int


class EpochChange(NamedTuple):
    """The group has a new epoch, or (None) is removed: the last record of its removal."""

    type: GroupType
    group: str
    value: GroupEpoch | None


class SubscriptionChange(NamedTuple):
    """A member joined or changed its subscription, or (None) is gone."""

    type: GroupType
    group: str
    member: str
    value: Subscription | None


class TargetEpochChange(NamedTuple):
    """A target assignment was made."""

    type: GroupType
    group: str
    value: TargetEpoch | None


class TargetChange(NamedTuple):
    """What a member is to have."""

    type: GroupType
    group: str
    member: str
    value: Partitions | None


class CurrentChange(NamedTuple):
    """What a member has."""

    type: GroupType
    group: str
    member: str
    value: CurrentAssignment | None


class RegexChange(NamedTuple):
    """What a regular expression stands for; of consumer groups only."""

    type: GroupType
    group: str
    regex: str
    value: ResolvedRegex | None


ModernChange = EpochChange | SubscriptionChange | TargetEpochChange | TargetChange | CurrentChange | RegexChange

_KINDS: dict[tuple[Any, GroupType], int] = {
    (EpochChange, GroupType.CONSUMER): 3,
    (SubscriptionChange, GroupType.CONSUMER): 5,
    (TargetEpochChange, GroupType.CONSUMER): 6,
    (TargetChange, GroupType.CONSUMER): 7,
    (CurrentChange, GroupType.CONSUMER): 8,
    (SubscriptionChange, GroupType.SHARE): 10,
    (EpochChange, GroupType.SHARE): 11,
    (TargetEpochChange, GroupType.SHARE): 12,
    (TargetChange, GroupType.SHARE): 13,
    (CurrentChange, GroupType.SHARE): 14,
    (RegexChange, GroupType.CONSUMER): 16,
}
_CHANGES = {kind: change for change, kind in _KINDS.items()}
_VERSION = I16.pack(0)


def partitions_of(assigned: Assigned) -> dict[UUID, frozenset[int]]:
    """The partitions alone."""
    return {topic: frozenset(partitions) for topic, partitions in assigned.items()}


def encode_modern(change: ModernChange) -> tuple[bytes, bytes | None]:
    """Key and value of the record that says this."""
    names = [change.group]
    if isinstance(change, SubscriptionChange | TargetChange | CurrentChange):
        names.append(change.member)
    elif isinstance(change, RegexChange):
        names.append(change.regex)
    key = I16.pack(_KINDS[type(change), change.type]) + b"".join(map(string, names))
    return key, None if change.value is None else _VERSION + _encode_value(change)


def decode_modern(kind: int, key: Reader, value: bytes | None) -> ModernChange | None:
    """What a record says; ``key`` is behind its kind. None if it is of a kind that is left alone."""
    if kind not in _CHANGES:
        return None
    change, group_type = _CHANGES[kind]
    names = [key.string()] if change in (EpochChange, TargetEpochChange) else [key.string(), key.string()]
    decoded: ModernChange
    if value is None:
        decoded = change(group_type, *names, None)
    else:
        reader = Reader(value)
        reader.version(0, 0)
        decoded = change(group_type, *names, _DECODERS[change](reader, group_type is GroupType.SHARE))
    return decoded


def _encode_value(change: ModernChange) -> bytes:
    share = change.type is GroupType.SHARE
    value = change.value
    match value:
        case GroupEpoch(epoch, metadata_hash):
            hashed = I64.pack(metadata_hash)
            return I32.pack(epoch) + (hashed + tagged() if share else _tag(hashed, metadata_hash != 0))
        case TargetEpoch(epoch, at_ms):
            return I32.pack(epoch) + _tag(I64.pack(at_ms), at_ms != 0)
        case Subscription():
            return _encode_subscription(value, share)
        case CurrentAssignment():
            return _encode_current(value, share)
        case ResolvedRegex(topics, version, at_ms):
            return compact_array(topics, compact_string) + I64.pack(version) + I64.pack(at_ms) + tagged()
        case _:
            return _encode_partitions(value or {}) + tagged()


def _tag(data: bytes, wanted: bool) -> bytes:
    return tagged((0, data)) if wanted else tagged()


def _tagged_i64(reader: Reader) -> int:
    field = reader.tag(0)
    return 0 if field is None else field.i64()


def _decode_epoch(reader: Reader, share: bool) -> GroupEpoch:
    epoch = reader.i32()
    if not share:
        return GroupEpoch(epoch, _tagged_i64(reader))
    found = GroupEpoch(epoch, reader.i64())
    reader.tagged_fields()
    return found


def _decode_target_epoch(reader: Reader, share: bool) -> TargetEpoch:
    return TargetEpoch(reader.i32(), _tagged_i64(reader))


def _decode_regex(reader: Reader, share: bool) -> ResolvedRegex:
    found = ResolvedRegex(reader.compact_array(reader.compact_string), reader.i64(), reader.i64())
    reader.tagged_fields()
    return found


def _encode_subscription(value: Subscription, share: bool) -> bytes:
    topics = compact_array(value.topics, compact_string)
    client = compact_string(value.client_id) + compact_string(value.client_host)
    if share:
        return compact_string(value.rack_id) + client + topics + tagged()
    classic = b"\x00"
    if value.classic is not None:
        protocols = compact_array(
            value.classic.protocols,
            lambda protocol: compact_string(protocol[0]) + compact_bytes(protocol[1]) + tagged(),
        )
        classic = b"\x01" + I32.pack(value.classic.session_timeout_ms) + protocols + tagged()
    return b"".join(
        (
            compact_string(value.instance_id),
            compact_string(value.rack_id),
            client,
            topics,
            compact_string(value.regex),
            I32.pack(value.rebalance_timeout_ms),
            compact_string(value.assignor),
            tagged((0, classic)),
        )
    )


def _decode_subscription(reader: Reader, share: bool) -> Subscription:
    instance_id = None if share else reader.optional_compact_string()
    rack_id = reader.optional_compact_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    topics = reader.compact_array(reader.compact_string)
    if share:
        reader.tagged_fields()
        return Subscription(client_id, client_host, rack_id, topics)
    regex, timeout_ms = reader.optional_compact_string(), reader.i32()
    assignor = reader.optional_compact_string()
    classic = reader.tag(0)
    side = None
    if classic is not None and classic.i8() == 1:
        side = ClassicSide(classic.i32(), classic.compact_array(lambda: _decode_protocol(classic)))
    return Subscription(client_id, client_host, rack_id, topics, instance_id, regex, timeout_ms, assignor, side)


def _decode_protocol(reader: Reader) -> tuple[str, bytes]:
    protocol = reader.compact_string(), reader.compact_bytes()
    reader.tagged_fields()
    return protocol


def _encode_partitions(partitions: Partitions) -> bytes:
    return compact_array(
        sorted(partitions.items(), key=lambda item: item[0].bytes),
        lambda item: item[0].bytes + compact_ints(sorted(item[1])) + tagged(),
    )


def _decode_target(reader: Reader, share: bool) -> Partitions:
    found = _decode_partitions(reader)
    reader.tagged_fields()
    return found


def _decode_partitions(reader: Reader) -> Partitions:
    def topic() -> tuple[UUID, frozenset[int]]:
        found = reader.uuid(), frozenset(reader.compact_array(reader.i32))
        reader.tagged_fields()
        return found

    return dict(reader.compact_array(topic))


def _encode_current(value: CurrentAssignment, share: bool) -> bytes:
    head = I32.pack(value.epoch) + I32.pack(value.previous_epoch) + bytes((value.state,))
    if share:
        return head + _encode_partitions(partitions_of(value.assigned)) + tagged()
    return head + _encode_assigned(value.assigned) + _encode_assigned(value.revoking) + tagged()


def _decode_current(reader: Reader, share: bool) -> CurrentAssignment:
    epoch, previous_epoch, state = reader.i32(), reader.i32(), reader.i8()
    if state not in set(MemberState):
        raise reader.corrupt(f"has a member in the unknown state {state}")
    revoking: Assigned = {}
    if share:
        assigned: Assigned = {topic: dict.fromkeys(found, 0) for topic, found in _decode_partitions(reader).items()}
    else:
        assigned, revoking = _decode_assigned(reader, epoch), _decode_assigned(reader, epoch)
    reader.tagged_fields()
    return CurrentAssignment(epoch, previous_epoch, MemberState(state), assigned, revoking)


def _encode_assigned(assigned: Assigned) -> bytes:
    def topic(item: tuple[UUID, Mapping[int, int]]) -> bytes:
        partitions = sorted(item[1])
        epochs = compact_ints([item[1][partition] for partition in partitions])
        return item[0].bytes + compact_ints(partitions) + tagged((0, epochs))

    return compact_array(sorted(assigned.items(), key=lambda item: item[0].bytes), topic)


def _decode_assigned(reader: Reader, epoch: int) -> Assigned:
    def topic() -> tuple[UUID, Mapping[int, int]]:
        topic_id, partitions = reader.uuid(), reader.compact_array(reader.i32)
        field = reader.tag(0)
        epochs = () if field is None else field.compact_array(field.i32)
        if len(epochs) != len(partitions):
            epochs = (epoch,) * len(partitions)
        return topic_id, dict(zip(partitions, epochs, strict=True))

    return dict(reader.compact_array(topic))


_DECODERS: dict[Any, Callable[[Reader, bool], Any]] = {
    EpochChange: _decode_epoch,
    SubscriptionChange: _decode_subscription,
    TargetEpochChange: _decode_target_epoch,
    TargetChange: _decode_target,
    CurrentChange: _decode_current,
    RegexChange: _decode_regex,
}
