"""The storage engine: partitions of segments in Kafka's record batch format."""

from headrace.log.group_commit import GroupCommit
from headrace.log.partition import AppendInfo, Origin, PartitionLog
from headrace.log.reading import ReadResult
from headrace.log.store import LogStore, Topic, ensure_topic_name
from headrace.log.topic_config import TopicConfig

__all__ = [
    "AppendInfo",
    "GroupCommit",
    "LogStore",
    "Origin",
    "PartitionLog",
    "ReadResult",
    "Topic",
    "TopicConfig",
    "ensure_topic_name",
]
