"""A node for a command that needs one: the one that answers, or one that is started and dies with the command."""

from __future__ import annotations

import contextlib
import ctypes
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.cluster import DEFAULT_SERVER, Cluster
from headrace.cli.failures import CommandFailed

__all__ = ["NodeInUse", "node_for"]

START_PATIENCE_S, STOP_PATIENCE_S = 30.0, 10.0
_PR_SET_PDEATHSIG = 1
_MAIN = "from headrace.cli import main; main()"


@dataclass(frozen=True, slots=True)
class NodeInUse:
    """Where the broker is, and its data folder if that is on this machine."""

    server: str
    log_data: Path | None


@contextlib.contextmanager
def node_for(
    server: str | None, data: Path, client: Mapping[str, str], told: Callable[[str], None]
) -> Iterator[NodeInUse]:
    """The node to use while the block runs."""
    try:
        cluster = Cluster(server or DEFAULT_SERVER, client)
    except CommandFailed:
        if server is not None:
            raise
        with _started(data, told) as address:
            yield NodeInUse(address, data.resolve())
        return
    yield NodeInUse(cluster.server, _data_of(cluster, data))


def _data_of(cluster: Cluster, data: Path) -> Path | None:
    from headrace.errors import HeadraceError
    from headrace.feed.cluster import Cluster as Asked
    from headrace.feed.segments import ensure_data_of

    if not (data / "topics").is_dir():
        return None
    try:
        ensure_data_of(data, Asked(cluster.server, {}))
    except HeadraceError:
        return None
    return data.resolve()


@contextlib.contextmanager
def _started(data: Path, told: Callable[[str], None]) -> Iterator[str]:
    libc = ctypes.CDLL(None)
    data.mkdir(parents=True, exist_ok=True)
    with (data / "node.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", _MAIN, "up", "--data", str(data), "--listen", DEFAULT_SERVER],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
        )
    try:
        told(f"no node was running: started one ({_first_line(child)})")
        yield DEFAULT_SERVER
    finally:
        child.terminate()
        try:
            child.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _first_line(child: subprocess.Popen[str]) -> str:
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
    raise CommandFailed("no node is running, and none could be started.", hint="`headrace up` says why")
