"""Starting a node in the foreground: what ``headrace up`` does, apart from how its options are read."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.cli.failures import CommandFailed
from headrace.cli.pairs import name_values

__all__ = ["DEFAULT_DATA", "DEFAULT_HTTP", "DEFAULT_LISTEN", "start_node"]

DEFAULT_DATA = "headrace-data"
DEFAULT_LISTEN = "127.0.0.1:9092"
DEFAULT_HTTP = "127.0.0.1:8080, or any free port"

_ALL_ADDRESSES = ("0.0.0.0", "::")


def start_node(
    data: Path,
    listen: str,
    advertise: str | None,
    settings: Sequence[str],
    *,
    http: str = DEFAULT_HTTP,
    metrics: str | None = None,
    as_json: bool = False,
) -> None:
    """Run a node until it is stopped; says where it listens once clients can connect."""
    from headrace.node import Listening, WebAddress, run_node
    from headrace.settings import BrokerSettings, host_port

    host, port = host_port(listen)
    told_host, told_port = host_port(advertise) if advertise else (None, None)
    properties = name_values(settings, "--set")
    if metrics is not None:
        properties["headrace.metrics.listener"] = metrics
    chosen = BrokerSettings(data, host, port, told_host, told_port, properties)
    web = None
    if http != "none":
        given = DEFAULT_HTTP.split(",")[0] if http == DEFAULT_HTTP else http
        web = WebAddress(*host_port(given, 8080), may_move=http == DEFAULT_HTTP)

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
        }
        told = f"data in {data}" + (f", metrics at http://{at.metrics}/metrics" if at.metrics else "")
        views = f". Views and status: {at.web}" if at.web else ""
        print(json.dumps(facts) if as_json else f"Headrace listens on {address} ({told}){views}", flush=True)
        if host in _ALL_ADDRESSES and advertise is None:
            hint = "Clients are told 127.0.0.1; if they are on other machines, add --advertise HOST:PORT"
            print(hint, file=sys.stderr, flush=True)

    try:
        run_node(chosen, listening, web)
    except OSError as error:
        raise _explained(error, listen, data) from error


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
