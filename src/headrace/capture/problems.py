"""What stands in the way of capturing a table, each with the statement that cures it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import HeadraceError, ServerAway

__all__ = ["DATABASE_TROUBLE", "Problem", "Refusing", "Unreachable", "refused", "refusing"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in the database, and its cure."""

    sentence: str
    cure: str


class Unreachable(ServerAway):
    """A database that does not answer, or does not let us in."""


class Refusing(HeadraceError):
    """A database that answers, and does not do what it is asked for."""


DATABASE_TROUBLE = (Unreachable, Refusing)
"""What is one database's fault: no reason to disturb captures of others."""


def refusing(server: str, user: str, why: str) -> Refusing:
    """The error of a database that answers with one, while it is captured."""
    return Refusing(
        f"{server} does not do what capture asks of it.",
        detail=why,
        hint=f"start the app again: what user {user!r} lacks there is told then, with the statements that grant it, "
        "and our tables that are missing are made",
    )


def refused(server: str, problems: Iterable[Problem]) -> HeadraceError:
    """The error that names all problems of a database and their cures."""
    found = list(problems)
    if len(found) == 1:
        return HeadraceError(f"{server}: {found[0].sentence}", hint=found[0].cure)
    listed = "\n".join(f"  {number}. {one.sentence}\n     {one.cure}" for number, one in enumerate(found, 1))
    return HeadraceError(f"{server} cannot be captured yet: {len(found)} things are to be done there.\n{listed}")
