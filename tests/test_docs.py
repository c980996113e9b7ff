"""README.md is run: its commands and its Python work on a real node, and print what it says they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import Headrace

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parent.parent
SHOWN_ADDRESS = "127.0.0.1:9092"
SHOWN_DATA = "headrace-data"


@dataclass(frozen=True)
class Block:
    """A fenced block of the README, and what the block after it says it prints."""

    language: str
    text: str
    prints: str | None


def blocks() -> Iterator[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    for (language, text), following in zip(found, [*found[1:], ("", "")], strict=True):
        if language != "text":
            yield Block(language, text, following[1] if following[0] == "text" else None)


def is_make(block: Block) -> bool:
    return block.text.startswith("make ")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("readme"))
    yield server
    server.stop()


def run(block: Block, node: Headrace) -> str:
    text = block.text.replace(SHOWN_ADDRESS, node.bootstrap).replace(SHOWN_DATA, str(node.data))
    command = (
        [sys.executable, "-W", "error", "-c", text]
        if block.language == "python"
        else ["bash", "-euo", "pipefail", "-c", text]
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HEADRACE_SERVER": node.bootstrap}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=node.folder, check=False)
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout


def test_the_readme_works_from_top_to_bottom(node: Headrace) -> None:
    ran = 0
    for block in blocks():
        if is_make(block) or block.text in ("headrace up\n", "pip install .\n"):
            continue
        printed = run(block, node)
        if block.prints is not None:
            assert printed == block.prints
        ran += 1
    assert ran >= 4


def test_the_python_of_the_capture_document_declares_an_app(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "capture.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))
    code += "\nprint(*(one.name for one in app), *(one.source for one in app.captured))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "customers revenue products product_versions order_events paid" in done.stdout
    assert "app:***@localhost" in done.stdout
    assert "secret" not in done.stdout


def test_every_make_target_that_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        named = set(re.findall(r"`make ([a-z-]+)", text)) | {
            b.split()[1] for b in re.findall(r"^make \S+", text, flags=re.MULTILINE)
        }
        assert named <= targets, f"{name} names {named - targets}"


def test_every_file_that_documents_link_to_exists() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/capture.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
            assert (ROOT / link).exists(), f"{name} links to {link}"
