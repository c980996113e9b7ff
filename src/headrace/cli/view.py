"""``headrace view list|get|query|watch``: the views of a node, over HTTP."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from headrace.cli.command import Command
from headrace.cli.names import view_names
from headrace.cli.options import Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.client import DEFAULT_URL, Change, Client

__all__ = ["app"]

app = typer.Typer(
    name="view",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Read views: list, get, query with SQL, watch them change.",
)

Node = Annotated[
    str, typer.Option("--node", "-n", envvar="HEADRACE_NODE", metavar="URL", help="The node's web address.")
]
Name = Annotated[
    str, typer.Argument(metavar="VIEW", help="VIEW or APP.VIEW", show_default=False, autocompletion=view_names)
]


@app.command("list", cls=Command)
def list_views(node: Node = DEFAULT_URL, output: Output = OutputFormat.text) -> None:
    """List views, with how many rows they have and how they are doing.

    [bold]Examples[/bold]

    \b
    headrace view list
    headrace view list --node http://127.0.0.1:8081 -o json
    """
    found = Client(node).views()
    if output is OutputFormat.json:
        print_json(found)
        return
    headers = ["view", "key", "rows", "state", "behind", "bad", "version"]
    rows = [[f"{v['app']}.{v['name']}", ",".join(v["key"]), *(v[name] for name in headers[2:])] for v in found]
    print_table(headers, rows)
    for view in found:
        if trouble := view["trouble"] or view["last_bad"]:
            print_line(f"{view['app']}.{view['name']}: {trouble}")


@app.command(cls=Command)
def get(
    name: Name,
    key: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Key values: one row.", show_default=False)
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", "-w", metavar="COND", help="Say region=EU or 'revenue>=100'. Repeatable."),
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="COLUMNS", help="Say revenue,-day; - is descending.")
    ] = None,
    select: Annotated[str | None, typer.Option("--select", metavar="COLUMNS", help="Only these.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=0, help="At most so many rows.")] = 100,
    wait_for: Annotated[
        str | None, typer.Option("--wait-for", metavar="VERSION", help="Wait until the view has this version.")
    ] = None,
    node: Node = DEFAULT_URL,
    output: Output = OutputFormat.text,
) -> None:
    """Rows of a view, or the row of a key. JSON also says the version: the changelog offsets that it reflects.

    [bold]Examples[/bold]

    \b
    headrace view get revenue --order=-revenue --limit 10
    headrace view get shop.revenue --where region=EU --where 'revenue>=100'
    headrace view get revenue 2026-01-02T03:04:00Z EU -o json
    """
    view = Client(node).view(name)
    if key:
        _show_row(view.client, name, key, output)
        return
    chosen = (("order", order), ("select", select), ("limit", str(limit)), ("wait_for", wait_for))
    asked = [("where", text) for text in where or []] + [(word, text) for word, text in chosen if text is not None]
    answer = view.read(asked)
    if output is OutputFormat.json:
        print_json(answer)
        return
    names = [column["name"] for column in answer["columns"]]
    print_table(names, [[_cell(row[column]) for column in names] for row in answer["rows"]])


def _show_row(client: Client, name: str, key: list[str], output: OutputFormat) -> None:
    answer = client.get_json(f"/views/{quote(name, safe='')}/{quote(json.dumps(key), safe='')}")
    if output is OutputFormat.json:
        print_json(answer)
    else:
        print_table(["column", "value"], [[column, _cell(value)] for column, value in answer["row"].items()])


@app.command(cls=Command)
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="SELECT ...; '-' reads it from stdin.", show_default=False)],
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=0, help="At most so many rows.")] = None,
    node: Node = DEFAULT_URL,
    output: Output = OutputFormat.text,
) -> None:
    """Read-only SQL (SQLite's) across views: VIEW, or APP.VIEW.

    [bold]Examples[/bold]

    \b
    headrace view query 'SELECT region, sum(revenue) FROM revenue GROUP BY region'
    headrace view query 'SELECT * FROM shop.revenue JOIN shop.targets USING (region)' -o json
    """
    answer = Client(node).query(sys.stdin.read() if sql == "-" else sql, limit=limit)
    if output is OutputFormat.json:
        print_json(answer)
        return
    print_table([column["name"] for column in answer["columns"]], [[_cell(v) for v in row] for row in answer["rows"]])
    if answer["truncated"]:
        typer.echo(f"(only the first {len(answer['rows'])} rows)", err=True)


@app.command(cls=Command)
def watch(
    name: Name,
    since: Annotated[
        str | None, typer.Option("--from", "-f", metavar="VERSION", help="A version, or 'start'. Default: from now on.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="VERSION", help="Stop at this version.")] = None,
    node: Node = DEFAULT_URL,
    output: Output = OutputFormat.text,
) -> None:
    """Follow the changes of a view. Ctrl-C ends it; with its last version it goes on from there.

    [bold]Examples[/bold]

    \b
    headrace view watch revenue
    headrace view watch shop.revenue --from start -o json
    headrace view watch revenue --from 0:120
    """
    view = Client(node).view(name)
    view.read([("limit", "0")])
    for change in view.changes(since, until=until):
        if output is OutputFormat.json:
            print_json({field: getattr(change, field) for field in change.__dataclass_fields__})
        else:
            print_line(_change_line(change))


def _change_line(change: Change) -> str:
    if change.kind != "change":
        words = {"gone": "what is older was deleted", "rebuilt": "the view was rebuilt"}
        return f"{change.version}  {words.get(change.kind, change.kind)}"
    if change.row is None:
        shown = "deleted " + " ".join(f"{name}={_cell(value)}" for name, value in (change.key or {}).items())
    else:
        shown = " ".join(f"{name}={_cell(value)}" for name, value in change.row.items())
    skipped = f"  ({change.skipped} replaced since)" if change.skipped else ""
    return f"{change.version}  {shown}{skipped}"


def _cell(value: Any) -> Any:
    """A value as people read it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value
