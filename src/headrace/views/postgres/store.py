"""The store of an app's views in a schema of PostgreSQL (drawn in ``tables``).

Every write is one transaction: the owner is looked at, rows are written, the offset after them is written, commit. A
connection that breaks, a server that is killed, a kill of this process: whatever was not committed is undone by
PostgreSQL, and what was is found again with its offsets when the store is opened. One thread uses a store.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from headrace.errors import ViewNotKept
from headrace.views.applying import take_in
from headrace.views.catalog import ViewSpec
from headrace.views.changes import RowDecoder
from headrace.views.columns import compact_json
from headrace.views.postgres import belonging
from headrace.views.postgres.address import Connection, PostgresAddress, execute, fetch
from headrace.views.postgres.ownership import Owner
from headrace.views.postgres.reading import PostgresReader
from headrace.views.postgres.tables import Schema
from headrace.views.postgres.writing import COPY_FROM, BuildWriter
from headrace.views.store import Applied, Build

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PostgresStore", "PostgresStores"]

LOCK_PATIENCE_MS = 500
"""All views of a node are written by one thread: it does not wait for one of them."""

_STOPPED = "SET idle_in_transaction_session_timeout = '10s'"
"""A process that is stopped in the middle of a transaction has its view for so long and no longer."""


class PostgresStores:
    """A database with a schema for each app. ``copy_from``: how many rows are worth a copy."""

    def __init__(self, address: PostgresAddress, owner: Owner | None = None, copy_from: int = COPY_FROM) -> None:
        self._address = address
        self._owner = owner or Owner()
        self._copy_from = copy_from
        self._readers: list[PostgresReader] = []

    def shared_as(self) -> str | None:
        """The database, whatever the address that it is reached by."""
        with contextlib.closing(self._address.connect()) as db, self._address.told():
            [(server, database)] = fetch(db, "SELECT system_identifier, current_database() FROM pg_control_system()")
        return f"{server:x}.{hashlib.sha256(str(database).encode()).hexdigest()[:8]}"

    def open(self, app: str, log: str | None = None) -> PostgresStore:
        """The schema of an app."""
        return PostgresStore(self._address, app, self._owner, self._copy_from, log)

    def reader(self, apps: Callable[[], Sequence[str]]) -> PostgresReader:
        """A reader of all schemas."""
        self._readers.append(PostgresReader(self._address, apps))
        return self._readers[-1]

    def close(self) -> None:
        """Close the connections of readers."""
        for reader in self._readers:
            reader.close()


class PostgresStore:
    """The views of one app in its schema, over one connection."""

    def __init__(
        self, address: PostgresAddress, app: str, owner: Owner, copy_from: int = COPY_FROM, log: str | None = None
    ) -> None:
        self._address = address
        self._owner = owner
        self._log = log
        self._schema = Schema(app)
        self._copy_from = copy_from
        self._decoders: dict[int, RowDecoder] = {}
        self._writers: dict[int, BuildWriter] = {}
        self._taken: dict[int, Build] = {}
        self._db = address.connect()
        try:
            self._schema.ensure(self._db, address)
            if log is not None:
                belonging.claim(self._db, self._schema, address, log)
            with address.told():
                execute(self._db, f"SET lock_timeout = {LOCK_PATIENCE_MS}; {_STOPPED}")
        except BaseException:
            self._db.close()
            raise

    def lost(self) -> bool:
        """Whether somebody has dropped the schema, or a table of what we keep in it."""
        with self._address.told():
            return not self._schema.holds(self._db, list(self._taken.values()))

    def builds(self) -> list[Build]:
        """What is in the store, oldest first, whoever keeps it."""
        with self._address.told():
            return self._found("")

    def take(self, view: str) -> list[Build]:
        """Own a view from now on: its builds. One whose table was dropped is not among them."""
        with self._writing(view, take=True) as db:
            found = self._found("WHERE view = $1", view)
            builds = [build for build in found if self._schema.ensure_unaltered(db, build.spec, build.number)]
            for build in builds:
                if build.live and not self._schema.is_shown(db, view):
                    self._schema.point_at(db, build.spec, build.number)
        self._taken |= {build.number: build for build in builds}
        return builds

    def let_go(self, view: str) -> None:
        """Own a view no more."""
        self._owner.let_go(self._schema.app, view)
        for number in [number for number, build in self._taken.items() if build.spec.name == view]:
            self._forget(number)

    def begin(self, spec: ViewSpec, topic_id: str) -> Build:
        """A new, empty build from the topic of this id; live at once if the view has none yet."""
        with self._writing(spec.name, take=True) as db:
            for build in self._found("WHERE view = $1", spec.name):
                if not self._schema.ensure_unaltered(db, build.spec, build.number):
                    self._schema.forget(db, spec.name, build.number)
            [(number, live)] = fetch(
                db,
                f"INSERT INTO {self._schema.builds} (view, spec, topic_id, live) SELECT $1::text, $2::json, $3::text,"
                f" NOT EXISTS (SELECT FROM {self._schema.builds} WHERE view = $1 AND live) RETURNING number, live",
                [spec.name, compact_json(spec.to_json()), topic_id],
            )
            self._schema.create(db, spec, number)
            if live:
                self._schema.point_at(db, spec, number)
        self._taken[number] = Build(number, spec, topic_id, live)
        return self._taken[number]

    def apply(self, build: Build, partition: int, records: pa.RecordBatch | None, following: int) -> Applied:
        """Take in records up to the offset ``following``, in one transaction."""
        with self._writing(build.spec.name) as db:
            applied = Applied(0, 0) if records is None else self._applied(build, records)
            execute(
                db,
                f"INSERT INTO {self._schema.offsets} VALUES ($1, $2, $3)"
                " ON CONFLICT (build, partition) DO UPDATE SET following = excluded.following",
                [build.number, partition, following],
            )
            if applied.bad:
                execute(
                    db,
                    f"UPDATE {self._schema.builds} SET bad = bad + $1, last_bad = $2 WHERE number = $3",
                    [len(applied.bad), _plain(applied.last_bad(partition)), build.number],
                )
        build.advance(partition, following, applied)
        return applied

    def swap(self, build: Build) -> None:
        """Make this build the live one, and drop the one that was."""
        view = build.spec.name
        with self._writing(view) as db:
            others = fetch(
                db,
                f"SELECT number FROM {self._schema.builds} WHERE view = $1 AND live AND number != $2",
                [view, build.number],
            )
            self._schema.point_at(db, build.spec, build.number)
            for (number,) in others:
                self._schema.forget(db, view, number)
            execute(db, f"UPDATE {self._schema.builds} SET live = true WHERE number = $1", [build.number])
        for (number,) in others:
            self._forget(number)
        build.live = True

    def drop(self, build: Build) -> None:
        """Remove a build and its rows."""
        with self._writing(build.spec.name) as db:
            if build.live:
                self._schema.hide(db, build.spec.name)
            self._schema.forget(db, build.spec.name, build.number)
        self._forget(build.number)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    @contextmanager
    def _writing(self, view: str, *, take: bool = False) -> Iterator[Connection]:
        """A transaction of the view's owner; ``take``: it may become the owner by it. Where another holds a lock that
        it needs, ViewNotKept: this view is tried again, and others need not wait."""
        own = self._owner.take if take else self._owner.ensure
        with self._address.told():
            try:
                with self._db.transaction():
                    own(self._db, self._schema.app, self._schema.owners, view)
                    if take and self._log is not None:
                        belonging.ensure(self._db, self._schema, self._address, self._log)
                    yield self._db
            except psycopg.errors.LockNotAvailable:
                raise ViewNotKept(
                    f"view {view!r} has to wait: another process is in the middle of a transaction with it"
                ) from None

    def _forget(self, number: int) -> None:
        for known in (self._taken, self._writers, self._decoders):
            known.pop(number, None)

    def _applied(self, build: Build, records: pa.RecordBatch) -> Applied:
        if build.number not in self._writers:
            table = self._schema.table(build.spec.name, build.number)
            self._writers[build.number] = BuildWriter(build.spec, table, self._copy_from)
            self._decoders[build.number] = RowDecoder(build.spec)
        writer = self._writers[build.number]
        return take_in(self._decoders[build.number], records, lambda changes: writer.write(self._db, changes))

    def _found(self, where: str, *values: str) -> list[Build]:
        rows = fetch(
            self._db,
            "SELECT number, spec, topic_id, live, bad, last_bad, ARRAY(SELECT ARRAY[partition, following]"
            f" FROM {self._schema.offsets} WHERE build = number) FROM {self._schema.builds} {where} ORDER BY number",
            values,
        )
        return [
            Build(number, ViewSpec.from_json(spec), topic_id, live, dict(offsets), bad, last)
            for number, spec, topic_id, live, bad, last, offsets in rows
        ]


def _plain(text: str | None) -> str | None:
    """Text that PostgreSQL can hold, of words that may quote what it cannot."""
    return None if text is None else text.replace("\0", "\ufffd").encode(errors="replace").decode()
