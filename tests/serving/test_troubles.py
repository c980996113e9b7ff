"""What broke is said, whatever it is; what somebody wanted so is no trouble."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.operations.topics import Disk
from headrace.serving.sampler import Look
from headrace.serving.troubles import troubles_of


def told(look: Look | None = None, **known: Any) -> list[tuple[str, str, str]]:
    about = {"away": None, "queries": [], "captures": [], "views": {}} | known
    return [(one["what"], one["name"], one["text"]) for one in troubles_of(look, **about)]


def test_captures_that_failed_or_alarm_are_told() -> None:
    def capture(name: str, state: str, **more: Any) -> dict[str, Any]:
        return {"app": "shop", "name": name, "state": state, **more}

    captures = [
        capture("orders", "failed", last_error="the slot is gone"),
        capture("customers", "waiting"),
        capture("items", "streaming", alarm="the database keeps 2000 MiB"),
        capture("notes", "paused"),
        capture("fine", "streaming", alarm=None),
    ]
    assert told(captures=captures) == [
        ("capture", "shop.orders", "the slot is gone"),
        ("capture", "shop.customers", "it is waiting"),
        ("capture", "shop.items", "the database keeps 2000 MiB"),
    ]


def test_alerts_that_were_given_up_are_told() -> None:
    look = Look(0.0, topics={"shop.fraud.dead": {"records": 3}, "shop.quiet.dead": {"records": 0}})
    queries = [{"app": "shop", "name": name, "kind": "alert", "state": "running"} for name in ("fraud", "quiet")]
    assert told(look, queries=queries) == [
        ("alert", "shop.fraud", "3 could not be delivered: they are in topic shop.fraud.dead")
    ]


def test_a_disk_with_little_room_is_told() -> None:
    assert told(Look(0.0, disk=Disk(total=1000, free=51))) == []
    assert told(Look(0.0, disk=Disk())) == []
    [(what, _, text)] = told(Look(0.0, disk=Disk(total=1000, free=42)))
    assert (what, text) == ("disk", "4.2% are free: writes are refused when it is full")


def test_queries_views_groups_and_the_log_are_told() -> None:
    views: Any = {
        ("shop", "top"): SimpleNamespace(trouble="no such column", bad=0, last_bad=None),
        ("shop", "odd"): SimpleNamespace(trouble=None, bad=2, last_bad="not JSON"),
        ("shop", "good"): SimpleNamespace(trouble=None, bad=0, last_bad=None),
    }
    queries = [
        {"app": "shop", "name": "a", "kind": "view", "state": "gone", "last_error": None},
        {"app": "shop", "name": "b", "kind": "view", "state": "stopped"},
    ]
    look = Look(0.0, groups={"g": {"group": "g", "state": "damaged"}, "h": {"group": "h", "state": "empty"}})
    assert told(look, away="it is away", queries=queries, views=views) == [
        ("cluster", "the log", "it is away"),
        ("query", "shop.a", "it is gone"),
        ("view", "shop.odd", "2 bad records; not JSON"),
        ("view", "shop.top", "no such column"),
        ("group", "g", "a record of it cannot be read"),
    ]
