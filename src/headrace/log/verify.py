"""Checking a data folder: what the node and its topics remember, and every partition.

Nothing is changed and no lock is taken. It also takes a single partition's folder, an archive, or one file of batches.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from headrace.log.checked_file import DamagedFile, read_checked
from headrace.log.files import DiskFiles
from headrace.log.findings import DataReport, Findings, PartitionReport
from headrace.log.partition_check import check_partition, log_names
from headrace.log.segment_check import SegmentCheck

__all__ = ["verify"]

_LEAVING = "~"


def verify(
    place: Path,
    tell: Callable[[int], object] = lambda done: None,
    check_records: Callable[[PartitionReport], object] = lambda report: None,
) -> DataReport:
    """Check all that is in a place; ``tell`` hears how many bytes of batches have been checked.

    ``check_records`` may look at what the records of a partition say, and add what it finds.
    """
    report = DataReport()
    progress = _Progress(tell)
    if place.is_file():
        alone = PartitionReport(place.parent, segments=1)
        SegmentCheck(alone, place, gaps_until=0, last=True).run(None, lambda size: progress(place, size))
        report.add(alone)
        return report
    _check_node(place, report.findings)
    for name, _, _ in os.walk(place, onerror=_raise):
        folder = Path(name)
        if folder.name.startswith(_LEAVING) or any(
            part.startswith(_LEAVING) for part in folder.relative_to(place).parts
        ):
            continue
        if folder.parent.name == "topics" and (place / "topics") == folder.parent:
            _check_topic(folder, report.findings)
        if log_names(folder):
            found = check_partition(folder, progress)
            check_records(found)
            report.add(found)
    return report


class _Progress:
    """Adds up how far the check of each file is."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        self._tell = tell
        self._done: dict[Path, int] = {}
        self._total = 0

    def __call__(self, path: Path, size: int) -> None:
        self._total += size - self._done.get(path, 0)
        self._done[path] = size
        self._tell(self._total)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _check_node(data: Path, findings: Findings) -> None:
    for name in ("node", "producer-ids"):
        try:
            read_checked(DiskFiles(), data / name)
        except DamagedFile:
            findings.damage(data / name, "its checksum does not match: the node does not start")


def _check_topic(folder: Path, findings: Findings) -> None:
    path = folder / "topic"
    try:
        payload = read_checked(DiskFiles(), path)
    except DamagedFile:
        findings.damage(path, "its checksum does not match: the topic cannot be served, its data is kept")
        return
    if payload is None:
        if folder.exists():
            findings.damage(path, "it is missing: the topic cannot be served, its data is kept")
        return
    for index in range(json.loads(payload)["partitions"]):
        if not (folder / str(index)).is_dir() and folder.exists():
            findings.damage(folder / str(index), "the partition's folder is missing")
