"""A node for a command that needs one: the one that answers, or one that is started and dies with the command."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.failures import CommandFailed
from headrace.cli.pairs import CLIENT_VARIABLE, as_lines
from headrace.cli.start import DEFAULT_HTTP
from headrace.errors import ServerAway
from headrace.operations.cluster import DEFAULT_SERVER, Cluster

if TYPE_CHECKING:
    from headrace.feed.cluster import Cluster as AskedCluster

__all__ = ["NodeInUse", "node_for"]

START_PATIENCE_S, STOP_PATIENCE_S = 30.0, 10.0
_PR_SET_PDEATHSIG = 1
USUAL_WEB = f"http://{DEFAULT_HTTP.split(',')[0]}"
_FOR_US = ("HEADRACE_VIEWS", "HEADRACE_LOG", "HEADRACE_HTTP", CLIENT_VARIABLE)
"""Variables whose meaning the child is told as we have understood it."""
_MAIN = "from headrace.cli import main; main()"


@dataclass(frozen=True, slots=True)
class NodeInUse:
    """Where the broker is, and its data folder if that is on this machine."""

    server: str
    log_data: Path | None


@contextlib.contextmanager
def node_for(
    log: str | None,
    data: Path,
    client: Mapping[str, str],
    told: Callable[[str], None],
    views: str | None = None,
    http: str = DEFAULT_HTTP,
    *,
    serve: bool = True,
) -> Iterator[NodeInUse]:
    """The node to use while the block runs. ``views`` and ``http``: where one that is started keeps and serves them. An
    Apache Kafka cluster has no node: if ``serve``, one is started that serves its views, unless there is one."""
    try:
        cluster = Cluster(log or DEFAULT_SERVER, client)
    except ServerAway:
        if log is not None:
            raise
        with _started(["--listen", DEFAULT_SERVER], data, client, views, http) as line:
            told(f"no node was running: started one ({line})")
            yield NodeInUse(DEFAULT_SERVER, data.resolve())
        return
    asked = cluster.asked()
    if not serve or http == "none" or asked.brokers.embedded:
        if views is not None:
            keeps = (
                "runs already and keeps its views as it was told" if asked.brokers.embedded else "is all that is used"
            )
            told(f"{cluster.server} {keeps}: --views is left aside")
        yield NodeInUse(cluster.server, _data_of(asked, data))
    elif http == DEFAULT_HTTP and _serves(USUAL_WEB, asked.id()):
        aside = ", where it was told to keep them: --views is left aside" if views is not None else ""
        told(f"a node at {USUAL_WEB} serves the views of {cluster.server}{aside}")
        yield NodeInUse(cluster.server, None)
    else:
        with _started(["--log", cluster.server], data, client, views, http) as line:
            told(line)
            yield NodeInUse(cluster.server, None)


def _data_of(cluster: AskedCluster, data: Path) -> Path | None:
    from headrace.errors import HeadraceError
    from headrace.feed.segments import ensure_data_of

    if not (data / "topics").is_dir():
        return None
    try:
        ensure_data_of(data, cluster)
    except HeadraceError:
        return None
    return data.resolve()


def _serves(web: str, log_id: str | None) -> bool:
    """Whether a node there serves the views of this log."""
    try:
        with urllib.request.urlopen(f"{web}/version", timeout=3) as answer:
            said = json.loads(answer.read())
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and log_id is not None and said.get("log") == log_id


@contextlib.contextmanager
def _started(
    options: Sequence[str], data: Path, client: Mapping[str, str], views: str | None, http: str
) -> Iterator[str]:
    """A node while the block runs; the line that it says when it is up."""
    # not on its command line, which others can see: addresses and settings may hold passwords
    environment = {name: value for name, value in os.environ.items() if name not in _FOR_US}
    environment |= {"HEADRACE_VIEWS": views} if views else {}
    environment |= {CLIENT_VARIABLE: as_lines(client)} if client else {}
    command = [sys.executable, "-c", _MAIN, "up", "--data", str(data), *options]
    libc = ctypes.CDLL(None)
    data.mkdir(parents=True, exist_ok=True)
    with (data / "node.log").open("ab") as output:
        child = subprocess.Popen(
            command if http == DEFAULT_HTTP else [*command, "--http", http],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
        )
    try:
        yield _first_line(child, data / "node.log")
    finally:
        child.terminate()
        try:
            child.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _first_line(child: subprocess.Popen[str], said: Path) -> str:
    if child.stdout is None:
        raise CommandFailed("the node's output cannot be read.")
    deadline = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < deadline:
        if select.select([child.stdout], [], [], 0.1)[0]:
            line = child.stdout.readline().strip()
            if line:
                return line
        if child.poll() is not None:
            break
    told = said.read_text(errors="replace").split("\n")[-8:] if child.poll() is not None else []
    why = "; ".join(line.strip() for line in told if line.strip())
    raise CommandFailed(
        "no node is running, and none could be started.", detail=why or None, hint="`headrace up` says why"
    )
