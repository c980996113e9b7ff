"""A port that leads to another, as slowly as is wanted: what comes from there passes at so many bytes a second."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

__all__ = ["SlowLink"]

PIECE = 16 << 10


class SlowLink:
    """``bytes_per_s`` may be changed at any time, None is as fast as it goes. Each connection has that much."""

    def __init__(self, port: int) -> None:
        self.bytes_per_s: int | None = None
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """No new connections; those that are there end with their ends."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for one, other, is_slow in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass, args=(one, other, is_slow), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, is_slow: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(PIECE):
                other.sendall(piece)
                if is_slow and self.bytes_per_s is not None:
                    time.sleep(len(piece) / self.bytes_per_s)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
