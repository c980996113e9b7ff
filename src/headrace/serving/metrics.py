"""``GET /metrics``: all that is known of a node, in Prometheus' format.

First the log's, as the broker itself tells it; of a log that is elsewhere, what any Kafka client may ask
(``log_metrics``). Then views, queries and captures, from the stores and the catalog. Labels are names of topics,
groups, apps, views, queries and tables, never of clients or of what is in rows: there are as many samples as there are
such things.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from starlette.responses import Response

from headrace.capture.status import families as capture_families
from headrace.errors import HeadraceError
from headrace.exposition import CONTENT_TYPE, Family, Histogram, Kind, Sample, lines
from headrace.serving.hub import Hub
from headrace.views.catalog import ViewName
from headrace.views.materialiser import ViewState

__all__ = ["NodeMetrics", "text_from"]

PATIENCE_S: Final = 10.0
_STATES: Final = ("starting", "running", "waiting", "stopped", "failed", "gone")
_VIEW: Final = ("app", "view")
_QUERY: Final = ("app", "query")


class NodeMetrics:
    """The metrics of a node. ``log_text`` gives those of its log; it is called in threads."""

    def __init__(self, hub: Hub, log_text: Callable[[], str]) -> None:
        self._hub = hub
        self._log_text = log_text
        self._began = time.time()

    async def answer(self, _: Mapping[str, Any]) -> Response:
        """One scrape."""
        return Response(await asyncio.to_thread(self.text), media_type=CONTENT_TYPE)

    def text(self) -> str:
        """All of it; what cannot be had of the log is left out, and said."""
        log, log_up = "", 1
        try:
            log = self._log_text()
        except (HeadraceError, OSError):
            log_up = 0
        up = Family("headrace_log_up", "gauge", "1 if the log could be asked for its metrics.", (), [((), log_up)])
        own = [up, *self._views(), *self._queries(), *capture_families(self._hub.captures)]
        return log + "".join(line for family in own for line in lines(family))

    def _views(self) -> Iterator[Family]:
        states = self._hub.states

        def each(name: str, kind: Kind, text: str, value: Callable[[ViewName, ViewState], float | None]) -> Family:
            found = [(key, value(key, state)) for key, state in sorted(states.items())]
            samples: list[Sample] = [(key, one) for key, one in found if one is not None]
            return Family(f"headrace_view_{name}", kind, text, _VIEW, samples)

        yield each("rows", "gauge", "Rows of a view.", lambda key, state: self._hub.count(key, state))
        yield each("behind_records", "gauge", "Records that are not in the view yet.", lambda _, state: state.behind)
        yield each(
            "freshness_seconds",
            "gauge",
            "How old what the view shows is at most: 0 if all is in it.",
            lambda _, state: self._freshness(state),
        )
        yield each(
            "bad_records_total",
            "counter",
            "Records of its changelog that are no rows of the view, since it was built.",
            lambda _, state: state.bad,
        )
        yield each("rebuilding", "gauge", "1 while it is built anew.", lambda _, state: int(state.rebuilding))
        yield each("trouble", "gauge", "1 while it cannot be kept.", lambda _, state: int(state.trouble is not None))

    def _freshness(self, state: ViewState) -> float:
        """What is not known to be newer is as old as this process, which has not seen it change."""
        known = self._hub.freshness(state)
        return max(0.0, time.time() - self._began) if known is None else known

    def _queries(self) -> Iterator[Family]:
        known = self._hub.queries

        def each(name: str, kind: Kind, text: str, value: Callable[[Mapping[str, Any]], Any]) -> Family:
            samples: list[Sample] = [
                ((one["app"], one["name"]), found) for one in known if (found := value(one)) is not None
            ]
            return Family(f"headrace_query_{name}", kind, text, _QUERY, samples)

        states: list[Sample] = [
            ((one["app"], one["name"], str(one.get("kind", "")), state), int(one.get("state") == state))
            for one in known
            for state in _STATES
        ]
        labels = (*_QUERY, "kind", "state")
        yield Family("headrace_query_state", "gauge", "1 for the state that a query is in.", labels, states)
        yield each("rows_total", "counter", "Rows that a query has read.", lambda one: one.get("rows_in"))
        yield each("late_rows_total", "counter", "Rows that came too late for it.", lambda one: one.get("late"))
        yield each("dead_rows_total", "counter", "Rows that it could not process.", lambda one: one.get("dead"))
        yield each("restarts_total", "counter", "Restarts since its run began.", lambda one: one.get("restarts"))
        yield each("watermark_age_seconds", "gauge", "How far its watermark is behind the clock.", _watermark_age)
        yield each("rows_per_second", "gauge", "Rows that came in, in its last batch.", _progress("rate"))
        yield each("state_rows", "gauge", "Rows that its operators remember.", _progress("state_rows"))
        yield each("state_bytes", "gauge", "Memory that its state takes.", _progress("state_bytes"))
        yield each("batch_seconds", "histogram", "Batches since its run began.", _batch_seconds)


def _progress(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda one: (one.get("progress") or {}).get(name)


def _batch_seconds(one: Mapping[str, Any]) -> Histogram | None:
    found = one.get("batch_seconds")
    return None if found is None else Histogram.from_json(found)


def _watermark_age(one: Mapping[str, Any]) -> float | None:
    if not one.get("watermark"):
        return None
    return (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(one["watermark"])).total_seconds()


def text_from(address: str) -> str:
    """What a broker of ours tells at an address."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text
