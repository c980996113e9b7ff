"""``headrace up``: a node that starts, says where it listens, and stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.log import LogStore
from headrace.log import store as store_module
from tests.cli.command import HEADRACE, Cli
from tests.servers import die_with_parent

pytestmark = pytest.mark.system


@contextmanager
def running(
    *options: str, env: Mapping[str, str] | None = None, folder: Path | None = None, http: str = "none"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A node that has printed its first line."""
    with subprocess.Popen(
        [HEADRACE, "up", *options, "--http", http],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**Cli().env(), **(env or {})},
        cwd=folder,
        preexec_fn=die_with_parent,
    ) as node:
        assert node.stdout is not None
        line = node.stdout.readline()
        try:
            yield node, line
        finally:
            node.kill()


def test_it_prints_one_line_that_says_where_it_listens(tmp_path: Path) -> None:
    with running("--listen", "127.0.0.1:0", folder=tmp_path) as (_, line):
        words = line.split()
        assert words[:3] == ["Headrace", "listens", "on"]
        assert line.endswith(" (data in headrace-data)\n")
        assert Cli(words[3])("topic", "list", "-o", "json").json == []
        assert (tmp_path / "headrace-data" / "node").exists()


def test_json_says_the_same(tmp_path: Path) -> None:
    with running("--listen", "127.0.0.1:0", "--data", str(tmp_path), "-o", "json") as (_, line):
        told = json.loads(line)
        assert told == {
            "listen": f"127.0.0.1:{told['port']}",
            "host": "127.0.0.1",
            "port": told["port"],
            "data": str(tmp_path),
            "web": None,
            "metrics": None,
            "views": None,
        }


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly_and_its_records_are_there_at_the_next_start(
    tmp_path: Path, how: signal.Signals
) -> None:
    options = ("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    with running(*options) as (node, line):
        Cli(line.split()[3])("produce", "kept", stdin="safe\n")
        node.send_signal(how)
        assert node.wait(20) == 0
    store = LogStore.open(tmp_path)
    assert store.leader_epoch == 0, "the stop was clean, so no new epoch begins"
    store.close()
    with running(*options) as (_, line):
        assert Cli(line.split()[3])("consume", "kept", "-e").lines == ["safe"]


def test_settings_and_the_environment_reach_the_broker(tmp_path: Path) -> None:
    env = {"HEADRACE_DATA": str(tmp_path), "HEADRACE_LISTEN": "127.0.0.1:0"}
    with running("--set", "num.partitions=3", "--set", "auto.create.topics.enable=false", env=env) as (_, line):
        cli = Cli(line.split()[3])
        cli("topic", "create", "made")
        assert cli("topic", "list", "-o", "json").json[0]["partitions"] == 3
        message = cli.fails("produce", "unmade", stdin="x\n")
        assert "UNKNOWN_TOPIC" in message
        assert "headrace topic create" in message


def test_it_advertises_the_address_that_it_is_told(tmp_path: Path) -> None:
    with running("--listen", "127.0.0.1:0", "--advertise", "localhost:1", "--data", str(tmp_path)) as (_, line):
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": line.split()[3], "log_level": 0})
        [broker] = admin.list_topics(timeout=10).brokers.values()
        assert (broker.host, broker.port) == ("localhost", 1)


def test_metrics_are_where_it_says(tmp_path: Path) -> None:
    with running("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--metrics", "127.0.0.1:0") as (_, line):
        where = line.rstrip(")\n").split(" metrics at ")[1]
        with urllib.request.urlopen(where, timeout=10) as answer:
            assert b"kafka_brokers 1\n" in answer.read()


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        message = Cli(folder=tmp_path).fails("up", "--listen", address)
    assert f"{address} is in use by another process" in message
    assert "--listen" in message


def test_a_second_process_on_the_same_folder_is_refused_and_the_first_is_not_disturbed(tmp_path: Path) -> None:
    options = ("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    with running(*options) as (node, line):
        message = Cli().fails("up", *options)
        assert f"another process uses the data folder {tmp_path}" in message
        assert str(node.pid) in message
        assert "--data" in message
        Cli(line.split()[3])("produce", "still", stdin="here\n")


def test_a_folder_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "FORMAT", 99)
    LogStore.open(tmp_path).close()
    before = (tmp_path / "node").read_bytes()
    message = Cli().fails("up", "--listen", "127.0.0.1:0", "--data", str(tmp_path), "-o", "json")
    assert "has format 99" in json.loads(message)["error"]
    assert "Upgrade" in json.loads(message)["hint"]
    assert (tmp_path / "node").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--listen", "127.0.0.1:http"], "is not an address"),
        (["--listen", "no.such.host.invalid:0"], "cannot listen on"),
        (["--http", "127.0.0.1:http"], "is not an address"),
        (["--token", "secret", "--http", "no.such.host.invalid:0"], "cannot serve views on"),
        (["--set", "no.such.setting=1"], "no.such.setting"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "num.partitions"], "is not NAME=VALUE"),
        (["--data", "/proc/nowhere"], "the data folder /proc/nowhere cannot be used"),
    ],
)
def test_a_bad_option_is_told(tmp_path: Path, options: list[str], complaint: str) -> None:
    given = options if "--listen" in options else [*options, "--listen", "127.0.0.1:0"]
    assert complaint in Cli(folder=tmp_path).fails("up", *given)


def test_it_starts_without_what_only_other_commands_need(tmp_path: Path) -> None:
    env = {"PYTHONPROFILEIMPORTTIME": "1"}
    with running("--listen", "127.0.0.1:0", "--data", str(tmp_path), env=env) as (node, _):
        node.terminate()
        _, told = node.communicate(timeout=20)
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in told.splitlines() if line.count("|") == 2}
    assert "uvloop" in imported
    assert not imported & {"typer", "click", "pydantic", "rich", "confluent_kafka", "pyarrow"}


def test_the_soft_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    with running("--listen", "127.0.0.1:0", "--data", str(tmp_path)) as (node, _):
        [limits] = [line for line in Path(f"/proc/{node.pid}/limits").read_text().splitlines() if "open files" in line]
        soft, hard = limits.split()[3:5]
        assert soft == hard


def test_the_version_is_told() -> None:
    from headrace import __version__

    assert Cli()("--version").out == f"headrace {__version__}\n"


@pytest.mark.parametrize(
    "command", [[], ["up"], ["topic"], ["produce"], ["consume"], ["group", "seek"], ["view", "get"], ["log", "dump"]]
)
def test_help_teaches_with_examples(command: list[str]) -> None:
    out = Cli()(*command, "--help").out
    assert "Usage: headrace" in out
    if command not in ([], ["topic"]):
        assert "Examples" in out
        assert f"headrace {' '.join(command)} " in out


def test_a_wrong_command_exits_with_2() -> None:
    ran = Cli().run("topics")
    assert ran.code == 2
    assert "No such command" in ran.err
