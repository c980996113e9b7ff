"""A record that is written by hand goes on in the trace of whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headrace import tracing
from headrace.operations.producing import send_record

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ABOVE = f"00-{TRACE}-{SPAN}-01"
UNRECORDED = f"00-{TRACE}-{SPAN}-00"


class Log:
    """A cluster and its producer: takes every record."""

    server = "memory"

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def partitions(self, topic: str) -> list[tuple[str, int]]:
        return [(topic, 0)]

    def producer(self, **_: Any) -> Log:
        return self

    def produce(self, topic: str, *, on_delivery: Any, **record: Any) -> None:
        self.sent.append(record)
        on_delivery(None, SimpleNamespace(partition=lambda: 0, offset=lambda: 0))

    def flush(self, _: float) -> int:
        return 0


def carried(traceparent: str | None, headers: Mapping[str, str | None] | None = None) -> dict[str, str]:
    log: Any = Log()
    send_record(log, "orders", None, "{}", headers or {}, traceparent=traceparent)
    return {name: data.decode() for name, data in log.sent[0]["headers"]}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is traced, as the environment says that something is."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def test_a_record_goes_on_in_the_trace_of_the_request(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{'1' * 32}-{'2' * 16}-01")
    told = carried(ABOVE)["traceparent"]
    [span] = spans.get_finished_spans()
    assert span.name == "send orders"
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert told == f"00-{TRACE}-{span.context.span_id:016x}-01"


def test_the_environment_of_a_node_is_no_trace_of_its_requests(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", ABOVE)
    assert TRACE not in carried(None)["traceparent"]
    [span] = spans.get_finished_spans()
    assert span.parent is None


def test_what_nobody_records_is_passed_on_as_it_is(spans: InMemorySpanExporter) -> None:
    assert carried(UNRECORDED) == {"traceparent": UNRECORDED}
    assert spans.get_finished_spans() == ()


def test_a_node_that_traces_nothing_passes_on_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_provider", lambda: None)
    assert carried(ABOVE, {"a": "b"}) == {"a": "b", "traceparent": ABOVE}
    assert carried(ABOVE, {"traceparent": UNRECORDED}) == {"traceparent": UNRECORDED}
    for wrong in (None, "", "nonsense", ABOVE + "\n", "x" * 5000):
        assert carried(wrong) == {}
