"""OpenTelemetry traces, set up by OpenTelemetry's own environment variables; off, and free of cost, without them.

On: ``OTEL_TRACES_EXPORTER`` (``otlp``, ``console``) or an ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set, and not
``OTEL_SDK_DISABLED``. Samplers, batches, headers, service and resource are as the SDK reads them (extra
``headrace[tracing]``).

Work is done in batches of many records, and each record may belong to a trace of its own (header ``traceparent``, as
W3C has it). So a batch has one span. If all its records are of one trace, the span goes on in that. Otherwise it begins
one, has links to at most ``MOST`` of theirs, and each of those gets a span of its own, with a link to the batch's.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Link, Span, SpanContext

__all__ = ["HEADER", "MOST", "Traced", "is_on", "is_sampled", "passed_on", "sending", "shutdown", "span"]

HEADER: Final = "traceparent"
MOST: Final = 32
"""So many traces of a batch's records get a link and a span."""

Role = Literal["producer", "consumer"]
_PATIENCE_S: Final = 3.0
_SHAPE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Traced:
    """A piece of work under way. ``traceparent`` is what its records carry on, None if nobody traces it; ``onward`` is
    that for each traceparent that it got, where records are known one by one."""

    traceparent: str | None = None
    onward: Mapping[str, str] = field(default_factory=dict)


_OFF: Final = Traced()


def is_on() -> bool:
    """Whether anything is traced."""
    return _provider() is not None


def is_sampled(traceparent: str | None) -> bool:
    """Whether it is one, and of a trace that is recorded."""
    return _context(traceparent) is not None


def passed_on(traceparent: str) -> bool:
    """Whether it is one that we only pass on: nothing is traced here, or nobody records its trace."""
    return _SHAPE.fullmatch(traceparent) is not None and not (is_on() and is_sampled(traceparent))


@contextmanager
def span(
    name: str,
    role: Role,
    traceparents: Sequence[str] = (),
    attributes: Mapping[str, str | int] | None = None,
    *,
    began_ns: int | None = None,
) -> Iterator[Traced]:
    """Do some work in a span. ``traceparents`` are those of the records that it is about. ``began_ns`` is when it
    began, if that was before now."""
    provider = _provider()
    if provider is None:
        yield _OFF
        return
    parents = {text: found for text in traceparents if (found := _context(text)) is not None}
    work = _Work(name, role, {"messaging.system": "kafka", **(attributes or {})}, began_ns)
    with _begun(provider, work, dict(list(parents.items())[:MOST])) as traced:
        yield traced


@contextmanager
def sending(topic: str, headers: list[tuple[str, bytes | None]], above: str | None = None) -> Iterator[None]:
    """Send records in a span, below the traceparent ``above`` if there is one: these headers, which all of them get,
    say so. Not if they have a traceparent already: that is kept."""
    if not is_on() or any(name == HEADER for name, _ in headers):
        yield
        return
    parents = [above] if above else []
    with span(f"send {topic}", "producer", parents, {"messaging.destination.name": topic}) as traced:
        if traced.traceparent is not None:
            headers.append((HEADER, traced.traceparent.encode()))
        yield


def shutdown() -> None:
    """Send what is not sent yet, if that is quick. Python's end does it, too."""
    if _provider.cache_info().currsize and (provider := _provider()) is not None:
        sending_rest = threading.Thread(target=provider.shutdown, daemon=True)
        sending_rest.start()
        sending_rest.join(_PATIENCE_S)


class _Work(NamedTuple):
    name: str
    role: Role
    attributes: Mapping[str, str | int]
    began_ns: int | None

    def started(self, provider: TracerProvider, below: Context, links: Sequence[Link]) -> Span:
        from opentelemetry.trace import SpanKind

        kind = SpanKind.PRODUCER if self.role == "producer" else SpanKind.CONSUMER
        tracer = provider.get_tracer("headrace")
        return tracer.start_span(self.name, below, kind, self.attributes, links, self.began_ns)


@contextmanager
def _begun(provider: TracerProvider, work: _Work, parents: Mapping[str, SpanContext]) -> Iterator[Traced]:
    from opentelemetry import trace
    from opentelemetry.context import Context

    traces = {one.trace_id: one for one in parents.values()}
    one_trace = len(traces) == 1
    below = _below(next(iter(traces.values()))) if one_trace else Context()
    links = [trace.Link(one) for one in parents.values()] if not one_trace or len(parents) > 1 else []
    own = work.started(provider, below, links)
    each: dict[str, Span] = {}
    if own.is_recording() and not one_trace:
        back = [trace.Link(own.get_span_context())]
        each = {text: work.started(provider, _below(parent), back) for text, parent in parents.items()}
    onward = {text: _written(each.get(text, own)) or text for text in parents}
    try:
        with trace.use_span(own, end_on_exit=True):
            yield Traced(_written(own), onward)
    finally:
        for one in each.values():
            one.end()


def _below(parent: SpanContext) -> Context:
    from opentelemetry import trace

    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


def _context(traceparent: str | None) -> SpanContext | None:
    """What a header says; None if it is malformed, or of a trace that nobody records."""
    from opentelemetry import trace

    found = _SHAPE.match(traceparent or "")
    if found is None or not int(found[3], 16) & trace.TraceFlags.SAMPLED:
        return None
    context = trace.SpanContext(
        int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
    )
    return context if context.is_valid else None


def _written(one: Span) -> str | None:
    context = one.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01" if one.is_recording() else None


@cache
def _provider() -> TracerProvider | None:
    exporter_name = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    wanted = exporter_name or any(os.environ.get(name) for name in _ENDPOINTS)
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or not wanted or exporter_name == "none":
        return None
    try:
        return _made(exporter_name or "otlp")
    except ImportError as error:
        _logger.warning("nothing is traced: %s (pip install 'headrace[tracing]')", error)
    except ValueError as error:
        _logger.warning("nothing is traced: %s", error)
    return None


def _made(exporter_name: str) -> TracerProvider:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = Resource.create()
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        named = named.merge(Resource({SERVICE_NAME: "headrace"}))
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    atexit.register(shutdown)
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter_name)))
    return provider


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if name != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER is {name!r}; there are otlp, console and none")
    protocol = next((os.environ[one] for one in _PROTOCOLS if os.environ.get(one)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; there is http/protobuf")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
