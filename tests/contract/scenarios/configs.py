"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from typing import Any

from tests.contract.session import Session, Topic, in_every_version

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def _describe(
    s: Session, kind: int, name: str, keys: list[str] | None = None, version: int | None = None, **more: Any
) -> Any:
    body = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return s.ask("describe_configs", version, resources=[body], **more)


def _alter(
    s: Session, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, validate_only: bool = False
) -> None:
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    body = {"resource_type": kind, "resource_name": name, "configs": configs}
    s.call("incremental_alter_configs", 1, resources=[body], validate_only=validate_only)


def _settled(s: Session, topic: Topic, key: str, value: str) -> None:
    def now() -> bool:
        (found,) = _describe(s, TOPIC, topic.name, [key])["results"][0]["configs"]
        return bool(found["value"] == value)

    s.until(now, f"{key}={value}")


@in_every_version("describe_configs")
def every_setting_of_a_topic(s: Session) -> None:
    topic = s.topic(retention_ms="12345")
    s.note("configs", _describe(s, TOPIC, topic.name, version=s.version))
    s.note("synonyms", _describe(s, TOPIC, topic.name, version=s.version, include_synonyms=True))


def some_settings_of_a_topic(s: Session) -> None:
    topic = s.topic()
    for keys in (["retention.ms"], ["retention.ms", "nonsense"], [], ["retention.ms", "retention.ms"]):
        s.note("configs", _describe(s, TOPIC, topic.name, keys))


def documentation_is_given_when_asked_for(s: Session) -> None:
    topic = s.topic()
    found = _describe(s, TOPIC, topic.name, include_documentation=True)["results"][0]["configs"]
    s.note("documented", {one["name"]: bool(one["documentation"]) for one in found})
    found = _describe(s, TOPIC, topic.name)["results"][0]["configs"]
    s.note("not documented", {one["name"]: one["documentation"] for one in found})


def resources_that_are_not_there(s: Session) -> None:
    for kind, name in (
        (TOPIC, s.name("nowhere")),
        (TOPIC, "a b"),
        (TOPIC, ""),
        (BROKER, "7"),
        (BROKER, "abc"),
        (99, "x"),
        (0, "x"),
    ):
        s.note(f"{kind} {name}", _describe(s, kind, name, ["retention.ms"]))


def settings_of_the_broker_that_tools_look_at(s: Session) -> None:
    keys = [
        "auto.create.topics.enable",
        "num.partitions",
        "default.replication.factor",
        "message.max.bytes",
        "log.retention.ms",
    ]
    found = _describe(s, BROKER, "1", keys)
    s.note("broker", {one["name"]: (one["value"], one["config_type"]) for one in found["results"][0]["configs"]})


@in_every_version("incremental_alter_configs")
def settings_are_set_and_taken_back(s: Session) -> None:
    topic = s.topic()

    def alter(key: str, how: int, value: str | None) -> None:
        configs = [{"name": key, "config_operation": how, "value": value}]
        s.call(
            "incremental_alter_configs",
            s.version,
            resources=[{"resource_type": TOPIC, "resource_name": topic.name, "configs": configs}],
            validate_only=False,
        )

    alter("retention.ms", SET, "777")
    _settled(s, topic, "retention.ms", "777")
    s.note("set", _describe(s, TOPIC, topic.name, ["retention.ms"], include_synonyms=True))
    alter("retention.ms", DELETE, None)
    _settled(s, topic, "retention.ms", "604800000")
    s.note("deleted", _describe(s, TOPIC, topic.name, ["retention.ms"], include_synonyms=True))


def lists_are_added_to_and_taken_from(s: Session) -> None:
    topic = s.topic()
    for key, how, value in (
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("retention.ms", APPEND, "1"),
        ("retention.ms", SUBTRACT, "1"),
    ):
        _alter(s, topic.name, (key, how, value))
    _settled(s, topic, "cleanup.policy", "compact")
    s.note("now", _describe(s, TOPIC, topic.name, ["cleanup.policy"]))


