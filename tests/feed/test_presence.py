"""Who wrote an entry of the catalog, and whether it is still there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.feed.presence import began, now, this_machine


def entry(pid: int, state: str = "running") -> dict[str, object]:
    return {"state": state, "pid": pid, "began": began(pid), "machine": this_machine()}


def test_of_a_process_that_lives_its_word_counts() -> None:
    assert now(entry(os.getpid())) == entry(os.getpid())


def test_a_query_whose_process_was_killed_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    written = entry(process.pid)
    assert now(written)["state"] == "running"
    process.kill()
    process.communicate()
    assert now(written)["state"] == "gone"


def test_a_number_that_another_process_has_got_is_no_sign_of_life() -> None:
    assert now({**entry(os.getpid()), "began": 1})["state"] == "gone"


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_what_has_ended_stays_as_it_ended(state: str) -> None:
    assert now({**entry(os.getpid(), state), "began": 1})["state"] == state


def test_of_another_machine_nothing_is_known() -> None:
    other = {**entry(os.getpid()), "began": 1, "machine": "elsewhere/1"}
    assert now(other) == other
    assert now({"state": "running"}) == {"state": "running"}
