"""What ``headrace doctor`` prints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer

from headrace.cli.command import Command
from headrace.cli.defaults import BROKER, CLIENT, defaults_of, is_setting, long_names, variable_of, walk
from headrace.cli.doctor import folder, machine, network
from headrace.cli.doctor.finding import Check, Finding, Verdict, bad, findings_of, fine
from headrace.cli.options import Data, Output, Views
from headrace.cli.output import OutputFormat, print_json, print_line
from headrace.cli.pairs import client_settings, over_file
from headrace.cli.settings_file import SettingsFile
from headrace.cli.start import DEFAULT_DATA, DEFAULT_HTTP, DEFAULT_LISTEN
from headrace.errors import HeadraceError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

_COLOURS = {Verdict.OK: typer.colors.GREEN, Verdict.WARN: typer.colors.YELLOW, Verdict.FAIL: typer.colors.RED}
_MACHINE = (
    machine.python,
    machine.kernel,
    machine.packages,
    machine.java,
    machine.limits,
    machine.memory,
    machine.clock,
)
_HTTP_PORT = 8080
_ADDRESSES = (("listen", DEFAULT_LISTEN, 9092), ("http", DEFAULT_HTTP, _HTTP_PORT), ("metrics", "", 9308))


@app.command(cls=Command)
def doctor(
    ctx: typer.Context, data: Data = Path(DEFAULT_DATA), views: Views = None, output: Output = OutputFormat.text
) -> None:
    """Look at everything that a node and its apps need, and say what to do. Exits with 1 if something does not work.

    Python and its packages, Java, Spark, memory, the clock, the settings file, ports, the data folder and its disk, the
    log, and the database of views. The addresses are those of the settings file and the environment.

    [bold]Examples[/bold]

    \b
    headrace doctor
    headrace doctor --data /var/lib/headrace -o json
    """
    found: list[Finding] = []
    for name, check in _checks(ctx, data, views):
        for finding in findings_of(name, check):
            found.append(finding)
            if output is OutputFormat.text:
                _print(finding)
    worst = {verdict: sum(finding.verdict is verdict for finding in found) for verdict in Verdict}
    if output is OutputFormat.json:
        print_json({"ok": not worst[Verdict.FAIL], "findings": [asdict(finding) for finding in found]})
    else:
        print_line(f"\n{worst[Verdict.FAIL]} failed, {worst[Verdict.WARN]} warnings, {worst[Verdict.OK]} fine")
    if worst[Verdict.FAIL]:
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    word = typer.style(finding.verdict.value.ljust(4), fg=_COLOURS[finding.verdict], bold=True)
    print_line(f"{word}  {finding.check}: {finding.seen}")
    if finding.todo:
        print_line(f"      what to do: {finding.todo}")


def _checks(ctx: Any, data: Path, views: str | None) -> Iterator[tuple[str, Check]]:
    for look in _MACHINE:
        yield look.__name__, look
    settings = _Settings(ctx)
    yield "settings", settings.check
    data = Path(settings.value("data", str(data)) if _is_default(ctx, "data") else data)
    yield from folder.checks(data)
    for name, default, default_port in _ADDRESSES:
        address = settings.value(name, default).partition(",")[0]
        if address not in ("", "none"):
            yield f"port {name}", partial(network.port, name, address, f"--{name} HOST:PORT", default_port)
    http = settings.value("http", DEFAULT_HTTP).partition(",")[0]
    if http != "none":
        tokens = settings.value("token", ""), settings.value("read-token", "")
        yield "token", partial(network.guarded, http, _HTTP_PORT, *tokens)
    server, asked = settings.server()
    yield "log", partial(network.log_server, server, settings.client(), asked=asked)
    views = views or settings.value("views", "")
    if views:
        yield "views", partial(network.views, views)


def _is_default(ctx: Any, name: str) -> bool:
    return bool(ctx.get_parameter_source(name).name == "DEFAULT")


class _Settings:
    """The settings file, which may be wrong, and what it and the environment say of a setting."""

    def __init__(self, ctx: Any) -> None:
        from headrace.cli.app import settings_of

        self._error: HeadraceError | None = None
        self._file: SettingsFile | None = None
        self._commands = dict(walk(ctx.find_root().command))
        try:
            self._file = settings_of(ctx)
        except HeadraceError as error:
            self._error = error

    def check(self) -> Iterator[Finding]:
        """Whether the file is right."""
        if self._error is not None:
            yield bad("settings", self._error.message, self._error.hint or "correct it")
        elif self._file is None:
            yield fine("settings", "no settings file; headrace settings show tells what holds")
        else:
            yield fine("settings", f"{self._file.path} is right")

    def value(self, name: str, default: str) -> str:
        """What holds for `headrace up`, or else for any command."""
        for path in (("up",), *self._commands):
            for param in self._commands[path]:
                if name in long_names(param) and is_setting(param):
                    return self._of(path, param) or self._of_broker(name) or default
        return default

    def _of_broker(self, name: str) -> str | None:
        """What [broker] says of an address that has an option of its own."""
        return None if self._file is None else self._file.pairs(BROKER).get(f"headrace.{name}.listener")

    def server(self) -> tuple[str, bool]:
        """Where the log is, and whether somebody said so."""
        for name in ("log", "server"):
            if found := self.value(name, ""):
                return found, True
        return DEFAULT_LISTEN, False

    def client(self) -> dict[str, str]:
        """The client's settings, as every command has them."""
        with over_file({} if self._file is None else self._file.pairs(CLIENT)):
            return client_settings(None)

    def _of(self, path: tuple[str, ...], param: Any) -> str | None:
        variable = variable_of(param)
        if variable is not None:
            return os.environ[variable]
        found = {} if self._file is None else defaults_of(self._file, path, [param])
        return str(found[param.name][0]) if param.name in found else None
