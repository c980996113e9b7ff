"""Whether a table of PostgreSQL can be captured: what it is, who may read it, what its log says of old rows.

Of a partitioned table the log has what its partitions say: each of them is looked at too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.capture.columns import TableLook
from headrace.capture.declarations import Captured, Postgres
from headrace.capture.postgres import Connection, look_at, quoted, quoted_table
from headrace.capture.problems import Problem

__all__ = ["table_problems"]

_OTHER_KINDS = {
    "v": ("a view", "capture the tables that it is made from"),
    "m": ("a materialized view", "capture the tables that it is made from"),
    "f": ("a foreign table, whose changes its own server knows", "capture it from that server"),
}
_RELATIONS = (
    "select c.relkind::text, c.relpersistence::text, c.relreplident::text, n.nspname, c.relname,"
    " array(select a.attname::text from pg_index i join pg_attribute a on a.attrelid = i.indrelid"
    "  where i.indrelid = c.oid and i.indisreplident and a.attnum = any(i.indkey))"
    " from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%(name)s)"
    " or c.oid in (select relid from pg_partition_tree(to_regclass(%(name)s)) where isleaf)"
    " order by c.relkind = 'p' desc, 4, 5"
)


@dataclass(frozen=True, slots=True)
class _Relation:
    """A table or a partition as PostgreSQL's catalog has it."""

    kind: str
    persistence: str
    identity: str
    """What its log says of a row that is changed or deleted: ``d``efault (the primary key), ``f``ull, ``n``othing, or
    the columns of an ``i``ndex."""
    schema: str
    table: str
    indexed: tuple[str, ...]
    """The columns of that index; none if it was dropped."""

    @property
    def name(self) -> str:
        """As SQL takes it."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"


def table_problems(connection: Connection, captured: Captured, user: str) -> Iterator[Problem]:
    """What stands in the way of capturing a table. ``user`` is who connects, as a sentence says it."""
    source = captured.source
    assert isinstance(source, Postgres)
    found = look_at(connection, source)
    if found is None:
        yield Problem(
            f"there is no table {source.table_name}, or {user} may not see its schema.",
            f"GRANT USAGE ON SCHEMA {quoted(source.schema)} TO {quoted(source.user)};  -- if it exists",
        )
        return
    relations = _relations(connection, source)
    unfit = [problem for one in relations for problem in _unfit(source, one)]
    if unfit:
        yield from unfit
        return
    may = connection.execute("select has_table_privilege(%s, 'select')", [quoted_table(source)]).fetchone()
    if may is not None and not may[0]:
        yield Problem(
            f"{user} may not read {source.table_name}.",
            f"GRANT SELECT ON {quoted_table(source)} TO {quoted(source.user)};",
        )
    names = {column.name for column in found.columns}
    for column in captured.outbox.columns if captured.outbox is not None else captured.key:
        if column not in names:
            yield Problem(
                f"{source.table_name} has no column {column!r}.", f"it has: {', '.join(c.name for c in found.columns)}"
            )
    if not found.key and not captured.key:
        yield Problem(
            f"{source.table_name} has no primary key: published, the application's own UPDATE and DELETE would fail.",
            f"ALTER TABLE {quoted_table(source)} ADD PRIMARY KEY (...);",
        )
        return
    for one in relations:
        if one.kind != "p":  # which has no rows of its own
            yield from _identity_problems(captured, found, one)


def _relations(connection: Connection, source: Postgres) -> list[_Relation]:
    """The table, and of a partitioned one its partitions."""
    rows = connection.execute(_RELATIONS.encode(), {"name": quoted_table(source)}).fetchall()
    return [
        _Relation(str(kind), str(persistence), str(identity), str(schema), str(table), tuple(indexed))
        for kind, persistence, identity, schema, table, indexed in rows
    ]


def _unfit(source: Postgres, relation: _Relation) -> Iterator[Problem]:
    """What no table is, or what a table keeps out of the log."""
    if relation.kind not in ("r", "p"):
        what, cure = _OTHER_KINDS.get(relation.kind, ("something else", "name a table"))
        yield Problem(f"{_named(source, relation)} is not a table but {what}.", cure)
    elif relation.persistence == "t":
        yield Problem(
            f"{_named(source, relation)} is a temporary table, which only its own session sees.",
            "capture a lasting one",
        )
    elif relation.persistence == "u":
        yield Problem(
            f"{_named(source, relation)} is UNLOGGED: the server's log says nothing of its changes.",
            f"ALTER TABLE {relation.name} SET LOGGED;",
        )


def _identity_problems(captured: Captured, found: TableLook, relation: _Relation) -> Iterator[Problem]:
    """Where the log would not say which row of the topic a change is of, or PostgreSQL would refuse the change."""
    source = captured.source
    assert isinstance(source, Postgres)
    named, is_outbox = _named(source, relation), captured.outbox is not None
    key = captured.key or found.key
    other = bool(captured.key) and set(captured.key) != set(found.key) and not is_outbox
    if (not found.key or other) and relation.identity != "f":
        yield Problem(
            f"{named} is to be keyed by {', '.join(captured.key)}, which is not its primary key, "
            "so changes must carry whole rows.",
            f"ALTER TABLE {relation.name} REPLICA IDENTITY FULL;",
        )
    elif relation.identity == "n" or (relation.identity == "i" and not relation.indexed):
        how = "NOTHING" if relation.identity == "n" else "USING INDEX of an index that was dropped"
        yield Problem(
            f"{named} has REPLICA IDENTITY {how}: published, its UPDATE and DELETE would fail.",
            f"ALTER TABLE {relation.name} REPLICA IDENTITY DEFAULT;",
        )
    elif relation.identity == "i" and not is_outbox and not set(key) <= set(relation.indexed):
        yield Problem(
            f"{named} has REPLICA IDENTITY USING INDEX over {', '.join(relation.indexed)}, so its log does not say "
            f"which {', '.join(key)} was changed or deleted.",
            f"ALTER TABLE {relation.name} REPLICA IDENTITY DEFAULT;",
        )


def _named(source: Postgres, relation: _Relation) -> str:
    named = f"{relation.schema}.{relation.table}"
    return named if named == source.table_name else f"{named} (a partition of {source.table_name})"
