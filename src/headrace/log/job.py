"""Slow work for a partition, split between threads.

A job is made on the owner's thread, ``run`` may be called on any thread (it does the slow part and touches only what it
was given), and then ``finish`` on the owner's thread makes the result part of the partition. One job at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

__all__ = ["Job"]


class Job(ABC):
    """Something slow to do for a partition."""

    cancelled = False
    """Set it to make a long ``run`` end early; ``finish`` then changes nothing."""

    def __init__(self, partition: PartitionLog) -> None:
        self.partition = partition

    @abstractmethod
    def run(self) -> None:
        """The slow part, on any thread."""

    @abstractmethod
    def finish(self) -> None:
        """Take over the result, on the owner's thread."""
