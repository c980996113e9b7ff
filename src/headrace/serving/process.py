"""The child process of a node that serves views: started by the node, it dies with the node.

It imports what it needs (half a second) while the broker starts, then reads one line of JSON from its standard input:
``{"bootstrap", "data", "host", "socket"}``. The socket is the node's, already listening and inherited by number: so the
address is known before this process is up, and connections wait rather than fail while it is restarted.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn

from headrace.feed import open_feed
from headrace.serving.api import build_api
from headrace.serving.hub import Hub

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
GRACE_S = 1


def main() -> None:
    """Serve until the node stops or goes."""
    _die_with_parent()
    form = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form, datefmt="%Y-%m-%dT%H:%M:%S")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    line = sys.stdin.readline()
    if not line:
        return
    told = json.loads(line)
    data = Path(told["data"])
    hub = Hub(data / "views", lambda: open_feed(told["bootstrap"], data), lambda: os._exit(1))
    config = uvicorn.Config(
        build_api(hub, told["host"]),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    listener = socket.socket(fileno=int(told["socket"]))
    asyncio.run(_Server(config, hub).serve([listener]))


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
