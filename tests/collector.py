"""What an OpenTelemetry collector is to a program that sends it spans: OTLP over HTTP, decoded and kept."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A span as it was sent."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    links: frozenset[str]
    """The traces that it is linked to."""
    attributes: dict[str, str | int]


class Collector:
    """Listens on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self._spans: list[Seen] = []
        self._lock = threading.Lock()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(ExportTraceServiceRequest.FromString(body) if self.path == "/v1/traces" else None)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def env(self) -> dict[str, str]:
        """What a program is told to send its spans here."""
        port = self._server.server_address[1]
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def spans(self, name: str = "") -> list[Seen]:
        with self._lock:
            return [span for span in self._spans if span.name.startswith(name)]

    def take(self, request: ExportTraceServiceRequest | None) -> None:
        assert request is not None, "only traces are sent"
        for resource in request.resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            for scope in resource.scope_spans:
                for one in scope.spans:
                    links = frozenset(link.trace_id.hex() for link in one.links)
                    said = {a.key: a.value.string_value or a.value.int_value for a in one.attributes}
                    ids = one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex()
                    with self._lock:
                        self._spans.append(Seen(service, one.name, *ids, links, said))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()
