"""The child process of a node that serves views: started by the node, it dies with the node.

It imports what it needs (half a second) while the broker starts, then reads one line of JSON from its standard input:
``{"bootstrap", "client", "data", "files", "host", "socket", "metrics", "views", "token", "read_token"}``. ``client``
are settings of the Kafka client; ``files``: whether the log is in the data folder; ``metrics`` is where our broker
tells its own. ``views`` is the address of the database that keeps views (null: files in the data folder). It, the
client's settings and tokens may be secret, and command lines can be seen by others. The socket is the node's, already
listening and inherited by number: so the address is known before this process is up, and connections wait rather than
fail while it is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import platform
import signal
import socket
import sys
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from headrace import logs
from headrace.feed import open_feed
from headrace.feed.cluster import Cluster
from headrace.feed.membership import VIEWS_GROUPS, Membership
from headrace.serving.access import Access
from headrace.serving.api import build_api
from headrace.serving.connections import server_config
from headrace.serving.hub import Hub
from headrace.serving.log_metrics import log_text
from headrace.serving.metrics import NodeMetrics, text_from
from headrace.serving.source import Source
from headrace.views.places import stores_at
from headrace.views.sharing import Sharing
from headrace.views.store import Stores

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the node stops or goes."""
    _die_with_parent()
    logs.to_stderr()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    line = sys.stdin.readline()
    if not line:
        return
    told = json.loads(line)
    data = Path(told["data"])
    bootstrap, client = told["bootstrap"], told["client"]
    stores = stores_at(told["views"], data / "views")
    sharing = None if told["views"] is None else Sharing(lambda: _joined(stores, Cluster(bootstrap, client), data))
    files = data if told["files"] else None
    source = Source(lambda: open_feed(bootstrap, files, client), bootstrap, client)
    hub = Hub(stores, source.open_feed, lambda: os._exit(1), sharing)
    access = Access(told.get("token"), told.get("read_token"))
    config = server_config(build_api(hub, told["host"], source, access, metrics=NodeMetrics(hub, _log_metrics(told))))
    listener = socket.socket(fileno=int(told["socket"]))
    asyncio.run(_Server(config, hub).serve([listener]))


def _log_metrics(told: dict[str, Any]) -> Callable[[], str]:
    """How the log's metrics are had: from our broker, which tells more, or as of any Kafka cluster."""
    if told.get("metrics"):
        return partial(text_from, told["metrics"])
    return partial(log_text, Cluster(told["bootstrap"], told.get("client", {})))


def _joined(stores: Stores, cluster: Cluster, data: Path) -> Membership:
    """This node among those that keep views in the same stores."""
    return Membership(cluster, f"{VIEWS_GROUPS}{stores.shared_as()}", _instance(data / "member"))


def _instance(path: Path) -> str:
    """The node's name in its group, the same whenever it is started on its data folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if known := path.read_text().strip():
            return known
    name = f"{platform.node()}-{uuid.uuid4().hex[:12]}"
    path.write_text(f"{name}\n")
    return name


class _Server(uvicorn.Server):
    """Ends event streams when it is told to stop, rather than wait for those who read them."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._hub.end_streams()
        super().handle_exit(sig, frame)


def _die_with_parent() -> None:
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()


if __name__ == "__main__":
    main()
