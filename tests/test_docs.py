"""README.md and guides are run: their commands and their Python work on a real node, and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT, Block, blocks, run
from tests.servers import Headrace

pytestmark = pytest.mark.system


def is_make(block: Block) -> bool:
    return block.text.startswith("make ")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("readme"))
    yield server
    server.stop()


def test_the_readme_works_from_top_to_bottom(node: Headrace) -> None:
    ran = 0
    for block in blocks("README.md"):
        if is_make(block) or block.text in ("headrace up\n", "pip install .\n"):
            continue
        printed = run(block, node)
        if block.prints is not None:
            assert printed == block.prints
        ran += 1
    assert ran >= 4


def python_of(*documents: str) -> str:
    return "\n".join(block.text for name in documents for block in blocks(name) if block.language == "python")


def declared(code: str, folder: Path) -> str:
    """What is declared by code, run without Spark: names, and where captured tables come from."""
    code += "\nprint(*(one.name for one in app), *(one.source for one in app.captured))"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_of_the_capture_document_declares_an_app(tmp_path: Path) -> None:
    said = declared(python_of("docs/capture.md"), tmp_path)
    assert "customers revenue products product_versions order_events paid" in said
    assert "app:***@localhost" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("documents", "names"),
    [
        (["docs/index.md", "docs/ideas/windows.md"], "orders revenue takings lately visits busy"),
        (["docs/guides/late-rows.md"], "orders revenue"),
        (["docs/guides/patterns.md"], "payments card_testing carts left_behind two_countries"),
        (["docs/guides/history.md"], "products prices"),
    ],
)
def test_the_python_of_a_guide_declares_an_app(documents: list[str], names: str, tmp_path: Path) -> None:
    assert declared(python_of(*documents), tmp_path) == names + "\n"


def test_the_guide_to_queues_works_from_top_to_bottom(node: Headrace) -> None:
    printed = []
    for block in blocks("docs/guides/queues.md"):
        said = run(block, node)
        printed.append(said)
        assert block.prints is None or said == block.prints
    assert len(printed) == 3
    assert "bad" in printed[-1]
    assert "1 " in printed[-1].splitlines()[-1], "one letter is sent back"


def test_every_make_target_that_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/index.md"):
        text = (ROOT / name).read_text()
        named = set(re.findall(r"`make ([a-z-]+)", text)) | {
            b.split()[1] for b in re.findall(r"^make \S+", text, flags=re.MULTILINE)
        }
        assert named <= targets, f"{name} names {named - targets}"


def test_every_file_that_documents_link_to_exists() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/capture.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
            assert (ROOT / link).exists(), f"{name} links to {link}"
