"""What may be asked of a captured table while it runs, and what may not, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.capture.problems import Problem

__all__ = ["refusal"]


def refusal(entry: Mapping[str, Any], action: str) -> Problem | None:
    """Why a table (its entry in the catalog) is not to be asked for something; None if it may be."""
    name, is_file = f"{entry['app']}.{entry['name']}", str(entry["source"]).startswith("sqlite:")
    if is_file and action.startswith("snapshot-"):
        return Problem(
            f"a snapshot of {name} cannot be held or stopped: of SQLite, the capture itself reads the rows.",
            f"`headrace capture pause {name}` holds both",
        )
    taken_for_truth = is_file and entry["state"] == "failed"
    if action == "snapshot" and entry.get("is_outbox") and not taken_for_truth:
        return Problem(
            f"{name} is an outbox: read again, each of its rows would be sent as an event once more.",
            "to send an event again, insert a row for it, with an id of its own",
        )
    return None
