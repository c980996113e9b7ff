"""What a check of the log found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = ["Finding", "PartitionReport", "Severity"]


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


@dataclass(slots=True)
class PartitionReport:
    """What was looked at in a partition, and what was found."""

    folder: Path
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Whether anything is wrong that a start would not repair."""
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)

    def damage(self, path: Path, reason: str, position: int | None = None, offset: int | None = None) -> None:
        """Something is broken."""
        self.findings.append(Finding(Severity.DAMAGE, path, reason, position, offset))

    def note(self, path: Path, reason: str, position: int | None = None, offset: int | None = None) -> None:
        """Something that does no harm."""
        self.findings.append(Finding(Severity.NOTE, path, reason, position, offset))
