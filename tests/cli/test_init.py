"""``headrace init`` writes an app whose test passes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.cli.command import Cli

pytestmark = pytest.mark.system


def test_the_test_of_a_new_app_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Cli(folder=tmp_path)("init", "first_steps")
    assert ran.lines[:2] == ["Wrote first_steps/first_steps.py", "Wrote first_steps/test_first_steps.py"]
    assert "headrace run first_steps.py" in ran.out
    monkeypatch.syspath_prepend(tmp_path / "first_steps")
    written = importlib.import_module("test_first_steps")
    [law] = [thing for name, thing in vars(written).items() if name.startswith("test_")]
    law(tmp_path / "test")


@pytest.mark.parametrize("name", ["", "Shop", "1st", "a-b", "../up", "class", "json", "headrace"])
def test_a_name_that_cannot_be_is_told(tmp_path: Path, name: str) -> None:
    assert "cannot be the name of an app" in Cli(folder=tmp_path).fails("init", name)
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("mine")
    assert "shop exists already" in Cli(folder=tmp_path).fails("init", "shop")
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["mine.txt"]
