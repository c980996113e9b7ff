"""An app on three brokers, on executors of its own, with its views in PostgreSQL, while each of these is killed:
everything counts once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.capture.databases import Postgres
from tests.cluster.kill_rounds import campaign
from tests.servers import KafkaCluster

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]


def test_views_are_what_a_recomputation_gives_whatever_is_killed(
    tmp_path: Path, cluster: KafkaCluster, postgres: Postgres, new_views: Callable[[], str]
) -> None:
    campaign(tmp_path, cluster, postgres, new_views(), random.SystemRandom().randrange(10**6))
