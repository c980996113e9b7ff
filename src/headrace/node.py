"""The composition root: builds a node from its settings, runs it until it is told to stop, and stops it cleanly.

The only file that knows all parts. SIGTERM, SIGINT and SIGHUP stop the node (unless whoever started it
had them ignored, as nohup does): what was acknowledged is on disk before it exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable

import uvloop

from headrace.broker.broker import Broker
from headrace.settings import BrokerSettings

__all__ = ["run_node"]

_logger = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


Listening = Callable[[str, int, str | None], None]
"""Host and port, and the address of the metrics if there is one."""


def run_node(settings: BrokerSettings, listening: Listening) -> None:
    """Run a node; returns after it has stopped. ``listening`` is called once clients can connect."""
    _log_to_stderr()
    _raise_file_limit()
    _keep_freed_memory()
    uvloop.run(_run(settings, listening))


async def _run(settings: BrokerSettings, listening: Listening) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in _STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, told_to_stop.set)
    async with Broker(settings) as broker:
        # All that is alive now stays alive: the garbage collector need not look at it again.
        gc.freeze()
        listening(settings.host, broker.port, broker.metrics_address)
        await told_to_stop.wait()
        _logger.info("stopping")


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


def _log_to_stderr() -> None:
    form = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form, datefmt="%Y-%m-%dT%H:%M:%S")
