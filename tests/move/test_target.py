"""What stands in the way on the target is said before anything is written there, in a dry run too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from headrace.errors import AlreadyExists, HeadraceError, InvalidConfig
from headrace.move import obstacles
from headrace.move.copying import Address
from headrace.move.moving import Move
from headrace.move.notes import MOVES
from headrace.move.security import Security
from headrace.testing.broker import EmbeddedBroker
from tests.cli.command import Cli
from tests.move import logs


@pytest.fixture
def here(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "here") as broker:
        for topic in ("orders", "returns"):
            logs.make_topic(broker.bootstrap, topic, 1)
            logs.write_records(broker.bootstrap, topic, 5)
        logs.commit(broker.bootstrap, "readers", {("orders", 0): 3})
        yield broker.bootstrap


@pytest.fixture
def there(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "there", {"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def moving(here: str, there: str) -> Move:
    return Move(Address(here, {}), Address(there, {}), [])


def ensure_untouched(there: str) -> None:
    assert not {"orders", MOVES} & logs.client(there).list_topics(timeout=10).topics.keys()


def test_a_topic_of_the_same_name(here: str, there: str, moving: Move) -> None:
    logs.make_topic(there, "returns", 1)
    assert moving.obstacles(moving.plan()) == ["the target has a topic returns already"]
    with pytest.raises(AlreadyExists, match="topics of the same names already: returns"):
        moving.ensure_possible(moving.plan(), accept_losses=False)
    told = Cli(here).run("move", "--to", f"kafka://{there}", "--dry-run")
    assert told.code == 0
    assert "In the way on the target:\n  the target has a topic returns already" in told.out
    ensure_untouched(there)


def test_a_group_of_the_same_name_with_members(there: str, moving: Move) -> None:
    logs.make_topic(there, "other", 1)
    logs.write_records(there, "other", 5)
    settings = {"bootstrap.servers": there, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0}
    member = ck.Consumer(settings)
    member.subscribe(["other"])
    assert member.poll(30) is not None
    assert moving.obstacles(moving.plan()) == ["group readers has members on the target (stable)"]
    with pytest.raises(HeadraceError, match="the target is not ready") as told:
        moving.ensure_possible(moving.plan(), accept_losses=False)
    assert "group readers has members on the target" in (told.value.detail or "")
    member.close()
    assert moving.obstacles(moving.plan()) == []
    ensure_untouched(there)


def test_a_queue_of_the_name_of_a_group(there: str, moving: Move) -> None:
    Cli(there)("queue", "alter", "readers", "--set", "share.auto.offset.reset=earliest")
    logs.make_topic(there, "other", 1)
    logs.write_records(there, "other", 5)
    with ck.ShareConsumer({"bootstrap.servers": there, "group.id": "readers", "log_level": 0}) as member:
        member.subscribe(["other"])
        while not member.poll(0.5):
            pass
    found = [told for told in moving.obstacles(moving.plan()) if "queue" in told]
    assert found == ["group readers is a queue (share group) on the target, and none here"]


def test_what_the_target_cannot_do(monkeypatch: pytest.MonkeyPatch, there: str, moving: Move) -> None:
    monkeypatch.setitem(obstacles.NEEDED, "a thing of the future", (0, 99))
    found = moving.obstacles(moving.plan())
    assert found == [f"the target's broker {there} cannot do what a move needs: a thing of the future"]
    ensure_untouched(there)


def test_a_target_that_does_not_let_us_in(here: str, there: str) -> None:
    account = ("-X", "security.protocol=sasl_plaintext", "-X", "sasl.mechanism=PLAIN")
    told = Cli(here).run("move", "--to", f"kafka://{there}", *account, "--dry-run", "-o", "json")
    assert told.code == 0
    assert told.json["target"] == ["a broker closed the connection"]


def test_a_finished_move_has_nothing_in_its_way(there: str, moving: Move) -> None:
    from tests.move.test_quiet import Meanwhile

    moving.run(moving.plan(), Meanwhile("", lambda: None))
    assert moving.obstacles(moving.plan()) == []
    moving.ensure_possible(moving.plan(), accept_losses=False)


@pytest.mark.parametrize(
    "name", ["ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location", "ssl.crl.location", "ssl.cipher.suites"]
)
def test_a_setting_of_tls_that_would_not_be_honoured_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"records cannot be moved with {name}\."):
        Security({"security.protocol": "ssl", name: "x"})
    Security({"security.protocol": "plaintext", name: "x"})


def test_tls_is_verified_unless_somebody_says_no_and_files_must_be_there(tmp_path: Path) -> None:
    for word, verified in (("true", True), ("1", True), ("T", True), ("false", False), ("0", False)):
        security = Security({"security.protocol": "ssl", "enable.ssl.certificate.verification": word})
        assert security.verifies is verified
    with pytest.raises(InvalidConfig, match=r"ssl\.ca\.location") as told:
        Security({"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "no.pem")})
    assert "No such file" in (told.value.detail or "")
