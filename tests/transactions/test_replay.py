"""Whatever clients do and wherever the power fails: what was committed is read once, what was aborted never.

Random transactions of old and new clients, zombies, slow clients, syncs, compactions and crashes (of the process and of
the machine), over a disk that loses what was not synced. After every step:

- what writers look at is the fold of the log, of transactions and of groups;
- after a restart the state is the fold of what was found.

In the end, when every transaction has ended, the last stable offset of every partition is its end, and

- a transaction whose commit was acknowledged is read whole, each record once, in the order it was sent;
- one that was aborted, fenced or never ended is not read at all;
- one whose commit was not answered is read as a whole or not at all: in both partitions and in the group's offset.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.refused import Refused
from headrace.broker.transactions.coordinator import Producer
from headrace.broker.transactions.journal import STATE_TOPIC
from headrace.errors import HeadraceError
from tests.transactions.bench import Bench, Sent

SMALL_SEGMENTS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}
TIMEOUT_MS = 10_000
CLIENTS = st.integers(0, 2)
OPERATIONS = st.one_of(
    st.tuples(st.just("send"), CLIENTS, st.integers(0, 1)),
    st.tuples(st.just("send"), CLIENTS, st.integers(0, 1)),
    st.tuples(st.just("send"), CLIENTS, st.integers(0, 1)),
    st.tuples(st.just("offset"), CLIENTS),
    st.tuples(st.just("end"), CLIENTS, st.booleans()),
    st.tuples(st.just("end"), CLIENTS, st.just(True)),
    st.tuples(st.just("end_without_waiting"), CLIENTS, st.booleans(), st.integers(0, 3)),
    st.tuples(st.just("take_over"), CLIENTS),
    st.tuples(st.just("zombie"), CLIENTS, st.booleans()),
    st.tuples(st.just("pass_time"), st.sampled_from([100, 4_000, 12_000])),
    st.tuples(st.just("sync")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("kill")),
    st.tuples(st.just("lose_power"), st.integers(0, 2**32)),
)


@dataclass
class Transaction:
    """What a client wrote in one transaction, and what it knows of its outcome."""

    number: int
    values: dict[int, list[bytes]] = field(default_factory=lambda: {0: [], 1: []})
    offset: int | None = None
    outcome: bool | None = False
    """True: committed. False: not. None: nobody told."""


@dataclass
class Unanswered:
    """A batch that was not acknowledged: it is sent again after a crash."""

    sent: Sent
    value: bytes
    sequence: int
    partition: int


class Client:
    """A producer as clients are: it repeats what was not answered, and begins anew after an error."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.producer: Producer | None = None
        self.zombies: list[Producer] = []
        self.sequences = {0: 0, 1: 0}
        self.transaction: Transaction | None = None
        self.unanswered: list[Unanswered] = []

    @property
    def produce_version(self) -> int:
        return 13 if self.version == 2 else 9


