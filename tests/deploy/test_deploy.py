"""The systemd unit and the container file name only what exists, and keep what they promise."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from headrace.cli.app import app
from headrace.cli.defaults import ensure_known, environment_names, walk
from headrace.cli.settings_file import read_settings
from tests.cli.command import Cli
from tests.servers import ROOT, Headrace

UNIT = ROOT / "deploy" / "headrace.service"
SETTINGS = ROOT / "deploy" / "headrace.toml"
CONTAINER = ROOT / "deploy" / "Containerfile"


def instructions() -> Iterator[tuple[str, str]]:
    """What the container file says, line by line, comments and line ends taken out."""
    text = re.sub(r"^#.*\n", "", CONTAINER.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def said(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def variables() -> set[str]:
    return {
        name for _, params in walk(typer.main.get_command(app)) for param in params for name in environment_names(param)
    }


def ensure_command_line(words: list[str]) -> None:
    """The words after ``headrace``: options of the program, a command, options of it."""
    root = typer.main.get_command(app)
    with root.make_context("headrace", words, resilient_parsing=True) as context:
        rest = [*context._protected_args, *context.args]
        command = root.get_command(context, rest[0])  # type: ignore[attr-defined]
        assert command is not None
        with command.make_context(rest[0], rest[1:], parent=context) as inner:
            assert inner.params


def test_the_container_is_built_of_what_is_there_and_with_a_compiler_that_is_new_enough() -> None:
    stages = said("FROM")
    assert len(stages) == 2
    for copied in said("COPY"):
        for source in copied.split()[:-1]:
            assert (ROOT / source).exists(), f"{source} is copied and not there"
    wanted = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    has = re.match(r"rust:(\d+\.\d+)", stages[0])
    assert has is not None
    assert [int(part) for part in has[1].split(".")] >= [int(part) for part in wanted.split(".")]
    python = re.match(r"python:3\.(\d+)", stages[1])
    assert python is not None
    assert int(python[1]) >= 11


def test_the_container_has_what_a_node_can_be_told_to_use() -> None:
    [install] = [line for line in said("RUN") if "/wheels/*.whl" in line]
    found = re.search(r"/wheels/\*\.whl\)\[([a-z,]+)\]", install)
    assert found is not None
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(found[1].split(",")) == {"postgres", "tracing"} <= set(extras)


def test_the_container_runs_a_node_and_not_as_root() -> None:
    (command,) = said("CMD")
    (entry,) = said("ENTRYPOINT")
    assert json.loads(entry) == ["headrace"]
    ensure_command_line(json.loads(command))
    (settings,) = said("ENV")
    names = {word.partition("=")[0] for word in shlex.split(settings)}
    assert {name for name in names if name.startswith("HEADRACE_")} <= variables()
    assert said("USER") == ["headrace"]
    order = [word for word, _ in instructions()]
    assert order.index("USER") < order.index("ENTRYPOINT")
    (volume,) = said("VOLUME")
    assert any(f"HEADRACE_DATA={volume}/" in word for word in shlex.split(settings))


def test_the_containers_health_is_what_the_node_says(tmp_path: Path) -> None:
    (health,) = said("HEALTHCHECK")
    check = json.loads(health.partition("CMD")[2])
    node = Headrace(tmp_path / "node", http="127.0.0.1:0")
    try:
        words = [sys.executable, *check[1:]]
        words[-1] = words[-1].replace("http://127.0.0.1:8080", node.web)
        assert "/ping" in words[-1]
        assert subprocess.run(words, check=False).returncode == 0
    finally:
        node.stop()
    assert subprocess.run(words, check=False, capture_output=True).returncode != 0


def test_the_unit_starts_a_node_and_keeps_it_small(tmp_path: Path) -> None:
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines)
    program, *words = settings["ExecStart"].split()
    assert Path(program).name == "headrace"
    ensure_command_line([word.replace("/etc/headrace", str(tmp_path)) for word in words])
    assert settings["Environment"].partition("=")[0] in variables()
    wanted = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "DynamicUser": "yes", "Restart": "on-failure"}
    assert wanted.items() <= settings.items()
    assert int(settings["LimitNOFILE"]) >= 65536
    assert settings["Environment"].partition("=")[2].startswith(f"/var/lib/{settings['StateDirectory']}/")


def test_the_settings_that_the_unit_names_are_shipped_and_read(tmp_path: Path) -> None:
    assert f"--settings /etc/headrace/{SETTINGS.name}" in UNIT.read_text()
    assert f"deploy/{SETTINGS.name}" in UNIT.read_text()
    shown = Cli(folder=tmp_path)("settings", "show", "up", "--settings", str(SETTINGS), "-o", "json").json
    said = {row["setting"]: row["value"] for row in shown["settings"] if str(SETTINGS) in row["source"]}
    assert said["listen"] == "127.0.0.1:9092"
    assert said["http"] == "127.0.0.1:8080"
    assert said["broker.log.retention.hours"] == "168"
    assert "data" not in said, "the unit says it"


def test_what_the_settings_leave_commented_out_may_be_said(tmp_path: Path) -> None:
    path = tmp_path / SETTINGS.name
    text, count = re.subn(r'^# (?=["\w.]+ = )', "", SETTINGS.read_text(), flags=re.MULTILINE)
    assert count == 4
    path.write_text(text)
    ensure_known(read_settings(path, {"DB_PASSWORD": "x"}), typer.main.get_command(app))


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (apt install systemd)")
    unit = tmp_path / "headrace.service"
    program = Path(sys.executable).with_name("headrace")
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/headrace", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
