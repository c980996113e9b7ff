"""What a check of the log found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = ["DataReport", "Finding", "Findings", "PartitionReport", "Severity"]


class Severity(StrEnum):
    """How bad a finding is: a note is what the next start repairs without loss, or what does no harm."""

    NOTE = "note"
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be: in which file, at which byte, near which offset."""

    severity: Severity
    path: Path
    reason: str
    position: int | None = None
    offset: int | None = None


class Findings(list[Finding]):
    """What was found, in the order of finding."""

    @property
    def damages(self) -> int:
        """How many of them are damage."""
        return sum(finding.severity is Severity.DAMAGE for finding in self)

    def damage(self, path: Path, reason: str, position: int | None = None, offset: int | None = None) -> None:
        """Something is broken."""
        self.append(Finding(Severity.DAMAGE, path, reason, position, offset))

    def note(self, path: Path, reason: str, position: int | None = None, offset: int | None = None) -> None:
        """Something that does no harm."""
        self.append(Finding(Severity.NOTE, path, reason, position, offset))


@dataclass(slots=True)
class PartitionReport:
    """What was looked at in a partition, and what was found."""

    folder: Path
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: Findings = field(default_factory=Findings)


@dataclass(slots=True)
class DataReport:
    """What was looked at in a data folder, and what was found in all of it."""

    partitions: list[PartitionReport] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    def add(self, report: PartitionReport) -> None:
        """Take in a partition."""
        self.partitions.append(report)
        self.findings.extend(report.findings)
