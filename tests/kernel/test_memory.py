"""A small batch that claims or unpacks to a large one does not make the process large."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .memory_probe import BOMBS

ROOT = Path(__file__).resolve().parents[2]


def probe(*arguments: str) -> tuple[list[str], int]:
    """What ``memory_probe`` says: the kinds of answer, and by how many MiB its memory grew."""
    command = [sys.executable, "-m", "tests.kernel.memory_probe", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    kinds, grown = json.loads(done.stdout)
    return kinds, grown


@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_stops_at_its_bound(name: str) -> None:
    kinds, grown = probe("bomb", name)
    assert kinds == ["too_big"]
    assert grown < 24


def test_claims_of_size_are_not_believed() -> None:
    kinds, grown = probe("claims")
    assert kinds == ["count", "decompress"]
    assert grown < 16


def test_a_long_life_does_not_leak() -> None:
    _, grown = probe("life")
    assert grown < 8
