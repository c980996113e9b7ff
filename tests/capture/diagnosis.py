"""What a developer needs to see when a capture did not come to its table: both sides, and everything in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Reader

__all__ = ["diagnosis"]

TAIL = 60
SHOWN = 20


def diagnosis(running: Running, postgres: Postgres, reader: Reader, rows: Mapping[str, Any] | None = None) -> str:
    """The state of everything, as text. What cannot be asked says so and does not hide the rest."""
    parts: dict[str, Callable[[], Any]] = {
        "rows": lambda: _differences(reader, rows or {}),
        "last records": lambda: "\n".join(_record(change) for change in reader.changes[-SHOWN:]),
        "told": lambda: "\n".join(running.told[-SHOWN:]),
        "tables": lambda: "\n".join(json.dumps(one.entry()) for one in running.run.statuses),
        "connectors": lambda: _connectors(running),
        "slots": lambda: _slots(postgres),
        "senders": lambda: "\n".join(map(str, postgres.execute("select * from pg_stat_replication"))),
        "notifications": lambda: _tail(_worker_folder(running) / "notifications.log", SHOWN),
        "worker": lambda: _tail(_worker_folder(running) / "worker.log", TAIL),
        "worker.out": lambda: _tail(_worker_folder(running) / "worker.out", SHOWN),
        "postgres": lambda: _tail(postgres.folder / "postgres.log", SHOWN),
    }
    return "\n".join(f"--- {name}\n{_asked(ask)}" for name, ask in parts.items())


def _asked(ask: Callable[[], Any]) -> str:
    try:
        return str(ask())
    except Exception as error:  # one part that cannot be asked does not hide the others
        return f"could not be asked: {error!r}"


def _differences(reader: Reader, rows: Mapping[str, Any]) -> str:
    has = reader.table()
    missing = [key for key in rows if key not in has]
    extra = [key for key in has if key not in rows]
    other = [f"{key}: {has[key]}, not {rows[key]}" for key in rows if key in has and not _same(has[key], rows[key])]
    return "\n".join(
        f"{len(found)} {what}: {found[:SHOWN]}"
        for what, found in (("missing in the topic", missing), ("not in the table", extra), ("different", other))
    )


def _same(captured: Mapping[str, Any], wanted: Any) -> bool:
    return bool(captured == wanted if isinstance(wanted, Mapping) else captured["v"] == wanted)


def _record(change: Any) -> str:
    about = {name: change.source.get(name) for name in ("lsn", "txId", "snapshot", "connector")}
    return f"{change.offset}: {change.op} {change.key} {change.row} {about}"


def _connectors(running: Running) -> str:
    supervisor = running.run.supervisor
    assert supervisor is not None
    worker = supervisor.worker
    if worker is None or not worker.is_alive:
        return "no worker runs"
    names = worker.rest.connectors()
    return "\n".join(f"{json.dumps(worker.rest.status(name))}\n{worker.rest.offsets(name)}" for name in names)


def _slots(postgres: Postgres) -> str:
    found = postgres.execute(
        "select slot_name, active, active_pid, wal_status, restart_lsn, confirmed_flush_lsn, pg_current_wal_lsn()"
        " from pg_replication_slots"
    )
    return "\n".join(map(str, found))


def _worker_folder(running: Running) -> Path:
    return running.settings.folder / "capture" / running.run.app


def _tail(path: Path, lines: int) -> str:
    return "\n".join(line[:600] for line in path.read_text(errors="replace").splitlines()[-lines:])
