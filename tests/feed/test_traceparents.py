"""Which traces records belong to, and that nothing is traced where nobody asked for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace import _kernel, tracing
from headrace.feed.traceparents import sampled, traceparent_column

Headers = list[tuple[str, bytes | None]]


def traceparent(number: int, flags: str = "01") -> str:
    return f"00-{number:032x}-{number:016x}-{flags}"


def records(*headers: Headers) -> pa.RecordBatch:
    return pa.record_batch(_kernel.records_to_arrow(_kernel.build_batch([(1, None, b"{}", one) for one in headers])))


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    tracing._provider.cache_clear()
    yield
    tracing.shutdown()
    monkeypatch.undo()
    tracing._provider.cache_clear()


def test_each_record_has_the_first_of_its_good_headers() -> None:
    one, other = traceparent(1), traceparent(2)
    batch = records(
        [("x", b"y"), ("traceparent", one.encode())],
        [],
        [("traceparent", None)],
        [("traceparent", b"\xff\xfe")],
        [("traceparent", b"nonsense"), ("traceparent", other.encode()), ("traceparent", one.encode())],
    )
    assert traceparent_column(batch).to_pylist() == [one, None, None, None, other]
    assert traceparent_column(batch.slice(3)).to_pylist() == [None, other]
    assert traceparent_column(records([])).to_pylist() == [None]


def test_a_sample_is_of_recorded_traces_and_small() -> None:
    assert sampled(records([("traceparent", traceparent(1, "00").encode())])) == []
    assert sampled(records([("traceparent", traceparent(0).encode())])) == [], "no valid id"
    many = records(*([("traceparent", traceparent(1 + n // 2).encode())] for n in range(1000)))
    assert sampled(many) == [traceparent(n) for n in range(1, tracing.MOST + 1)]


@pytest.mark.usefixtures("traced")
def test_of_one_trace_the_work_is_a_part_and_of_many_it_is_linked_to_each(capsys: pytest.CaptureFixture[str]) -> None:
    with tracing.span("work", "consumer", [traceparent(7)]) as one:
        assert one.traceparent is not None
        assert one.traceparent.split("-")[1] == f"{7:032x}"
        assert one.onward == {traceparent(7): one.traceparent}
    with tracing.span("work", "consumer", [traceparent(7), traceparent(8)]) as many:
        assert many.traceparent is not None
        assert many.traceparent.split("-")[1] not in (f"{7:032x}", f"{8:032x}")
        assert [text.split("-")[1] for text in many.onward.values()] == [f"{n:032x}" for n in (7, 8)]


def test_without_settings_nothing_of_opentelemetry_is_loaded() -> None:
    program = (
        "import sys, headrace.tracing as t\n"
        "with t.span('x', 'producer', ['00-1-1-01']) as traced: assert traced.traceparent is None\n"
        "assert not t.is_on() and not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    for env in ({}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"}):
        subprocess.run([sys.executable, "-c", program], env=env, check=True)


def test_what_cannot_be_is_said_and_nothing_is_traced() -> None:
    program = "import headrace.tracing as t; assert not t.is_on()"
    for env in (
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ):
        ran = subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True)
        assert "nothing is traced: " in ran.stderr
