"""Checking a partition's folder: every checksum, every record's form, offsets, indexes and small files.

Nothing is changed and no lock is taken, so it works beside a running node: a folder in which something was found and
that has changed meanwhile is looked at again.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headrace.log.checked_file import DamagedFile, read_checked
from headrace.log.checkpoint import Checkpoint, read_checkpoint
from headrace.log.files import DiskFiles
from headrace.log.findings import PartitionReport
from headrace.log.producer_state import ProducerState
from headrace.log.segment_check import SegmentCheck

__all__ = ["check_partition", "log_names"]

_ATTEMPTS = 3


def log_names(folder: Path) -> list[str]:
    """The names of a folder's files of batches, in the order of their offsets."""
    return sorted(name for name in os.listdir(folder) if name.endswith(".log") and name[:-4].isdigit())


def check_partition(folder: Path, advanced: Callable[[Path, int], object]) -> PartitionReport:
    """Check a partition's folder; ``advanced`` is told how much of which file was checked."""
    report = PartitionReport(folder)
    for _ in range(_ATTEMPTS):
        before = _state_of(folder)
        report = _checked(folder, advanced)
        if not report.findings or before == _state_of(folder):
            break
    return report


def _state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Changes when files are replaced, added or removed; not when the log only grows."""
    state = {}
    for entry in os.scandir(folder):
        try:
            stat = entry.stat()
        except FileNotFoundError:
            continue
        state[entry.name] = (stat.st_ino, 0 if entry.name.endswith(".log") else stat.st_mtime_ns)
    return state


def _checked(folder: Path, advanced: Callable[[Path, int], object]) -> PartitionReport:
    report = PartitionReport(folder)
    checkpoint = _check_small_files(folder, report)
    names = log_names(folder)
    gaps_until = max(checkpoint.cleaned_to, checkpoint.log_start)
    if names and _is_compacted(folder):
        gaps_until = max(gaps_until, int(names[-1][:-4]))
    end_offset: int | None = None
    for name in names:
        path = folder / name
        check = SegmentCheck(report, path, gaps_until, last=name == names[-1])
        try:
            check.run(end_offset, partial(advanced, path))
        except FileNotFoundError:
            continue
        report.segments += 1
        end_offset = check.end_offset
    for name in sorted(os.listdir(folder)):
        if name.endswith(".cut"):
            report.findings.note(folder / name, "recovery set bytes aside here that were never acknowledged")
    return report


def _check_small_files(folder: Path, report: PartitionReport) -> Checkpoint:
    disk = DiskFiles()
    try:
        snapshot = read_checked(disk, folder / "producers")
        if snapshot is not None:
            ProducerState.decode(snapshot)
    except (DamagedFile, struct.error):
        report.findings.note(
            folder / "producers", "the snapshot of producers is damaged; it is made again from the log"
        )
    try:
        read_checked(disk, folder / "checkpoint")
    except DamagedFile:
        report.findings.damage(
            folder / "checkpoint", "the checkpoint is damaged: records that were deleted may come back"
        )
    return read_checkpoint(disk, folder / "checkpoint") or Checkpoint()


def _is_compacted(folder: Path) -> bool:
    """Whether the topic is compacted now: then sealed segments may lack any offset."""
    try:
        payload = read_checked(DiskFiles(), folder.parent / "topic")
    except DamagedFile:
        return True
    return payload is not None and "compact" in json.loads(payload)["overrides"].get("cleanup.policy", "")
