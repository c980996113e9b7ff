"""A record that is written over HTTP is part of the request's trace."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.serving.sampler import Sampler
from tests.serving.conftest import Site

ABOVE = f"00-{'a' * 32}-{'b' * 16}-01"


def test_the_traceparent_of_a_request_reaches_its_record(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(Sampler, "cluster", lambda _: "the cluster")
    monkeypatch.setattr("headrace.serving.operating.send_record", lambda *said: told.append(said) or {"offset": 0})
    record = {"key": "k", "value": "v", "headers": {"a": "b"}, "partition": 0}
    assert shop.client.post("/topics/orders/records", json=record, headers={"traceparent": ABOVE}).status_code == 200
    assert shop.client.post("/topics/orders/records", json={"value": "v"}).status_code == 200
    assert told == [
        ("the cluster", "orders", "k", "v", {"a": "b"}, 0, ABOVE),
        ("the cluster", "orders", None, "v", {}, None, None),
    ]
