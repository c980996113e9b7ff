"""Kafka's own Java clients and tools, unchanged, on Headrace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import Headrace, java

TOOLS = "org.apache.kafka.tools"
Make = Callable[..., str]


def run(main: str, *arguments: str, input: str | None = None, check: bool = True) -> str:
    done = subprocess.run(java(main, *arguments), input=input, capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + ("" if check else done.stderr)


def lines_of_json(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_consumer_reads_what_the_console_producer_wrote(
    node: Headrace, new_topic: Make, codec: str
) -> None:
    topic = new_topic(2)
    sent = [f"key{n}:value {n}" for n in range(200)]
    run(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        input="\n".join(sent) + "\n",
    )
    printed = run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "200"),
        *("--timeout-ms", "30000", "--formatter-property", "print.key=true"),
        *("--formatter-property", "key.separator=:"),
    )
    assert sorted(printed.split("\n")[:-1]) == sorted(sent)


@pytest.mark.parametrize("acks", ["-1", "1", "0"])
def test_every_record_of_the_verifiable_producer_is_acknowledged(node: Headrace, new_topic: Make, acks: str) -> None:
    topic = new_topic(3)
    printed = lines_of_json(
        run(
            f"{TOOLS}.VerifiableProducer",
            *("--bootstrap-server", node.bootstrap, "--topic", topic, "--max-messages", "5000", "--acks", acks),
        )
    )
    done = next(line for line in printed if line["name"] == "tool_data")
    assert (done["sent"], done["acked"]) == (5000, 5000)
    assert not [line for line in printed if line["name"] == "producer_send_error"]


def test_the_verifiable_consumer_reads_every_record_once_and_commits(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(3)
    run(f"{TOOLS}.VerifiableProducer", "--bootstrap-server", node.bootstrap, "--topic", topic, "--max-messages", "3000")
    printed = lines_of_json(
        run(
            f"{TOOLS}.VerifiableConsumer",
            *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group-id", f"{topic}-group"),
            *("--max-messages", "3000", "--reset-policy", "earliest", "--verbose"),
        )
    )
    values = [str(line["value"]) for line in printed if line["name"] == "record_data"]
    assert sorted(map(int, values)) == list(range(3000))
    committed = [line for line in printed if line["name"] == "offsets_committed"]
    assert committed
    assert all(line["success"] for line in committed)


def test_the_topic_tool_makes_describes_alters_and_deletes(node: Headrace) -> None:
    def topics(*words: str) -> str:
        return run(f"{TOOLS}.TopicCommand", "--bootstrap-server", node.bootstrap, *words)

    topics("--create", "--topic", "java-made", "--partitions", "3", "--config", "retention.ms=1234567")
    described = topics("--describe", "--topic", "java-made")
    assert "PartitionCount: 3" in described
    assert "retention.ms=1234567" in described
    assert described.count("Leader: 1") == 3
    topics("--alter", "--topic", "java-made", "--partitions", "5")
    assert "PartitionCount: 5" in topics("--describe", "--topic", "java-made")
    assert "java-made" in topics("--list").split()
    topics("--delete", "--topic", "java-made")
    assert "java-made" not in topics("--list").split()


def test_the_config_tool_sets_and_takes_back(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()

    def configs(*words: str) -> str:
        where = ("--bootstrap-server", node.bootstrap, "--entity-type", "topics", "--entity-name", topic)
        return run("kafka.admin.ConfigCommand", *where, *words)

    configs("--alter", "--add-config", "segment.bytes=2000000,cleanup.policy=[compact,delete]")
    described = configs("--describe")
    assert "segment.bytes=2000000" in described
    assert "cleanup.policy=compact,delete" in described
    configs("--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes" not in configs("--describe")
    assert "min.compaction.lag.ms=0" in configs("--describe", "--all")


def test_the_group_tool_describes_resets_and_deletes(node: Headrace, new_topic: Make) -> None:
    topic, group = new_topic(), "java-group"
    server = ("--bootstrap-server", node.bootstrap)
    run(f"{TOOLS}.VerifiableProducer", *server, "--topic", topic, "--max-messages", "100")
    run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *(*server, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "100"),
    )

    def groups(*words: str) -> str:
        return run(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *server, *words)

    assert group in groups("--list").split()
    row = next(line.split() for line in groups("--describe", "--group", group).splitlines() if topic in line)
    assert row[3:6] == ["100", "100", "0"]
    groups("--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "40", "--execute")
    row = next(line.split() for line in groups("--describe", "--group", group).splitlines() if topic in line)
    assert row[3:6] == ["40", "100", "60"]
    groups("--delete", "--group", group)
    assert group not in groups("--list").split()


def test_offsets_and_deleted_records_are_told(node: Headrace, new_topic: Make, tmp_path: Path) -> None:
    topic = new_topic()
    server = ("--bootstrap-server", node.bootstrap)
    run(f"{TOOLS}.VerifiableProducer", *server, "--topic", topic, "--max-messages", "50")
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 20}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(wanted))
    assert "low_watermark: 20" in run(
        f"{TOOLS}.DeleteRecordsCommand", *server, "--offset-json-file", str(tmp_path / "delete.json")
    )
    shell = f"{TOOLS}.GetOffsetShell"
    assert run(shell, *server, "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:20"
    assert run(shell, *server, "--topic", topic, "--time", "latest").strip() == f"{topic}:0:50"


def test_the_broker_is_described(node: Headrace) -> None:
    server = ("--bootstrap-server", node.bootstrap)
    versions = run(f"{TOOLS}.BrokerApiVersionsCommand", *server)
    assert "Produce(0): 0 to 13" in versions
    assert "(id: 1 " in versions
    assert "Cluster ID:" in run(f"{TOOLS}.ClusterTool", "cluster-id", *server)
    assert '"partition":' in run(f"{TOOLS}.LogDirsCommand", *server, "--describe")


def test_kafkas_log_dump_reads_our_segments(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()
    run(
        f"{TOOLS}.VerifiableProducer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--max-messages", "1000"),
    )
    (segment,) = (node.data / "topics" / topic / "0").glob("*.log")
    printed = run(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--files", str(segment))
    assert printed.count("isvalid: true") >= 1
    assert "isvalid: false" not in printed
    assert printed.count("| offset: ") == 1000