class Story:
    """Carries out operations and checks the laws after each."""

    def __init__(self) -> None:
        self.bench = Bench()
        for name in (OFFSETS_TOPIC, STATE_TOPIC):
            if name in self.bench.store.topics:
                self.bench.store.delete_topic(name)
            self.bench.store.create_topic(name, 1, SMALL_SEGMENTS, internal=True)
        self.bench.kill()
        self.clients = [Client("old", 0), Client("new", 2), Client("newer", 2)]
        self.numbers = itertools.count(1)
        self.transactions: list[Transaction] = []
        self.tasks: list[asyncio.Task[Any]] = []

    async def do(self, name: str, *arguments: Any) -> None:
        await getattr(self, name)(*arguments)
        await self.bench.settle()

    # --- clients ---

    async def ready(self, client: Client) -> Producer:
        tries = 0
        while client.producer is None:
            tries += 1
            assert tries < 10, "a transaction that does not end"
            try:
                producer_id, epoch = await self.bench.ask(self.bench.init(client.name, TIMEOUT_MS))
            except Refused:
                await self.bench.sync_all()
                continue
            client.producer = Producer(client.name, producer_id, epoch)
            client.sequences = {0: 0, 1: 0}
        return client.producer

    def broken(self, client: Client) -> None:
        """An error: the transaction will not be committed, and the client begins anew."""
        event("client starts again")
        if client.producer is not None:
            client.zombies.append(client.producer)
        client.producer, client.transaction = None, None
        client.unanswered.clear()

    async def begin(self, client: Client) -> Transaction:
        if client.transaction is None:
            client.transaction = Transaction(next(self.numbers))
            self.transactions.append(client.transaction)
        return client.transaction

    async def send(self, number: int, partition: int) -> None:
        client = self.clients[number]
        producer = await self.ready(client)
        transaction = await self.begin(client)
        if client.version == 0 and not await self.added(client, self.bench.add(producer, partition)):
            return
        value = b"%d/%d" % (transaction.number, sum(map(len, transaction.values.values())))
        sequence = client.sequences[partition]
        sent = self.bench.send(producer, value, sequence, partition=partition, version=client.produce_version)
        if sent.code:
            self.broken(client)
            return
        transaction.values[partition].append(value)
        client.sequences[partition] += 1
        client.unanswered.append(Unanswered(sent, value, sequence, partition))

    async def added(self, client: Client, call: Any) -> bool:
        try:
            await self.bench.ask(call)
        except HeadraceError:
            self.broken(client)
            return False
        return True

    async def offset(self, number: int) -> None:
        client = self.clients[number]
        producer = await self.ready(client)
        transaction = await self.begin(client)
        if client.version == 0 and not await self.added(client, self.bench.add_offsets(producer)):
            return
        call = self.bench.commit_offset(producer, transaction.number, implicit=client.version == 2)
        if await self.added(client, call):
            transaction.offset = transaction.number

    async def flush(self, client: Client) -> bool:
        """Send again what was not answered, until it is; False if that fails."""
        await self.bench.sync_all()
        for item in list(client.unanswered):
            if not item.sent.acknowledged:
                assert client.producer is not None
                event("batch sent again")
                item.sent = self.bench.send(
                    client.producer, item.value, item.sequence, partition=item.partition, version=client.produce_version
                )
                if item.sent.code:
                    self.broken(client)
                    return False
        await self.bench.sync_all()
        client.unanswered.clear()
        return True

    async def end(self, number: int, commit: bool) -> None:
        client = self.clients[number]
        transaction = client.transaction
        if transaction is None or not await self.flush(client):
            return
        transaction.outcome = None if commit else False
        assert client.producer is not None
        try:
            answer = await self.bench.ask(self.bench.end(client.producer, commit, version=client.version))
        except Refused:
            transaction.outcome = False
            self.broken(client)
            return
        transaction.outcome = commit
        self.ended(client, answer)

    def ended(self, client: Client, answer: tuple[int, int]) -> None:
        client.transaction = None
        if client.version == 2:
            assert client.producer is not None
            client.zombies.append(client.producer)
            client.producer = Producer(client.name, *answer)
            client.sequences = {0: 0, 1: 0}

    async def end_without_waiting(self, number: int, commit: bool, syncs: int) -> None:
        """The client goes away while its transaction is being ended."""
        client = self.clients[number]
        transaction = client.transaction
        if transaction is None or not await self.flush(client):
            return
        assert client.producer is not None

        async def end() -> None:
            assert transaction is not None
            transaction.outcome = None if commit else False
            try:
                await self.bench.end(producer, commit, version=client.version)
            except Refused:
                transaction.outcome = False
            else:
                transaction.outcome = commit

        producer = client.producer
        self.tasks.append(await self.bench.start(end()))
        for _ in range(syncs):
            await self.bench.sync()
        self.broken(client)

    async def take_over(self, number: int) -> None:
        """Another instance of the client starts; the one before does not know."""
        self.broken(self.clients[number])
        await self.ready(self.clients[number])

    async def zombie(self, number: int, commit: bool) -> None:
        """Whatever an earlier incarnation does has no effect."""
        client = self.clients[number]
        if not client.zombies or client.producer is None:
            return
        for zombie in client.zombies[-3:]:
            if zombie[1:] == client.producer[1:]:
                continue
            event("zombie acts")
            await self.bench.sync_all()
            assert self.bench.send(zombie, b"zombie", 0, version=client.produce_version).code
            before = self.bench.state(client.name)
            with contextlib.suppress(Refused):
                await self.bench.ask(self.bench.end(zombie, commit, version=client.version))
            assert self.bench.state(client.name) is before

    # --- the world ---

    async def pass_time(self, ms: int) -> None:
        await self.bench.pass_time(ms, sync=False)

    async def sync(self) -> None:
        await self.bench.sync()

    async def compact(self) -> None:
        for job in self.bench.store.jobs():
            event(type(job).__name__)
            job.run()
            job.finish()

    async def kill(self) -> None:
        await self.crash(self.bench.kill)

    async def lose_power(self, seed: int) -> None:
        await self.crash(lambda: self.bench.lose_power(seed))

    async def crash(self, how: Any) -> None:
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()
        how()
        await self.bench.settle()

    # --- laws ---

    def check(self) -> None:
        transactions, groups = self.bench.transactions.journal, self.bench.groups.journal
        assert transactions.latest == self.bench.replayed()
        state = groups.new_state()
        for change in groups._replay():
            state.apply(change)
        assert groups.latest.offsets == state.offsets
        assert groups.latest.pending == state.pending

    async def finish(self) -> None:
        """Let everything come to its end: open transactions are aborted when their time is up."""
        await self.bench.sync_all()
        await self.bench.pass_time(TIMEOUT_MS * 3)
        await self.bench.sync_all()
        self.check()
        assert self.bench.transactions.journal.latest == self.bench.transactions.journal.durable
        read = [self.bench.committed(0), self.bench.committed(1)]
        for partition in (0, 1):
            log = self.bench.log(partition)
            assert log.last_stable_offset == log.end_offset, "a transaction that never ends"
            assert len(read[partition]) == len(set(read[partition])), "read twice"
        for transaction in self.transactions:
            event(f"outcome {transaction.outcome}")
            self.judge(transaction, read)
        committed = self.bench.offset()
        known = {one.offset: one for one in self.transactions if one.offset is not None}
        if committed is not None:
            assert known[committed].outcome is not False, "an aborted offset"

    def judge(self, transaction: Transaction, read: list[list[bytes]]) -> None:
        prefix = b"%d/" % transaction.number
        found = [[value for value in read[index] if value.startswith(prefix)] for index in (0, 1)]
        whole = [transaction.values[0], transaction.values[1]]
        if transaction.outcome is True:
            assert found == whole, "committed, and not all of it is there"
        elif transaction.outcome is False:
            assert found == [[], []], "not committed, and there"
        else:
            assert found in (whole, [[], []]), "torn"


@pytest.mark.system
@settings(max_examples=150)
@given(st.lists(OPERATIONS, min_size=15, max_size=60))
def test_committed_is_read_once_and_aborted_never_whatever_happens(operations: list[tuple[Any, ...]]) -> None:
    async def tell() -> None:
        story = Story()
        for operation in operations:
            await story.do(*operation)
            story.check()
        await story.finish()
        story.bench.kill()
        await story.bench.sync_all()
        await story.finish()

    asyncio.run(tell())
