"""Settings of groups by themselves; tests/contract holds them against Kafka's."""

from pathlib import Path

import pytest

from headrace.broker.group_configs import DEFINITIONS, GroupConfigs, duration_ms
from headrace.errors import InvalidConfig
from headrace.log.files import DiskFiles
from headrace.settings import BrokerSettings


def configs(folder: Path, **properties: str) -> GroupConfigs:
    names = {name.replace("_", "."): text for name, text in properties.items()}
    found = GroupConfigs(BrokerSettings(folder, properties=names), DiskFiles(), folder)
    found.load()
    return found


def test_a_groups_own_value_wins_over_the_brokers(tmp_path: Path) -> None:
    settings = configs(tmp_path, group_share_delivery_count_limit="7")
    settings.change("mine", {"share.delivery.count.limit": "3"})
    assert settings.value("mine", "share.delivery.count.limit") == 3
    assert settings.value("other", "share.delivery.count.limit") == 7
    assert settings.value("mine", "headrace.key.ordered") is False


def test_settings_survive_and_are_taken_back(tmp_path: Path) -> None:
    told: list[str] = []
    settings = configs(tmp_path)
    settings.listeners.append(told.append)
    settings.change("a", {"headrace.dead.letter.topic": "dead"})
    settings.change("b", {"headrace.backoff.ms": "5"})
    settings.change("b", {})
    assert told == ["a", "b", "b"]
    again = configs(tmp_path)
    assert again.groups() == ["a"]
    assert again.value("a", "headrace.dead.letter.topic") == "dead"
    assert again.value("b", "headrace.backoff.ms") == 0


def test_the_brokers_bounds_hold_for_groups(tmp_path: Path) -> None:
    settings = configs(tmp_path, group_share_min_record_lock_duration_ms="1000")
    settings.ensure_valid({"share.record.lock.duration.ms": "1000"})
    with pytest.raises(InvalidConfig, match=r"group\.share\.max\.record\.lock\.duration\.ms"):
        settings.ensure_valid({"share.record.lock.duration.ms": "60001"})
    for name, text in (("headrace.dead.letter.topic", "a b"), ("headrace.backoff.ms", "-1"), ("no.such", "1")):
        with pytest.raises(InvalidConfig, match=name):
            settings.ensure_valid({name: text})


def test_every_default_is_a_value_that_a_group_may_set(tmp_path: Path) -> None:
    settings = configs(tmp_path)
    settings.ensure_valid({name: item.default for name, item in DEFINITIONS.items() if item.default is not None})


def test_a_damaged_file_leaves_the_brokers_settings(tmp_path: Path) -> None:
    (tmp_path / "group-settings").write_bytes(b"nonsense")
    assert configs(tmp_path).groups() == []


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
        ("pt0.0015s", 1),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("-PT1H", None),
        ("1H", None),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds
