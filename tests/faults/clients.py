"""Clients that write down what they did: each runs in a process of its own, so that it can be killed like a real one.

    python -m tests.faults.clients writer --bootstrap HOST:PORT --history FOLDER --name writer-1 --seed 7

``writer`` sends with an idempotent producer, ``banker`` in transactions over all partitions (some are aborted),
``copier`` reads what they wrote as a member of a group and writes it to another topic in transactions, offsets
included, ``reader`` reads everything from the beginning, ``follower`` as a member of a group that commits, ``worker``
takes records from a queue (a share group) and accepts most of them. All end on SIGTERM, and say where they are on
SIGUSR1.
What stands behind a ``~`` in the name is new after each kill, so that a successor fences its predecessor.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from tests.checker.history import Place, Recorder, positions

INPUT, OUTPUT, PARTITIONS = "input", "output", 3
QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 5000,
    "log_level": 0,
    "metadata.recovery.strategy": "none",
}
"""The last one: librdkafka 2.16 that bootstraps anew keeps a group's coordinator at a handle that it has given up, and
``send_offsets_to_transaction`` then waits for ever, whatever its timeout."""
TRANSACTION_TIMEOUT_MS = 8000
PATIENCE = 10.0


@dataclass
class Client:
    """What every role is given."""

    bootstrap: str
    recorder: Recorder
    name: str
    dice: random.Random
    settings: dict[str, str] = field(default_factory=dict)
    stopping: bool = False

    def consumer(self, **more: Any) -> ck.Consumer:
        return ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                **QUICK,
                **more,
            }
        )

    @staticmethod
    def some(source: ck.Consumer, count: int) -> list[ck.Message]:
        """What there is, as soon as there is something: when a record was seen is part of the history."""
        first = source.poll(0.2)
        return [] if first is None else [first, *source.consume(count - 1, 0)]

    def polled(self, messages: Sequence[ck.Message]) -> list[ck.Message]:
        """The records among what a consumer returned, written down."""
        found = [one for one in messages if one.error() is None]
        if found:
            self.recorder.note("poll", records=[[*place(one), one.offset(), one.value().decode()] for one in found])
        return found

    def problem(self, error: object) -> None:
        self.recorder.note("problem", error=str(error))


def place(message: ck.Message) -> Place:
    return message.topic(), message.partition()


class Sender:
    """Sends records and writes down what became of each."""

    def __init__(self, client: Client, generation: int, **settings: Any) -> None:
        self.recorder = client.recorder
        self.name = f"{client.name}.{generation}"
        self.producer = ck.Producer(
            {
                "bootstrap.servers": client.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                **QUICK,
                **settings,
            }
        )
        self._number = 0

    def send(self, topic: str, partition: int, **more: str) -> None:
        self._number += 1
        value = f"{self.name}:{self._number}"
        op = self.recorder.invoke("send", topic=topic, partition=partition, value=value, **more)
        self.producer.produce(topic, value, partition=partition, on_delivery=partial(self._delivered, op))

    def _delivered(self, op: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            self.recorder.end(op, "ok", "send", offset=message.offset())
        else:
            self.recorder.end(op, "unknown", "send", error=str(error))


def write(client: Client) -> None:
    sender = Sender(client, 0, **{"delivery.timeout.ms": 120_000})
    while not client.stopping:
        for _ in range(client.dice.randrange(1, 12)):
            sender.send(INPUT, client.dice.randrange(PARTITIONS))
        sender.producer.poll(0.05)
    if sender.producer.flush(60):
        client.problem("records were never acknowledged")


class Transactions:
    """A transactional producer that is made anew whenever its client library says that it is lost."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._generation = 0
        self._transactions = 0
        self._sender: Sender | None = None

    def sender(self) -> Sender | None:
        """One that is ready, or nothing for now."""
        if self._sender is not None:
            return self._sender
        self._generation += 1
        sender = Sender(
            self.client,
            self._generation,
            **{
                "transactional.id": self.client.name.partition("~")[0],
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            },
        )
        if self._until_done(lambda: sender.producer.init_transactions(PATIENCE)) == "ok":
            self._sender = sender
        return self._sender

    def run(
        self,
        sender: Sender,
        body: Callable[[str], None],
        *,
        commit: bool = True,
        consumed: dict[Place, int] | None = None,
        group: Any = None,
    ) -> bool:
        """One transaction; whether it was committed for certain."""
        self._transactions += 1
        txn = f"{sender.name}/{self._transactions}"
        more = {} if consumed is None else {"group": self.client.settings["group.id"], "positions": positions(consumed)}
        try:
            sender.producer.begin_transaction()
            body(txn)
            sender.producer.poll(0)
            if consumed is not None:
                self._send_offsets(sender, consumed, group)
        except (ck.KafkaException, BufferError) as problem:
            self.client.problem(problem)
            commit = False
        return self._end(sender, txn, commit, more)

    def _send_offsets(self, sender: Sender, consumed: dict[Place, int], group: Any) -> None:
        offsets = [ck.TopicPartition(*where, offset) for where, offset in consumed.items()]
        sender.producer.send_offsets_to_transaction(offsets, group, PATIENCE)

    def _end(self, sender: Sender, txn: str, commit: bool, more: dict[str, Any]) -> bool:
        op = self.client.recorder.invoke("end", txn=txn, commit=commit, **more)
        call = sender.producer.commit_transaction if commit else sender.producer.abort_transaction
        outcome = self._until_done(lambda: call(PATIENCE))
        if outcome == "ok":
            self.client.recorder.end(op, "ok", "end")
            return commit
        if outcome == "abort" and self._until_done(lambda: sender.producer.abort_transaction(PATIENCE)) == "ok":
            self.client.recorder.end(op, "fail", "end")
            return False
        self._sender = None
        return False

    def _until_done(self, call: Callable[[], Any]) -> str:
        """``ok``, ``abort`` when the transaction must be aborted, ``lost`` when the producer can do nothing more."""
        while True:
            try:
                call()
            except ck.KafkaException as failed:
                error = failed.args[0]
                self.client.problem(error)
                if error.retriable():
                    continue
                return "abort" if error.txn_requires_abort() else "lost"
            return "ok"


