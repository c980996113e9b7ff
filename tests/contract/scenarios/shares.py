"""ShareFetch, ShareAcknowledge and the offsets of share groups."""

import uuid
from typing import Any

from tests.contract.batches import batch
from tests.contract.raw import Connection
from tests.contract.session import Session, Topic, in_every_version

GROUP = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORD_LIMIT = 1
TRANSACTIONAL = 0x10
Acks = tuple[tuple[int, int, list[int]], ...]


def _ten(number: int = 1) -> list[bytes]:
    return [batch([(b"k", b"v%d" % index) for index in range(10)])] * number


class _Member:
    """A member of a share group of one topic, which keeps its session's epoch."""

    def __init__(self, s: Session, topic: Topic, name: str = "member", *, join: bool = True, **settings: str) -> None:
        self.s, self.topic, self.group = s, topic, s.name("group")
        self.id = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        self.epoch, self.connection = 0, s.connection
        if join:
            self._set({"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0", **settings})
            self._join()

    def _set(self, settings: dict[str, str]) -> None:
        configs = [
            {"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in settings.items()
        ]
        resource = {"resource_type": GROUP, "resource_name": self.group, "configs": configs}
        answer = self.s.ask("incremental_alter_configs", resources=[resource], validate_only=False)
        assert answer["responses"][0]["error_code"] == "none", answer

    def _join(self) -> None:
        self.s.until(
            lambda: (
                self.s.ask("find_coordinator", key_type=0, coordinator_keys=[self.group])["coordinators"][0][
                    "error_code"
                ]
                == "none"
            )
        )
        self.s.until(lambda: self._beat(), "an assignment")

    def _beat(self, epoch: int = 0) -> Any:
        answer = self.s.ask(
            "share_group_heartbeat",
            group_id=self.group,
            member_id=self.id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=[self.topic.name] if epoch >= 0 else None,
        )
        return answer["error_code"] == "none" and (epoch < 0 or (answer["assignment"] or {}).get("topic_partitions"))

    def leave(self) -> None:
        assert self._beat(-1)

    def _topics(self, acks: Acks, also: bool) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": kinds} for first, last, kinds in acks
        ]
        partitions = [{"partition_index": 0, "acknowledgement_batches": batches}] if acks or also else []
        return [{"topic_id": self.topic.id, "partitions": partitions}] if partitions else []

    def fetch(self, *acks: Any, epoch: int | None = None, version: int = 2, note: bool = True, **how: Any) -> Any:
        epoch = self.epoch if epoch is None else epoch
        body = {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": epoch,
            "max_wait": 300,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": self._topics(acks, epoch == 0),
            "forgotten_topics_data": [],
            **how,
        }
        answer = self.connection.call("share_fetch", version, **body)
        if answer["error_code"] == "none":
            self.epoch = 0 if epoch == -1 else epoch + 1
        if note:
            self.s.note(f"{len(self.s.transcript.entries)} fetch", _summary(answer))
        return answer

    def opened(self, **how: Any) -> None:
        """The first records; a broker may need a moment to open the partition."""
        self.s.until(lambda: _acquired(self.fetch(note=False, epoch=0, **how)), "records")

    def acknowledge(self, *acks: Any, epoch: int | None = None, version: int = 2, renews: bool = False) -> None:
        answer = self.connection.call(
            "share_acknowledge",
            version,
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=self._topics(acks, False),
        )
        if answer["error_code"] == "none":
            self.epoch += 1
        self.s.note(f"{len(self.s.transcript.entries)} acknowledge", _summary(answer))


def _summary(answer: Any) -> Any:
    parts = [part for topic in answer["responses"] for part in topic["partitions"]]
    return {
        "error": answer["error_code"],
        "lock": answer.get("acquisition_lock_timeout"),
        "partitions": [
            {
                "partition": part["partition_index"],
                "error": part["error_code"],
                "acknowledged": part.get("acknowledge_error_code"),
                "records": part.get("records"),
                "acquired": _merged(part.get("acquired_records") or []),
            }
            for part in parts
        ],
    }


def _acquired(answer: Any) -> list[Any]:
    return [one for topic in answer["responses"] for part in topic["partitions"] for one in part["acquired_records"]]


