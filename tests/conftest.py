"""Which tests are system tests, and which of those run side by side.

Tests that start processes or take long are system tests: by their folder, their file, or a mark of their own. System
tests run in lanes: the tests of one lane one after another in one process, so that they share its servers and its
Spark; lanes beside each other. A folder is a lane, also one that nothing here knows of, except that all tests on Spark
are in three: those on the Spark of the test's own process, those of operators apart, and those whose apps run in
processes of their own. Not more, because Spark gives up on a Python process that needs more than ten seconds to come
up.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).resolve().parent
SYSTEM = (
    "capture/test_postgres",
    "capture/test_capture",
    "capture/test_kills.py",
    "capture/test_mariadb",
    "contract/",
    "clients/",
    "deploy/",
    "faults/",
    "backup/test_running_node.py",
    "broker/test_fuzz_frames.py",
    "groups/test_restarts.py",
    "groups/test_corners.py",
)
OWN_DRIVERS = (
    "pipelines/test_kills.py",
    "pipelines/test_bad_days.py",
    "pipelines/test_run.py",
    "pipelines/test_traces.py",
    "pipelines/test_on_kafka.py",
    "pipelines/test_pack.py",
    "move/test_app_moves.py",
    "cluster/test_app.py",
    "cluster/test_contract.py",
    "cluster/test_laws.py",
    "cluster/test_nodes.py",
    "cli/test_demo.py",
    "site/test_tutorial.py",
)
SHARED_SPARK = ("AppUnderTest", "shared_spark", "SparkSession")
"""Tests in whose file one of these names stands run on the Spark of their own process."""
OPERATORS = ("nexmark/", "patterns/", "state/")
LONGEST_FIRST = ("spark", "operators", "drivers", "contract", "clients", "capture", "cli", "faults", "serving")
"""Where a run begins, so that no long lane is left for its end."""

# A busy machine is no failure: nothing here is timed. What CI sets by itself (the same examples every time) stays.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A test's Spark ends before Java's second compiler pays off: without it, tests on Spark take half the processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as workers have it; frames here are small


@cache
def lane_of(place: str) -> str:
    """The lane of the tests of a file, given by its path below this folder."""
    if place in OWN_DRIVERS:
        return "drivers"
    text = (HERE / place).read_text()
    if not any(name in text for name in SHARED_SPARK):
        return place.partition("/")[0]
    return "operators" if place.startswith(OPERATORS) else "spark"


def turn_of(lane: str) -> int:
    """When a lane begins."""
    return LONGEST_FIRST.index(lane) if lane in LONGEST_FIRST else len(LONGEST_FIRST)


class Lanes(LoadScopeScheduling):
    """What runs one after another is a lane, not a module."""

    def _split_scope(self, nodeid: str) -> str:
        path = self.config.rootpath / nodeid.partition("::")[0]
        return lane_of(path.resolve().relative_to(HERE).as_posix())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    return Lanes(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {item: item.path.resolve().relative_to(HERE).as_posix() for item in items}
    for item, place in places.items():
        if place.startswith(SYSTEM):
            item.add_marker(pytest.mark.system)
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: turn_of(lane_of(places[item])))
