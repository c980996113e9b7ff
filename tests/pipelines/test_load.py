"""Loading a user's file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, InvalidDeclaration
from headrace.pipelines.load import load_app


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import sys

    monkeypatch.setenv("PYTHONPATH", "")
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("loaded"):
            del sys.modules[name]


def test_the_one_app_of_a_file_is_found_and_one_of_several_is_named(tmp_path: Path) -> None:
    (tmp_path / "loaded1.py").write_text("import headrace as hr\napp = other = hr.App('one')\n")
    assert load_app(str(tmp_path / "loaded1.py")).name == "one"
    (tmp_path / "loaded2.py").write_text("import headrace as hr\na = hr.App('first')\nb = hr.App('second')\n")
    assert load_app(f"{tmp_path / 'loaded2.py'}:b").name == "second"
    with pytest.raises(HeadraceError, match="makes 2 apps"):
        load_app(str(tmp_path / "loaded2.py"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "makes no app"),
        ("import headrace as hr\n\n1 / 0\n", "ZeroDivisionError.*line 3"),
        ("def (\n", "SyntaxError.*line 1"),
        ("import headrace as hr\napp = hr.App('a')\napp.stream('s', 'a in')\n", "'in' is not a type.*line 3"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_where_and_why(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "loaded3.py").write_text(text)
    with pytest.raises(HeadraceError, match=says):
        load_app(str(tmp_path / "loaded3.py"))


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="there is no file") as caught:
        load_app(str(tmp_path / "nothing.py"))
    assert not isinstance(caught.value, InvalidDeclaration)
