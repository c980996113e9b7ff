"""What a batch tells, as it is written to the catalog."""

from __future__ import annotations

import json
from typing import Any

from headrace.pipelines.progress import BATCHES, plan_of, told_by
from headrace.pipelines.source.planning import Position


def batch(took: int, **more: Any) -> dict[str, Any]:
    return {"durationMs": {"triggerExecution": took, "addBatch": took - 1, "walCommit": 0}, **more}


def test_batches_are_remembered_up_to_a_number() -> None:
    told: dict[str, Any] = {}
    for took in range(1, 2 * BATCHES):
        told = told_by(batch(took), told)
    assert told["batch_ms"] == list(range(BATCHES, 2 * BATCHES))
    assert told["parts_ms"] == {"addBatch": 2 * BATCHES - 2}


def test_state_is_that_of_all_operators_and_positions_the_least() -> None:
    operators = [{"numRowsTotal": 2, "memoryUsedBytes": 10}, {"numRowsTotal": 3, "memoryUsedBytes": 20}]
    ends = [Position("orders", {}, {0: 7, 1: 2}), Position("orders", {}, {0: 5, 1: 9})]
    sources: list[dict[str, Any]] = [{"endOffset": json.dumps(one.to_dict())} for one in ends]
    sources.append({"endOffset": None})
    told = told_by(batch(5, stateOperators=operators, sources=sources, inputRowsPerSecond=1.26), {})
    assert (told["state_rows"], told["state_bytes"], told["rate"]) == (5, 30, 1.3)
    assert told["positions"] == {"orders": {"0": 5, "1": 2}}


def test_no_plan_is_told_before_there_is_one() -> None:
    class Driver:
        text = "No physical plan. Waiting for data."

        def explainInternal(self, extended: bool) -> str:
            return self.text

    class Query:
        _jsq = Driver()

    one: Any = Query()
    assert plan_of(one) == ""
    Driver.text = "== Physical Plan ==\nScan\n"
    assert plan_of(one) == "== Physical Plan ==\nScan"
