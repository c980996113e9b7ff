"""Transactions of real clients: what they commit is read once, what they abort never, zombies are fenced."""

from __future__ import annotations

import asyncio
import random
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import admin

from tests.servers import Headrace, free_port, java

HERE = Path(__file__).resolve().parent
TOOLS = "org.apache.kafka.tools"
Make = Callable[..., str]


def run(main: str, *arguments: str) -> str:
    done = subprocess.run(java(main, *arguments), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def producer(bootstrap: str, name: str, **more: object) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0, **more}
    return confluent_kafka.Producer(settings)


def read(bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[list[str]]:
    """All values up to the present end, by partition."""
    source = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found: list[list[str]] = [[] for _ in range(partitions)]
    source.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    at_end: set[int] = set()
    deadline = time.monotonic() + 30
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, "the end was not reached"
        for message in source.consume(1000, 0.5):
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                at_end.add(message.partition())
            else:
                found[message.partition()].append(message.value().decode())
    source.close()
    return found


def test_librdkafka_commits_and_aborts_records_and_offsets(node: Headrace, new_topic: Make) -> None:
    source_topic, topic = new_topic(), new_topic(3)
    sender = producer(node.bootstrap, topic)
    sender.init_transactions(20)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    consumer.subscribe([source_topic])
    consumer.poll(1)
    place = confluent_kafka.TopicPartition(source_topic, 0)
    for number in range(6):
        sender.begin_transaction()
        for index in range(3):
            sender.produce(topic, str(number), partition=index)
        place.offset = number
        sender.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 20)
        if number % 2:
            sender.flush(20)
            sender.abort_transaction(20)
        else:
            sender.commit_transaction(20)
            assert consumer.committed([confluent_kafka.TopicPartition(source_topic, 0)])[0].offset == number
    assert consumer.committed([confluent_kafka.TopicPartition(source_topic, 0)])[0].offset == 4
    consumer.close()
    assert read(node.bootstrap, topic, 3) == [["0", "2", "4"]] * 3
    assert read(node.bootstrap, topic, 3, "read_uncommitted") == [["0", "1", "2", "3", "4", "5"]] * 3


def test_librdkafka_zombies_are_fenced(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()
    zombie = producer(node.bootstrap, topic)
    zombie.init_transactions(20)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie")
    zombie.flush(20)
    successor = producer(node.bootstrap, topic)
    successor.init_transactions(20)
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        zombie.commit_transaction(20)
    assert failed.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    successor.begin_transaction()
    successor.produce(topic, "successor")
    successor.commit_transaction(20)
    assert read(node.bootstrap, topic) == [["successor"]]


def test_a_transaction_of_a_client_that_is_gone_is_aborted_in_time(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()
    gone = producer(node.bootstrap, topic, **{"transaction.timeout.ms": 1500, "message.timeout.ms": 1500})
    gone.init_transactions(20)
    gone.begin_transaction()
    gone.produce(topic, "gone")
    gone.flush(20)
    plain = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    plain.produce(topic, "plain")
    plain.flush(20)
    assert read(node.bootstrap, topic) == [[]], "the plain record lies behind an open transaction"
    deadline = time.monotonic() + 20
    while read(node.bootstrap, topic) != [["plain"]]:
        assert time.monotonic() < deadline, "the transaction was not aborted"
    with pytest.raises(confluent_kafka.KafkaException):
        gone.commit_transaction(20)


def test_kafka_python_commits_and_aborts(node: Headrace, new_topic: Make) -> None:
    source_topic, topic = new_topic(), new_topic(2)
    sender = kafka.KafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=topic)
    sender.init_transactions()
    for number in range(4):
        sender.begin_transaction()
        for index in range(2):
            sender.send(topic, str(number).encode(), partition=index)
        offsets = {kafka.TopicPartition(source_topic, 0): kafka.structs.OffsetAndMetadata(number, "", -1)}
        sender.send_offsets_to_transaction(offsets, kafka.structs.ConsumerGroupMetadata(topic, -1, "", None))
        if number % 2:
            sender.abort_transaction()
        else:
            sender.commit_transaction()
    sender.close()
    source = kafka.KafkaConsumer(
        bootstrap_servers=node.bootstrap,
        group_id=topic,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
        enable_auto_commit=False,
    )
    source.assign([kafka.TopicPartition(topic, index) for index in range(2)])
    found = [(next(source).value) for _ in range(4)]
    assert sorted(found) == [b"0", b"0", b"2", b"2"]
    assert source.committed(kafka.TopicPartition(source_topic, 0)) == 2
    source.close()
    assert read(node.bootstrap, topic, 2) == [["0", "2"]] * 2


def test_aiokafka_commits_and_aborts(node: Headrace, new_topic: Make) -> None:
    source_topic, topic = new_topic(), new_topic(2)
    place = aiokafka.TopicPartition(source_topic, 0)

    async def act() -> tuple[list[bytes], int | None]:
        sender = aiokafka.AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=topic)
        await sender.start()
        for number in range(4):
            await sender.begin_transaction()
            for index in range(2):
                await sender.send_and_wait(topic, str(number).encode(), partition=index)
            await sender.send_offsets_to_transaction({place: number}, topic)
            if number % 2:
                await sender.abort_transaction()
            else:
                await sender.commit_transaction()
        await sender.stop()
        source = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=node.bootstrap,
            group_id=topic,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        source.assign([aiokafka.TopicPartition(topic, index) for index in range(2)])
        await source.start()
        found = [(await source.getone()).value or b"" for _ in range(4)]
        committed = await source.committed(place)
        await source.stop()
        return found, committed

    found, committed = asyncio.run(asyncio.wait_for(act(), 60))
    assert sorted(found) == [b"0", b"0", b"2", b"2"]
    assert committed == 2
    assert read(node.bootstrap, topic, 2) == [["0", "2"]] * 2


