"""``headrace move``: on Apache Kafka every record has the offset that it had, and everybody goes on where they were."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from headrace.clock import SystemClock
from headrace.errors import ServerAway, UnknownTopic
from headrace.feed import open_feed
from headrace.feed.cluster import Cluster
from headrace.views.catalog import CATALOG_TOPIC
from headrace.views.materialiser import Materialiser
from headrace.views.sqlite_reading import SqliteStores
from tests.cli.command import HEADRACE, Cli, Ran
from tests.move import logs
from tests.servers import ApacheKafka, Headrace, die_with_parent
from tests.views.memory_feed import view_entry

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def move(node: Headrace, kafka: ApacheKafka, *more: str) -> Ran:
    arguments = ("move", "--to", f"kafka://{kafka.bootstrap}", "--data", str(node.data), *more)
    return Cli(node.bootstrap).run(*arguments, timeout=240)


def moved(node: Headrace, kafka: ApacheKafka, *more: str) -> Ran:
    ran = move(node, kafka, *more)
    assert ran.code == 0, ran.err
    return ran


def ensure_same(node: Headrace, kafka: ApacheKafka, *topics: str) -> None:
    for topic in topics:
        assert logs.bounds(node.bootstrap, topic) == logs.bounds(kafka.bootstrap, topic)
        assert logs.seen(node.bootstrap, topic) == logs.seen(kafka.bootstrap, topic)


def test_records_of_every_shape_keep_their_offsets(node: Headrace, kafka: ApacheKafka) -> None:
    here = node.bootstrap
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        logs.make_topic(here, f"shapes-{codec}", 3)
        logs.write_records(here, f"shapes-{codec}", 500, partitions=2, codec=codec)
    logs.make_topic(here, "shapes-empty", 2)
    logs.make_topic(here, "shapes-append-time", 1, {"message.timestamp.type": "LogAppendTime"})
    logs.write_records(here, "shapes-append-time", 50)
    logs.make_topic(here, "shapes-trimmed", 1)
    logs.write_records(here, "shapes-trimmed", 400)
    logs.client(here).delete_records([ck.TopicPartition("shapes-trimmed", 0, 333)])
    logs.make_topic(here, "shapes-transactions", 1)
    logs.write_transactions(here, "shapes-transactions", 12)
    logs.write_compacted(here, "shapes-compacted")
    assert logs.bounds(here, "shapes-trimmed") == {0: (333, 400)}

    moved(node, kafka)

    names = [name for name in logs.client(here).list_topics(timeout=10).topics if name.startswith("shapes-")]
    assert len(names) == 10
    ensure_same(node, kafka, *names)


def test_settings_of_topics_are_carried_over(node: Headrace, kafka: ApacheKafka) -> None:
    own = {"cleanup.policy": "compact", "retention.ms": "123456789", "max.message.bytes": "2000000"}
    logs.make_topic(node.bootstrap, "carried", 4, own)
    moved(node, kafka)
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, "carried")
    told = logs.client(kafka.bootstrap).describe_configs([resource])[resource].result(30)
    found = {e.name: e.value for e in told.values() if int(e.source) == admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
    assert found == own
    assert len(logs.bounds(kafka.bootstrap, "carried")) == 4


def test_groups_go_on_exactly_where_they_were(node: Headrace, kafka: ApacheKafka) -> None:
    here, there = node.bootstrap, kafka.bootstrap
    logs.make_topic(here, "grouped", 1)
    logs.write_transactions(here, "grouped", 10)
    records = logs.seen(here, "grouped")
    middle = records[len(records) // 2]
    for group in ("old-style", "new-style", "silent"):
        logs.commit(here, group, {("grouped", 0): middle[1]})

    moved(node, kafka)

    assert logs.next_of_group(there, "old-style", "grouped") == (middle[1], middle[4])
    newer = {"group.protocol": "consumer"}
    assert logs.next_of_group(there, "new-style", "grouped", **newer) == (middle[1], middle[4])
    asked = [ck.ConsumerGroupTopicPartitions("silent")]
    [found] = logs.client(there).list_consumer_group_offsets(asked)["silent"].result(30).topic_partitions
    assert (found.offset, found.metadata) == (middle[1], "said")


def test_a_queue_goes_on_after_what_it_has_settled(node: Headrace, kafka: ApacheKafka) -> None:
    logs.make_topic(node.bootstrap, "queued", 1)
    logs.write_records(node.bootstrap, "queued", 30)
    settings = ("--set", "share.auto.offset.reset=earliest", "--set", "share.record.lock.duration.ms=20000")
    Cli(node.bootstrap)("queue", "alter", "queue", *settings)
    settled = settle(node.bootstrap, "queue", "queued", 12)
    assert settled == list(range(12))
    until_empty(node, "queue")

    moved(node, kafka)

    assert settle(kafka.bootstrap, "queue", "queued", 18) == list(range(12, 30))
    resource = admin.ConfigResource(admin.ResourceType.GROUP, "queue")
    told = logs.client(kafka.bootstrap).describe_configs([resource])[resource].result(30)
    assert told["share.record.lock.duration.ms"].value == "20000"


def settle(bootstrap: str, group: str, topic: str, count: int) -> list[int]:
    """A member accepts so many records of a queue; their offsets."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    found: list[int] = []
    deadline = time.monotonic() + 60
    with ck.ShareConsumer({**config, "log_level": 0}) as member:
        member.subscribe([topic])
        while len(found) < count:
            assert time.monotonic() < deadline, f"got {found}"
            for message in member.poll(0.5) or ():
                if len(found) < count:
                    member.acknowledge(message)
                    found.append(message.offset() or 0)
                else:
                    member.acknowledge(message, ck.AcknowledgeType.RELEASE)
            member.commit_sync(10)
    return found


