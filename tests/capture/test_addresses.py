"""Which database an address means."""

from __future__ import annotations

import pytest

from headrace.capture.connectors import connectors_of
from headrace.capture.declarations import Captured, MariaDB, Postgres
from headrace.errors import InvalidDeclaration


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


@pytest.mark.parametrize("options", ["password=hunter2", "sslmode=require&password=hunter2", "SSLPassword=hunter2"])
@pytest.mark.parametrize("scheme", ["postgresql", "nonsense"])
def test_a_password_among_the_options_is_refused_and_not_shown(options: str, scheme: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        Postgres(f"{scheme}://me:hunter2@localhost/shop?{options}", table="t")
    assert "hunter2" not in str(refused.value)
    assert "user:password@" in str(refused.value)


def test_what_is_shown_of_an_address_has_all_but_its_password() -> None:
    shown = repr(Postgres("postgresql://me:hunter2@localhost:5433/shop?sslmode=require", table="t"))
    assert shown == "Postgres('postgresql://me:***@localhost:5433/shop?sslmode=require', table='t')"
    plain = "postgresql://me@localhost:5433/shop"
    assert Postgres(plain, table="t").address == plain


@pytest.mark.parametrize("address", ["host=db user=me password=hunter2", "postgre://me:hunter2/@db", "://:hunter2@db"])
def test_what_is_no_address_is_told_without_the_password_that_is_in_it(address: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        Postgres(address, table="t")
    assert "hunter2" not in str(refused.value)
