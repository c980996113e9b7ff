"""Ten kills of the worker at random points: nothing is lost, doubled or out of order. `make faults` does more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.capture.databases import Postgres
from tests.capture.kill_rounds import KINDS, Rounds
from tests.servers import Headrace

KILLS, SNAPSHOT_KILLS = 8, 2


@pytest.mark.timeout(1500)
def test_the_topic_is_the_table_after_every_kill(postgres: Postgres, log: Headrace, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}: python -m tests.capture.kill_rounds --seed {seed}")
    rounds = Rounds(postgres, log, tmp_path, seed, print)
    try:
        for number in range(KILLS):
            print(f"kill {number}: {rounds.kill()}")
        assert rounds.killed == set(KINDS)
        assert rounds.changes > 100
        assert rounds.kill_in_the_initial_snapshot(SNAPSHOT_KILLS) >= 39_000
    finally:
        rounds.close()