def _merged(ranges: list[Any]) -> list[Any]:
    """Neighbours of one delivery count as one range: how they are cut is not promised."""
    merged: list[Any] = []
    for one in ranges:
        if merged and merged[-1][1] == one["first_offset"] - 1 and merged[-1][2] == one["delivery_count"]:
            merged[-1][1] = one["last_offset"]
        else:
            merged.append([one["first_offset"], one["last_offset"], one["delivery_count"]])
    return [f"{first}-{last} #{count}" for first, last, count in merged]


@in_every_version("share_fetch")
def records_are_settled_one_by_one(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *_ten(3))
    one = _Member(s, topic)
    one.opened(version=s.version, max_records=10)
    one.acknowledge((0, 4, [ACCEPT]), (5, 9, [ACCEPT, RELEASE, REJECT, GAP, ACCEPT]), version=s.version)
    one.fetch(version=s.version)
    one.fetch((6, 6, [ACCEPT]), (10, 19, [ACCEPT]), version=s.version)
    one.acknowledge((10, 19, [ACCEPT]), version=s.version)
    one.fetch(epoch=-1, version=s.version)


def sessions_keep_count(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *_ten())
    one = _Member(s, topic)
    one.opened()
    one.fetch(epoch=7)
    one.acknowledge((0, 1, [ACCEPT]), epoch=7)
    one.acknowledge((0, 1, [ACCEPT]), epoch=0)
    one.fetch((0, 1, [ACCEPT]), epoch=0)
    one.fetch((0, 1, [ACCEPT]))
    one.fetch(epoch=0)
    other = _Member(s, topic, "other", join=False)
    for epoch in (1, -1):
        other.fetch(epoch=epoch)
        other.acknowledge((0, 1, [ACCEPT]), epoch=epoch)


def acknowledgements_that_cannot_be(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *_ten(2))
    one, other = _Member(s, topic), _Member(s, topic, "other", join=False)
    one.opened(max_records=10)
    other.fetch()
    one.acknowledge((0, 1, [ACCEPT]))
    for acks in (
        ((3, 2, [ACCEPT]),),
        ((2, 3, [ACCEPT] * 3),),
        ((2, 3, []),),
        ((2, 3, [9]),),
        ((2, 3, [-1]),),
        ((4, 5, [ACCEPT]), (2, 3, [ACCEPT])),
        ((2, 3, [RENEW]),),
        ((10, 11, [ACCEPT]),),
        ((19, 20, [ACCEPT]),),
        ((100, 120, [ACCEPT]),),
        ((0, 1, [ACCEPT]),),
        ((2, 9, [ACCEPT]),),
    ):
        one.acknowledge(*acks)


def limits_of_a_fetch(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *_ten(5))
    one = _Member(s, topic)
    one.opened(max_records=15)
    for _ in range(2):
        one.fetch(max_records=3, share_acquire_mode=RECORD_LIMIT)
    one.fetch(max_records=30, batch_size=5)
    one.fetch()


def a_session_that_ends_gives_its_records_back(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *_ten(2))
    one, other = _Member(s, topic), _Member(s, topic, "other", join=False)
    one.opened()
    one.fetch((0, 4, [ACCEPT]), epoch=-1)
    with Connection(s.bootstrap) as connection:
        other.connection = connection
        other.fetch()
        other.acknowledge((5, 9, [ACCEPT]))
    one.epoch = 0
    s.until(lambda: _acquired(one.fetch(epoch=0, note=False, max_records=1, share_acquire_mode=RECORD_LIMIT)))
    one.fetch()


def records_are_not_tried_for_ever(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch([(b"k", b"v%d" % index) for index in range(3)]))
    one = _Member(s, topic, share_delivery_count_limit="3")
    one.opened()
    one.fetch((0, 2, [RELEASE]))
    one.fetch((0, 2, [RELEASE]))
    one.fetch((0, 0, [RELEASE]))
    one.fetch((1, 1, [RELEASE]))
    one.fetch((2, 2, [ACCEPT]))


