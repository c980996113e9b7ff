"""What a node tells about itself when its metrics are asked for.

Names that Kafka's exporters have given to the same things are theirs (``kafka_consumergroup_lag``), so dashboards
work; the rest begins with ``headrace_``. Counters are kept by whoever does what they count, one addition for a request
or a batch; everything else is looked up when it is asked for, in small steps so that requests go on in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.quotas import CONSUMER, PRODUCER
from headrace.errors import HeadraceError
from headrace.exposition import Family, Kind, Sample, lines

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.log.partition import PartitionLog
    from headrace.log.store import Topic

__all__ = ["Metrics"]

_STEP: Final = 200
"""How many lines are made, or groups looked at, before requests get their turn."""


class _Position(NamedTuple):
    """Where a group stands in a partition that exists."""

    group: str
    partition: PartitionLog
    offset: int

    @property
    def labels(self) -> tuple[str, str, str]:
        return (self.group, self.partition.topic, str(self.partition.index))

    @property
    def unread(self) -> int:
        """The first offset that it has not read and still can."""
        return max(self.offset, self.partition.log_start)

    @property
    def lag(self) -> int:
        return max(0, self.partition.high_watermark - self.unread)


class Metrics:
    """The metrics of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._times: dict[tuple[PartitionLog, int], int] = {}
        """When unread records were written, as found the last time."""

    async def text(self) -> str:
        """All of it, in Prometheus' format."""
        parts: list[str] = []
        async for family in self._families():
            made = lines(family)
            while step := list(islice(made, _STEP)):
                parts += step
                await asyncio.sleep(0)
        return "".join(parts)

    async def _families(self) -> AsyncIterator[Family]:
        for family in self._node():
            yield family
        topics = [topic for topic in self._broker.store.topics.values() if not topic.internal]
        for family in self._topics(topics):
            yield family
        for family in await self._groups():
            yield family
        positions = [position async for position in self._positions()]
        for family in self._offsets(positions):
            yield family
        yield await self._ages(positions)
        for family in self._dead_letters():
            yield family

    # The node ----------------------------------------------------------------------------------------------------

    def _node(self) -> Iterator[Family]:
        broker = self._broker
        server, commit, transactions = broker.server, broker.commit, broker.transactions
        yield _one("kafka_brokers", "gauge", "Nodes of the cluster.", 1)
        address = f"{broker.advertised_host}:{broker.advertised_port}"
        info: list[Sample] = [((address, str(broker.store.node_id)), 1)]
        yield Family("kafka_broker_info", "gauge", "The nodes.", ("address", "id"), info)
        yield _one("headrace_connections", "gauge", "Connections that are open.", len(server.connections))
        yield _one("headrace_connections_total", "counter", "Connections since the start.", server.accepted)
        requests = [((api.name,), server.requests[api.key]) for api in server.apis.values()]
        yield Family("headrace_requests_total", "counter", "Requests since the start.", ("api",), requests)
        yield Family("headrace_fsync_seconds", "histogram", "Syncs of one file.", (), [((), commit.syncs)])
        yield Family(
            "headrace_group_commit_seconds",
            "histogram",
            "Rounds of syncs: all files that producers wait for at a time.",
            (),
            [((), commit.rounds)],
        )
        yield _counted(
            "headrace_quota_throttled_requests_total",
            "counter",
            "Requests of clients that were over their quota, since the start.",
            "quota",
            {name: broker.quotas.throttled[name] for name in (PRODUCER, CONSUMER)},
        )
        phases = Counter(transaction.phase.name.lower() for transaction in transactions.transactions().values())
        yield _counted("headrace_transactional_ids", "gauge", "Transactional ids by their state.", "state", phases)
        outcomes = {outcome: transactions.ended[outcome] for outcome in ("abort", "commit")}
        yield _counted(
            "headrace_transactions_total", "counter", "Transactions that ended, since the start.", "outcome", outcomes
        )
        yield _one(
            "headrace_transactions_timed_out_total",
            "counter",
            "Transactions that were aborted because they took too long, since the start.",
            transactions.timed_out,
        )

    # Topics ------------------------------------------------------------------------------------------------------

    def _topics(self, topics: list[Topic]) -> Iterator[Family]:
        counts = [((topic.name,), len(topic.partitions)) for topic in topics]
        yield Family("kafka_topic_partitions", "gauge", "Partitions of a topic.", ("topic",), counts)
        places = [((topic.name, str(partition.index)), partition) for topic in topics for partition in topic.partitions]
        labels = ("topic", "partition")
        ends = ((values, partition.high_watermark) for values, partition in places)
        yield Family("kafka_topic_partition_current_offset", "gauge", "Where a partition ends.", labels, ends)
        starts = ((values, partition.log_start) for values, partition in places)
        yield Family("kafka_topic_partition_oldest_offset", "gauge", "Where a partition begins.", labels, starts)
        sizes = ((values, partition.size) for values, partition in places)
        yield Family("headrace_partition_bytes", "gauge", "Bytes of a partition on disk.", labels, sizes)
        yield _of_topics(
            "headrace_topic_bytes_in_total",
            "Bytes of batches that were appended, since the start.",
            {topic.name: sum(partition.written_bytes for partition in topic.partitions) for topic in topics},
        )
        yield _of_topics(
            "headrace_topic_bytes_out_total",
            "Bytes of batches that consumers were sent, since the start.",
            {topic.name: sum(partition.sent_bytes for partition in topic.partitions) for topic in topics},
        )
        dropped = [(values, partition.dropped) for values, partition in places if partition.config.ring is not None]
        yield Family(
            "headrace_dropped_records_total",
            "counter",
            "Records that went because headrace.overflow is 'drop' and the partition was full, ever.",
            labels,
            dropped,
        )
        overflow = self._broker.overflow
        blocking = [topic.name for topic in topics if topic.config.blocks]
        yield _of_topics(
            "headrace_throttled_requests_total",
            "Produce requests that were slowed down because headrace.overflow is 'block', since the start.",
            {name: overflow.slowed[name] for name in blocking},
        )
        held = overflow.held()
        yield Family(
            "headrace_held_producers",
            "gauge",
            "Connections of producers that wait for a group to catch up.",
            ("topic",),
            [((name,), held[name]) for name in blocking],
        )

    # Groups ------------------------------------------------------------------------------------------------------

    async def _groups(self) -> list[Family]:
        groups = self._broker.groups
        states: Counter[tuple[str, str]] = Counter()
        members: list[Sample] = []
        for number, group_id in enumerate(groups.group_ids()):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            group = groups.listed(group_id)
            if group is not None:
                states[group.type.value, str(group.state)] += 1
                members.append(((group_id,), group.members))
        return [
            Family(
                "headrace_groups", "gauge", "Groups by their type and state.", ("type", "state"), list(states.items())
            ),
            Family("kafka_consumergroup_members", "gauge", "Members of a group.", ("consumergroup",), members),
            _one(
                "headrace_rebalances_total",
                "counter",
                "Rebalances of groups, since the start.",
                groups.rebalances,
            ),
        ]

    async def _positions(self) -> AsyncIterator[_Position]:
        """Where groups stand, not in topics that are gone: share groups where everything before is settled."""
        topics = self._broker.store.topics
        offsets = self._broker.groups.journal.durable.offsets
        for number, group_id in enumerate(list(offsets)):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            for (name, index), committed in offsets.get(group_id, {}).items():
                topic = topics.get(name)
                if topic is not None and index < len(topic.partitions):
                    yield _Position(group_id, topic.partitions[index], committed.offset)
        partitions = {(partition.topic_id.bytes, partition.index): partition for partition in self._partitions()}
        for key, state in list(self._broker.shares.journal.durable.partitions.items()):
            shared = partitions.get((key.topic_id, key.partition))
            if shared is not None:
                yield _Position(key.group, shared, state.start)

    def _dead_letters(self) -> Iterator[Family]:
        shares, labels = self._broker.shares, ("consumergroup",)
        waiting: Counter[tuple[str]] = Counter()
        for key, state in shares.journal.durable.partitions.items():
            if state.dead is not None:
                waiting[(key.group,)] += sum(run.last - run.first + 1 for run in state.dead.runs)
        yield Family(
            "headrace_dead_letters_waiting",
            "gauge",
            "Records given up that are not yet in the dead-letter topic of their group.",
            labels,
            list(waiting.items()),
        )
        copied = [((group,), count) for group, count in shares.dead_letters.copied.items()]
        yield Family(
            "headrace_dead_letters_total",
            "counter",
            "Records that were copied to the dead-letter topic of a group, since the start.",
            labels,
            copied,
        )

    def _partitions(self) -> Iterator[PartitionLog]:
        return (partition for topic in self._broker.store.topics.values() for partition in topic.partitions)

    def _offsets(self, positions: list[_Position]) -> Iterator[Family]:
        labels = ("consumergroup", "topic", "partition")
        offsets = ((position.labels, position.offset) for position in positions)
        yield Family("kafka_consumergroup_current_offset", "gauge", "What a group has committed.", labels, offsets)
        lags = ((position.labels, position.lag) for position in positions)
        yield Family("kafka_consumergroup_lag", "gauge", "How many records a group is behind.", labels, lags)
        sums: Counter[tuple[str, str]] = Counter()
        ends: Counter[tuple[str, str]] = Counter()
        for position in positions:
            sums[position.labels[:2]] += position.lag
            ends[position.labels[:2]] += position.offset
        yield Family(
            "kafka_consumergroup_current_offset_sum",
            "gauge",
            "What a group has committed, over all partitions.",
            labels[:2],
            list(ends.items()),
        )
        yield Family(
            "kafka_consumergroup_lag_sum",
            "gauge",
            "How many records a group is behind.",
            labels[:2],
            list(sums.items()),
        )

    async def _ages(self, positions: list[_Position]) -> Family:
        """How old the first unread record is. Looking it up takes a read, so what was found is kept."""
        now_ms = self._broker.clock.now_ms()
        known, self._times = self._times, {}
        samples: list[Sample] = []
        for number, position in enumerate(positions):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            age = 0.0
            if position.lag and not position.partition.deleted:
                place = (position.partition, position.unread)
                written_ms = known.get(place) or self._times.get(place) or _written_ms(*place)
                if written_ms is None:
                    continue
                self._times[place] = written_ms
                age = max(0, now_ms - written_ms) / 1000
            samples.append((position.labels, age))
        return Family(
            "headrace_consumergroup_lag_seconds",
            "gauge",
            "How old the first record is that a group has not read; that of its batch, if it is in the middle of one.",
            ("consumergroup", "topic", "partition"),
            samples,
        )


def _written_ms(partition: PartitionLog, offset: int) -> int | None:
    """The time of the batch that holds an offset; None if it has none or cannot be read."""
    try:
        return partition.batch_time(offset)
    except (HeadraceError, OSError):
        return None


def _one(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(name, kind, text, (), [((), value)])


def _counted(name: str, kind: Kind, text: str, label: str, counts: Mapping[str, int]) -> Family:
    return Family(name, kind, text, (label,), [((key,), value) for key, value in sorted(counts.items())])


def _of_topics(name: str, text: str, values: Mapping[str, int]) -> Family:
    return Family(name, "counter", text, ("topic",), [((topic,), value) for topic, value in values.items()])
