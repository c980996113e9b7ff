"""Which database an address means."""

from __future__ import annotations

import pytest

from headrace.capture.connectors import connectors_of
from headrace.capture.declarations import Captured, MariaDB, Postgres


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST", "[0:0:0:0:0:0:0:1]", ""])
def test_this_machine_is_one_server_however_it_is_written(host: str) -> None:
    tables = [Captured("a", Postgres("postgresql://localhost/shop", table="a"))]
    tables.append(Captured("b", Postgres(f"postgresql://me:secret@{host}:5432/shop", table="b")))
    (connector,) = connectors_of("app", tables)
    assert connector.server == "postgres://localhost:5432/shop"
    assert connector.tables == tuple(tables)


def test_other_hosts_ports_databases_and_kinds_are_other_servers() -> None:
    addresses = ["localhost/shop", "127.0.0.2/shop", "db.example/shop", "localhost:5433/shop", "localhost/other"]
    tables = [Captured(f"t{n}", Postgres(f"postgresql://{one}", table="t")) for n, one in enumerate(addresses)]
    tables.append(Captured("m", MariaDB("mariadb://localhost/shop", table="t")))
    assert len({connector.slot for connector in connectors_of("app", tables)}) == 6
