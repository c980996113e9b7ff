"""Real receivers of alerts: an HTTP server and an SMTP server, each in a thread, each answering as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Received:
    """What came, and what to answer: the codes in turn, then 200 (HTTP) or 250 (SMTP)."""

    address: str = ""
    codes: list[int] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def code(self, otherwise: int) -> int:
        return self.codes.pop(0) if self.codes else otherwise


@contextmanager
def http_server() -> Iterator[Received]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append((dict(self.headers.items()), body))
            self.send_response(received.code(200))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.address = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield received
        server.shutdown()
        thread.join()


@contextmanager
def smtp_server() -> Iterator[Received]:
    received = Received()
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())

        say("220 here")
        while line := (await reader.readline()).decode():
            verb = line.split()[0].upper()
            if verb == "RCPT":
                say(f"{received.code(250)} so")
            elif verb == "DATA":
                say("354 go on")
                body = b""
                while (part := await reader.readline()) != b".\r\n":
                    body += part
                received.requests.append(({}, body))
                say("250 taken")
            elif verb == "QUIT":
                say("221 bye")
                break
            else:
                say("250 fine")
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    received.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield received

    async def end() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
