"""What ARCHITECTURE.md says of the parts is so, and what is public says so itself."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headrace"
EVERYWHERE = {"typing_extensions"}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")


def table() -> dict[str, tuple[set[str], set[str]]]:
    """Of each part: the parts and the outside libraries that the table lets it import."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split("## The parts, and who may import whom")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {
        re.findall(r"`(\w+)`", part)[0]: (set(re.findall(r"`(\w+)`", parts)), set(re.findall(r"[\w]+", libraries)))
        for part, _, parts, libraries in rows
    }


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_every_part_is_in_the_table_and_the_table_names_no_other() -> None:
    parts = {path.name.split(".")[0] for path in SOURCE.iterdir()} - {"__init__", "__pycache__", "py"}
    assert parts == set(table())


@pytest.mark.parametrize("part", sorted(table()))
def test_a_part_imports_what_the_table_says(part: str) -> None:
    parts, libraries = table()[part]
    folder = SOURCE / part
    paths = (
        list(folder.rglob("*.py")) if folder.is_dir() else [path for path in [SOURCE / f"{part}.py"] if path.exists()]
    )
    inside, outside = set(), set()
    for name in (name for path in paths for name in imported(path)):
        first, *rest = name.split(".")
        if first == "headrace":
            inside.add(rest[0])
        elif first not in sys.stdlib_module_names:
            outside.add(first)
    assert inside - {part, "__version__"} <= parts
    assert outside - EVERYWHERE == libraries


def test_the_files_of_a_part_are_named_in_its_paragraph() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for part in ("log", "broker"):
        paragraph = text.split(f"### Inside `{part}`")[1].split("\n#")[0]
        named = set(re.findall(r"`(\w+)/?`", paragraph))
        files = {path.stem for path in (SOURCE / part).iterdir() if path.name not in ("__init__.py", "__pycache__")}
        assert named <= files, f"ARCHITECTURE.md names files of {part} that are not there"
    assert set(re.findall(r"`(\w+)/?`", text.split("### Inside `log`")[1].split("\n#")[0])) == {
        path.stem for path in (SOURCE / "log").glob("*.py") if path.name != "__init__.py"
    }


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_says_what_it_is_and_what_is_public(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "a module begins with a docstring"
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    module = importlib.import_module(name)
    if ".handlers." in name:
        return
    assert module.__all__ == list(dict.fromkeys(module.__all__))
    for public in module.__all__:
        assert hasattr(module, public), f"{name}.__all__ names {public}, which is not there"
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    if ".cli." not in name:
        assert defined <= set(module.__all__), "what is not in __all__ begins with an underscore"


def test_the_package_exports_its_version_as_the_project_states_it() -> None:
    import headrace

    assert sorted(headrace.__all__) == dir(headrace)
    assert all(getattr(headrace, name) is not None for name in headrace.__all__)
    assert f'version = "{headrace.__version__}"' in (ROOT / "pyproject.toml").read_text()
