"""Nodes to do bad things to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.session import Session
from tests.servers import Headrace


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Headrace]]:
    """Starts nodes on tmp_path/node (or the folder given) and kills what is left of them at the end."""
    nodes: list[Headrace] = []

    def one(folder: Path | None = None, **how: Any) -> Headrace:
        nodes.append(Headrace(folder or tmp_path / "node", **how))
        return nodes[-1]

    yield one
    for node in nodes:
        if node.running:
            node.kill9()


@pytest.fixture
def talk() -> Iterator[Callable[[Headrace], Session]]:
    """Raw sessions with a node."""
    sessions: list[Session] = []

    def one(node: Headrace) -> Session:
        sessions.append(Session(node.bootstrap, "fault"))
        return sessions[-1]

    yield one
    for session in sessions:
        session.close()
