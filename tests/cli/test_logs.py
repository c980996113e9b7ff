"""What a node says as it runs, as JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from headrace.logs import JsonLines
from tests.servers import Headrace
from tests.serving.live import _children, _serves, eventually


def line(**more: Any) -> Any:
    record = logging.LogRecord("headrace.x", logging.WARNING, __file__, 1, "so %s", ("it is\nsaid",), None)
    vars(record).update(more)
    text = JsonLines().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_is_one_object_with_what_was_said_and_its_fields() -> None:
    told = line(topic="orders", place=Path("/x"))
    assert {name: told[name] for name in ("level", "logger", "message", "topic", "place", "pid")} == {
        "level": "WARNING",
        "logger": "headrace.x",
        "message": "so it is\nsaid",
        "topic": "orders",
        "place": "/x",
        "pid": os.getpid(),
    }
    assert told["time"].endswith("Z")
    assert set(told) == {"time", "level", "logger", "message", "pid", "topic", "place"}


def test_what_was_raised_is_said_too() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        assert line(exc_info=sys.exc_info())["error"].endswith("ValueError: no")


@pytest.mark.system
def test_broker_and_serving_process_say_everything_as_json(tmp_path: Path) -> None:
    node = Headrace(tmp_path, http="127.0.0.1:0", options=["--logs", "json"])
    try:
        producer = ck.Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
        producer.produce("headrace.catalog", b"nonsense", b"view/shop/sales")
        assert producer.flush(30) == 0
        eventually(lambda: node.output, lambda text: "the catalog entry view/shop/sales is not JSON" in text)
        [serving] = [pid for pid in _children(node.pid) if _serves(pid)]
        os.kill(serving, signal.SIGKILL)
        eventually(lambda: node.output, lambda text: "was killed by signal 9" in text)
    finally:
        node.stop()
    said = [json.loads(text) for text in node.output.splitlines() if not text.startswith("Headrace listens")]
    by_logger = {one["logger"]: one for one in said}
    assert by_logger["headrace.views.catalog"]["level"] == "WARNING"
    assert by_logger["headrace.views.catalog"]["pid"] == serving
    assert by_logger["headrace.node"]["message"] == "stopping"
