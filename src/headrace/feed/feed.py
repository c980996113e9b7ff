"""What a feed is, and which of the two readers a place gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headrace.feed.cluster import Cluster
from headrace.feed.protocol import ProtocolFeed
from headrace.feed.segments import SegmentFeed, ensure_data_of

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Feed", "open_feed"]


class Feed(Protocol):
    """Committed records of topics.

    Record batches have the columns of ``_kernel.records_to_arrow``: offset, timestamp, key, value, headers.
    """

    def cluster_id(self) -> str | None:
        """Which cluster it is, by whatever address it was reached."""
        ...

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic; UnknownTopic if there is none of that name."""
        ...

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Of each partition: where the log starts, and the last stable offset."""
        ...

    def topic_id(self, topic: str) -> str:
        """The id that a topic had when its bounds were last asked for; made again, it has another."""
        ...

    def offset_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Of each partition: the first offset whose record has at least this timestamp; the end if none has."""
        ...

    def read(
        self, topic: str, partition: int, start: int, end: int, *, max_bytes: int = ..., whole: bool = False
    ) -> Iterator[pyarrow.RecordBatch]:
        """The committed data records with start <= offset < end, about ``max_bytes`` of batches at a time.

        ``end`` is at most a last stable offset that ``bounds`` gave. Offsets have gaps where there were aborted
        transactions, markers, or records that compaction or retention took; ``whole``: OffsetOutOfRange if retention
        did, where 0 as a start is wherever the log starts.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def open_feed(bootstrap: str, data: Path | None = None, settings: Mapping[str, str] | None = None) -> Feed:
    """A feed of the cluster at ``bootstrap``; from segment files if ``data`` is its data folder and can be read.

    ``settings`` are more settings for the Kafka client, under librdkafka's names.
    """
    cluster = Cluster(bootstrap, settings or {})
    if data is not None and (data / "topics").is_dir():
        ensure_data_of(data, cluster)
        return SegmentFeed(cluster, data)
    return ProtocolFeed(cluster)
