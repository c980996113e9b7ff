import pytest

from headrace.errors import InvalidConfig
from headrace.log.topic_config import DEFINITIONS, TopicConfig


def test_nothing_set_gives_kafkas_defaults() -> None:
    config = TopicConfig.parse({})
    assert config.cleanup_policy == {"delete"}
    assert config.delete
    assert not config.compact
    assert config.segment_bytes == 1 << 30
    assert config.retention_ms == 604_800_000
    assert config.max_message_bytes == 1_048_588
    assert config.flush_messages == 2**63 - 1
    assert config.min_cleanable_dirty_ratio == 0.5
    assert config.message_timestamp_after_max_ms == 3_600_000


def test_a_topics_own_value_wins_over_the_nodes() -> None:
    config = TopicConfig.parse({"retention.ms": "5"}, {"retention.ms": "7", "segment.ms": "9"})
    assert (config.retention_ms, config.segment_ms) == (5, 9)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such.setting", "1"),
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "1e6"),
        ("segment.bytes", ""),
        ("segment.bytes", "1_048_576"),
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("cleanup.policy", "compress"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "Delete"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("message.timestamp.type", "createtime"),
        ("leader.replication.throttled.replicas", "1-2"),
        ("remote.storage.enable", "true"),
        ("min.insync.replicas", "0"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=name if name != "remote.storage.enable" else "tiered"):
        TopicConfig.parse({name: text})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="larger than"):
        TopicConfig.parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_cleanup_policy_may_be_both_or_none() -> None:
    assert TopicConfig.parse({"cleanup.policy": "compact, delete"}).cleanup_policy == {"compact", "delete"}
    assert TopicConfig.parse({"cleanup.policy": ""}).cleanup_policy == frozenset()


def test_the_internal_segment_size_has_no_lower_bound() -> None:
    assert TopicConfig.parse({"internal.segment.bytes": "200"}).segment_bytes == 200


def test_every_default_parses_and_renders_to_itself() -> None:
    for definition in DEFINITIONS.values():
        assert definition.render(definition.parse(definition.default)) == definition.default


def test_definitions_are_sorted_and_documented() -> None:
    assert list(DEFINITIONS) == sorted(DEFINITIONS)
    assert all(definition.documentation.endswith(".") for definition in DEFINITIONS.values())
