"""SIGKILL loses nothing that was acknowledged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.kill_rounds import Rounds


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_doubled_or_reordered_when_the_node_is_killed_20_times(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    campaign = Rounds(tmp_path, seed)
    campaign.run(20)
    assert campaign.checked > 1000