def changes_that_cannot_be(s: Session) -> None:
    topic = s.topic()
    for change in (
        ("no.such.setting", SET, "1"),
        ("no.such.setting", DELETE, None),
        ("retention.ms", SET, "abc"),
        ("retention.ms", SET, None),
        ("retention.ms", 9, "1"),
        ("cleanup.policy", SET, "shred"),
        ("segment.bytes", SET, "3"),
        ("segment.bytes", SET, "99999999999999"),
        ("max.message.bytes", SET, "-4"),
        ("min.cleanable.dirty.ratio", SET, "-0.5"),
        ("message.timestamp.type", SET, "createtime"),
    ):
        _alter(s, topic.name, change)
    s.note("unchanged", _describe(s, TOPIC, topic.name))


def only_checking_changes_nothing(s: Session) -> None:
    topic = s.topic()
    _alter(s, topic.name, ("retention.ms", SET, "5"), validate_only=True)
    _alter(s, topic.name, ("retention.ms", SET, "x"), validate_only=True)
    s.note("unchanged", _describe(s, TOPIC, topic.name, ["retention.ms"]))


def all_or_nothing_of_a_topic_changes(s: Session) -> None:
    topic = s.topic()
    _alter(s, topic.name, ("retention.ms", SET, "5"), ("segment.bytes", SET, "x"))
    s.note("unchanged", _describe(s, TOPIC, topic.name, ["retention.ms", "segment.bytes"]))


