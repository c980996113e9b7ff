"""What connectors tell of snapshots."""

from __future__ import annotations

from headrace.capture.snapshots import Snapshots, SnapshotState


def line(kind: str, word: str, more: str) -> str:
    return (
        f"[Notification Service]  {{id='x', aggregateType='{kind} Snapshot', type='{word}', "
        f"additionalData={{{more}}}, timestamp=1794962880949}}"
    )


def test_a_snapshot_runs_then_is_complete_with_its_rows() -> None:
    found = Snapshots()
    both = "connector_name=c, data_collections=public.a,public.b"
    found.read([line("Initial", "STARTED", "connector_name=c")])
    found.read([line("Initial", "IN_PROGRESS", f"current_collection_in_progress=public.a, {both}")])
    assert found.of("c", "public.a") == SnapshotState("initial", "running")
    done = f"scanned_collection=public.a, connector_name=c, total_rows_scanned=9000, status=SUCCEEDED, {both}"
    found.read([line("Initial", "TABLE_SCAN_COMPLETED", done), "noise", ""])
    assert found.of("c", "public.a") == SnapshotState("initial", "complete", 9000)
    assert found.of("c", "public.b") is None
    assert found.attempts == {"c": 1}


def test_an_incremental_snapshot_is_held_goes_on_and_is_stopped() -> None:
    found = Snapshots()
    for word, state in (("STARTED", "running"), ("PAUSED", "paused"), ("RESUMED", "running"), ("ABORTED", "stopped")):
        found.read([line("Incremental", word, "connector_name=c, data_collections=public.a, x=1")])
        assert found.of("c", "public.a") == SnapshotState("incremental", state)
    assert found.attempts == {}
