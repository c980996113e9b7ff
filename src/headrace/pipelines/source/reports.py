"""What a task tells of each range that it has read: rows in, late, dead, and the largest event time given to Spark.

Reports are records of the compacted topic ``headrace.times``. Key ``QUERY/TOPIC/PARTITION/START-END``, value
``{"largest", "rows_in", "late", "dead"}``: a range that is read again reports the same under the same key. The planner
folds the reports of a batch into the next position, and writes the sum under ``QUERY/TOPIC``, as
``{"offsets", "largest", "rows_in", "late", "dead"}``; what that covers is then deleted, all but the last batch's.

Operators report rows that they could not process in the same way, as all those of a bucket so far: with
``~operator-NUMBER`` for the topic, the bucket for the partition, and the number of buckets for the offset.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.source.planning import Counts, Position, Range

__all__ = ["TIMES", "Report", "Reports", "query_key", "report_key", "total_value"]

TIMES = "headrace.times"


@dataclass(frozen=True, slots=True)
class Report:
    """What came of one range."""

    counts: Counts
    largest_us: int | None

    def to_json(self) -> bytes:
        """The record's value."""
        return json.dumps({"largest": self.largest_us, **self.counts._asdict()}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Report:
        """From a record's value."""
        found = json.loads(value)
        return cls(Counts(found["rows_in"], found["late"], found["dead"]), found["largest"])


def query_key(query: str, topic: str) -> str:
    """The key of a query's sum."""
    return f"{query}/{topic}"


def report_key(query: str, topic: str, read: Range) -> str:
    """The key of a range's report."""
    return f"{query}/{topic}/{read.partition}/{read.start}-{read.end}"


def total_value(offsets: Mapping[int, int], largest_us: int | None, counts: Counts) -> bytes:
    """The value of a query's sum: all before these offsets."""
    named = {str(index): offset for index, offset in offsets.items()}
    return json.dumps({"offsets": named, "largest": largest_us, **counts._asdict()}, separators=(",", ":")).encode()


class Reports:
    """The reports and the sum of one query's reading of one topic, as far as the topic of reports was read."""

    def __init__(self, query: str, topic: str) -> None:
        self._total_key = query_key(query, topic)
        self._prefix = f"{self._total_key}/"
        self.ranges: dict[Range, Report] = {}
        self._total = Counts()
        self._offsets: dict[int, int] = {}
        self.largest_us: int | None = None

    def add(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take in records of the topic, in order."""
        for key, value in records:
            name = (key or b"").decode(errors="replace")
            if name == self._total_key and value is not None:
                self._take_total(json.loads(value))
            elif name.startswith(self._prefix):
                partition, _, offsets = name.removeprefix(self._prefix).partition("/")
                start, _, end = offsets.partition("-")
                read = Range(int(partition), int(start), int(end))
                if value is None:
                    self.ranges.pop(read, None)
                else:
                    self.ranges[read] = Report.from_json(value)

    def folded(self, done: Position) -> tuple[int | None, Counts]:
        """The largest event time, and the counts, of all up to the end of a batch that is done."""
        counts, largest = done.counts, done.largest_us
        for read in done.ranges:
            report = self.ranges.get(read)
            if report is not None:
                counts = counts.plus(report.counts)
        for report in self.ranges.values():  # all there are: a bound may be too high, but never too low
            if report.largest_us is not None and (largest is None or report.largest_us > largest):
                largest = report.largest_us
        return largest, counts

    def counts(self) -> Counts:
        """Everything that was reported: the sum, and what it does not cover yet."""
        counts = self._total
        for read, report in self.ranges.items():
            if read.start >= self._offsets.get(read.partition, 0):
                counts = counts.plus(report.counts)
        return counts

    def covered(self, offsets: Mapping[int, int]) -> list[Range]:
        """The ranges that end at or before these offsets."""
        return [read for read in self.ranges if read.end <= offsets.get(read.partition, 0)]

    def _take_total(self, found: dict[str, Any]) -> None:
        self._total = Counts(found["rows_in"], found["late"], found["dead"])
        self._offsets = {int(index): offset for index, offset in found["offsets"].items()}
        self.largest_us = found["largest"]
