"""A cluster that wants TLS and passwords is moved to like any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import admin

from tests.cli.command import Cli
from tests.move import logs
from tests.secured import SecureKafka, account
from tests.servers import Headrace

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    server = SecureKafka(tmp_path_factory.mktemp("secure"), heap="384m")
    client = admin.AdminClient({**account(server, "PLAIN", "admin", "secret"), "bootstrap.servers": server.bootstrap})
    for mechanism in (admin.ScramMechanism.SCRAM_SHA_256, admin.ScramMechanism.SCRAM_SHA_512):
        info = admin.ScramCredentialInfo(mechanism, 4096)
        wanted = admin.UserScramCredentialUpsertion("mover", info, b"moved")
        client.alter_user_scram_credentials([wanted])["mover"].result(30)
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [("PLAIN", "admin", "secret"), ("SCRAM-SHA-256", "mover", "moved"), ("SCRAM-SHA-512", "mover", "moved")],
)
def test_a_cluster_that_wants_tls_and_a_password_is_moved_to(
    node: Headrace, secure: SecureKafka, mechanism: str, user: str, password: str
) -> None:
    topic = f"secured-{mechanism.lower()}"
    logs.make_topic(node.bootstrap, topic)
    logs.write_transactions(node.bootstrap, topic, 6)
    told = account(secure, mechanism, user, password)
    options = [word for name, value in told.items() for word in ("-X", f"{name}={value}")]
    ran = Cli(node.bootstrap).run("move", "--to", f"kafka://{secure.bootstrap}", *options, timeout=120)
    assert ran.code == 0, ran.err
    assert "every record is the same" in ran.out


def test_a_wrong_password_is_told(node: Headrace, secure: SecureKafka) -> None:
    told = account(secure, "SCRAM-SHA-256", "mover", "wrong")
    options = [word for name, value in told.items() for word in ("-X", f"{name}={value}")]
    ran = Cli(node.bootstrap).run("move", "--to", f"kafka://{secure.bootstrap}", *options, timeout=120)
    assert ran.code == 1
    assert "does not let us in" in ran.err
    shown = Cli(node.bootstrap).run("move", "--to", f"kafka://{secure.bootstrap}", *options, "--dry-run", timeout=120)
    assert "In the way on the target:\n  the broker does not let us in" in shown.out
