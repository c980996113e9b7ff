"""One settings file for all commands: flags over the environment over the file over defaults, and each is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace.cli.app import app
from headrace.cli.defaults import defaults_of, ensure_known, long_names, walk
from headrace.cli.masking import MASK, masked
from headrace.cli.quick import read_options
from headrace.cli.settings_file import SettingsFile, read_settings
from headrace.errors import InvalidConfig
from tests.cli.command import HEADRACE, Cli

FILE = """
data = "from-file"
views = "postgresql://headrace:${DB_PASSWORD:-hush}@db.example/views"

[up]
listen = "127.0.0.1:0"

[topic.create]
partitions = 4

[client]
"security.protocol" = "sasl_ssl"
sasl.password = "hush"

[broker]
num.partitions = 7
"""


def shown(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> dict[str, tuple[Any, str]]:
    done = subprocess.run(
        [HEADRACE, "settings", "show", *arguments, "-o", "json"],
        cwd=folder,
        env={**Cli().env(), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hush" not in done.stdout
    rows = json.loads(done.stdout)["settings"]
    return {row["setting"]: (row["value"], row["source"]) for row in rows}


def test_each_setting_is_told_with_who_says_so(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(FILE)
    found = shown(tmp_path, "up", "--http", "none", "-c", "num.partitions=3", env={"HEADRACE_METRICS": "127.0.0.1:1"})
    assert found["http"] == ("none", "flag")
    assert found["metrics"] == ("127.0.0.1:1", "environment HEADRACE_METRICS")
    assert found["listen"] == ("127.0.0.1:0", "headrace.toml:6")
    assert found["data"] == ("from-file", "headrace.toml:2")
    assert found["advertise"] == (None, "default")
    assert found["views"] == (f"postgresql://headrace:{MASK}@db.example/views", "headrace.toml:3")
    assert found["broker.num.partitions"] == ("3", "flag")
    assert shown(tmp_path, "up", env={"HEADRACE_DATA": "x"})["data"] == ("x", "environment HEADRACE_DATA")
    everything = shown(tmp_path)
    assert everything["data"] == ("from-file", "headrace.toml:2")
    assert everything["topic.create.partitions"] == ("4", "headrace.toml:9")
    assert everything["client.sasl.password"] == (MASK, "headrace.toml:13")
    assert everything["broker.num.partitions"] == ("7", "headrace.toml:16")
    assert shown(tmp_path, "topic", "create")["client.security.protocol"] == ("sasl_ssl", "headrace.toml:12")


def test_the_environment_of_the_client_holds_over_the_file_and_flags_hold_over_both(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(FILE)
    (tmp_path / "sec").write_text("sasl.password = hush-hush\nclient.id = mine\n")
    env = {"HEADRACE_CLIENT": "security.protocol=plaintext\nsasl.password=hush2\nsocket.timeout.ms=5000"}
    found = shown(tmp_path, "topic", "list", "-X", "@sec", "-X", "socket.timeout.ms=7000", env=env)
    assert found["client.security.protocol"] == ("plaintext", "environment HEADRACE_CLIENT")
    assert found["client.sasl.password"] == (MASK, "flag")
    assert found["client.client.id"] == ("mine", "flag")
    assert found["client.socket.timeout.ms"] == ("7000", "flag")
    for everything in (shown(tmp_path, env=env), shown(tmp_path, "up", env=env)):
        assert everything["client.sasl.password"] == (MASK, "environment HEADRACE_CLIENT")
        assert everything["client.security.protocol"] == ("plaintext", "environment HEADRACE_CLIENT")
    assert shown(tmp_path, "up")["client.security.protocol"] == ("sasl_ssl", "headrace.toml:12")


def test_a_command_asks_the_log_with_what_holds(tmp_path: Path) -> None:
    """A value that is none is told by the client library: so it is seen whose value arrived."""
    (tmp_path / "headrace.toml").write_text('[client]\n"security.protocol" = "of-the-file"\n')

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def told(*flags: str, **env: str) -> str:
            server = f"127.0.0.1:{listening.getsockname()[1]}"
            return Cli(server, tmp_path, env).fails("topic", "list", *flags)

        assert "of-the-file" in told()
        assert "of-the-environment" in told(HEADRACE_CLIENT="security.protocol=of-the-environment")
        assert "of-a-flag" in told("-X", "security.protocol=of-a-flag", HEADRACE_CLIENT="security.protocol=x")


def test_a_node_and_its_clients_do_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(
        '[up]\nlisten = "127.0.0.1:0"\nhttp = "none"\ndata = "${PLACE}"\n[broker]\n"num.partitions" = 3\n'
    )
    env = {**Cli().env(), "PLACE": str(tmp_path / "here"), "HEADRACE_SETTINGS": str(tmp_path / "other.toml")}
    node = subprocess.Popen([HEADRACE, "up"], env=env, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert node.stdout is not None
        address = node.stdout.readline().split()[3]
        assert (tmp_path / "here" / "node").exists()
        (tmp_path / "client.toml").write_text('[client]\n"client.id" = "x"\n')
        made = Cli(address, tmp_path).run("topic", "create", "orders", "--settings", str(tmp_path / "client.toml"))
        assert made.code == 0, made.err
        described = Cli(address)("topic", "describe", "orders", "-o", "json").json
        assert len(described["partitions"]) == 3
        (tmp_path / "client.toml").write_text('[client]\n"no.such.thing" = "x"\n')
        refused = Cli(address).fails("topic", "list", "--settings", str(tmp_path / "client.toml"))
        assert "no.such.thing" in refused
    finally:
        node.terminate()
        node.wait()
        assert node.stdout is not None
        node.stdout.close()


def known(text: str, tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(text)
    ensure_known(read_settings(path), typer.main.get_command(app))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('dat = "x"', "some.toml:1: dat: there is no such setting. Hint: did you mean data?"),
        ("\npartitions = 4", "some.toml:2: partitions: this option belongs to a command. Hint: put it below a line"),
        ("[up]\nlisten = 5", "some.toml:2: up.listen: it must be text, not 5."),
        (
            '[up]\nlisten_ = "x"',
            "some.toml:2: up.listen_: `headrace up` has no such option. Hint: did you mean listen?",
        ),
        ('output = "xml"', "some.toml:1: output: it cannot be 'xml'. Hint: it can be: text, json"),
        ("[topic.creat]\n", "some.toml:1: topic.creat: there is no such command. Hint: did you mean create?"),
        (
            '[topic.create]\npartitions = "many"',
            "some.toml:2: topic.create.partitions: it must be a number, not 'many'.",
        ),
        ('[topic.create]\nif-not-exists = "maybe"', "it must be true or false, not 'maybe'."),
        ('data = "${NOT_THERE_X}"', "some.toml:1: data: the environment has no NOT_THERE_X."),
        ('data = "${"', "some.toml:1: data: '${' begins no ${NAME}."),
        ("[broker]\nnum.partition = 5", "some.toml:2: broker.num.partition: the broker has no such setting."),
        ("data = = 1", "some.toml is no TOML: Invalid value (at line 1, column 8)."),
        ("client = 5", "some.toml:1: client: it must be a table."),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        known(text, tmp_path)
    assert told in str(error.value)


def test_variables_are_put_in(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('a = "${ONE}-${TWO:-2}-${EMPTY:-3}-$${ONE}"\nb = ["${ONE}"]\n')
    assert read_settings(path, {"ONE": "1", "EMPTY": ""}).values == {"a": "1-2-3-${ONE}", "b": ["1"]}


def test_every_option_of_every_command_can_be_set_in_a_file(tmp_path: Path) -> None:
    """Whatever commands there are: nothing of this is a list that somebody has to keep."""
    tried = 0
    for path, params in walk(typer.main.get_command(app)):
        for param, name in [(each, name) for each in params for name in long_names(each) if path]:
            with pytest.raises(InvalidConfig, match="it must be"):
                defaults_of(SettingsFile(tmp_path, _nested(path, name)), path, [param])
            tried += 1
    assert tried > 50


def _nested(path: tuple[str, ...], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: object()}
    for word in reversed(path):
        found = {word: found}
    return found


def test_a_quick_start_steps_aside_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    assert read_options([]) is not None
    assert read_options(["--settings", "x"]) is None
    (tmp_path / "headrace.toml").write_text("")
    assert read_options([]) is None


@pytest.mark.parametrize(
    ("name", "value", "safe"),
    [
        ("views", "postgresql://me:p@ss:w0rd@host/db", f"postgresql://me:{MASK}@host/db"),
        (
            "views",
            "postgresql://host/db?user=me&password=x&sslmode=on",
            f"postgresql://host/db?user=me&password={MASK}&sslmode=on",
        ),
        ("sasl.password", "x", MASK),
        ("token", "x", MASK),
        ("read-token", "x", MASK),
        ("ssl.key.password", "x", MASK),
        ("ssl.key.pem", "x", MASK),
        ("sasl.oauthbearer.client.secret", "x", MASK),
        ("ssl.key.location", "/etc/key.pem", "/etc/key.pem"),
        ("sasl.username", "me", "me"),
        ("listen", "127.0.0.1:9092", "127.0.0.1:9092"),
    ],
)
def test_secrets_are_not_shown(name: str, value: str, safe: str) -> None:
    assert masked(name, value) == safe
