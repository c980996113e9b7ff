"""The process that drains an SQLite file is killed at random moments; the topic is what the file is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.capture.sqlite_kill_rounds import JOURNALS, campaign

KILLS = 3


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("journal", JOURNALS)
def test_after_kills_of_the_drainer_the_topic_has_every_change_once(tmp_path: Path, journal: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    done = campaign(tmp_path, seed, KILLS, journal)
    assert done["changes"] > 50, f"seed {seed}"
