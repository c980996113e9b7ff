"""The fence: a view has one owner at a time, and the database says who.

A schema's table ``headrace_owners`` has a row per view: its epoch and who holds it. Taking a view over raises the
epoch. Every transaction that writes anything of the view locks that row first and looks at it: a process that was
replaced, however late it comes back, is refused in the very transaction that would have written. The lock also makes
who takes over wait for what the one before is just committing, so that offsets read afterwards are the last ones.

What a process holds is kept here, beside its connections: one that lost its connection does not take views back from
whoever has them now.
"""

from __future__ import annotations

import os
import platform
import uuid

from headrace.errors import Fenced
from headrace.views.postgres.address import Connection, fetch

__all__ = ["Owner"]


class Owner:
    """This process as an owner of views; all of its stores share it."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or f"{platform.node()}, process {os.getpid()}, {uuid.uuid4().hex[:8]}"
        self._held: dict[tuple[str, str], int] = {}

    def take(self, db: Connection, app: str, owners: str, view: str) -> None:
        """Take a view over, or see that it is still ours; in a transaction. ``owners`` is the table's name in SQL.
        Fenced if another has taken it since we did."""
        held = self._held.get((app, view), 0)
        epoch, owner = _locked(db, owners, view)
        if (epoch, owner) == (held, self.name):
            return
        if held and epoch >= held:
            raise _fenced(view, owner)
        self._held[app, view] = _raised(db, owners, view, self.name, held)

    def let_go(self, app: str, view: str) -> None:
        """A view is ours no more; to take it again is to replace whoever has it then."""
        self._held.pop((app, view), None)

    def ensure(self, db: Connection, app: str, owners: str, view: str) -> None:
        """That a view is ours until the transaction ends; Fenced if it is not."""
        epoch, owner = _locked(db, owners, view)
        if (epoch, owner) != (self._held.get((app, view)), self.name):
            raise _fenced(view, owner)


def _locked(db: Connection, owners: str, view: str) -> tuple[int, str]:
    found = fetch(db, f"SELECT epoch, owner FROM {owners} WHERE view = $1 FOR NO KEY UPDATE", [view])
    return found[0] if found else (0, "nobody")


def _raised(db: Connection, owners: str, view: str, name: str, least: int) -> int:
    [(epoch,)] = fetch(
        db,
        f"INSERT INTO {owners} AS o (view, epoch, owner, since) VALUES ($1, $2, $3, now())"
        " ON CONFLICT (view) DO UPDATE SET epoch = greatest(o.epoch + 1, excluded.epoch),"
        " owner = excluded.owner, since = excluded.since RETURNING epoch",
        [view, least + 1, name],
    )
    return int(epoch)


def _fenced(view: str, owner: str) -> Fenced:
    return Fenced(
        f"view {view!r} is kept by another process now ({owner}); this one only reads it",
    )