def bank(client: Client) -> None:
    transactions = Transactions(client)
    while not client.stopping:
        sender = transactions.sender()
        if sender is None:
            continue

        def body(txn: str, sender: Sender = sender) -> None:
            for index in range(PARTITIONS):
                for _ in range(client.dice.randrange(1, 3)):
                    sender.send(INPUT, index, txn=txn)
            if client.dice.random() < 0.3:
                sender.producer.flush(PATIENCE)
                time.sleep(client.dice.random() * 0.3)

        transactions.run(sender, body, commit=client.dice.random() < 0.8)
        time.sleep(client.dice.random() * 0.1)


class Member:
    """A consumer in a group that writes down when partitions come and go."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.consumer = client.consumer(**client.settings)
        self.consumer.subscribe([INPUT], on_assign=self._came, on_revoke=self._went, on_lost=self._went)

    def _came(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.client.recorder.note("assign", partitions=[each.partition for each in partitions])

    def _went(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.client.recorder.note("assign", revoked=[each.partition for each in partitions])

    def poll(self) -> list[ck.Message]:
        """Some records of partitions that are still ours."""
        found = self.client.some(self.consumer, 20)
        mine = {each.partition for each in self.consumer.assignment()}
        return self.client.polled([one for one in found if one.partition() in mine])

    def rewind(self) -> bool:
        """Back to what is committed."""
        try:
            for each in self.consumer.committed(self.consumer.assignment(), PATIENCE):
                self.consumer.seek(ck.TopicPartition(INPUT, each.partition, max(each.offset, 0)))
        except ck.KafkaException as problem:
            self.client.problem(problem)
            return False
        self.client.recorder.note("assign", rewound=True)
        return True

    def close(self) -> None:
        self.consumer.close()
        self.client.recorder.note("assign", left=True)


def ends_of(messages: Sequence[ck.Message]) -> dict[Place, int]:
    return {place(one): one.offset() + 1 for one in messages}


def copy(client: Client) -> None:
    topic = client.settings.pop("output", OUTPUT)
    transactions, member = Transactions(client), Member(client)
    while not client.stopping:
        sender = transactions.sender()
        found = member.poll() if sender is not None else []
        if sender is None or not found:
            continue

        def body(txn: str, sender: Sender = sender, found: list[ck.Message] = found) -> None:
            for one in found:
                sender.send(topic, client.dice.randrange(PARTITIONS), txn=txn, source=one.value().decode())

        done = transactions.run(
            sender,
            body,
            commit=client.dice.random() < 0.9,
            consumed=ends_of(found),
            group=member.consumer.consumer_group_metadata(),
        )
        if (not done and not member.rewind()) or client.dice.random() < 0.01:
            member.close()
            member = Member(client)
    member.close()


def follow(client: Client) -> None:
    member = Member(client)
    while not client.stopping:
        found = member.poll()
        if not found:
            continue
        ends = ends_of(found)
        op = client.recorder.invoke("commit", group=client.settings["group.id"], positions=positions(ends))
        try:
            offsets = [ck.TopicPartition(*where, offset) for where, offset in ends.items()]
            answers = member.consumer.commit(offsets=offsets, asynchronous=False)
            refused = [each for each in answers if each.error is not None]
            client.recorder.end(op, "unknown" if refused else "ok", "commit")
        except ck.KafkaException as problem:
            client.recorder.end(op, "unknown", "commit", error=str(problem))
        if client.dice.random() < 0.01:
            member.close()
            member = Member(client)
    member.close()


def read(client: Client) -> None:
    source: ck.Consumer | None = None
    topics = client.settings.get("topics", f"{INPUT},{OUTPUT}").split(",")
    while not client.stopping:
        if source is None:
            source = client.consumer(**{"group.id": client.name})
            client.recorder.note("assign")
            source.assign([ck.TopicPartition(topic, index, 0) for topic in topics for index in range(PARTITIONS)])
        client.polled(client.some(source, 500))
        if client.dice.random() < 0.002:
            source.close()
            source = None


class Worker:
    """A consumer of the queue that writes down what it was given and what it accepted."""

    def __init__(self, bootstrap: str, recorder: Recorder, share: str) -> None:
        self.recorder = recorder
        self.share = share
        self.consumer = ck.ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": share, "share.acknowledgement.mode": "explicit", **QUICK}
        )
        self.consumer.subscribe([INPUT])

    def take(self, refuse: Callable[[], bool] = lambda: False) -> list[ck.Message]:
        """Some records, each accepted unless it is refused, which gives it back."""
        found = [one for one in self.consumer.poll(0.3) if one.error() is None]
        if not found:
            return []
        told = [[*place(one), one.offset(), one.value().decode()] for one in found]
        self.recorder.note("poll", share=self.share, records=told)
        ops: dict[Place, list[int]] = {}
        for one in found:
            if refuse():
                self.consumer.acknowledge(one, ck.AcknowledgeType.RELEASE)
            else:
                ops.setdefault(place(one), []).append(self._accept(one))
        self._commit(ops)
        return found

    def _accept(self, one: ck.Message) -> int:
        self.consumer.acknowledge(one)
        topic, partition = place(one)
        where = {"topic": topic, "partition": partition, "offset": one.offset()}
        return self.recorder.invoke("accept", share=self.share, **where)

    def _commit(self, ops: dict[Place, list[int]]) -> None:
        try:
            answers = self.consumer.commit_sync(PATIENCE)
        except ck.KafkaException as problem:
            self.recorder.note("problem", error=str(problem))
            return
        for where, problem in answers.items():
            for op in ops.get((where.topic, where.partition), []):
                if problem is None:
                    self.recorder.end(op, "ok", "accept")
                else:
                    self.recorder.end(op, "unknown", "accept", error=str(problem))

    def close(self) -> None:
        self.consumer.close()


def work(client: Client) -> None:
    worker = Worker(client.bootstrap, client.recorder, client.settings["share"])
    while not client.stopping:
        worker.take(lambda: client.dice.random() < 0.1)
    worker.close()


ROLES: dict[str, Callable[[Client], None]] = {
    "writer": write,
    "banker": bank,
    "copier": copy,
    "follower": follow,
    "reader": read,
    "worker": work,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    chosen = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in chosen.set)
    recorder = Recorder(chosen.history, chosen.name)
    client = Client(chosen.bootstrap, recorder, chosen.name, random.Random(chosen.seed), settings)

    def stop(*_: Any) -> None:
        client.stopping = True

    signal.signal(signal.SIGTERM, stop)
    faulthandler.register(signal.SIGUSR1)
    recorder.note("start")
    ROLES[chosen.role](client)
    recorder.note("end-of-client")


if __name__ == "__main__":
    main()
