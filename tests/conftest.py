"""Tests that start processes are marked as system tests by where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SYSTEM = {"contract", "clients", "faults"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.resolve().relative_to(HERE).parts[0]
        if folder in SYSTEM:
            item.add_marker(pytest.mark.system)
