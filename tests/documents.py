"""Documents that are run: the blocks of a Markdown file, and what they print on a real node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import Headrace

ROOT = Path(__file__).resolve().parent.parent
SHOWN_ADDRESS = "127.0.0.1:9092"
SHOWN_WEB = "http://127.0.0.1:8080"
SHOWN_DATA = "headrace-data"
_FENCED = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document, and what the block after it says it prints."""

    language: str
    text: str
    prints: str | None
    file: str | None = None
    """The file whose text it is."""
    added: bool = False
    """It is added below what the file has."""


def blocks(document: str) -> Iterator[Block]:
    """The blocks of a document that say something to run or to write to a file, in order."""
    found = _FENCED.findall((ROOT / document).read_text())
    for (language, title, text), following in zip(found, [*found[1:], ("", "", "")], strict=True):
        if language in ("bash", "python"):
            file, _, more = title.partition(", ")
            yield Block(language, text, following[2] if following[0] == "text" else None, file or None, more == "below")


def run(block: Block, node: Headrace) -> str:
    """What a block prints. The addresses and the folder that it shows are those of the node."""
    text = block.text.replace(SHOWN_ADDRESS, node.bootstrap).replace(SHOWN_DATA, str(node.data))
    env = {**os.environ, "HEADRACE_SERVER": node.bootstrap, "HEADRACE_DATA": str(node.data)}
    if node.http != "none":
        text = text.replace(SHOWN_WEB, node.web)
        env["HEADRACE_NODE"] = node.web
    command = (
        [sys.executable, "-W", "error", "-c", text]
        if block.language == "python"
        else ["bash", "-euo", "pipefail", "-c", text]
    )
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, cwd=node.folder, check=False)
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == "", done.stderr
    return done.stdout


def write(block: Block, folder: Path) -> None:
    """Write a block to its file."""
    assert block.file is not None
    with (folder / block.file).open("a" if block.added else "w") as file:
        file.write(block.text)
