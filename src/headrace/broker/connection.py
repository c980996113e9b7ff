"""One client connection: frames in, responses out, in the order of their requests.

Reading: all connections share one receive buffer. Whole frames in it are handled where they lie; a frame that goes on
past its end gets memory of its own, allocated once, and the rest is received straight into it.

Answering: each request that cannot be answered at once holds a *slot* in a queue, and responses leave from the head of
the queue. So a fetch that waits for data or a produce that waits for the disk holds back later *responses* of its
connection, but not the handling of later requests.

A connection is *blocked*, which means that no further frame is handled or read, while too many slots are held, while
its client does not take what was written, while a handler holds it, or while others have their turn after very many
small requests. Frames that were already received then wait in a backlog. When a connection is lost its backlog is
dropped, but for producers that asked for no answer (acks=0).

Everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, cast

from headrace import _kernel
from headrace.broker import wire
from headrace.broker.context import RequestContext
from headrace.broker.primitives import Cursor
from headrace.broker.refused import code_of
from headrace.errors import HeadraceError, InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.dispatch import Api
    from headrace.broker.server import Server

__all__ = ["Connection", "Slot"]

_logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview
Response = Buffer | list[Buffer]

_SIZE: Final = struct.Struct(">i").unpack_from
_HEADER: Final = struct.Struct(">hhih").unpack_from
_HEADER_SIZE: Final = 10
_MIN_FRAME: Final = 8
_WRITE_HIGH: Final = 1 << 20
_JOIN_BELOW: Final = 64 << 10
_PRODUCE: Final = 0
_API_VERSIONS: Final = 18
_UNKNOWN_SERVER_ERROR: Final = -1
_FRAMES_PER_TURN: Final = 64


class Slot:
    """The place of one response in the order of a connection's responses."""

    __slots__ = ("response",)

    def __init__(self, response: Response | None = None) -> None:
        self.response = response


