"""``headrace quota``, on Headrace and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command import Cli, on_both
from tests.serving.live import eventually

pytestmark = pytest.mark.system


def listed(cli: Cli, name: str | None) -> list[Any]:
    return [one for one in cli("quota", "list", "-o", "json").json if one["client"] == name]


@on_both
def test_quotas_are_set_listed_and_removed(cli: Cli, new_name: Callable[[str], str]) -> None:
    name = new_name("client")
    assert cli("quota", "set", name, "--produce", "500kB", "--consume", "10MiB").out == (
        f"{name}: produce 488.3 KiB/s, consume 10.0 MiB/s\n"
    )
    eventually(
        lambda: listed(cli, name), lambda all_: all_ == [{"client": name, "produce": 5e5, "consume": 10 * 2**20}]
    )
    assert cli("quota", "remove", name, "--consume").out == f"{name}: no limit on consume\n"
    eventually(lambda: listed(cli, name), lambda all_: all_ == [{"client": name, "produce": 5e5, "consume": None}])
    assert name in cli("quota", "list").out
    cli("quota", "remove", name)
    eventually(lambda: listed(cli, name), lambda all_: all_ == [])
    cli("quota", "set", "--default", "--consume", "1GB")
    eventually(lambda: listed(cli, None), lambda all_: all_ == [{"client": None, "produce": None, "consume": 1e9}])
    assert "(default)" in cli("quota", "list").out
    assert cli("quota", "remove", "--default").out == "all other clients: no limit on produce and consume\n"
    eventually(lambda: listed(cli, None), lambda all_: all_ == [])


def test_what_makes_no_sense_is_said(cli: Cli) -> None:
    assert "is not a rate" in cli.fails("quota", "set", "x", "--produce", "fast")
    assert "is not a rate" in cli.fails("quota", "set", "x", "--produce", "0")
    assert "say what is limited" in cli.fails("quota", "set", "x")
    assert "one of the two" in cli.fails("quota", "set", "--produce", "1")
    assert "one of the two" in cli.fails("quota", "remove", "x", "--default")
    assert "Empty client-id not supported" in cli.fails("quota", "set", "", "--produce", "1")
