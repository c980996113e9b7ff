"""How the database's side of a capture is doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Health", "alarm", "boundless"]

ALARM_BYTES = 1 << 30
"""When nothing limits what the database keeps for us, and it keeps more than this: an alarm."""


@dataclass(frozen=True, slots=True)
class Health:
    """What was seen."""

    lag_bytes: int | None = None
    """How far behind the end of the database's log we are."""
    retained_bytes: int | None = None
    """How much of its log the database keeps for us."""
    confirmed: int | None = None
    """Up to where it was told that its log is captured, if it keeps that for us."""
    keep_bytes: int = -1
    """How much it keeps at most before it gives us up; -1: until its disk is full."""
    keep_s: int | None = None
    """How long the server keeps its log, whoever needs it (MariaDB, MySQL; 0: for ever); None: it keeps it for us."""
    behind_s: float | None = None
    """How old what was captured last is, where that counts."""
    refusal: str | None = None
    """Why going on from the stored position would lose changes."""
    beat: int | None = None
    """The heartbeat in the database, in microseconds: only the connector moves it, and only on."""
    end: Any = None
    """Where the log ended after that was read."""


def alarm(health: Health) -> str | None:
    """A warning before the database's disk fills, or before it gives the capture up."""
    return _of_slot(health) if health.keep_s is None else _of_binlog(health, health.keep_s)


def boundless(health: Health) -> str | None:
    """What is told at the start of a capture that may fill the database's disk."""
    if health.keep_s is not None or health.keep_bytes >= 0:
        return None
    return (
        "nothing limits how much of its log the server keeps while a capture stands still, and its disk may fill; "
        "to have it give the capture up before: ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; "
        "SELECT pg_reload_conf();"
    )


def _of_slot(health: Health) -> str | None:
    kept = health.retained_bytes or 0
    if health.keep_bytes >= 0 and kept > health.keep_bytes // 2:
        return (
            f"the database keeps {kept >> 20} MiB of its log for this capture and gives it up at "
            f"{health.keep_bytes >> 20} MiB: capture must catch up, or max_slot_wal_keep_size be raised"
        )
    if health.keep_bytes < 0 and kept > ALARM_BYTES:
        return (
            f"the database keeps {kept >> 20} MiB of its log for this capture, and nothing limits it: its disk may "
            "fill (resume the capture, remove it, or set max_slot_wal_keep_size)"
        )
    return None


def _of_binlog(health: Health, keep_s: int) -> str | None:
    """Such a server keeps nothing for us, but purges what we still need."""
    behind, behind_s = health.lag_bytes or 0, health.behind_s or 0.0
    if 0 < keep_s < 2 * behind_s:
        return (
            f"the capture is {behind_s / 3600:.1f} hours behind, and the server purges its log after "
            f"{keep_s / 3600:.1f}: capture must catch up, or binlog_expire_logs_seconds be raised"
        )
    if behind > ALARM_BYTES:
        return (
            f"{behind >> 20} MiB of the server's log are not captured yet, and the server does not keep them for that: "
            "what is purged before is lost (resume the capture, or see to binlog_expire_logs_seconds)"
        )
    return None
