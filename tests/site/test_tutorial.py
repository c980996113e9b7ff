"""The tutorial is run from top to bottom: every command, every file, every line that it shows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.documents import SHOWN_WEB, Block, blocks, run, write
from tests.servers import Headrace, free_port

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

READS = ("headrace view ", "curl ", f'import headrace as hr\n\nnode = hr.connect("{SHOWN_WEB}")')
"""What reads views may come before the node has followed the changelog: it is asked again."""
PATIENCE_S = 120.0


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("tutorial"), http=f"127.0.0.1:{free_port()}")
    yield server
    server.stop()


def run_until_it_prints(block: Block, node: Headrace) -> None:
    """Also a view that nobody knows yet is there in a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            assert run(block, node) == block.prints
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def test_the_tutorial_works_from_top_to_bottom(node: Headrace) -> None:
    compared = 0
    for block in blocks("docs/tutorial.md"):
        if block.file is not None:
            write(block, node.folder)
        elif block.text.startswith(READS):
            run_until_it_prints(block, node)
        elif block.text != "headrace up\n":
            printed = run(block, node)
            assert block.prints is None or printed == block.prints
        compared += block.prints is not None
    assert compared >= 12
