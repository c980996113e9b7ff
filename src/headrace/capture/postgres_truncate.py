"""TRUNCATE in PostgreSQL, told as deletes: the trigger that captured tables get, and how it comes and goes.

``before truncate`` the trigger's function deletes the rows, in one statement with those of the tables that reference
the table, by any number of steps: PostgreSQL has made sure that these are in the same TRUNCATE. It runs as the table's
owner, so whoever may truncate need not have the right to delete. As somebody else's DELETE triggers would run as that
owner too, tables of another owner that have some are refused. The application's own DELETE triggers do not fire where
the owner may set ``session_replication_role`` (a superuser may); elsewhere they find their names in the table's
schema, where nothing that we call is looked for. A check that was deferred would look for rows that are no longer
there, so the checks of these tables are made at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from headrace.capture.declarations import Postgres
from headrace.capture.postgres import Connection, quoted, quoted_table
from headrace.capture.problems import Problem

__all__ = ["left_behind", "right_problems", "trigger_statements", "unused_functions"]

TRIGGER = "headrace_truncate"
_EMPTIED = (
    "with recursive emptied(id) as (select {table}::oid union select next.id from emptied, lateral ("
    "select conrelid as id from pg_constraint where contype = 'f' and confrelid = emptied.id "
    "union all select c.oid from pg_inherits join pg_class c on c.oid = inhrelid "
    "where inhparent = emptied.id and c.relispartition) next) "
)
"""The table, its partitions and all that references them: what a TRUNCATE of it empties."""
_BODY = (
    """
declare
  ids oid[];
  role_before text := current_setting('session_replication_role');
  statement text;
begin
  if TG_OP <> 'TRUNCATE' or TG_WHEN <> 'BEFORE' then
    raise exception 'this function is for triggers before TRUNCATE';
  end if;
  """
    + _EMPTIED.format(table="TG_RELID")
    + """
  select array_agg(c.oid) from emptied join pg_class c on c.oid = emptied.id where c.relkind in ('r', 'p') into ids;
  begin
    perform set_config('session_replication_role', 'replica', true);
  exception when insufficient_privilege then null;
  end;
  select format('%s has another owner than %s, and triggers or rules of its own for DELETE', c.oid::regclass,
                TG_RELID::regclass)
    from pg_class c where c.oid = any(ids) and pg_get_userbyid(c.relowner) <> current_user and (
      exists (select from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal and t.tgtype & 8 <> 0
              and t.tgenabled <> 'D'
              and (t.tgenabled <> 'O' or current_setting('session_replication_role') <> 'replica'))
      or exists (select from pg_rewrite r where r.ev_class = c.oid and r.ev_type = '4'))
    limit 1 into statement;
  if statement is not null then
    raise exception 'headrace cannot tell that % is truncated: %', TG_RELID::regclass, statement
      using hint = 'give both tables one owner, or use DELETE';
  end if;
  for statement in
    select format('set constraints %I.%I immediate', n.nspname, o.conname)
      from pg_constraint o join pg_namespace n on n.oid = o.connamespace
      where o.condeferrable and case o.contype when 'f' then o.confrelid when 't' then o.conrelid end = any(ids)
  loop
    execute statement;
  end loop;
  select 'with ' || string_agg(format('d%s as (delete from %s %s)', c.oid, case c.relkind when 'r' then 'only' end,
                                      c.oid::regclass), ', ') || ' select'
    from pg_class c where c.oid = any(ids) and not (
      c.relispartition and exists (select from pg_inherits where inhrelid = c.oid and inhparent = any(ids)))
    into statement;
  perform set_config('search_path', format('pg_catalog, %I, pg_temp', TG_TABLE_SCHEMA), true);
  execute statement;
  perform set_config('search_path', 'pg_catalog, pg_temp', true);
  for statement in
    select format('set constraints %I.%I deferred', n.nspname, o.conname)
      from pg_constraint o join pg_namespace n on n.oid = o.connamespace
      where o.condeferred and case o.contype when 'f' then o.confrelid when 't' then o.conrelid end = any(ids)
  loop
    execute statement;
  end loop;
  if current_setting('session_replication_role') <> role_before then
    perform set_config('session_replication_role', role_before, true);
  end if;
  return null;
