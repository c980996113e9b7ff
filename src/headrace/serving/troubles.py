"""What broke, as the overview says it: pure, from what is known of a node and its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.serving.sampler import Look
from headrace.views.catalog import ViewName
from headrace.views.materialiser import ViewState

__all__ = ["troubles_of"]

LOW_PART = 0.05
"""A disk with less room than this is a trouble."""

Entry = Mapping[str, Any]
Trouble = dict[str, str]


def troubles_of(
    look: Look | None,
    away: str | None,
    queries: Sequence[Entry],
    captures: Iterable[Entry],
    views: Mapping[ViewName, ViewState],
) -> list[Trouble]:
    """All of it: ``what`` is in trouble, its ``name``, and a ``text``. ``away``: why the log cannot be asked."""
    return [
        *([_trouble("cluster", "the log", away)] if away else []),
        *_of_disk(look),
        *_of_queries(queries),
        *_of_captures(captures),
        *_of_alerts(look, queries),
        *_of_views(views),
        *_of_groups(look),
    ]


def _trouble(what: str, name: str, text: str, **more: str) -> Trouble:
    return {"what": what, "name": name, "text": text, **more}


def _of_disk(look: Look | None) -> Iterator[Trouble]:
    if look is None or not look.disk.total or look.disk.free is None:
        return
    part = look.disk.free / look.disk.total
    if part < LOW_PART:
        yield _trouble("disk", "of the log", f"{part:.1%} are free: writes are refused when it is full")


def _of_queries(queries: Iterable[Entry]) -> Iterator[Trouble]:
    for one in queries:
        if (state := str(one.get("state"))) in ("failed", "gone", "waiting"):
            yield _trouble("query", _name(one), str(one.get("last_error") or f"it is {state}"), state=state)


def _of_captures(captures: Iterable[Entry]) -> Iterator[Trouble]:
    for one in captures:
        state, alarm = str(one.get("state")), one.get("alarm")
        if state in ("failed", "waiting"):
            yield _trouble("capture", _name(one), str(one.get("last_error") or f"it is {state}"), state=state)
        elif alarm:
            yield _trouble("capture", _name(one), str(alarm), state=state)


def _of_alerts(look: Look | None, queries: Iterable[Entry]) -> Iterator[Trouble]:
    """Alerts that nobody could be told: their delivery was given up."""
    for name in (_name(one) for one in queries if one.get("kind") == "alert"):
        given_up = look.topics.get(f"{name}.dead", {}).get("records", 0) if look else 0
        if given_up:
            yield _trouble("alert", name, f"{given_up} could not be delivered: they are in topic {name}.dead")


def _of_views(views: Mapping[ViewName, ViewState]) -> Iterator[Trouble]:
    for (app, name), state in sorted(views.items()):
        if state.trouble:
            yield _trouble("view", f"{app}.{name}", state.trouble)
        elif state.bad:
            yield _trouble("view", f"{app}.{name}", f"{state.bad} bad records; {state.last_bad}")


def _of_groups(look: Look | None) -> Iterator[Trouble]:
    for group in look.groups.values() if look else ():
        if group["state"] == "damaged":
            yield _trouble("group", group["group"], "a record of it cannot be read")


def _name(one: Entry) -> str:
    return f"{one.get('app')}.{one.get('name')}"
