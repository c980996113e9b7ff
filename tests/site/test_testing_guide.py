"""The test that the guide to testing shows is a test that passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.testing import AppUnderTest
from tests.documents import blocks

pytestmark = pytest.mark.system


def test_the_test_of_the_guide_passes(tmp_path: Path) -> None:
    known: dict[str, Any] = {}
    for number, block in enumerate(blocks("docs/guides/testing.md")):
        file = tmp_path / f"block_{number}.py"  # a view's function must have a file, to know when it was changed
        file.write_text(block.text)
        exec(compile(block.text, str(file), "exec"), known)
    assert known["AppUnderTest"] is AppUnderTest
    [law] = [thing for name, thing in known.items() if name.startswith("test_")]
    law(tmp_path / "run")
