"""Share groups with real clients: records are shared, settled one by one, and settled for good."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from tests.servers import Headrace, free_port, java

HERE = Path(__file__).resolve().parent
Make = Callable[..., str]


def set_group(bootstrap: str, group: str, **settings: str) -> None:
    resource = admin.ConfigResource(admin.ConfigResource.Type.GROUP, group)
    for name, value in settings.items():
        how = admin.AlterConfigOpType.SET
        resource.add_incremental_config(admin.ConfigEntry(name.replace("_", "."), value, incremental_operation=how))
    client = admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(20)


def write(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def read_log(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"log-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value().decode() for message in consumer.consume(500, 0.5) if not message.error()]
    consumer.close()
    return found


class Worker(threading.Thread):
    """A member of a share group that accepts all but what it ``rejects``, and remembers what it was told is settled."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, rejects: Callable[[str], bool] = lambda _: False
    ) -> None:
        super().__init__()
        self._rejects = rejects
        self.got: list[str] = []
        self.settled: Counter[str] = Counter()
        self.stop = threading.Event()
        self._where = (bootstrap, group, topic)

    def run(self) -> None:
        bootstrap, group, topic = self._where
        consumer = ck.ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not self.stop.is_set():
            try:
                messages = [message for message in consumer.poll(0.3) or () if not message.error()]
                for message in messages:
                    rejected = self._rejects(message.value().decode())
                    kind = ck.AcknowledgeType.REJECT if rejected else ck.AcknowledgeType.ACCEPT
                    consumer.acknowledge(message, kind)
                results = consumer.commit_sync(10.0) if messages else {}
            except ck.KafkaException:
                continue
            self.got += [message.value().decode() for message in messages]
            refused = {(place.topic, place.partition) for place, error in results.items() if error is not None}
            self.settled.update(
                message.value().decode()
                for message in messages
                if (message.topic(), message.partition()) not in refused
            )
        consumer.close()


def at_work(workers: list[Worker], enough: Callable[[], bool], patience: float = 90.0) -> None:
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + patience
    while not enough() and time.monotonic() < deadline:
        time.sleep(0.05)
    for worker in workers:
        worker.stop.set()
    for worker in workers:
        worker.join()


def test_members_share_groups_each_get_all_and_log_readers_do_not_notice(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(3)
    sent = [f"v{number}" for number in range(6000)]
    for group in (f"q1-{topic}", f"q2-{topic}"):
        set_group(node.bootstrap, group, share_auto_offset_reset="earliest")
    team = [Worker(node.bootstrap, f"q1-{topic}", topic) for _ in range(3)]
    alone = Worker(node.bootstrap, f"q2-{topic}", topic)
    write(node.bootstrap, topic, sent)

    def enough() -> bool:
        """All have all; and more comes until each member of the team has a part of it."""
        if sum(len(one.got) for one in team) < len(sent) or len(alone.got) < len(sent):
            return False
        if all(one.got for one in team):
            return True
        more = [f"v{len(sent) + number}" for number in range(600)]
        sent.extend(more)
        write(node.bootstrap, topic, more)
        return False

    at_work([*team, alone], enough)
    assert Counter(value for one in team for value in one.got) == Counter(sent)
    assert all(one.got for one in team), "each has a part"
    assert Counter(alone.got) == Counter(sent)
    assert sorted(read_log(node.bootstrap, topic, len(sent))) == sorted(sent)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Headrace]:
    running = Headrace(tmp_path / "node", port=free_port())
    yield running
    running.stop()


def test_a_node_that_is_killed_gives_back_what_was_not_settled_and_nothing_else(server: Headrace) -> None:
    client = admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    client.create_topics([admin.NewTopic("jobs", 2, 1)])["jobs"].result(20)
    set_group(server.bootstrap, "queue", share_auto_offset_reset="earliest", headrace_dead_letter_topic="dead")
    sent = [f"v{number}" for number in range(5000)]
    write(server.bootstrap, "jobs", sent)
    workers = [Worker(server.bootstrap, "queue", "jobs", lambda value: value.endswith("7")) for _ in range(2)]
    kills = 0

    def enough() -> bool:
        nonlocal kills
        settled = sum(sum(one.settled.values()) for one in workers)
        if kills < 3 and settled > 3000 * (kills + 1):
            kills += 1
            server.kill9()
            server.start()
            more = [f"v{len(sent) + number}" for number in range(5000)]
            sent.extend(more)
            write(server.bootstrap, "jobs", more)
        return kills == 3 and len(set().union(*(one.got for one in workers))) == len(sent)

    at_work(workers, enough)
    assert kills == 3
    assert {value for one in workers for value in one.got} == set(sent), "nothing is lost"
    settled = sum((one.settled for one in workers), Counter[str]())
    twice = [value for value, count in settled.items() if count > 1]
    assert not twice, "what was accepted came back"
    rejected = sorted(value for value in sent if value.endswith("7"))
    assert sorted(read_log(server.bootstrap, "dead", len(rejected))) == rejected, "each dead letter once"
    place = ck.TopicPartition("dead", 0)
    reader = ck.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "nobody", "log_level": 0})
    assert reader.get_watermark_offsets(place, timeout=20) == (0, len(rejected))
    reader.close()


def test_kafkas_tool_reads_our_state(server: Headrace) -> None:
    set_group(server.bootstrap, "queue", share_auto_offset_reset="earliest")
    write(server.bootstrap, "jobs", ["a", "b", "c"])
    worker = Worker(server.bootstrap, "queue", "jobs")
    at_work([worker], lambda: sum(worker.settled.values()) == 3)
    server.kill9()
    segment = next((server.data / "topics" / "__share_group_state" / "0").glob("*.log"))
    printed = subprocess.run(
        java("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment), "--share-group-state-decoder"),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    last = [line for line in printed.splitlines() if "payload" in line][-1]
    assert '"groupId":"queue"' in last
    assert '"startOffset":3' in last
    server.start()


def test_the_java_clients_settle_records_in_every_way(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(1)
    program = java(str(HERE / "java" / "QueueWorker.java"), node.bootstrap, topic, f"java-{topic}")
    done = subprocess.run(program, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert said == {
        "settled": "10",
        "seen": "{r0=1, r1=1, r2=1, r3=1, r4=1,2, r5=1,2, r6=1, r7=1,1, r8=1, r9=1}",
        "lock": "30000",
        "implicit": "5",
        "again": "0",
        "offset": "15 lag 0",
        "members": "1 Stable",
        "busy": "GroupNotEmptyException",
        "listed": "[Share Empty]",
        "moved": "5 lag 10",
        "from five": "10",
        "deleted": "0",
        "left": "0",
    }
