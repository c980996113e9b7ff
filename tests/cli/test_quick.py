"""The short way into ``headrace up`` reads a command line as the library does, or leaves it to the library."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from headrace.cli import up
from headrace.cli.app import app
from headrace.cli.quick import read_options
from headrace.cli.start import DEFAULT_HTTP

Asked = tuple[Path, str, str | None, list[str], dict[str, object]]

values = st.sampled_from(["x", "json", "text", "127.0.0.1:0", "a=1", "", "-x"])
flags = st.sampled_from(
    [
        *("--data", "-d", "--listen", "-l", "--advertise", "--http", "--metrics", "--views", "--log", "-X", "--set"),
        *("--token", "--read-token", "-o"),
    ]
)
odd = st.sampled_from(["--data=x", "--help", "-h", "--nope", "x", "--", "-dx"])
command_lines = st.lists(st.tuples(flags, values) | st.tuples(odd), max_size=5).map(
    lambda pairs: list(itertools.chain.from_iterable(pairs))
)


def asked_of_the_library(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Asked | None:
    asked: list[Asked] = []

    def start(
        data: Path,
        listen: str,
        advertise: str | None,
        settings: list[str],
        *,
        client: list[str],
        **more: object,
    ) -> None:
        asked.append((data, listen, advertise, list(settings), {**more, "client": list(client)}))

    monkeypatch.setattr(up, "start_node", start)
    CliRunner().invoke(app, ["up", *arguments])
    return asked[0] if asked else None


@settings(deadline=None)
@given(command_lines)
def test_both_ways_read_the_same(arguments: list[str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        quick = read_options(arguments)
        if quick is not None:
            more = {name: getattr(quick, name) for name in ("http", "metrics", "views", "token", "read_token")}
            more |= {"log": None, "client": [], "as_json": quick.output == "json"}
            short = (Path(quick.data), quick.listen, quick.advertise, list(quick.settings), more)
            assert asked_of_the_library(arguments, monkeypatch) == short


def test_the_short_way_knows_every_option() -> None:
    command: Any = typer.main.get_command(up.app)
    known = [flag for option in command.params for flag in option.opts if option.name not in ("help", "log", "client")]
    assert set(known) >= {"--data", "--listen", "--set"}
    for flag in known:
        assert read_options([flag, "text"]) is not None, f"{flag} is not known"


def test_what_the_environment_says_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token in the environment that the short way did not see would leave the node open."""
    command: Any = typer.main.get_command(up.app)
    named = [option.envvar for option in command.params if option.envvar]
    assert {"HEADRACE_TOKEN", "HEADRACE_READ_TOKEN"} <= set(named)
    for name in named:
        with monkeypatch.context() as scene:
            scene.setenv(name, "x")
            assert read_options([]) is None, f"{name} is not known"


def test_every_setting_in_the_environment_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    command: Any = typer.main.get_command(up.app)
    names = [option.envvar for option in command.params if option.envvar]
    assert "HEADRACE_DATA" in names
    for name in (*names, "HEADRACE_DEBUG"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "text")
            assert read_options([]) is None, f"{name} is not known"


def test_settings_in_the_environment_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TOOLS", "elsewhere")  # of other commands
    assert read_options([]) is not None
    monkeypatch.setenv("HEADRACE_LISTEN", "127.0.0.1:0")
    assert read_options([]) is None
    assert asked_of_the_library([], monkeypatch) == (
        Path("headrace-data"),
        "127.0.0.1:0",
        None,
        [],
        {
            **dict.fromkeys(("metrics", "views", "log", "token", "read_token")),
            "http": DEFAULT_HTTP,
            "client": [],
            "as_json": False,
        },
    )
