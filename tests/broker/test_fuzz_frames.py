"""At least 100,000 mutated frames over several connections: no crash, no leaked connection, bounded memory.

The broker runs in a process of its own, so that its memory is its own. The seed is printed; HEADRACE_FUZZ_SEED and
HEADRACE_FUZZ_FRAMES choose others.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from kio.static.constants import EntityType

from headrace.broker import wire
from headrace.broker.dispatch import load_apis
from tests.broker.kio_messages import encode, entity, random_message
from tests.broker.messages import batch, create, produce, read, send
from tests.broker.raw_client import RawClient

FRAMES = int(os.environ.get("HEADRACE_FUZZ_FRAMES", "100000"))
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "0")) or random.randrange(1, 2**32)
CONNECTIONS = 8
MAX_GROWTH_MB = 150
EDGES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)

SERVER = """
import asyncio, sys, uvloop
from pathlib import Path
from headrace.broker.broker import Broker
from headrace.broker.connection import Connection
from headrace.settings import BrokerSettings

handled = 0
PROBE_ID = bytes.fromhex("7eadbeef")
handle = Connection._handle

def counting(self, frame):
    global handled
    handled += frame[4:8] != PROBE_ID
    handle(self, frame)

Connection._handle = counting

async def main():
    settings = BrokerSettings(Path(sys.argv[1]), port=0, properties={"socket.request.max.bytes": "1000000"})
    async with Broker(settings) as broker:
        print(broker.port, flush=True)
        while (line := await asyncio.to_thread(sys.stdin.readline)):
            print(len(broker.server.connections), broker.server.reserved_bytes, handled, flush=True)

uvloop.run(main())
"""


class Fuzzed:
    """A broker in a process of its own that says on demand how many connections it has."""

    def __init__(self, folder: Path) -> None:
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(folder / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def state(self) -> tuple[int, int, int]:
        """Connections, reserved bytes, frames handled so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        connections, reserved, handled = self.process.stdout.readline().split()
        return int(connections), int(reserved), int(handled)

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.seek(0)
        text = self.errors.read()
        self.errors.close()
        assert code == 0, text[-2000:]
        return text


def seeds(rng: random.Random) -> list[bytes]:
    """Good frames of every API and version, with names that exist."""
    client = RawClient.__new__(RawClient)
    client._client_id = "fuzz"
    frames = []
    for api in load_apis().values():
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(5):
                body = encode(random_message(entity(api.key, version, EntityType.request), rng))
                if len(body) < 5000:
                    frames.append(client.frame_of(api.key, version, body, rng.getrandbits(31)))
    for version in range(3, 13):
        for acks in (-1, 0, 1):
            body = bytes(wire.encode_request(0, version, produce("t", batch(3), acks=acks)))
            frames.append(client.frame_of(0, version, body, 7))
    return frames


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """The frame with some bytes changed, cut, doubled or made up; its length is mostly still right."""
    content = bytearray(frame[4:])
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(content)) if rng.random() < 0.7 else rng.randrange(min(len(content), 24))
        match rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6)):
            case 0:
                content[at] = rng.choice(EDGES)
            case 1:
                content[at] ^= 1 << rng.randrange(8)
            case 2:
                content[at : at + 4] = struct.pack(">i", rng.choice((-1, -2, 2**31 - 1, -(2**31), rng.getrandbits(16))))
            case 3:
                del content[at : at + rng.randrange(1, 9)]
            case 4:
                content[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 5:
                content[at:at] = content[at : at + rng.randrange(1, 64)]
            case 6:
                del content[at:]
        if len(content) < 8:
            content += bytes(8)
    size = len(content) if rng.random() < 0.98 else rng.choice((-1, 0, 3, 2**31 - 1, 999_999, len(content) + 5))
    return struct.pack(">i", size) + content


class Feed:
    """One connection. Each mutated frame is followed by a good one; its answer, or the end of the connection, or a
    short while without either (a request that waits) says that the mutated one was handled."""

    PATIENCE = 0.02
    PROBE = struct.pack(">ihhih", 10, 18, 0, 0x7EADBEEF, -1)
    ANSWER = struct.pack(">i", 0x7EADBEEF)

    def __init__(self, port: int, selector: selectors.BaseSelector) -> None:
        self._port = port
        self._selector = selector
        self.waits_since = 0.0
        self.reconnects = -1
        self.open()

    def open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.setblocking(False)
        self._selector.register(self.socket, selectors.EVENT_READ, self)
        self._received = b""
        self.reconnects += 1

    def close(self) -> None:
        self._selector.unregister(self.socket)
        self.socket.close()

    def send(self, frame: bytes) -> None:
        self.waits_since = time.monotonic()
        try:
            self.socket.sendall(frame + self.PROBE)
        except (ConnectionError, BlockingIOError):
            self.close()
            self.open()

    def is_answered(self) -> bool:
        try:
            part = self.socket.recv(1 << 20)
        except ConnectionError:
            part = b""
        self._received = (self._received + part)[-4096:]
        if part and self.ANSWER not in self._received and self.ANSWER not in part:
            return False
        if not part:
            self.close()
            self.open()
        self._received = b""
        return True


def feed_all(port: int, frames: list[bytes], rng: random.Random) -> int:
    """Send FRAMES mutated frames and some more, as a few have no end; how often a connection had to be opened again."""
    selector = selectors.DefaultSelector()
    feeds = [Feed(port, selector) for _ in range(CONNECTIONS)]
    sent = 0
    for feed in feeds:
        feed.send(mutated(rng.choice(frames), rng))
        sent += 1
    while sent < FRAMES * 1.05:
        ready = [key.data for key, _ in selector.select(Feed.PATIENCE) if key.data.is_answered()]
        now = time.monotonic()
        for feed in feeds:
            if feed not in ready and now - feed.waits_since > Feed.PATIENCE:
                feed.close()
                feed.open()
                ready.append(feed)
        for feed in ready:
            feed.send(mutated(rng.choice(frames), rng))
            sent += 1
    time.sleep(Feed.PATIENCE)
    for feed in feeds:
        feed.close()
    selector.close()
    return sum(feed.reconnects for feed in feeds)


def test_mutated_frames_do_no_harm(tmp_path: Path) -> None:
    print(f"HEADRACE_FUZZ_SEED={SEED} HEADRACE_FUZZ_FRAMES={FRAMES}")
    rng = random.Random(SEED)
    server = Fuzzed(tmp_path)
    try:
        with RawClient(server.port) as client:
            create(client, "t", 2)
            send(client, "t", batch(3))
        frames = seeds(rng)
        before = server.resident_mb()
        started = time.monotonic()
        reconnects = feed_all(server.port, frames, rng)
        seconds = time.monotonic() - started
        deadline = time.monotonic() + 60
        while (state := server.state())[:2] != (0, 0):
            assert time.monotonic() < deadline, f"connections and bytes left: {state}"
            time.sleep(0.05)
        growth = server.resident_mb() - before
        print(f"{state[2]} frames handled, {reconnects} reconnects, {seconds:.1f} s, memory +{growth:.0f} MB")
        assert state[2] >= FRAMES
        assert growth < MAX_GROWTH_MB
        with RawClient(server.port) as client:
            create(client, "after")
            assert send(client, "after", batch(2)).error_code == 0
            assert read(client, "after").high_watermark == 2
    finally:
        with contextlib.suppress(AssertionError):
            errors = server.stop()
    assert "Traceback" not in errors, errors[:5000]
