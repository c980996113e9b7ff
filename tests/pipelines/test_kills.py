"""Driver, workers and broker are killed at random moments; what comes out is what the log says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pipelines.kill_rounds import campaign

KILLS, DRIVERS = 20, 2


@pytest.mark.system
@pytest.mark.timeout(900)
def test_after_twenty_kills_every_view_is_what_a_recomputation_gives(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    done = campaign(tmp_path, seed, KILLS, DRIVERS, pause_s=0.7)
    assert sum(done.values()) == KILLS, f"seed {seed}"
