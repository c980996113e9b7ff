"""The benchmark of the page fails where the page is not smooth, or the load not what it should have been."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.bench_page import frames, shortcomings

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


def test_a_second_without_a_frame_is_the_worst() -> None:
    smooth = [at * 20.0 for at in range(1, 50)]
    assert frames([*smooth, *(2000 + at for at in smooth)], 0.0, 3000.0) == {
        "seconds": 3.0,
        "fps": 32.7,
        "worst_second": 0,
        "longest_pause_ms": 1040.0,
    }
    assert frames(smooth, 0.0, 1000.0)["worst_second"] == 49
    assert frames(smooth, 0.0, 2100.0)["worst_second"] == 0, "it froze and came back only to be measured"
    assert frames([1000 + at for at in smooth], 0.0, 2000.0)["longest_pause_ms"] == 1020.0
