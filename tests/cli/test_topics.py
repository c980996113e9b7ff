"""``headrace topic``, on Headrace and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command import Cli, on_both

pytestmark = pytest.mark.system


@on_both
def test_a_created_topic_is_listed_and_described(cli: Cli, new_name: Callable[[str], str]) -> None:
    name = new_name("orders")
    assert cli("topic", "create", name, "-p", "2", "--set", "retention.ms=86400000").out == f"Created topic {name}\n"
    [listed] = [row for row in cli("topic", "list", "-o", "json").json if row["name"] == name]
    assert listed == {"name": name, "partitions": 2, "records": 0, "internal": False}
    described = cli("topic", "describe", name, "-o", "json").json
    assert (described["name"], len(described["id"])) == (name, 22)
    assert described["partitions"] == [
        {"partition": index, "leader": 1, "start": 0, "end": 0, "records": 0} for index in range(2)
    ]
    assert {"name": "retention.ms", "value": "86400000", "source": "topic"} in described["settings"]
    lines = cli("topic", "describe", name, "--all").lines
    assert lines[0] == f"topic {name}, id {described['id']}, 2 partitions"
    assert any(line.split() == ["cleanup.policy", "delete", "default"] for line in lines)


def test_several_topics_are_created_at_once_and_existing_ones_can_be_fine(
    cli: Cli, new_name: Callable[[str], str]
) -> None:
    first, second = new_name("a"), new_name("b")
    cli("topic", "create", first)
    message = cli.fails("topic", "create", first)
    assert f"topic {first!r} was not created" in message
    assert "TOPIC_ALREADY_EXISTS" in message
    made = cli("topic", "create", first, second, "--if-not-exists", "-o", "json").json
    assert made == [{"name": first, "created": False}, {"name": second, "created": True}]


def test_when_one_of_several_topics_cannot_be_created_the_others_are_told(
    cli: Cli, new_name: Callable[[str], str]
) -> None:
    old, fresh = new_name("old"), new_name("fresh")
    cli("topic", "create", old)
    ran = cli.run("topic", "create", old, fresh)
    assert (ran.code, ran.out) == (1, f"Created topic {fresh}\n")
    assert f"topic {old!r} was not created" in ran.err


@on_both
def test_settings_and_partitions_can_be_altered(cli: Cli, topic: str) -> None:
    cli("topic", "alter", topic, "--set", "retention.ms=1000", "--set", "cleanup.policy=compact")
    cli("topic", "alter", topic, "--unset", "retention.ms", "--partitions", "5")
    described = cli("topic", "describe", topic, "-o", "json").json
    own = {row["name"]: row["value"] for row in described["settings"] if row["source"] == "topic"}
    assert own == {"cleanup.policy": "compact"}
    assert len(described["partitions"]) == 5


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--set", "retention.ms=soon"], "INVALID_CONFIG"),
        (["--set", "no.such.setting=1"], "INVALID_CONFIG"),
        (["--set", "retention.ms"], "is not NAME=VALUE"),
        (["--partitions", "2"], "INVALID_PARTITIONS"),
        ([], "nothing to change"),
    ],
)
def test_a_bad_change_is_refused(cli: Cli, topic: str, change: list[str], complaint: str) -> None:
    assert complaint in cli.fails("topic", "alter", topic, *change)


@on_both
def test_a_deleted_topic_is_gone(cli: Cli, topic: str) -> None:
    assert cli("topic", "delete", topic).out == f"Deleted topic {topic}\n"
    assert topic not in [row["name"] for row in cli("topic", "list", "-o", "json").json]
    assert f"there is no topic {topic!r}" in cli.fails("topic", "describe", topic)
    assert "UNKNOWN_TOPIC_OR_PART" in cli.fails("topic", "delete", topic)


def test_a_bad_name_is_refused_with_the_rule(cli: Cli) -> None:
    message = cli.fails("topic", "create", "no spaces", "-o", "json")
    assert "TOPIC_EXCEPTION" in message
    assert "letters, digits, dots, underscores and hyphens" in message


def test_what_a_ring_has_dropped_is_described(cli: Cli, new_name: Callable[[str], str]) -> None:
    name = new_name("ring")
    bounds = ("--set", "headrace.overflow=drop", "--set", "headrace.overflow.max.records=3")
    cli("topic", "create", name, "-p", "1", *bounds)
    assert cli("topic", "describe", name).lines[0].endswith(", 1 partition, 0 records dropped")
    cli("produce", name, stdin="".join(f"{number}\n" for number in range(10)))
    described = cli("topic", "describe", name, "-o", "json").json
    assert described["dropped"] == 7
    assert [(row["start"], row["end"]) for row in described["partitions"]] == [(7, 10)]
    assert cli("topic", "describe", name).lines[0].endswith(", 1 partition, 7 records dropped")
    assert cli("consume", name, "-e").lines == ["7", "8", "9"]


@on_both
def test_nothing_is_said_of_drops_where_nothing_is_dropped(cli: Cli, topic: str) -> None:
    assert cli("topic", "describe", topic, "-o", "json").json["dropped"] is None