def until_empty(node: Headrace, group: str) -> None:
    deadline = time.monotonic() + 60
    while Cli(node.bootstrap)("group", "describe", group, "-o", "json").json["members"]:
        assert time.monotonic() < deadline


def test_a_move_that_is_killed_goes_on(node: Headrace, kafka: ApacheKafka) -> None:
    """Killed again and again, each time after it has written some more."""
    here = node.bootstrap
    logs.make_topic(here, "killed-plain", 3)
    logs.write_records(here, "killed-plain", 30_000, partitions=3)
    logs.make_topic(here, "killed-transactions", 1)
    logs.write_transactions(here, "killed-transactions", 60)
    logs.write_compacted(here, "killed-compacted")
    logs.make_topic(here, "killed-trimmed", 1)
    logs.write_records(here, "killed-trimmed", 3_000)
    logs.client(here).delete_records([ck.TopicPartition("killed-trimmed", 0, 2_000)])

    names = ("killed-plain", "killed-transactions", "killed-compacted", "killed-trimmed")
    kills, written, target = 0, 0, Cluster(kafka.bootstrap, {})
    while kills < 8:
        with moving(node, kafka) as process:
            while (now := written_to(target, names)) <= written and process.poll() is None:
                pass
            written = now
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGKILL)
            kills += 1
    assert kills >= 3
    moved(node, kafka)
    ensure_same(node, kafka, *names)


def written_to(target: Cluster, names: tuple[str, ...]) -> int:
    """How much the target has of topics."""
    try:
        return sum(end for name in names for _, end in target.bounds(name).values())
    except (UnknownTopic, ServerAway):
        return 0


