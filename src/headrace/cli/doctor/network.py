"""What is reached over the network: ports that a node wants, the log that commands talk to, the database of views."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.cli.doctor.finding import Finding, bad, fine, so_so
from headrace.cli.masking import masked
from headrace.errors import HeadraceError
from headrace.settings import host_port

__all__ = ["guarded", "log_server", "port", "views"]

_LISTENING = "0A"


def port(name: str, address: str, other: str, default_port: int = 9092) -> Iterator[Finding]:
    """Whether a node could listen there, and else who does."""
    try:
        host, number = host_port(address, default_port)
    except HeadraceError as error:
        yield bad(f"port {name}", error.message, f"say HOST:PORT with {other}")
        return
    if number == 0:
        yield fine(f"port {name}", "any free one")
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            yield _taken(name, f"{host}:{number}", number, other, error)
            return
    yield fine(f"port {name}", f"{host}:{number} is free")


def _taken(name: str, address: str, number: int, other: str, error: OSError) -> Finding:
    if error.errno != errno.EADDRINUSE:
        return bad(f"port {name}", f"{address}: {error.strerror}", f"choose an address of this machine with {other}")
    who = _holder(number)
    if who is not None and "headrace" in who:
        return fine(f"port {name}", f"{address} is held by {who}")
    told = f"{address}: {error.strerror}" + (f", held by {who}" if who else "")
    return so_so(f"port {name}", told, f"stop that one, or choose another with {other}")


def _holder(number: int) -> str | None:
    """The process that listens on a port, as far as we may know."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == number:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with contextlib.suppress(OSError):
            for fd in (process / "fd").iterdir():
                if os.readlink(fd) in inodes:
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    return f"process {process.name} ({b' '.join(words[:3]).decode(errors='replace').strip()})"
    return None


def guarded(http: str, default_port: int, token: str, read_token: str) -> Iterator[Finding]:
    """Whether the web server would be refused, because others reach it and no token is asked of them."""
    from headrace.node import Tokens, WebAddress, ensure_guarded

    try:
        ensure_guarded(WebAddress(*host_port(http, default_port)), Tokens(token or None, read_token or None))
    except HeadraceError as error:
        yield bad("token", error.message, error.hint or "set HEADRACE_TOKEN")


def log_server(server: str, client: Mapping[str, str], *, asked: bool) -> Iterator[Finding]:
    """Whether the log answers, and as what. Nobody needs one that was not asked for."""
    from headrace.operations.cluster import Cluster

    try:
        cluster = Cluster(server, dict(client))
        described = cluster.admin.describe_cluster(request_timeout=5).result(5)
    except Exception as error:
        reason = error.message if isinstance(error, HeadraceError) else str(error)
        if asked:
            yield bad("log", f"{server}: {reason}", "start it (headrace up), or say where it is")
        else:
            yield so_so("log", f"none answers at {server}", "headrace up starts one")
        return
    nodes = len(described.nodes)
    yield fine("log", f"{server} answers: cluster {described.cluster_id}, {nodes} node{'s' if nodes > 1 else ''}")


def views(address: str) -> Iterator[Finding]:
    """Whether the database of views can be reached and used."""
    from headrace.views.places import ensure_usable

    shown = masked("views", address)
    try:
        ensure_usable(address)
    except HeadraceError as error:
        yield bad("views", error.message, error.hint or f"check {shown}")
    else:
        yield fine("views", f"{shown} can be used")