class Connection(asyncio.BufferedProtocol):
    """The server's end of one connection."""

    def __init__(self, server: Server, connection_id: int) -> None:
        self.server = server
        self.id = connection_id
        self.peer = "?"
        self.peer_host = "?"
        self.active_at = server.tick
        self.closed = False
        self.on_close: dict[object, Callable[[], None]] = {}
        """Called when the connection is lost, by whoever waits on its behalf."""
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._carry = b""
        self._frame: bytearray | None = None
        self._rest: memoryview = server.scratch_view
        self._reserved = 0
        self._slots: deque[Slot] = deque()
        self._held_bytes = 0
        self._out: list[Buffer] = []
        self._corked = False
        self._backlog: deque[bytearray] = deque()
        self._blocked = False
        self._holds = 0
        self._resting = False
        self._write_paused = False
        self._reading_paused = False
        self._draining = False
        self._thirsty: list[Callable[[], None]] = []

    # What the loop calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the base class
        address = transport.get_extra_info("peername") or ("?", 0)
        self.peer_host = str(address[0])
        self.peer = f"{address[0]}:{address[1]}"
        transport.set_write_buffer_limits(high=_WRITE_HIGH)
        if not self.server.admit(self):
            self.closed = True
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive to: the rest of a frame, or the shared buffer."""
        if self._frame is not None:
            return self._rest
        carry = self._carry
        if carry:
            scratch = self.server.scratch_view
            scratch[: len(carry)] = carry
            return scratch[len(carry) :]
        return self.server.scratch_view

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        self.active_at = self.server.tick
        self._corked = True
        if self._frame is None:
            end = nbytes + len(self._carry)
            self._carry = b""
            self._take_frames(self.server.scratch_view, end)
        elif nbytes == len(self._rest):
            frame = self._frame
            self._frame, self._rest = None, self.server.scratch_view
            self._on_frame(memoryview(frame))
            self._release_frame()
        else:
            self._rest = self._rest[nbytes:]
        self._corked = False
        if self._out:
            self._flush()

    def eof_received(self) -> bool:
        """The client sends no more: close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: forget what it waits for."""
        self.closed = True
        backlog, self._backlog = self._backlog, deque()
        for frame in backlog:
            if frame[:2] == b"\x00\x00":
                self.server.produce_without_answer(self, memoryview(frame))
        self._slots.clear()
        self._out.clear()
        self._thirsty.clear()
        self._frame, self._rest = None, self.server.scratch_view
        self._release_frame()
        on_close, self.on_close = self.on_close, {}
        for callback in on_close.values():
            callback()
        self.server.forget(self)

    def pause_writing(self) -> None:
        """The client does not take its responses fast enough."""
        self._write_paused = True
        self.server.congested.add(self)
        self._block()

    def resume_writing(self) -> None:
        """The client has taken most of what was written."""
        self._write_paused = False
        self.server.congested.discard(self)
        self.active_at = self.server.tick
        self._maybe_unblock()

    # What handlers call ----------------------------------------------------------------------------------------

    @property
    def congested(self) -> bool:
        """Whether the client has not taken what it was sent: then nothing large should be added."""
        return self._write_paused or self._held_bytes > _WRITE_HIGH

    def is_held_up(self, slot: Slot) -> bool:
        """Whether the answer of a parked request should wait: the client is slow, or much is waiting before it."""
        return self._write_paused or (self._held_bytes > _WRITE_HIGH and self._slots[0] is not slot)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call once, when something has left; then it must look again."""
        self._thirsty.append(callback)

    def answer(self, response: Response) -> None:
        """Answer the request at hand now."""
        if self._slots:
            self._slots.append(Slot(response))
            self._held_bytes += _size(response)
            if self._held_bytes > _WRITE_HIGH:
                self._block()
        else:
            self._send(response)

    def park(self) -> Slot:
        """Take the place for an answer that comes later, with ``complete``."""
        slot = Slot()
        self._slots.append(slot)
        if len(self._slots) >= self.server.max_pending:
            self._block()
        return slot

    def complete(self, slot: Slot, response: Response) -> None:
        """Answer a parked request."""
        if self.closed:
            return
        slots = self._slots
        slot.response = response
        self._held_bytes += _size(response)
        if slots[0] is slot:
            while slots and (ready := slots[0].response) is not None:
                slots.popleft()
                self._held_bytes -= _size(ready)
                self._send(ready)
            if self._blocked or self._thirsty:
                self._maybe_unblock()

    def hold(self) -> None:
        """Handle and read nothing more until ``let_go``; several may hold it."""
        self._holds += 1
        self._block()

    def let_go(self) -> None:
        """Go on with what has come meanwhile."""
        self._holds -= 1
        self._maybe_unblock()

    def close(self, reason: str | None = None) -> None:
        """Close at once; the reason is logged."""
        if self.closed:
            return
        self.closed = True
        if reason is not None:
            self.server.log_refusal(f"closed the connection of {self.peer}: {reason}")
        self._transport.abort()

    @property
    def pending(self) -> int:
        """How many requests wait for their answer."""
        return len(self._slots)

    @property
    def is_stalling(self) -> bool:
        """Whether a part of a request has come and the rest has not, although we would read it."""
        return (self._frame is not None or bool(self._carry)) and not self._reading_paused

    def unsent_bytes(self) -> int:
        """Bytes of responses that the client has not taken."""
        return self._transport.get_write_buffer_size() + self._held_bytes

    def _send(self, response: Response) -> None:
        """Put a response on its way: one with records now, others together with all that are ready in this moment."""
        if type(response) is list:
            self._out += response
            self._flush()
            return
        self._out.append(response)  # type: ignore[arg-type]
        if not self._corked:
            self._corked = True
            self.server.broker.loop.call_soon(self._uncork)

    def _uncork(self) -> None:
        self._corked = False
        if self._out:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self.closed:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        elif sum(map(len, out)) < _JOIN_BELOW:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    # Frames ----------------------------------------------------------------------------------------------------

    def _take_frames(self, view: memoryview, end: int) -> None:
        """Handle the whole frames in the shared buffer and keep the beginning of the next one."""
        pos = 0
        left = _FRAMES_PER_TURN
        max_bytes = self.server.request_max_bytes
        while end - pos >= 4:
            (size,) = _SIZE(view, pos)
            if not _MIN_FRAME <= size <= max_bytes:
                self.close(f"a request of {size} bytes (socket.request.max.bytes is {max_bytes})")
                return
            stop = pos + 4 + size
            if stop > end:
                self._start_frame(view[pos + 4 : end], size)
                return
            self._on_frame(view[pos + 4 : stop])
            if self.closed:
                return
            pos = stop
            left -= 1
            if left == 0:
                self._give_way()
        if pos < end:
            self._carry = bytes(view[pos:end])

    def _start_frame(self, beginning: memoryview, size: int) -> None:
        """Get memory for a frame of which only the beginning has come."""
        frame = _kernel.alloc(size)
        view = memoryview(frame)
        view[: len(beginning)] = beginning
        self._frame = frame
        self._rest = view[len(beginning) :]
        self._reserved += size
        if not self.server.reserve(self, size):
            self._pause_reading()

    def memory_is_free(self) -> None:
        """There is memory for the frame that is being received: go on."""
        self._maybe_resume_reading()

    def _release_frame(self) -> None:
        if self._reserved:
            self.server.release(self, self._reserved)
            self._reserved = 0

    def _on_frame(self, frame: memoryview) -> None:
        if self._blocked:
            self._backlog.append(bytearray(frame))
            return
        try:
            self._handle(frame)
        except InvalidRequest as error:
            self.close(str(error))
        except Exception:
            _logger.exception("a request of %s failed", self.peer)
            self.close()

    def _handle(self, frame: memoryview) -> None:
        if len(frame) < _HEADER_SIZE:
            raise InvalidRequest(f"a request header of {len(frame)} bytes")
        api_key, version, correlation_id, name_size = _HEADER(frame, 0)
        api = self.server.apis.get(api_key)
        if api is None or not api.min_version <= version <= api.max_version:
            if api_key == _API_VERSIONS:
                self.answer(self.server.unsupported_api_versions(correlation_id))
                return
            raise InvalidRequest(f"API key {api_key} in version {version} is not supported")
        self.server.requests[api_key] += 1
        serve = api.serve
        if serve is not None:
            pos = _HEADER_SIZE if name_size < 0 else _HEADER_SIZE + name_size
            if version >= api.flexible_since:
                if pos < len(frame) and frame[pos] == 0:
                    pos += 1
                else:
                    pos = _skip_tags(frame, pos)
            serve(self, version, correlation_id, frame, pos)
        else:
            self._control(api, version, correlation_id, frame)

    def _control(self, api: Api, version: int, correlation_id: int, frame: memoryview) -> None:
        cursor = Cursor(frame, _HEADER_SIZE - 2)
        codec = wire.request_codec(api.key, version)
        client_id = wire.read_client_id(cursor)
        if codec.flexible:
            cursor.skip_tags()
        request = codec.read(cursor)
        context = RequestContext(api.key, version, correlation_id, client_id, self.peer_host, self.id)
        coroutine = api.handle(self.server.broker, request, context)
        try:
            awaited = coroutine.send(None)
        except StopIteration as stop:
            self.answer(wire.encode_response(api.key, version, correlation_id, stop.value))
        except Exception as error:
            response = _failure(api, context, error)
            if response is None:
                self.close()
            else:
                self.answer(response)
        else:
            slot = self.park()
            self.server.run(self._finish(api, context, _Rest(coroutine, awaited), slot))

    async def _finish(self, api: Api, context: RequestContext, rest: _Rest, slot: Slot) -> None:
        """The rest of a handler that has to wait for something."""
        response: Response | None
        try:
            result = await rest
            response = wire.encode_response(api.key, context.version, context.correlation_id, result)
        except Exception as error:
            response = _failure(api, context, error)
        if response is None:
            self.close()
        else:
            self.complete(slot, response)

    # Flow ------------------------------------------------------------------------------------------------------

    def _block(self) -> None:
        self._blocked = True
        self._pause_reading()

    def _maybe_unblock(self) -> None:
        """Go on if there is room again: first with what was received, then with reading."""
        if self._draining or self.closed:
            return
        self._draining = True
        try:
            if not self._write_paused and self._thirsty:
                thirsty, self._thirsty = self._thirsty, []
                for callback in thirsty:
                    callback()
            left = _FRAMES_PER_TURN
            while self._has_room():
                self._blocked = False
                if not self._backlog:
                    self._maybe_resume_reading()
                    return
                self._on_frame(memoryview(self._backlog.popleft()))
                left -= 1
                if left == 0:
                    self._give_way()
        finally:
            self._draining = False

    def _has_room(self) -> bool:
        if self.closed or self._holds or self._resting or self.congested:
            return False
        return len(self._slots) < self.server.max_pending

    def _give_way(self) -> None:
        """Let the other connections have their turn before going on."""
        self._resting = True
        self._block()
        self.server.broker.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._resting = False
        self._maybe_unblock()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self.closed:
            self._reading_paused = True
            self._transport.pause_reading()

    def _maybe_resume_reading(self) -> None:
        if self._reading_paused and not self._blocked and not self.closed and not self.server.is_short(self):
            self._reading_paused = False
            self._transport.resume_reading()


class _Rest:
    """What is left of a coroutine after its first step, which was taken at once so that requests start in order."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited = self._awaited
        while True:
            thrown: BaseException | None = None
            value = None
            try:
                value = yield awaited
            except BaseException as error:
                thrown = error
            try:
                awaited = self._coroutine.send(value) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration as stop:
                return stop.value


def _failure(api: Api, context: RequestContext, error: Exception) -> bytearray | None:
    """A response that says what went wrong, or None if this API has no place for it."""
    if isinstance(error, HeadraceError):
        code = code_of(error)
    else:
        code = _UNKNOWN_SERVER_ERROR
        _logger.error(
            "%s v%d of client %r at %s failed",
            api.name,
            context.version,
            context.client_id,
            context.client_host,
            exc_info=error,
        )
    if not wire.has_error_code(api.key, context.version):
        return None
    response = {"error_code": code, "error_message": str(error)}
    return wire.encode_response(api.key, context.version, context.correlation_id, response)


def _skip_tags(frame: memoryview, pos: int) -> int:
    cursor = Cursor(frame, pos)
    cursor.skip_tags()
    return cursor.pos


def _size(response: Response) -> int:
    return sum(map(len, response)) if type(response) is list else len(response)
