"""Starting a node in the foreground: what ``headrace up`` does, apart from how its options are read."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.failures import CommandFailed
from headrace.cli.pairs import name_values, own_client_settings

__all__ = [
    "DEFAULT_DATA",
    "DEFAULT_HTTP",
    "DEFAULT_LISTEN",
    "DEFAULT_SETTINGS",
    "bootstrap_of",
    "start_node",
    "views_place",
]

DEFAULT_DATA = "headrace-data"
DEFAULT_LISTEN = "127.0.0.1:9092"
DEFAULT_SETTINGS = "headrace.toml"
DEFAULT_HTTP = "127.0.0.1:8080, or any free port"

if TYPE_CHECKING:
    from headrace.node import Tokens, WebAddress

_ALL_ADDRESSES = ("0.0.0.0", "::")


def start_node(
    data: Path,
    listen: str,
    advertise: str | None,
    settings: Sequence[str],
    *,
    http: str = DEFAULT_HTTP,
    metrics: str | None = None,
    views: str | None = None,
    token: str | None = None,
    read_token: str | None = None,
    log: str | None = None,
    client: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Run a node until it is stopped; says where it listens once clients can connect. With ``log`` it has no broker,
    for which some of the settings would be, and serves the views of that log."""
    from headrace.node import Listening, Tokens, run_node
    from headrace.settings import BrokerSettings, host_port

    tokens = Tokens(token or None, read_token or None)
    if log:
        _serve_log(bootstrap_of(log), own_client_settings(client), data, http, views, tokens, as_json=as_json)
        return
    host, port = host_port(listen)
    told_host, told_port = host_port(advertise) if advertise else (None, None)
    properties = name_values(settings, "--set")
    if metrics is not None:
        properties["headrace.metrics.listener"] = metrics
    chosen = BrokerSettings(data, host, port, told_host, told_port, properties)
    web = _web_address(http)
    if views and web is None:
        raise CommandFailed(
            "nobody keeps views with --http none: --views has no use then.", hint="leave one of the two away"
        )
    kept_in = views_place(views)

    def listening(at: Listening) -> None:
        host, port = at.host, at.port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        facts = {
            "listen": address,
            "host": host,
            "port": port,
            "data": str(data),
            "web": at.web,
            "metrics": at.metrics,
            "views": kept_in,
        }
        told = (
            f"data in {data}"
            + (f", views in {kept_in}" if kept_in else "")
            + (f", metrics at http://{at.metrics}/metrics" if at.metrics else "")
        )
        status = f". Views and status: {at.web}" if at.web else ""
        print(json.dumps(facts) if as_json else f"Headrace listens on {address} ({told}){status}", flush=True)
        if host in _ALL_ADDRESSES and advertise is None:
            hint = "Clients are told 127.0.0.1; if they are on other machines, add --advertise HOST:PORT"
            print(hint, file=sys.stderr, flush=True)

    try:
        run_node(chosen, listening, web, views or None, tokens)
    except OSError as error:
        raise _explained(error, listen, data) from error


def bootstrap_of(log: str) -> str:
    """``kafka://host:9092,host2:9092`` as clients want it."""
    return log.removeprefix("kafka://").rstrip("/")


def _web_address(http: str) -> WebAddress | None:
    from headrace.node import WebAddress
    from headrace.settings import host_port

    if http == "none":
        return None
    given = DEFAULT_HTTP.split(",")[0] if http == DEFAULT_HTTP else http
    return WebAddress(*host_port(given, 8080), may_move=http == DEFAULT_HTTP)


def _serve_log(
    bootstrap: str,
    client: dict[str, str],
    data: Path,
    http: str,
    views: str | None,
    tokens: Tokens,
    *,
    as_json: bool,
) -> None:
    """Serve the views of a log elsewhere until stopped. The log must answer at the start; later it may go and come."""
    from headrace.node import ElsewhereLog, serve_views
    from headrace.operations.cluster import Cluster

    web = _web_address(http)
    if web is None:
        raise CommandFailed("with --log and --http none there is nothing to do.", hint="leave one of the two away")
    cluster = Cluster(bootstrap, client).asked()
    cluster.id()
    kept_in = views_place(views)

    def serving(url: str) -> None:
        facts = {"log": bootstrap, "data": str(data), "web": url, "views": kept_in}
        where = f"in {kept_in}" if kept_in else f"in files in {data / 'views'}"
        told = f"Headrace serves the views of kafka://{bootstrap} (kept {where}). Views and status: {url}"
        print(json.dumps(facts) if as_json else told, flush=True)

    try:
        serve_views(ElsewhereLog(bootstrap, client), data, serving, web, views or None, tokens)
    except OSError as error:
        raise _explained(error, http, data) from error


def views_place(views: str | None) -> str | None:
    """Where views are kept, as it may be shown, after a look at whether they can be; None: in files."""
    if not views:
        return None
    from headrace.views.places import ensure_usable

    return ensure_usable(views)


def _explained(error: OSError, listen: str, data: Path) -> CommandFailed:
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        return CommandFailed(
            f"{listen} is in use by another process.",
            hint="stop that one, or choose another address with --listen HOST:PORT (port 0 takes any free port)",
        )
    if error.filename is None:
        return CommandFailed(f"cannot listen on {listen}: {reason}.", hint="choose another address with --listen")
    return CommandFailed(
        f"the data folder {data} cannot be used: {error.filename}: {reason}.", hint="choose another with --data"
    )
