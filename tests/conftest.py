"""Which tests are system tests, and which of those run side by side.

Tests that start processes or take long are system tests: by their folder, their file, or a mark of their own. System
tests run in lanes: the tests of one lane one after another in one process, so that they share its servers and its
Spark; lanes beside each other. A folder is a lane, also one that nothing here knows of, except that all tests on Spark
are in two: those on the Spark of the test's own process, and those whose apps run in processes of their own. Not more,
because Spark gives up on a Python process that needs more than ten seconds to come up.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).resolve().parent
SYSTEM = (
    "capture/test_postgres",
    "capture/test_capture",
    "capture/test_kills.py",
    "capture/test_mariadb",
    "contract/",
    "clients/",
    "faults/",
    "broker/test_fuzz_frames.py",
    "groups/test_restarts.py",
    "groups/test_corners.py",
)
OWN_DRIVERS = (
    "pipelines/test_kills.py",
    "pipelines/test_bad_days.py",
    "pipelines/test_run.py",
    "pipelines/test_on_kafka.py",
    "cli/test_demo.py",
)
SHARED_SPARK = {"AppUnderTest", "shared_spark", "spark"}
"""A test whose module or fixtures have one of these names runs on the Spark of its own process."""
LONGEST_FIRST = ("spark", "drivers", "contract", "clients", "cli", "faults", "serving")
"""Where a run begins, so that no long lane is left for its end."""

# A busy machine is no failure: nothing here is timed. What CI sets by itself (the same examples every time) stays.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A test's Spark ends before Java's second compiler pays off: without it, tests on Spark take half the processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as workers have it; frames here are small


def lane_of(item: pytest.Item) -> str:
    """The lane of a system test."""
    place = item.path.resolve().relative_to(HERE)
    if place.as_posix().startswith(OWN_DRIVERS):
        return "drivers"
    names = {*dir(getattr(item, "module", None)), *getattr(item, "fixturenames", ())}
    return "spark" if names & SHARED_SPARK else place.parts[0]


def turn_of(lane: str) -> int:
    """When a lane begins."""
    return LONGEST_FIRST.index(lane) if lane in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.resolve().relative_to(HERE).as_posix().startswith(SYSTEM):
            item.add_marker(pytest.mark.system)
        if item.get_closest_marker("system"):
            item.add_marker(pytest.mark.xdist_group(lane_of(item)))
    if config.getoption("loadgroup", False):
        items.sort(key=lambda item: turn_of(lane_of(item)))
