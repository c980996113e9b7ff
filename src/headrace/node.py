"""The composition root: builds a node from its settings, runs it until it is told to stop, and stops it cleanly.

The only file that knows all parts. SIGTERM, SIGINT and SIGHUP stop the node (unless whoever started it
had them ignored, as nohup does): what was acknowledged is on disk before it exits.

The broker runs in this process, and nothing else does. Views are served by a child process (``headrace.serving``)
that starts beside it: it gets our listening socket, dies with us, and is started again when it dies. A node of a log
that is elsewhere (``ElsewhereLog``) has no broker: it serves that log's views, and holds its data folder for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import importlib.util
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from headrace import logs
from headrace.broker.broker import Broker
from headrace.errors import InvalidConfig
from headrace.log.files import DiskFiles
from headrace.settings import BrokerSettings

__all__ = [
    "ElsewhereLog",
    "Listening",
    "Tokens",
    "WebAddress",
    "WebAddressFailed",
    "ensure_guarded",
    "run_node",
    "serve_views",
]

_logger = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NEEDED_TO_SERVE = ("starlette", "uvicorn", "pyarrow", "confluent_kafka")
_RESTART_AFTER_S, _RESTART_AT_MOST_S, _LIVED_S = 0.25, 10.0, 1.0
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class WebAddress:
    """Where views are to be served. ``may_move``: another port will do if this one is taken."""

    host: str
    port: int
    may_move: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """What must be shown to the web server: ``token`` to change things, ``read_token`` to look. None: nothing."""

    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)


class WebAddressFailed(InvalidConfig):
    """The address for views cannot be listened on."""


@dataclass(frozen=True, slots=True)
class ElsewhereLog:
    """A log that another node has, or an Apache Kafka cluster. ``client``: settings of Kafka clients for it."""

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a node listens: Kafka clients, and browsers and programs if views are served."""

    host: str
    port: int
    web: str | None
    metrics: str | None = None
    """Where Prometheus asks."""


def run_node(
    settings: BrokerSettings,
    listening: Callable[[Listening], None],
    web: WebAddress | None = None,
    views: str | None = None,
    tokens: Tokens = Tokens(),
) -> None:
    """Run a node; returns after it has stopped. ``listening`` is called once clients can connect. ``web`` is where
    views are served; None: nowhere. ``views`` is the address of the database that keeps them; None: files.
    A web address that other machines reach is refused without a token."""
    ensure_guarded(web, tokens)
    logs.to_stderr()
    _raise_file_limit()
    _keep_freed_memory()
    with contextlib.ExitStack() as stack:
        server = None
        if web is not None and _serving_is_installed():
            server = stack.enter_context(_listen(web))
        served = _Views(server, settings.data, views, tokens) if server is not None else None
        uvloop.run(_run(settings, listening, served))


def serve_views(
    log: ElsewhereLog,
    data: Path,
    serving: Callable[[str], None],
    web: WebAddress,
    views: str | None = None,
    tokens: Tokens = Tokens(),
) -> None:
    """Run a node that serves the views of a log elsewhere; returns after it has stopped. ``serving`` is called with its
    web address, which is refused without a token if other machines reach it. ``data`` is where it keeps files; two
    nodes cannot have the same."""
    ensure_guarded(web, tokens)
    logs.to_stderr()
    data.mkdir(parents=True, exist_ok=True)
    lock = DiskFiles().lock(data / "lock")
    try:
        with _listen(web) as server:
            asyncio.run(_serve(_Views(server, data, views, tokens), log, serving))
    finally:
        lock.release()


async def _serve(views: _Views, log: ElsewhereLog, serving: Callable[[str], None]) -> None:
    told_to_stop = _stop_asked()
    try:
        await views.start()
        views.serve(log.bootstrap, client=log.client, files=False)
        serving(views.url)
        await told_to_stop.wait()
        _logger.info("stopping")
    finally:
        await views.stop()


def _stop_asked() -> asyncio.Event:
    """Set by a signal that stops the node."""
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in _STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, told_to_stop.set)
    return told_to_stop