end
"""
)


def trigger_statements(connection: Connection, source: Postgres) -> list[str]:
    """The statements that make a TRUNCATE of a table visible as deletes; none if it is."""
    row = connection.execute(
        "select pg_get_userbyid(c.relowner), p.proname,"
        " coalesce(btrim(regexp_replace(p.prosrc, '\\s+', ' ', 'g')) = %s and p.prosecdef and p.proowner = c.relowner,"
        " false) from pg_class c left join pg_trigger t on t.tgrelid = c.oid and t.tgname = %s"
        " left join pg_proc p on p.oid = t.tgfoid where c.oid = to_regclass(%s)",
        [_body(), TRIGGER, quoted_table(source)],
    ).fetchone()
    if row is None or row[2]:
        return []
    owner, calls = str(row[0]), row[1]
    function = f"{quoted(source.schema)}.{quoted(_function(source))}()"
    made = [
        f"create or replace function {function} returns trigger language plpgsql security definer "
        f"set search_path = pg_catalog, pg_temp set row_security = off as $headrace$ {_body()} $headrace$",
        f"alter function {function} owner to {quoted(owner)}",
    ]
    if calls == _function(source):
        return made
    if calls is not None:
        made.append(_drop_trigger(quoted_table(source)))
    return [
        *made,
        f"create trigger {TRIGGER} before truncate on {quoted_table(source)} "
        f"for each statement execute function {function}",
    ]


def right_problems(connection: Connection, source: Postgres) -> Iterator[Problem]:
    """Where the table's owner may not empty what references it, so a TRUNCATE of all of them would fail."""
    rows = connection.execute(
        (
            _EMPTIED.format(table="to_regclass(%(table)s)")
            + "select n.nspname, c.relname, pg_get_userbyid(mine.relowner)"
            " from emptied join pg_class c on c.oid = emptied.id join pg_namespace n on n.oid = c.relnamespace,"
            " pg_class mine where mine.oid = to_regclass(%(table)s) and c.relkind in ('r', 'p')"
            " and not (c.relispartition and exists (select from pg_inherits, emptied of where inhrelid = c.oid"
            " and inhparent = of.id)) and not has_table_privilege(mine.relowner, c.oid, 'delete') order by 1, 2"
        ).encode(),
        {"table": quoted_table(source)},
    ).fetchall()
    for schema, table, owner in rows:
        yield Problem(
            f"{schema}.{table} references {source.table_name}, whose owner {owner!r} may not delete from it: "
            "captured, a TRUNCATE of both would fail.",
            f"GRANT DELETE ON {quoted(str(schema))}.{quoted(str(table))} TO {quoted(str(owner))};",
        )


def left_behind(connection: Connection, besides: str, wanted: Iterable[Postgres] = ()) -> dict[str, str]:
    """The statements that drop triggers nobody needs, by what they drop. Tables of our publications need them, except
    for those of the publication ``besides``; ``wanted`` do too."""
    rows = connection.execute(
        "select n.nspname, c.relname from pg_trigger t join pg_class c on c.oid = t.tgrelid"
        " join pg_namespace n on n.oid = c.relnamespace where t.tgname = %s and not exists ("
        " select from pg_publication_tables p where p.schemaname = n.nspname and p.tablename = c.relname"
        " and p.pubname like 'headrace\\_%%' and p.pubname <> %s) order by 1, 2",
        [TRIGGER, besides],
    ).fetchall()
    kept = {quoted_table(source) for source in wanted}
    tables = {f"{schema}.{table}": f"{quoted(str(schema))}.{quoted(str(table))}" for schema, table in rows}
    return {f"trigger on {name}": _drop_trigger(table) for name, table in tables.items() if table not in kept}


def unused_functions(connection: Connection) -> dict[str, str]:
    """The statements that drop functions which no trigger calls any more, by what they drop."""
    rows = connection.execute(
        "select n.nspname, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
        " where p.proname like 'headrace\\_truncate%%' and p.prorettype = 'trigger'::regtype"
        " and not exists (select from pg_trigger t where t.tgfoid = p.oid) order by 1, 2"
    ).fetchall()
    return {
        f"function {schema}.{name}": f"drop function if exists {quoted(str(schema))}.{quoted(str(name))}()"
        for schema, name in rows
    }


def _drop_trigger(table: str) -> str:
    return f"drop trigger if exists {TRIGGER} on {table}"


def _function(source: Postgres) -> str:
    """A function per table, for tables of a schema may have several owners."""
    return f"{TRIGGER}_{zlib.crc32(source.table_name.encode()):08x}"


def _body() -> str:
    return " ".join(_BODY.split())