def test_javas_copier_copies_exactly_once(node: Headrace, new_topic: Make) -> None:
    source_topic, topic = new_topic(2), new_topic(3)
    sender = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    for number in range(300):
        sender.produce(source_topic, str(number), key=str(number))
    sender.flush(20)
    printed = run(str(HERE / "java" / "TransactionalCopier.java"), node.bootstrap, source_topic, topic, "300")
    assert "copied 300 in" in printed
    assert printed.endswith("fenced\n")
    assert "not fenced" not in printed
    found = list(chain(*read(node.bootstrap, topic, 3)))
    assert sorted(found, key=int) == [str(number) for number in range(300)]
    assert len(list(chain(*read(node.bootstrap, topic, 3, "read_uncommitted")))) > 300


def test_javas_performance_tool_and_transaction_tool(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(2)
    printed = run(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--bootstrap-server", node.bootstrap, "--transactional-id", topic, "--transaction-duration-ms", "50"),
    )
    assert "20000 records sent" in printed
    assert sum(map(len, read(node.bootstrap, topic, 2))) == 20_000
    server = ("--bootstrap-server", node.bootstrap)
    assert topic in run(f"{TOOLS}.TransactionsCommand", *server, "list")
    described = run(f"{TOOLS}.TransactionsCommand", *server, "describe", "--transactional-id", topic)
    assert "CompleteCommit" in described
    producers = run(f"{TOOLS}.TransactionsCommand", *server, "describe-producers", "--topic", topic, "--partition", "0")
    assert "None" in producers


def test_kafkas_log_dump_reads_our_state_topic(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()
    sender = producer(node.bootstrap, topic)
    sender.init_transactions(20)
    sender.begin_transaction()
    sender.produce(topic, "v")
    sender.commit_transaction(20)
    (segment, *_) = sorted((node.data / "topics" / "__transaction_state" / "0").glob("*.log"))
    printed = run(f"{TOOLS}.DumpLogSegments", "--transaction-log-decoder", "--files", str(segment))
    mine = [line for line in printed.splitlines() if f'"transactionalId":"{topic}"' in line]
    empty, ongoing, prepare_commit, complete_commit = 0, 1, 2, 4
    states = [int(line.split('"transactionStatus":')[1].split(",")[0]) for line in mine]
    assert states == [empty, ongoing, prepare_commit, complete_commit]
    (segment,) = (node.data / "topics" / topic / "0").glob("*.log")
    assert "endTxnMarker: COMMIT" in run(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--files", str(segment))


@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_survive_sigkill_of_the_node_at_any_point(tmp_path: Path, seed: int) -> None:
    """Each transaction writes its number to two partitions: both or none, never twice, all that were acknowledged."""
    dice = random.Random(seed)
    server = Headrace(tmp_path, port=free_port())
    client = admin.AdminClient({"bootstrap.servers": server.bootstrap})
    client.create_topics([admin.NewTopic("t", 2, 1)])["t"].result(20)
    stop = threading.Event()
    committed: list[str] = []
    attempted: list[str] = []

    def work() -> None:
        sender = None
        while not stop.is_set():
            try:
                if sender is None:
                    fresh = producer(server.bootstrap, "x", **{"reconnect.backoff.max.ms": 200})
                    fresh.init_transactions(20)
                    sender = fresh
                number = str(len(attempted))
                attempted.append(number)
                sender.begin_transaction()
                for index in range(2):
                    sender.produce("t", number, partition=index)
                sender.commit_transaction(20)
                committed.append(number)
            except confluent_kafka.KafkaException as failed:
                error = failed.args[0]
                try:
                    if sender is not None and error.txn_requires_abort():
                        sender.abort_transaction(20)
                    else:
                        sender = None
                except confluent_kafka.KafkaException:
                    sender = None

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(6):
            before = len(committed)
            deadline = time.monotonic() + 30
            while len(committed) < before + 3 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(dice.random() * 0.05)
            server.kill9()
            server.start()
        before = len(committed)
        deadline = time.monotonic() + 30
        while len(committed) < before + 3:
            assert time.monotonic() < deadline, "no transaction was committed after the last restart"
            time.sleep(0.05)
    finally:
        stop.set()
        worker.join(60)
    found = read(server.bootstrap, "t", 2)
    server.stop()
    assert sorted(found[0]) == sorted(found[1]), "torn"
    assert len(set(found[0])) == len(found[0]), "twice"
    assert set(committed) <= set(found[0]), "lost"
    assert set(found[0]) <= set(attempted)
