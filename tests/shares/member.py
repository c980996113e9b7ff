"""A member of a share group that says exactly what it is told to."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from headrace import _kernel
from headrace.testing.broker import EmbeddedBroker
from tests.broker.raw_client import RawClient

SHARE_FETCH, SHARE_ACKNOWLEDGE, CREATE_TOPICS, PRODUCE, ALTER_CONFIGS = 78, 79, 19, 0, 44
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP = 32
_names = itertools.count()


def until(condition: Callable[[], Any], patience: float = 20.0) -> Any:
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)
    return value


class Bench:
    """A topic, a group, and members of it."""

    def __init__(self, broker: EmbeddedBroker, partitions: int = 1, **settings: str) -> None:
        number = next(_names)
        self.broker = broker
        self.topic, self.group = f"topic-{number}", f"group-{number}"
        self.client = RawClient(broker.port)
        self.members: list[Member] = []
        self.topic_id = self.create(self.topic, partitions)
        self.set(share_auto_offset_reset="earliest", **settings)

    def create(self, name: str, partitions: int = 1) -> UUID:
        made = self.client.call(
            CREATE_TOPICS,
            7,
            {"topics": [{"name": name, "num_partitions": partitions, "replication_factor": 1}], "timeout_ms": 5000},
        )
        assert made.topics[0].error_code == 0
        topic_id: UUID = made.topics[0].topic_id
        return topic_id

    def set(self, group: str | None = None, **settings: str) -> None:
        configs = [
            {"name": key.replace("_", "."), "config_operation": 0, "value": text} for key, text in settings.items()
        ]
        resource = {"resource_type": GROUP, "resource_name": group or self.group, "configs": configs}
        answer = self.client.call(ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        assert answer.responses[0].error_code == 0, answer

    def fill(self, *values: bytes, partition: int = 0, key: bytes | None = None, **how: Any) -> None:
        """One batch of these values."""
        self.write([(1_000, key, value, ()) for value in values], partition=partition, **how)

    def write(self, records: Iterable[Any], *, partition: int = 0, **how: Any) -> None:
        batch = bytes(_kernel.build_batch(records, **how))
        data = [{"index": partition, "records": batch}]
        transactional = "headrace-test" if how.get("transactional") else None
        answer = self.client.call(
            PRODUCE,
            13,
            {
                "transactional_id": transactional,
                "acks": -1,
                "timeout_ms": 5000,
                "topic_data": [{"topic_id": self.topic_id, "partition_data": data}],
            },
        )
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def member(self, name: str = "a", group: str | None = None) -> Member:
        member = Member(self, name, group or self.group)
        self.members.append(member)
        return member

    def close(self) -> None:
        for member in self.members:
            member.client.close()
        self.client.close()


class Member:
    """Keeps its session's epoch; what it got is in ``values``."""

    def __init__(self, bench: Bench, name: str, group: str) -> None:
        self.bench, self.name, self.group = bench, name, group
        self.client = RawClient(bench.broker.port)
        self.epoch = 0

    def _topics(self, acks: Mapping[int, Any], also: Iterable[int] = ()) -> list[dict[str, Any]]:
        indexes = dict.fromkeys((*acks, *also))
        partitions = [
            {
                "partition_index": index,
                "acknowledgement_batches": [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
                    for first, last, types in (_batch(one) for one in acks.get(index, ()))
                ],
            }
            for index in indexes
        ]
        return [{"topic_id": self.bench.topic_id, "partitions": partitions}] if partitions else []

    def fetch(
        self,
        *acks: tuple[int, ...],
        partitions: Iterable[int] | None = None,
        wait: int = 0,
        records: int = 500,
        version: int = 2,
        **how: Any,
    ) -> Any:
        """Acknowledgements (first, last, type...) of partition 0, and what else there is."""
        epoch = how.pop("epoch", self.epoch)
        request = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": epoch,
            "max_wait_ms": wait,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": records,
            "batch_size": records,
            "topics": self._topics(
                {0: acks} if acks else {}, (0,) if partitions is None and not epoch else partitions or ()
            ),
            "forgotten_topics_data": [],
            **how,
        }
        answer = self.client.call(SHARE_FETCH, version, request)
        if answer.error_code == 0:
            self.epoch = 1 if epoch == 0 else 0 if epoch == -1 else self.epoch + 1
        return answer

    def opened(self, **how: Any) -> list[tuple[int, int, int]]:
        """The first fetch; a group that is new begins when that is on disk, so it waits a little."""
        return self.got(wait=5000, **how)

    def got(self, *acks: tuple[int, ...], **how: Any) -> list[tuple[int, int, int]]:
        """Ranges that were acquired with their attempts, of partition 0."""
        return acquired(self.fetch(*acks, **how))

    def acknowledge(self, *acks: tuple[int, ...], version: int = 2, **how: Any) -> Any:
        request = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "topics": self._topics({0: acks} if acks else {}),
            **how,
        }
        answer = self.client.call(SHARE_ACKNOWLEDGE, version, request)
        if answer.error_code == 0:
            self.epoch += 1
        return answer

    def settle(self, *acks: tuple[int, ...], **how: Any) -> int:
        """The code that partition 0 answers."""
        answer = self.acknowledge(*acks, **how)
        assert answer.error_code == 0, answer
        code: int = answer.responses[0].partitions[0].error_code
        return code


def _batch(ack: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    return ack[0], ack[1], ack[2:]


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    ]


def values(answer: Any) -> list[bytes]:
    """The values of the records that were acquired, of all partitions."""
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            held = [(one.first_offset, one.last_offset) for one in partition.acquired_records]
            found += [
                value
                for offset, _, _, value, _ in _kernel.records(partition.records or b"")
                if any(first <= offset <= last for first, last in held)
            ]
    return found
