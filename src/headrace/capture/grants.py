"""What a user of MariaDB or MySQL may do, as ``SHOW GRANTS`` says it: pure.

A right is granted on everything (``*.*``), on databases (whose name is a pattern), or on a table. Rights on some
columns of a table are not rights on it. Servers have different names for some rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Grants"]

_NAME = r"`(?:[^`]|``)*`|\*|[\w$]+"
_GRANT = re.compile(
    rf"grant (?P<rights>.+?) on (?:table )?(?P<database>{_NAME})\.(?P<table>{_NAME}) to ", re.IGNORECASE | re.DOTALL
)
_RIGHT = re.compile(r"([^,(]+)(\([^)]*\))?(?:,|$)")
_SAME = {
    "REPLICATION REPLICA": "REPLICATION SLAVE",
    "BINLOG MONITOR": "REPLICATION CLIENT",
    "ALL": "ALL PRIVILEGES",
}


@dataclass(frozen=True, slots=True)
class _Grant:
    rights: frozenset[str]
    database: str
    """A pattern; ``*`` for all databases."""
    table: str
    """``*`` for all tables."""

    def is_on(self, database: str, table: str) -> bool:
        if self.database == "*":
            return True
        if self.table != "*":
            return self.database == database and self.table == table
        return re.fullmatch(_pattern(self.database), database) is not None


class Grants:
    """All that is granted to a user."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._grants = [grant for line in lines if (grant := _parsed(line)) is not None]

    def allow(self, right: str) -> bool:
        """Whether the user may do something everywhere: what is granted on single databases does not count."""
        return any(grant.database == "*" and _includes(grant, right) for grant in self._grants)

    def allow_on(self, right: str, database: str, table: str) -> bool:
        """Whether the user may do something with a table, which need not exist."""
        return any(grant.is_on(database, table) and _includes(grant, right) for grant in self._grants)


def _includes(grant: _Grant, right: str) -> bool:
    return right in grant.rights or "ALL PRIVILEGES" in grant.rights


def _parsed(line: str) -> _Grant | None:
    found = _GRANT.match(line)
    if found is None:  # a role, or a proxy
        return None
    whole = (name.strip().upper() for name, columns in _RIGHT.findall(found["rights"]) if not columns)
    return _Grant(frozenset(_SAME.get(name, name) for name in whole), _plain(found["database"]), _plain(found["table"]))


def _pattern(name: str) -> str:
    parts = re.findall(r"\\.|.", name, re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(one, re.escape(one[-1])) for one in parts)


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
