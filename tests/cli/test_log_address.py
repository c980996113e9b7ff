"""Where the log is, how it is reached, and what only the embedded one can do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.cli.failures import CommandFailed
from headrace.cli.pairs import CLIENT_VARIABLE, as_lines, client_settings
from headrace.feed.cluster import Cluster
from tests.cli.command import Cli, on_both
from tests.servers import ApacheKafka, Headrace, Server, ViewsNode, free_port

NewName = Callable[[str], str]


def test_settings_come_from_the_environment_then_files_then_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").write_text("# of the cluster\n\nsasl.username = me\nsasl.password=a=b c\n")
    monkeypatch.setenv(CLIENT_VARIABLE, "security.protocol=ssl\nsasl.username=nobody\n")
    assert client_settings([f"@{tmp_path / 'some'}", "security.protocol=sasl_ssl"]) == {
        "security.protocol": "sasl_ssl",
        "sasl.username": "me",
        "sasl.password": "a=b c",
    }


def test_settings_survive_the_way_to_a_process_that_we_start(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"ssl.ca.pem": "-----BEGIN\nabc\n-----END\n".strip(), "sasl.password": "p=w\\n#!"}
    monkeypatch.setenv(CLIENT_VARIABLE, as_lines(settings))
    assert client_settings(None) == settings


def test_a_line_that_is_no_setting_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLIENT_VARIABLE, "a=1\nhunter2")
    with pytest.raises(CommandFailed, match="line 2 of HEADRACE_CLIENT is not NAME=VALUE") as failed:
        client_settings(None)
    assert "hunter2" not in str(failed.value)
    monkeypatch.delenv(CLIENT_VARIABLE)
    with pytest.raises(CommandFailed, match="cannot be read"):
        client_settings([f"@{tmp_path / 'nothing'}"])


@pytest.mark.parametrize(
    "command",
    [
        ("run", "nothing.py"),
        ("up", "--log", "kafka://127.0.0.1:1"),
        ("move", "--to", "kafka://127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_what_exactly_once_rests_on_is_refused_before_anything_starts(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CLIENT_VARIABLE, "isolation.level=read_uncommitted\nlinger.ms=5")
    said = CliRunner().invoke(app, command)
    assert isinstance(said.exception, SystemExit)
    assert "isolation.level of the Kafka client cannot be set here" in said.stderr
    assert "what a transaction has not committed would be counted" in said.stderr


def test_what_the_user_says_of_the_client_holds_but_for_what_exactly_once_rests_on() -> None:
    said = {"acks": "1", "transactional.id": "mine", "linger.ms": "50", "client.id": "shop"}
    told = Cluster("127.0.0.1:1", said).config(acks="all", transactional_id="headrace.q", linger_ms=5)
    assert {name: told[name] for name in said} == {
        "acks": "all",
        "transactional.id": "headrace.q",
        "linger.ms": "50",
        "client.id": "shop",
    }


@pytest.mark.system
@on_both
def test_the_log_is_found_by_all_its_names(server: Server, new_name: NewName) -> None:
    topic, alone = new_name("named"), Cli()
    alone("topic", "create", topic, "--log", f"kafka://{server.bootstrap}")
    both = f"kafka://127.0.0.1:{free_port()},{server.bootstrap}/"
    for names in (("--log", both), ("--server", server.bootstrap), ("-s", server.bootstrap)):
        assert topic in alone("topic", "list", *names).out
    for variable in ("HEADRACE_LOG", "HEADRACE_SERVER"):
        assert topic in Cli(env={variable: f"kafka://{server.bootstrap}"})("topic", "list").out
    assert "is not HOST:PORT" in alone.fails("topic", "list", "--log", "redis://127.0.0.1:1")


@pytest.mark.system
def test_what_only_the_embedded_log_can_do_is_refused_on_apache_kafka(kafka: ApacheKafka, new_name: NewName) -> None:
    cli, topic = Cli(kafka.bootstrap), new_name("own")
    told = cli.fails("topic", "create", topic, "--set", "headrace.overflow=drop", "--set", "retention.ms=1000")
    assert "headrace.overflow: only Headrace's own log can do this" in told
    assert "retention.ms" in told
    assert topic not in cli("topic", "list").out
    cli("topic", "create", topic)
    assert "tiered storage" in cli.fails("topic", "alter", topic, "--set", "headrace.archive.path=/archive")
    for setting, hint in (
        ("headrace.key.ordered=true", "consumer group"),
        ("headrace.dead.letter.topic=dlq", "share.delivery.count.limit"),
        ("headrace.backoff.ms=500", "handed out again at once"),
    ):
        assert hint in cli.fails("queue", "alter", new_name("queue"), "--set", setting)


@pytest.mark.system
def test_a_node_of_a_log_elsewhere_says_what_makes_no_sense(headrace: Headrace, tmp_path: Path) -> None:
    up = ("up", "--data", str(tmp_path / "data"), "--log", f"kafka://{headrace.bootstrap}")
    told = Cli().fails(*up, "--listen", "127.0.0.1:0", "--set", "num.partitions=4")
    assert "--listen and --set: with --log there is no broker here" in told
    assert "there is nothing to do" in Cli().fails(*up, "--http", "none")
    assert "no Kafka server answers" in Cli().fails(*up[:3], "--log", f"kafka://127.0.0.1:{free_port()}")
    assert not (tmp_path / "data").exists()


@pytest.mark.system
def test_settings_of_a_broker_do_not_keep_a_node_from_serving_a_log_elsewhere(
    headrace: Headrace, tmp_path: Path
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('[up]\nlisten = "127.0.0.1:0"\n[broker]\n"num.partitions" = 4\n')
    said = {"HEADRACE_ADVERTISE": "log:9092", "HEADRACE_SETTINGS": str(file)}
    node = ViewsNode(tmp_path / "node", headrace.bootstrap, env=said)
    told = node.output
    node.stop()
    assert "Left aside, as there is no broker here: listen, advertise, [broker]" in told
