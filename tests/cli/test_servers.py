"""When nobody answers, or the wrong one does, a command says so within seconds."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.cli.command import Cli
from tests.servers import free_port

pytestmark = pytest.mark.system

COMMANDS = [
    ["topic", "list"],
    ["topic", "create", "t"],
    ["produce", "t"],
    ["consume", "t"],
    ["group", "list"],
    ["group", "seek", "g", "--to", "end"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unreachable_server_is_told_at_once(command: list[str]) -> None:
    server = f"127.0.0.1:{free_port()}"
    start = time.monotonic()
    message = Cli(server).fails(*command, stdin="x\n")
    assert time.monotonic() - start < 5
    assert message.splitlines()[0] == f"Error: no Kafka server answers at {server}."
    assert "Connection refused" in message
    assert "headrace up" in message


def test_errors_are_json_for_those_who_ask() -> None:
    server = f"127.0.0.1:{free_port()}"
    told = json.loads(Cli(server).fails("topic", "list", "-o", "json"))
    assert told["error"] == f"no Kafka server answers at {server}."
    assert told.keys() == {"error", "detail", "hint"}


@pytest.fixture
def silent_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("command", [["topic", "list"], ["consume", "t"]], ids=" ".join)
def test_a_server_that_says_nothing_is_told_within_seconds(silent_server: str, command: list[str]) -> None:
    start = time.monotonic()
    assert "no answer in 3 s" in Cli(silent_server).fails(*command)
    assert time.monotonic() - start < 8


@pytest.mark.parametrize("server", ["nowhere", "host:", ":9092", "host:http", "127.0.0.1:70000"])
def test_a_bad_address_is_told(server: str) -> None:
    message = Cli().fails("topic", "list", "--server", server)
    assert "is not HOST:PORT" in message or "no Kafka server answers" in message


def test_a_bad_client_setting_is_told(cli: Cli) -> None:
    assert 'No such configuration property: "no.such"' in cli.fails("topic", "list", "-X", "no.such=1")


def test_debug_shows_the_traceback() -> None:
    ran = Cli(f"127.0.0.1:{free_port()}").run("--debug", "topic", "list")
    assert ran.code == 1
    assert "Traceback" in ran.err