def locks_are_renewed(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *_ten())
    one = _Member(s, topic)
    one.opened()
    one.acknowledge((0, 9, [RENEW]), renews=True)
    one.acknowledge((0, 3, [ACCEPT, RENEW, RELEASE, RENEW]), renews=True)
    one.fetch((4, 5, [RENEW]), is_renew_ack=True)
    one.fetch((4, 5, [RENEW]), is_renew_ack=True, max_wait=0, min_bytes=0, max_bytes=0, max_records=0)
    one.fetch()
    one._set({"share.renew.acknowledge.enable": "false"})
    s.until(
        lambda: (
            s.ask(
                "describe_configs",
                resources=[
                    {
                        "resource_type": GROUP,
                        "resource_name": one.group,
                        "configuration_keys": ["share.renew.acknowledge.enable"],
                    }
                ],
            )["results"][0]["configs"][0]["value"]
            == "false"
        )
    )
    one.acknowledge((4, 5, [RENEW]), renews=True)
    one.acknowledge((4, 5, [ACCEPT]))


def names_that_cannot_be(s: Session) -> None:
    topic = s.topic()
    one = _Member(s, topic)
    for member in ("", None, "x" * 36, "x" * 37, "not a uuid"):
        one.fetch(epoch=0, member_id=member)
    one.fetch(epoch=0, group_id=None)


def uncommitted_and_aborted_records_are_passed_over(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch([(b"k", b"before")]))
    one = _Member(s, topic, share_isolation_level="read_committed")
    name = s.name("transaction")
    s.until(
        lambda: (
            s.ask("find_coordinator", key_type=1, coordinator_keys=[name])["coordinators"][0]["error_code"] == "none"
        )
    )
    answer = s.until(
        lambda: (
            (
                given := s.ask(
                    "init_producer_id",
                    transactional_id=name,
                    transaction_timeout=60_000,
                    producer_id=-1,
                    producer_epoch=-1,
                )
            )["error_code"]
            == "none"
            and given
        )
    )
    producer = {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}
    payload = batch([(b"k", b"aborted")], **producer, sequence=0, attributes=TRANSACTIONAL)
    body = s.produce_body(topic, payload)
    assert (
        s.ask("produce", 12, transactional_id=name, **body)["responses"][0]["partition_responses"][0]["error_code"]
        == "none"
    )
    one.opened()
    one.fetch()
    s.ask("end_txn", 5, transactional_id=name, **producer, committed=False)
    s.fill(topic, batch([(b"k", b"after")]))
    found = s.until(lambda: _acquired(one.fetch(note=False)), "what comes after")
    s.note("after", found[-1]["last_offset"])


@in_every_version("describe_share_group_offsets")
def offsets_are_told_moved_and_forgotten(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, *_ten(3))
    one = _Member(s, topic)

    def told(label: str, group: str = one.group, topics: Any = None) -> None:
        groups = [{"group_id": group, "topics": topics}]
        s.note(label, s.ask("describe_share_group_offsets", s.version, groups=groups))

    def altered(label: str, start: int, name: str = topic.name) -> None:
        topics = [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": start}]}]
        s.note(label, s.ask("alter_share_group_offsets", group_id=one.group, topics=topics))

    told("before")
    told("named", topics=[{"topic_name": topic.name, "partitions": [0]}, {"topic_name": "nowhere", "partitions": [0]}])
    told("unknown group", s.name("nobody"))
    one.opened()
    one.acknowledge((0, 9, [ACCEPT]), (20, 24, [ACCEPT]))
    told("settled")
    altered("with members", 5)
    forget = {"group_id": one.group, "topics": [{"topic_name": topic.name}, {"topic_name": "nowhere"}]}
    s.note("forget with members", s.ask("delete_share_group_offsets", **forget))
    s.note("delete with members", s.ask("delete_groups", groups_names=[one.group]))
    one.fetch(epoch=-1)
    one.leave()
    altered("moved", 5)
    altered("nowhere", 5, "nowhere")
    told("now")
    s.note("forgotten", s.ask("delete_share_group_offsets", **forget))
    told("nothing")
    s.note("deleted", s.ask("delete_groups", groups_names=[one.group]))