async def _run(settings: BrokerSettings, listening: Callable[[Listening], None], views: _Views | None) -> None:
    told_to_stop = _stop_asked()
    try:
        if views is not None:
            await views.start()
        async with Broker(settings) as broker:
            # All that is alive now stays alive: the garbage collector need not look at it again.
            gc.freeze()
            if views is not None:
                views.metrics = broker.metrics_address or await broker.serve_metrics("127.0.0.1", 0)
                views.serve(_reachable(settings.host, broker.port))
            address = views.url if views is not None else None
            listening(Listening(settings.host, broker.port, address, broker.metrics_address))
            await told_to_stop.wait()
            _logger.info("stopping")
            if views is not None:
                await views.stop()
    finally:
        if views is not None:
            await views.stop()


class _Views:
    """The child process that serves views: started, told what to serve once the broker is up, started again if it
    dies."""

    def __init__(self, server: socket.socket, data: Path, kept_in: str | None, tokens: Tokens) -> None:
        self._server = server
        self._data = data
        self._kept_in = kept_in
        self._tokens = tokens
        self.metrics: str | None = None
        """Where the broker tells its metrics."""
        self._told = b""
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where they are served."""
        return _url(self._server)

    async def start(self) -> None:
        """Start it: it imports what it needs while the broker starts."""
        number = self._server.fileno()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "headrace.serving.process", str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,
        )

    def serve(self, bootstrap: str, *, client: Mapping[str, str] | None = None, files: bool = True) -> None:
        """Tell it what to serve, and watch it. ``files``: the log's files are in our data folder."""
        host = self._server.getsockname()[0]
        told = {"bootstrap": bootstrap, "client": dict(client or {}), "data": str(self._data), "files": files}
        told |= {"host": host, "socket": self._server.fileno(), "metrics": self.metrics, "views": self._kept_in}
        told |= {"token": self._tokens.token, "read_token": self._tokens.read_token}
        self._told = json.dumps(told).encode() + b"\n"
        self._tell()
        self._watch = asyncio.create_task(self._watched())

    async def stop(self) -> None:
        """Stop it, gently at first."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _tell(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(self._told)

    async def _watched(self) -> None:
        pause = _RESTART_AFTER_S
        while self._process is not None:
            started = time.monotonic()
            code = await self._process.wait()
            pause = _RESTART_AFTER_S if time.monotonic() - started > _LIVED_S else min(pause * 2, _RESTART_AT_MOST_S)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            _logger.warning("the process that serves views %s; it is started again in %.1f s", how, pause)
            await asyncio.sleep(pause)
            await self.start()
            self._tell()


def ensure_guarded(web: WebAddress | None, tokens: Tokens) -> None:
    """Raise if others could reach the web server and nothing would be asked of them."""
    if web is None or tokens.token or tokens.read_token or _is_loopback(web.host):
        return
    raise WebAddressFailed(
        f"{web.host}:{web.port} can be reached from other machines, and no token is set.",
        hint="set HEADRACE_TOKEN to a secret of your choice (openssl rand -hex 32 makes one), or serve on 127.0.0.1",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _serving_is_installed() -> bool:
    missing = [name for name in _NEEDED_TO_SERVE if importlib.util.find_spec(name) is None]
    if missing:
        _logger.warning("views are not served: %s is missing (pip install 'headrace[pipelines]')", missing[0])
    return not missing


def _listen(web: WebAddress) -> socket.socket:
    """The listening socket; on any free port if the given one is taken and was not asked for."""
    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    try:
        return socket.create_server((web.host, web.port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise WebAddressFailed(f"cannot serve views on {web.host}:{web.port}: {error.strerror}.") from error
        if not web.may_move:
            raise WebAddressFailed(
                f"{web.host}:{web.port} is in use by another process.",
                hint="choose another address with --http HOST:PORT (port 0 takes any free port), or --http none",
            ) from error
        server = socket.create_server((web.host, 0), family=family)
        _logger.warning("port %d is in use: views are served on port %d", web.port, server.getsockname()[1])
        return server


def _url(server: socket.socket) -> str:
    host, port = server.getsockname()[:2]
    return f"http://{_reachable(host, port)}"


def _reachable(host: str, port: int) -> str:
    """Where this machine reaches what listens there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _raise_file_limit() -> None:
    """A partition takes a few open files; the soft limit of most systems is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _keep_freed_memory() -> None:
    """Keep up to 64 MiB of freed memory: else the C library returns that of every large response to the kernel, which
    clears it and maps it again for the next one, and a fetch costs twice as much."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)
