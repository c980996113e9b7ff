"""When an alarm is raised of what a database keeps for a capture, or does not keep; and what strangers leave there."""

from __future__ import annotations

import pytest

from headrace.capture.health import Health, alarm, boundless
from headrace.capture.strangers import left_behind

MIB, GIB, DAY = 1 << 20, 1 << 30, 86_400


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (Health(), None),
        (Health(retained_bytes=GIB), None),
        (Health(retained_bytes=GIB + 1), "nothing limits it: its disk may fill"),
        (Health(retained_bytes=GIB + 1, keep_bytes=4 * GIB), None),
        (Health(retained_bytes=50 * MIB, keep_bytes=100 * MIB), None),
        (Health(retained_bytes=51 * MIB, keep_bytes=100 * MIB), "keeps 51 MiB of its log for this capture"),
        (Health(retained_bytes=MIB, keep_bytes=0), "gives it up at 0 MiB"),
        (Health(lag_bytes=2 * GIB, retained_bytes=0), None),
        (Health(GIB, GIB, keep_s=0, behind_s=1000.0 * DAY), None),
        (Health(GIB + MIB, GIB + MIB, keep_s=0), "1025 MiB of the server's log are not captured yet"),
        (Health(MIB, MIB, keep_s=10 * DAY, behind_s=5.0 * DAY), None),
        (Health(MIB, MIB, keep_s=10 * DAY, behind_s=6.0 * DAY), "144.0 hours behind, and the server purges"),
        (Health(keep_s=10 * DAY), None),
    ],
)  # fmt: skip
def test_an_alarm_is_raised_before_it_is_too_late(health: Health, words: str | None) -> None:
    found = alarm(health)
    if words is None:
        assert found is None
    else:
        assert found is not None
        assert words in found


def test_what_is_told_of_one_kind_of_database_is_not_told_of_another() -> None:
    for health in (Health(2 * GIB, 2 * GIB, keep_s=0), Health(keep_s=DAY, behind_s=2.0 * DAY)):
        found = alarm(health)
        assert found is not None
        assert "max_slot_wal_keep_size" not in found
        assert "binlog_expire_logs_seconds" in found
        assert boundless(health) is None


def test_that_nothing_limits_what_a_server_keeps_is_told_with_its_cure() -> None:
    assert "ALTER SYSTEM SET max_slot_wal_keep_size" in (boundless(Health()) or "")
    assert boundless(Health(keep_bytes=0)) is None
    assert boundless(Health(keep_bytes=GIB)) is None


def test_of_a_stranger_the_statement_that_frees_the_databases_log_is_told() -> None:
    config = {
        "database.hostname": "db", "database.port": "5432", "database.dbname": "shop", "slot.name": "headrace_a_1",
        "publication.name": "headrace_a_1", "database.password": "${env:HEADRACE_SECRET_1}",
    }  # fmt: skip
    told = left_behind("headrace.a.1", config)
    assert "in database shop of db:5432: " in told
    assert "select pg_drop_replication_slot('headrace_a_1'); drop publication \"headrace_a_1\";" in told
    assert "SECRET" not in told
    assert "slot" not in left_behind("headrace.a.2", {"database.hostname": "db", "database.port": "3306"})
