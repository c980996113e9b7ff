"""Load for a broker's coordinators: groups that rebalance, producers that commit transactions."""

from __future__ import annotations

import os
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from tests.contract.raw import Connection
from tests.servers import java

from benchmarks.load import JVM, LoadFailed, run

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0
WARM_UP = 3


class RawGroup:
    """Members of a classic group that only join and sync, packed by hand: what is timed is the coordinator."""

    def __init__(self, bootstrap: str, group: str, members: int) -> None:
        self.group = _text(group)
        self._round = 0
        self.connections = [Connection(bootstrap, client_id=f"member-{number}") for number in range(members)]
        self.connections[0].call("find_coordinator", 4, key_type=0, coordinator_keys=[group])
        self.ids = [self._first_id(each) for each in self.connections]

    def close(self) -> None:
        for each in self.connections:
            each.close()

    def rebalance(self) -> None:
        """All join with something new to say, the leader gives every member its part, all are told."""
        self._round += 1
        for each, member_id in zip(self.connections, self.ids, strict=True):
            each.send_bytes("join_group", 5, self._join(member_id))
        joined = [_Joined(each.receive_frame()) for each in self.connections]
        parts = struct.pack(">i", len(self.ids)) + b"".join(_text(one) + _data(bytes(64)) for one in self.ids)
        for each, answer in zip(self.connections, joined, strict=True):
            told = parts if answer.leader == answer.member_id else _NOTHING
            place = struct.pack(">i", answer.generation) + _text(answer.member_id) + _NULL
            each.send_bytes("sync_group", 3, self.group + place + told)
        for each in self.connections:
            (code,) = struct.unpack_from(">h", each.receive_frame(), 8)
            if code:
                raise LoadFailed(f"a member could not sync: {code}")

    def _first_id(self, connection: Connection) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            connection.send_bytes("join_group", 5, self._join(""))
            answer = _Joined(connection.receive_frame(), allowed=(_MEMBER_ID_REQUIRED, _NOT_COORDINATOR, _LOADING))
            if answer.code == _MEMBER_ID_REQUIRED:
                return answer.member_id
            time.sleep(0.1)
        raise LoadFailed(f"no member id: {answer.code}")

    def _join(self, member_id: str) -> bytes:
        subscription = struct.pack(">hih1siq", 0, 1, 1, b"t", 8, self._round)
        head = self.group + struct.pack(">ii", 45_000, 60_000) + _text(member_id) + _NULL + _text("consumer")
        return head + struct.pack(">i", 1) + _text("range") + _data(subscription)


_NULL = b"\xff\xff"
_NOTHING = bytes(4)
_MEMBER_ID_REQUIRED, _NOT_COORDINATOR, _LOADING = 79, 16, 14


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _data(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class _Joined:
    """What matters of an answer to JoinGroup."""

    def __init__(self, frame: bytes, allowed: tuple[int, ...] = ()) -> None:
        self.code, self.generation = struct.unpack_from(">hi", frame, 8)
        if self.code and self.code not in allowed:
            raise LoadFailed(f"a member could not join: {self.code}")
        texts, at = [], 14
        for _ in range(3):
            (size,) = struct.unpack_from(">h", frame, at)
            texts.append(frame[at + 2 : at + 2 + size].decode())
            at += 2 + size
        _, self.leader, self.member_id = texts


def raw_rebalances(bootstrap: str, members: int, rounds: int) -> dict[str, float]:
    """Rebalances of a whole group, one after the other."""
    group = RawGroup(bootstrap, f"raw-{time.monotonic_ns()}", members)
    try:
        for _ in range(WARM_UP):
            group.rebalance()
        times = [_timed(group.rebalance) for _ in range(rounds)]
    finally:
        group.close()
    return {"rebalances/s": 1 / statistics.median(times), "median ms": statistics.median(times) * 1000}


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Members:
    """Real consumers in one group, all polled by one thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: Any) -> None:
        self.topic, self.partitions = topic, partitions
        self.settings = {"bootstrap.servers": bootstrap, "group.id": topic, "log_level": 0, **settings}
        self.consumers: list[ck.Consumer] = []

    def join(self, count: int = 1) -> None:
        for _ in range(count):
            self.consumers.append(ck.Consumer(self.settings))
            self.consumers[-1].subscribe([self.topic])

    def settle(self) -> None:
        """Until every partition has one owner and every member its even share."""
        share = self.partitions // len(self.consumers)
        deadline = time.monotonic() + PATIENCE
        while True:
            for each in self.consumers:
                each.poll(0)
            counts = [len(each.assignment()) for each in self.consumers]
            if sum(counts) == self.partitions and min(counts) >= share:
                return
            if time.monotonic() > deadline:
                raise LoadFailed(f"the group does not come to rest: {counts}")
            time.sleep(0.001)

    def leave(self) -> None:
        self.consumers.pop().close()

    def close(self) -> None:
        while self.consumers:
            self.leave()


def member_rebalances(
    bootstrap: str, topic: str, partitions: int, members: int, rounds: int, **settings: Any
) -> dict[str, float]:
    """A member leaves and one comes: until all have their new part."""
    group = Members(bootstrap, topic, partitions, **settings)
    try:
        group.join(members)
        group.settle()
        times = []
        for _ in range(rounds):
            group.leave()
            times.append(_timed(group.settle))
            group.join()
            times.append(_timed(group.settle))
    finally:
        group.close()
    return {"rebalances/s": 1 / statistics.median(times), "median ms": statistics.median(times) * 1000}


def python_transactions(bootstrap: str, topic: str, transactions: int, *, partitions: int) -> dict[str, float]:
    """confluent-kafka: 1 MiB (1,024 records of 1 KiB) in each transaction, one after the other."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{topic}-{time.monotonic_ns()}",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 100_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    value = os.urandom(1024)
    per_partition = 1024 // partitions

    def one() -> None:
        producer.begin_transaction()
        for index in range(partitions):
            producer.produce_batch(topic, [{"value": value}] * per_partition, partition=index)
        producer.commit_transaction(60)

    for _ in range(max(5, transactions // 10)):
        one()
    started = time.perf_counter()
    for _ in range(transactions):
        one()
    took = time.perf_counter() - started
    return {
        "transactions/s": transactions / took,
        "MB/s": transactions * partitions * per_partition * 1024 / took / 1e6,
    }


def java_transactions(bootstrap: str, topic: str, transactions: int) -> dict[str, float]:
    """The same with Kafka's own client, which has an epoch for each transaction."""
    source = HERE / "java" / "TransactionalLoad.java"
    printed = run(java(str(source), bootstrap, topic, str(transactions), heap="512m", options=JVM))
    found = [line.split() for line in printed.splitlines() if line.endswith("transactions/s")]
    if not found:
        raise LoadFailed(printed)
    rate = float(found[-1][0])
    return {"transactions/s": rate, "MB/s": rate * (1 << 20) / 1e6}
