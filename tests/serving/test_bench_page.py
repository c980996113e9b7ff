"""The benchmark of the page fails where the page is not smooth, or the load not what it should have been."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.bench_page import shortcomings

GOOD = {"screen": "topics/bench.live", "due": 1000, "written": 950, "fps": 30.0, "worst_second": 30}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"fps": 29.9}, ["fps is 29.9, less than 30"]),
        ({"worst_second": 12}, ["worst_second is 12, less than 30"]),
        ({"written": 949}, ["949 of 1000 records were written, less than 95%"]),
    ],
)
def test_what_is_not_good_enough_is_told(changed: dict[str, Any], told: list[str]) -> None:
    assert shortcomings(GOOD | changed) == told