def the_same_setting_twice_in_a_change(s: Session) -> None:
    topic = s.topic()
    _alter(s, topic.name, ("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
    _alter(s, topic.name, ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))


def the_same_topic_twice_in_a_request(s: Session) -> None:
    topic = s.topic()
    body = {
        "resource_type": TOPIC,
        "resource_name": topic.name,
        "configs": [{"name": "retention.ms", "config_operation": SET, "value": "9"}],
    }
    s.call("incremental_alter_configs", 1, resources=[body, body], validate_only=False)


def changing_what_is_not_there(s: Session) -> None:
    for kind, name in ((TOPIC, s.name("nowhere")), (TOPIC, ""), (TOPIC, "a b"), (BROKER, "7"), (99, "x"), (0, "x")):
        _alter(s, name, ("retention.ms", SET, "1"), kind=kind)


def nothing_to_change(s: Session) -> None:
    topic = s.topic()
    _alter(s, topic.name)
    s.call("incremental_alter_configs", 1, resources=[], validate_only=False)
    s.call("alter_configs", 2, resources=[], validate_only=False)


@in_every_version("alter_configs")
def the_old_way_replaces_all_settings(s: Session) -> None:
    topic = s.topic(retention_ms="5", segment_ms="7777")

    def alter(*configs: tuple[str, str | None], validate_only: bool = False) -> None:
        body = [{"name": key, "value": value} for key, value in configs]
        s.call(
            "alter_configs",
            s.version,
            resources=[{"resource_type": TOPIC, "resource_name": topic.name, "configs": body}],
            validate_only=validate_only,
        )

    alter(("retention.ms", "9"), validate_only=True)
    alter(("retention.ms", "zzz"))
    alter(("no.such", "1"))
    alter(("retention.ms", None))
    alter(("retention.ms", "99"))
    _settled(s, topic, "retention.ms", "99")
    s.note("replaced", _describe(s, TOPIC, topic.name))
    alter()
    _settled(s, topic, "retention.ms", "604800000")
    s.note("empty", _describe(s, TOPIC, topic.name))


def the_old_way_with_what_is_not_there(s: Session) -> None:
    for kind, name in ((TOPIC, s.name("nowhere")), (99, "x")):
        body = {"resource_type": kind, "resource_name": name, "configs": [{"name": "retention.ms", "value": "1"}]}
        s.call("alter_configs", 2, resources=[body], validate_only=False)


def a_smaller_limit_counts_at_once(s: Session) -> None:
    from tests.contract.batches import batch

    topic = s.topic()
    s.produce(topic, batch([(b"k", b"v" * 2000)]))
    _alter(s, topic.name, ("max.message.bytes", SET, "1000"))
    _settled(s, topic, "max.message.bytes", "1000")
    s.until(
        lambda: (
            s.ask("produce", 9, **s.produce_body(topic, batch([(b"k", b"v" * 2000)])))["responses"][0][
                "partition_responses"
            ][0]["error_code"]
            != "none"
        )
    )
    s.note("offsets", s.produce(topic, batch([(b"k", b"v" * 2000)]))["error_code"])


@in_every_version("list_config_resources")
def resources_with_settings_are_listed(s: Session) -> None:
    topic = s.topic(retention_ms="5")
    for kinds in ([], [TOPIC], [BROKER], [16], [99]):
        answer = s.ask("list_config_resources", s.version, resource_types=kinds)
        mine = [one for one in answer["config_resources"] if one["resource_name"] in (topic.name, "1")]
        s.note(f"{kinds}", {"error": answer["error_code"], "mine": mine})


def _altered_group(s: Session, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> None:
    _alter(s, name, *changes, kind=GROUP, validate_only=validate_only)


def every_setting_of_a_group(s: Session) -> None:
    group = s.name("group")
    s.note("nothing set", _describe(s, GROUP, group, include_synonyms=True))
    _altered_group(s, group, ("share.auto.offset.reset", SET, "earliest"), ("share.session.timeout.ms", SET, "47000"))
    _altered_group(s, group, ("share.session.timeout.ms", SET, "48000"), ("share.isolation.level", DELETE, None))
    keys = ["share.auto.offset.reset", "share.session.timeout.ms", "nonsense"]

    def now() -> bool:
        found = _describe(s, GROUP, group, keys)["results"][0]["configs"]
        return {one["value"] for one in found} == {"earliest", "48000"}

    s.until(now, "the group's settings")
    s.note("set", _describe(s, GROUP, group, keys, include_synonyms=True))
    s.note("none", _describe(s, GROUP, ""))
    listed = s.ask("list_config_resources", resource_types=[GROUP])["config_resources"]
    s.note("listed", [one for one in listed if one["resource_name"] == group])


def settings_of_a_group_have_bounds(s: Session) -> None:
    for name, values in (
        ("share.record.lock.duration.ms", ("14999", "15000", "60000", "60001", "abc", "-1")),
        ("share.delivery.count.limit", ("1", "2", "10", "11")),
        ("share.session.timeout.ms", ("44999", "60001")),
        ("share.heartbeat.interval.ms", ("4999", "15000", "15001")),
        ("share.partition.max.record.locks", ("99", "100", "4000", "4001")),
        ("share.auto.offset.reset", ("none", "EARLIEST", "by_duration:PT1H", "by_duration:-PT1H", "by_duration:x")),
        ("share.auto.offset.reset", ("by_duration:P1DT2H", "by_duration:PT0S", "by_duration:PT", "by_duration:P1.5D")),
        ("share.isolation.level", ("read_committed", "READ_COMMITTED")),
        ("share.renew.acknowledge.enable", ("false", "x")),
        ("consumer.session.timeout.ms", ("44999", "50000", "60001")),
        ("consumer.heartbeat.interval.ms", ("4999", "15001")),
        ("consumer.assignment.interval.ms", ("-1", "0", "15001")),
        ("streams.num.standby.replicas", ("-1", "2", "3")),
        ("streams.initial.rebalance.delay.ms", ("-1", "99999999")),
        ("no.such.setting", ("1",)),
    ):
        for value in values:
            _altered_group(s, s.name("group"), (name, SET, value), validate_only=True)


def changes_of_a_group_that_cannot_be(s: Session) -> None:
    group = s.name("group")
    _altered_group(s, "", ("share.auto.offset.reset", SET, "earliest"))
    _altered_group(s, group, ("share.auto.offset.reset", APPEND, "earliest"))
    _altered_group(s, group, ("no.such.setting", DELETE, None))
    _altered_group(s, "g" * 300, ("share.auto.offset.reset", SET, "earliest"), validate_only=True)


def the_old_way_replaces_all_settings_of_a_group(s: Session) -> None:
    group = s.name("group")
    _altered_group(s, group, ("share.auto.offset.reset", SET, "earliest"))
    configs = [{"name": "share.isolation.level", "value": "read_committed"}]
    s.call(
        "alter_configs",
        resources=[{"resource_type": GROUP, "resource_name": group, "configs": configs}],
        validate_only=False,
    )
    keys = ["share.auto.offset.reset", "share.isolation.level"]
    s.until(lambda: _describe(s, GROUP, group, keys[1:])["results"][0]["configs"][0]["value"] == "read_committed")
    s.note("replaced", _describe(s, GROUP, group, keys, include_synonyms=True))
    s.call("alter_configs", resources=[{"resource_type": GROUP, "resource_name": group}], validate_only=False)
    s.until(
        lambda: (
            group
            not in [
                one["resource_name"]
                for one in s.ask("list_config_resources", resource_types=[GROUP])["config_resources"]
            ]
        )
    )
