"""A small batch that claims or unpacks to a large one does not make the process large."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def probe(name: str) -> tuple[list[str], int]:
    """What ``memory_probe`` says: the kinds of answer, and by how many MiB its memory grew."""
    command = [sys.executable, "-m", "tests.kernel.memory_probe", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    kinds, grown = json.loads(done.stdout)
    return kinds, grown


def test_decompression_bombs_of_every_codec_stop_at_their_bound() -> None:
    kinds, grown = probe("bombs")
    assert kinds == ["too_big"]
    assert grown < 24


def test_claims_of_size_are_not_believed() -> None:
    kinds, grown = probe("claims")
    assert kinds == ["count", "decompress"]
    assert grown < 16


def test_a_long_life_does_not_leak() -> None:
    _, grown = probe("life")
    assert grown < 8