@contextmanager
def moving(node: Headrace, kafka: ApacheKafka) -> Iterator[subprocess.Popen[bytes]]:
    command = [HEADRACE, "move", "--to", f"kafka://{kafka.bootstrap}", "--data", str(node.data)]
    process = subprocess.Popen(
        command, env=Cli(node.bootstrap).env(), stdout=subprocess.DEVNULL, preexec_fn=die_with_parent
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_finished_move_is_not_done_again(node: Headrace, kafka: ApacheKafka) -> None:
    logs.make_topic(node.bootstrap, "finished", 1)
    logs.write_records(node.bootstrap, "finished", 10)
    moved(node, kafka)
    logs.write_records(kafka.bootstrap, "finished", 5)
    assert "was moved there before" in moved(node, kafka).out
    assert logs.bounds(kafka.bootstrap, "finished") == {0: (0, 15)}
    logs.write_records(node.bootstrap, "finished", 5)
    ran = move(node, kafka)
    assert ran.code == 1
    assert "written to since" in ran.err


def test_a_log_in_use_is_not_moved_and_says_who_uses_it(node: Headrace, kafka: ApacheKafka) -> None:
    here = node.bootstrap
    logs.make_topic(here, "busy", 1)
    logs.write_records(here, "busy", 10)
    open_one = logs.producer(here, transactional_id="open-one")
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce("busy", b"x")
    open_one.flush(30)
    member = ck.Consumer({"bootstrap.servers": here, "group.id": "members", "auto.offset.reset": "earliest"})
    member.subscribe(["busy"])
    assert member.poll(30) is not None
    logs.make_topic(here, CATALOG_TOPIC, 1, {"cleanup.policy": "compact"})
    entry = producer_entry("running")
    tell = logs.producer(here)
    tell.produce(CATALOG_TOPIC, entry, b"query/shop/revenue")
    assert tell.flush(30) == 0

    ran = move(node, kafka)
    assert ran.code == 1
    for told in ("transaction open-one is open", "group members has members", "query shop.revenue is running"):
        assert told in ran.err
    assert told in moved(node, kafka, "--dry-run").out
    member.close()
    open_one.abort_transaction(30)
    assert "busy" not in logs.client(kafka.bootstrap).list_topics(timeout=10).topics


def producer_entry(state: str) -> bytes:
    return json.dumps({"state": state, "machine": "elsewhere", "pid": 1, "began": 1}).encode()


def test_what_only_the_embedded_log_can_do_is_named_before_anything_starts(node: Headrace, kafka: ApacheKafka) -> None:
    logs.make_topic(node.bootstrap, "ours", 1, {"headrace.overflow": "drop", "headrace.overflow.max.records": "100"})
    logs.write_records(node.bootstrap, "ours", 10)
    ran = move(node, kafka)
    assert ran.code == 1
    assert "headrace.overflow=drop" in ran.err
    assert "--accept-losses" in ran.err
    assert "ours" not in logs.client(kafka.bootstrap).list_topics(timeout=10).topics
    moved(node, kafka, "--accept-losses")
    ensure_same(node, kafka, "ours")


def test_a_topic_that_the_target_has_already_is_left_alone(node: Headrace, kafka: ApacheKafka) -> None:
    for server in (node, kafka):
        logs.make_topic(server.bootstrap, "taken", 1)
        logs.write_records(server.bootstrap, "taken", 10)
    ran = move(node, kafka)
    assert ran.code == 1
    assert "the target has topics of the same names already: taken" in ran.err
    assert logs.bounds(kafka.bootstrap, "taken") == {0: (0, 10)}


def test_a_plan_is_shown_and_nothing_done(node: Headrace, kafka: ApacheKafka) -> None:
    logs.make_topic(node.bootstrap, "planned", 2)
    logs.write_records(node.bootstrap, "planned", 10, partitions=2)
    logs.commit(node.bootstrap, "planner", {("planned", 1): 3})
    told = moved(node, kafka, "--dry-run", "-o", "json").json
    [topic] = [one for one in told["topics"] if one["name"] == "planned"]
    assert topic["partitions"] == {"0": [0, 5], "1": [0, 5]}
    [group] = told["groups"]
    assert (group["group"], group["offsets"]) == ("planner", {"planned[1]": 3})
    assert "planned" in moved(node, kafka, "--dry-run").out
    assert "planned" not in logs.client(kafka.bootstrap).list_topics(timeout=10).topics


def test_a_view_goes_on_from_its_store_without_being_rebuilt(node: Headrace, kafka: ApacheKafka) -> None:
    here, there = node.bootstrap, kafka.bootstrap
    logs.make_topic(here, "store.sales", 1, {"cleanup.policy": "compact"})
    logs.make_topic(here, CATALOG_TOPIC, 1, {"cleanup.policy": "compact"})
    entry = view_entry("store", "sales", ["region"], {"region": "string", "revenue": "double"})
    tell = logs.producer(here)
    tell.produce(CATALOG_TOPIC, json.dumps(entry).encode(), b"view/store/sales")
    write_rows(tell, {"north": 1.0, "south": 2.0})
    before = follow(node.data, here)

    moved(node, kafka)

    write_rows(logs.producer(there), {"north": 5.0})
    after = follow(node.data, there)
    assert before == (1, {"north": 1.0, "south": 2.0}, {0: 2})
    assert after == (1, {"north": 5.0, "south": 2.0}, {0: 3})


def write_rows(tell: ck.Producer, rows: dict[str, float]) -> None:
    for region, revenue in rows.items():
        row = {"region": region, "revenue": revenue}
        tell.produce("store.sales", json.dumps(row).encode(), json.dumps({"region": region}).encode(), partition=0)
    assert tell.flush(30) == 0


def follow(data: Path, bootstrap: str) -> tuple[int, dict[str, float], dict[int, int]]:
    """Bring the store up to date; the number of its build, its rows, its offsets."""
    stores = SqliteStores(data / "views")
    materialiser = Materialiser(open_feed(bootstrap), stores, SystemClock())
    deadline = time.monotonic() + 60
    while not (state := materialiser.states.get(("store", "sales"))) or not state.caught_up or state.behind:
        assert time.monotonic() < deadline
        materialiser.step()
    materialiser.close()
    store = stores.open("store")
    [build] = store.builds()
    rows = dict(store._db.execute("SELECT region, revenue FROM sales").fetchall())
    store.close()
    return build.number, rows, build.offsets


def test_records_that_come_meanwhile_are_found_out_and_a_second_attempt_takes_them(
    node: Headrace, kafka: ApacheKafka
) -> None:
    from headrace.errors import HeadraceError
    from headrace.move.copying import Address
    from headrace.move.moving import Move

    logs.make_topic(node.bootstrap, "meanwhile", 1)
    logs.write_records(node.bootstrap, "meanwhile", 100)
    moving = Move(Address(node.bootstrap, {}), Address(kafka.bootstrap, {}), [])
    plan = moving.plan()
    logs.write_records(node.bootstrap, "meanwhile", 7)
    with pytest.raises(HeadraceError, match="it is to be quiet") as told:
        moving.run(plan, _Silent())
    assert told.value.detail == "records came to meanwhile"
    moved(node, kafka)
    ensure_same(node, kafka, "meanwhile")


class _Silent:
    def say(self, sentence: str) -> None:
        pass

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda more: None
