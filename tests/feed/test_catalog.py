"""What is noted in the catalog is written when that is said, or it is told that it is not."""

from __future__ import annotations

import pytest

from headrace.errors import ServerAway
from headrace.feed import catalog
from headrace.feed.cluster import Cluster
from tests.servers import free_port


def test_a_note_that_could_not_be_written_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "ensure_topic", lambda *_: None)
    notes = catalog.Catalog(Cluster(f"127.0.0.1:{free_port()}", {}))
    notes.flush(0.0)
    notes.put("capture-paused/app/table", {"at": "now"})
    with pytest.raises(ServerAway, match="could not be written within 0 s"):
        notes.flush(0.05)
    notes.drain(0.05)
