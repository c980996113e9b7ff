"""Names that a shell completes: of topics, groups and views, asked of whoever a command would talk to.

A shell waits for the answer, so a server that does not answer soon has no names, and nothing here ever fails.
"""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import typer

__all__ = ["group_names", "topic_names", "view_names"]

_PATIENCE_S = 1.0
_LOG = {"HEADRACE_LOG", "HEADRACE_SERVER"}
_NODE = {"HEADRACE_NODE"}

Names = Callable[[typer.Context, str], list[str]]


def _completed(find: Callable[[Any], Iterable[str]]) -> Names:
    """The names that begin as what was typed does; none if they cannot be had."""

    @wraps(find)
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return sorted(name for name in find(ctx) if name.startswith(incomplete))
        except Exception:
            return []

    complete.__annotations__ = {"ctx": typer.Context, "incomplete": str}
    del complete.__wrapped__
    return complete


@_completed
def topic_names(ctx: Any) -> Iterable[str]:
    """The topics of the log, without internal ones."""
    return [name for name in _admin(ctx).list_topics(timeout=_PATIENCE_S).topics if not name.startswith("__")]


@_completed
def group_names(ctx: Any) -> Iterable[str]:
    """All groups."""
    listed = _admin(ctx).list_consumer_groups(request_timeout=_PATIENCE_S).result(_PATIENCE_S)
    return [group.group_id for group in listed.valid]


@_completed
def view_names(ctx: Any) -> Iterable[str]:
    """The views of the node, each with its app."""
    with urllib.request.urlopen(f"{_value(ctx, _NODE).rstrip('/')}/views", timeout=_PATIENCE_S) as answer:
        return [f"{view['app']}.{view['name']}" for view in json.load(answer)]


def _admin(ctx: Any) -> Any:
    from confluent_kafka.admin import AdminClient

    server = _value(ctx, _LOG)
    host, _, port = server.split(",")[0].rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()
    pairs = _settings_pairs(ctx)
    return AdminClient({"bootstrap.servers": server, "log_level": 0, **pairs})


def _value(ctx: Any, variables: set[str]) -> str:
    """What the option with one of these variables is, said by a flag, the environment, the file, or by default."""
    from headrace.cli.defaults import defaults_of, environment_names

    param = next(param for param in ctx.command.params if variables & set(environment_names(param)))
    source = ctx.get_parameter_source(param.name)
    file = _file(ctx)
    if file is not None and (source is None or source.name == "DEFAULT"):
        path = tuple(ctx.command_path.split()[1:])
        found = defaults_of(file, path, [param])
        if found:
            return str(found[param.name][0])
    value = ctx.params.get(param.name)
    return str(param.get_default(ctx) if value is None else value)


def _settings_pairs(ctx: Any) -> dict[str, str]:
    file = _file(ctx)
    return {} if file is None else file.pairs("client")


def _file(ctx: Any) -> Any:
    from headrace.cli.settings_file import find_settings, read_settings

    path = find_settings(ctx.find_root().params.get("settings"))
    return None if path is None else read_settings(path)
