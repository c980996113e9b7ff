"""A run that is killed with SIGKILL while its operators' state is being committed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import HEADRACE
from tests.cli.test_state import APP, send, totals
from tests.servers import Headrace, _Process

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

PATIENCE_S = 600.0
ROUNDS = 1


def until(condition: Callable[[], Any], what: str, pause_s: float = 0.1) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(pause_s)


def state_files(node: Headrace) -> set[str]:
    """The files of the state of the view's operator, those being written too."""
    folders = node.data.glob("checkpoints/*/shop/shop.spent/state/0/*")
    return {name for folder in folders for _, _, names in os.walk(folder) for name in names if "changelog" in name}


def test_a_kill_in_the_middle_of_a_state_commit_loses_and_repeats_nothing(tmp_path: Path) -> None:
    node, file = Headrace(tmp_path), tmp_path / "shop.py"
    file.write_text(APP)
    arguments = [HEADRACE, "run", str(file), "--server", node.bootstrap, "--data", str(node.data)]
    names, expected = [f"c{number}" for number in range(40)], 0
    run = _Process(arguments, tmp_path / "run.log")
    try:
        until(lambda: run.printed().count(b"is running") == 2 or run.dead(), "it does not start")
        for number in range(ROUNDS):
            before = state_files(node)
            send(node, 1 + number, *((name, 10**number) for name in names))
            expected += 10**number
            until(lambda: state_files(node) - before, "no state is committed", 0.001)  # noqa: B023
            os.killpg(run.popen.pid, signal.SIGKILL)
            assert run.end(signal.SIGKILL, 10.0) == -signal.SIGKILL
            run = _Process(arguments, tmp_path / "run.log")
            until(lambda: totals(node) == dict.fromkeys(names, expected), "it does not go on as it was")  # noqa: B023
    finally:
        run.end(signal.SIGINT, 60.0)
        node.stop()
