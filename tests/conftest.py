"""Tests that start processes or take long are system tests: by their folder, their file, or a mark of their own."""

from __future__ import annotations

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

# A busy machine is no failure: nothing here is timed. What CI sets by itself (the same examples every time) stays.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.resolve().relative_to(HERE).as_posix().startswith(SYSTEM):
            item.add_marker(pytest.mark.system)
