"""What users are told of a query that cannot go on."""

from __future__ import annotations

from headrace.pipelines.running import RunningQuery, Status
from headrace.testing import AppUnderTest


def status_of(under: AppUnderTest, name: str) -> Status:
    """How a query that fails ends when it is run as ``headrace run`` does."""
    assert under.runner is not None
    query = RunningQuery(under.runner.jobs[name], 1, lambda sentence: None, lambda status: None)
    query.start()
    assert query.join(300)
    return query.status
