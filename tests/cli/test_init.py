"""``headrace init`` writes an app whose test passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Cli

pytestmark = pytest.mark.system


def test_the_test_of_a_new_app_passes(tmp_path: Path) -> None:
    ran = Cli(folder=tmp_path)("init", "shop")
    assert ran.lines[:2] == ["Wrote shop/shop.py", "Wrote shop/test_shop.py"]
    assert "headrace run shop.py" in ran.out
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=."]
    done = subprocess.run(
        command, cwd=tmp_path / "shop", capture_output=True, text=True, timeout=250, env=Cli().env(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("name", ["", "Shop", "1st", "a-b", "../up", "class", "json", "headrace"])
def test_a_name_that_cannot_be_is_told(tmp_path: Path, name: str) -> None:
    assert "cannot be the name of an app" in Cli(folder=tmp_path).fails("init", name)
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("mine")
    assert "shop exists already" in Cli(folder=tmp_path).fails("init", "shop")
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["mine.txt"]
