"""Event time: the clocks of devices put right, and the bound below which a row is late.

Spark's watermark in a batch is at most the largest event time of all rows that it was given in earlier batches, in
whole milliseconds, minus the delay; a row at or before it is late. ``late_bound`` is that, so that late rows can be
taken out before Spark would drop them without a trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DeviceClock", "corrected", "late_bound", "moment_ms", "skew_ms"]


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """Three times of an event: when it occurred and when it was sent, by the device's clock; when it came, by ours.

    The difference of the last two is how wrong the device's clock is (and how long the way was, which is small
    beside that); the event time is put right by it. ``received`` is the record's own timestamp if no column has it.
    The estimated difference, in milliseconds, fills the column ``offset`` if the schema has it.
    """

    occurred: str
    sent: str
    received: str | None = None
    offset: str = "clock_offset_ms"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for name in (self.occurred, self.sent, self.received) if name is not None)


def corrected(
    rows: pyarrow.RecordBatch, clock: DeviceClock, timestamps: pyarrow.Array
) -> tuple[pyarrow.Array, pyarrow.Array]:
    """The corrected event time, and the estimated offset in milliseconds (both in the types of int64 and the column).

    Where sent or received is missing, the time is taken as it is and the offset is null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    occurred = rows.column(clock.occurred)
    sent = rows.column(clock.sent).cast(pa.int64())
    received = rows.column(clock.received) if clock.received else timestamps.cast(pa.timestamp("us", tz="UTC"))
    offset = pc.subtract(received.cast(pa.int64()), sent)
    moved = pc.add(occurred.cast(pa.int64()), pc.fill_null(offset, 0))
    return moved.cast(occurred.type), pc.divide(offset, 1000)


def late_bound(largest_us: int | None, delay_ms: int) -> int | None:
    """The event time in microseconds at or before which a row is late; None while there is no watermark."""
    return None if largest_us is None else (largest_us // 1000 - delay_ms) * 1000


def skew_ms(lateness_ms: int) -> int:
    """How far partitions may be read ahead of the slowest: a second, or a tenth of the lateness."""
    return max(1_000, lateness_ms // 10)


def moment_ms(text: str) -> int:
    """A time as people write it (``2026-01-31T12:00Z``; without a zone it is UTC), in milliseconds since 1970;
    ValueError if it is none."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
