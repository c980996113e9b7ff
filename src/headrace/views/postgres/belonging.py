"""Which log the views of a schema are of: the id of its cluster, in ``headrace_store``.

Apps of the same name on two logs would take the views of one schema from each other without end, and each would build
them anew. So a schema is the log's that opened it first. That is looked at whenever a view is taken over, under a lock
that holds up whoever gives the schema to another log. ``give`` is for a log that has moved: rows and offsets stay, the
ids of topics become the target's, and all owners are replaced, so that a process that still serves the log that was
left writes nothing any more. Locks are taken in the order owners, store, builds by everybody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from headrace.errors import StoreAway
from headrace.views.postgres.address import Connection, PostgresAddress, execute, fetch
from headrace.views.postgres.tables import Schema

__all__ = ["apps_of", "claim", "ensure", "give"]

_MOVER = "headrace move"
_SCHEMAS = """
SELECT nspname FROM pg_namespace n WHERE EXISTS (SELECT FROM pg_class
    WHERE relnamespace = n.oid AND relname = 'headrace_store' AND relkind = 'r' AND pg_has_role(relowner, 'USAGE'))
ORDER BY nspname
"""


def claim(db: Connection, schema: Schema, address: PostgresAddress, log: str) -> None:
    """The schema is this log's from now on if it was nobody's; StoreAway if it is another's."""
    with address.told(), db.transaction():
        execute(db, f"UPDATE {schema.store} SET log = $1 WHERE log IS NULL", [log])
        ensure(db, schema, address, log)


def ensure(db: Connection, schema: Schema, address: PostgresAddress, log: str) -> None:
    """That the schema is this log's until the transaction ends; StoreAway if it is another's."""
    [(kept,)] = fetch(db, f"SELECT log FROM {schema.store} FOR SHARE")
    if kept not in (log, None):
        raise StoreAway(
            f"{address}: schema {schema.app!r} keeps the views of another log, {kept}; this one is {log}.",
            detail="the views of an app are of one log",
            hint="if that log was moved here, `headrace move --views` takes its views along; if both are in use, give"
            f" one of them another database; to have the views built anew from this log: DROP SCHEMA {schema.name}"
            " CASCADE;",
        )


def apps_of(address: PostgresAddress, log: str, topic_ids: Mapping[str, str]) -> list[str]:
    """The apps whose views are this log's; ``topic_ids``: its topics, by which a schema is known that says nothing."""
    with contextlib.closing(address.connect()) as db, address.told():
        schemas = [Schema(app) for (app,) in fetch(db, _SCHEMAS)]
        return [schema.app for schema in schemas if _is_of(db, schema, log, topic_ids)]


def give(address: PostgresAddress, log: str, other: str, topic_ids: Mapping[str, str]) -> dict[str, int]:
    """Give the views of a log to another that has its topics at the same offsets, by the ids that they have there. The
    apps, and how many views of each."""
    given = {}
    for app in apps_of(address, log, topic_ids):
        with contextlib.closing(address.connect()) as db:
            schema = Schema(app)
            schema.ensure(db, address)
            with address.told(), db.transaction():
                fetch(db, f"SELECT epoch FROM {schema.owners} ORDER BY view FOR UPDATE")
                fetch(db, f"SELECT log FROM {schema.store} FOR UPDATE")
                if _is_of(db, schema, log, topic_ids):
                    given[app] = _given(db, schema, other, topic_ids)
    return given


def _is_of(db: Connection, schema: Schema, log: str, topic_ids: Mapping[str, str]) -> bool:
    [(kept,)] = fetch(db, f"SELECT to_jsonb(s) ->> 'log' FROM {schema.store} s")
    if kept is not None:
        return bool(kept == log)
    [(known,)] = fetch(db, f"SELECT count(*) FROM {schema.builds} WHERE topic_id = ANY($1)", [list(topic_ids)])
    return bool(known)


def _given(db: Connection, schema: Schema, other: str, topic_ids: Mapping[str, str]) -> int:
    execute(db, f"UPDATE {schema.owners} SET epoch = epoch + 1, owner = $1, since = now()", [_MOVER])
    execute(db, f"UPDATE {schema.store} SET log = $1", [other])
    return execute(
        db,
        f"UPDATE {schema.builds} b SET topic_id = theirs FROM unnest($1::text[], $2::text[]) AS m (ours, theirs)"
        " WHERE b.topic_id = ours",
        [list(topic_ids), list(topic_ids.values())],
    )
