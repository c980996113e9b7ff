"""``headrace group``, on Headrace and on Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from headrace import _kernel
from headrace.log.partition import Origin
from headrace.log.store import LogStore
from tests.cli.command import HEADRACE, Cli, on_both
from tests.contract.members import Member, ready_group
from tests.contract.session import Session, Topic
from tests.servers import Headrace, Server

pytestmark = pytest.mark.system


@pytest.fixture
def name(cli: Cli, new_name: Callable[[str], str]) -> str:
    """A topic with 10 old records, and a group of the same name that has read 4 of them."""
    name = new_name("read")
    cli("topic", "create", name, "-p", "1")
    now = int(time.time() * 1000)
    old = ({"value": str(number), "timestamp_ms": now - 3_600_000 + number} for number in range(10))
    cli("produce", name, "--envelope", stdin="".join(f"{json.dumps(record)}\n" for record in old))
    cli("consume", name, "--group", name, "--max", "4")
    return name


@on_both
def test_a_group_is_listed_and_described(cli: Cli, name: str) -> None:
    assert {"group": name, "type": "classic", "state": "empty", "members": 0} in cli("group", "list", "-o", "json").json
    described = cli("group", "describe", name, "-o", "json").json
    assert (described["group"], described["state"], described["members"]) == (name, "empty", [])
    [offsets] = described["offsets"]
    assert (offsets["topic"], offsets["committed"], offsets["end"], offsets["lag"]) == (name, 4, 10, 6)
    assert cli("group", "describe", name).lines[0].startswith(f"classic group {name}, empty, coordinator 127.0.0.1:")


@on_both
def test_lag_is_in_records_and_in_seconds(cli: Cli, name: str) -> None:
    [lag] = cli("group", "lag", name, "-o", "json").json
    assert (lag["group"], lag["topic"], lag["partition"], lag["lag"]) == (name, name, 0, 6)
    assert 3600 - 1 < lag["lag_seconds"] < 3600 + 120
    lines = cli("group", "lag").lines
    assert [name, name, "0", "4", "10", "6", "1h", "0m"] in [line.split() for line in lines]
    cli("consume", name, "--group", name, "-e")
    [lag] = cli("group", "lag", name, "-o", "json").json
    assert (lag["lag"], lag["lag_seconds"]) == (0, 0.0)


@on_both
def test_a_group_that_has_read_all_records_is_not_behind_for_the_marker_of_a_transaction(
    cli: Cli, server: Server, new_name: Callable[[str], str]
) -> None:
    name = new_name("transaction")
    cli("topic", "create", name, "-p", "1")
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"one")
    producer.commit_transaction(30)
    consumer = ck.Consumer({"bootstrap.servers": server.bootstrap, "group.id": name})
    consumer.commit(offsets=[ck.TopicPartition(name, 0, 1)], asynchronous=False)
    consumer.close()
    [lag] = cli("group", "lag", name, "-o", "json").json
    assert (lag["committed"], lag["end"], lag["lag_seconds"]) == (1, 2, 0.0)


@pytest.mark.parametrize(
    ("to", "offset"), [("beginning", 0), ("end", 10), ("7", 7), ("-2", 8), ("@-1w", 0), ("@now", 10)]
)
def test_a_group_can_be_moved(cli: Cli, name: str, to: str, offset: int) -> None:
    planned = cli("group", "seek", name, "--to", to, "--dry-run", "-o", "json").json
    move = {"topic": name, "partition": 0, "before": 4, "after": offset}
    assert planned == {"group": name, "moved": False, "offsets": [move]}
    assert cli("group", "seek", name, "--to", to, "-o", "json").json == {**planned, "moved": True}
    assert cli("consume", name, "--group", name, "-e").lines == [str(number) for number in range(offset, 10)]


@on_both
def test_a_new_group_can_be_placed_on_a_topic(cli: Cli, name: str, new_name: Callable[[str], str]) -> None:
    fresh = new_name("fresh")
    assert "has no offsets to move" in cli.fails("group", "seek", fresh, "--to", "5")
    cli("group", "seek", fresh, "--to", "5", "--topic", name)
    assert cli("consume", name, "--group", fresh, "--max", "1").lines == ["5"]


@on_both
def test_a_group_with_members_is_described_and_not_moved(cli: Cli, name: str) -> None:
    reader = subprocess.Popen([HEADRACE, "consume", name, "--group", name], stdout=subprocess.PIPE, env=cli.env())
    assert reader.stdout is not None
    try:
        assert reader.stdout.readline() == b"4\n"
        described = cli("group", "describe", name, "-o", "json").json
        assert described["state"] == "stable"
        [member] = described["members"]
        assert (member["client"], member["partitions"]) == ("headrace-cli", [f"{name}[0]"])
        message = cli.fails("group", "seek", name, "--to", "beginning")
        assert "has 1 member, so it cannot be moved now" in message
        assert "stop its consumers first" in message
    finally:
        reader.terminate()
        assert reader.wait(20) == 0
        reader.stdout.close()
    assert cli("group", "describe", name, "-o", "json").json["offsets"][0]["committed"] == 10


def test_a_group_that_is_not_there_is_an_error(cli: Cli) -> None:
    for command in ("describe", "lag"):
        assert "there is no group 'nobody'" in cli.fails("group", command, "nobody")


@on_both
def test_a_group_can_be_deleted_with_its_offsets(cli: Cli, name: str) -> None:
    assert cli("group", "delete", name, "--yes").out == f"Deleted group {name}\n"
    assert name not in [row["group"] for row in cli("group", "list", "-o", "json").json]
    assert f"group {name!r} was not deleted" in cli.fails("group", "delete", name, "--yes")
    cli("group", "seek", name, "--to", "5", "--topic", name)
    assert cli("group", "delete", name, "-o", "json").json == [{"group": name, "deleted": True}]


@on_both
def test_groups_of_the_newer_types_are_listed_and_described(cli: Cli, server: Server, topic: str) -> None:
    session = Session(server.bootstrap, topic)
    made = session.ask("metadata", topics=[{"name": topic}])["topics"][0]
    consumers, shares = ready_group(session, "consumers"), ready_group(session, "shares", "share")
    Member(session, consumers, "m1").join(Topic(topic, made["topic_id"]))
    sharing = Member(session, shares, "m2", "share")
    sharing.join(Topic(topic, made["topic_id"]))
    session.until(lambda: sharing.heartbeat() and sharing.size == 3, "partitions of the share group")
    session.close()
    rows = {row["group"]: row for row in cli("group", "list", "-o", "json").json}
    assert rows[consumers] == {"group": consumers, "type": "consumer", "state": "stable", "members": 1}
    assert rows[shares] == {"group": shares, "type": "share", "state": "stable", "members": 1}
    for group, kind, assignor in ((consumers, "consumer", "uniform"), (shares, "share", "simple")):
        described = cli("group", "describe", group, "-o", "json").json
        assert (described["type"], described["state"], described["assignor"]) == (kind, "stable", assignor)
        [one] = described["members"]
        assert one["partitions"] == [f"{topic}[{index}]" for index in range(3)]
    assert cli("group", "describe", shares).lines[0].startswith(f"share group {shares}, stable, assignor simple")
    failed = cli.run("group", "seek", shares, "--to", "end", "--topic", topic)
    assert failed.code == 1
    assert "is a share group, so it cannot be moved" in failed.err


def test_a_group_with_a_record_that_cannot_be_read_is_listed_as_damaged(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path / "node" / "data")
    partition = store.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"}, internal=True).partitions[0]
    key = b"\x00\x02\x00\x03bad"
    partition.append(_kernel.build_batch([(1, key, b"\x7f", ())]), acks_all=True, origin=Origin.COORDINATOR)
    store.close()
    server = Headrace(tmp_path / "node")
    try:
        cli = Cli(server.bootstrap)
        assert cli("group", "list", "-o", "json").json == [
            {"group": "bad", "type": None, "state": "damaged", "members": None}
        ]
        failed = cli.run("group", "describe", "bad")
        assert failed.code == 1
        assert "the record at offset 0 of __consumer_offsets cannot be read" in failed.err
        verified = cli.run("log", "verify", str(server.data))
        assert verified.code == 1
        assert "its group is not served" in verified.out
    finally:
        server.stop()


@on_both
def test_a_share_group_lags_by_what_it_has_not_settled(
    cli: Cli, server: Server, name: str, new_name: Callable[[str], str]
) -> None:
    sharing = new_name("sharing")
    client = admin.AdminClient({"bootstrap.servers": server.bootstrap})
    earliest = [
        admin.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=admin.AlterConfigOpType.SET)
    ]
    group = admin.ConfigResource(admin.ResourceType.GROUP, sharing, incremental_configs=earliest)
    client.incremental_alter_configs([group])[group].result(30)
    settings = {"bootstrap.servers": server.bootstrap, "group.id": sharing, "share.acknowledgement.mode": "explicit"}
    with ck.ShareConsumer(settings) as member:
        member.subscribe([name])
        deadline = time.monotonic() + 60
        while not (taken := list(member.poll(1.0))):
            assert time.monotonic() < deadline
        for message in taken[:3]:
            member.acknowledge(message)
        member.commit_sync(30)
        [lag] = cli("group", "lag", sharing, "-o", "json").json
        settled = 3 if server.name == "headrace" else lag["committed"]  # Kafka tells it when it writes it down, later
        assert (lag["group"], lag["topic"], lag["committed"], lag["lag"]) == (sharing, name, settled, 10 - settled)
        assert lag["lag_seconds"] > 3500
        assert {sharing, name} <= {lag["group"] for lag in cli("group", "lag", "-o", "json").json}
