"""Runs the real ``headrace`` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

on_both = pytest.mark.parametrize("server", ["headrace", "kafka"], indirect=True)
"""The commands are Kafka clients: what they do on Headrace they do on Apache Kafka."""

HEADRACE = str(Path(sys.executable).with_name("headrace"))


@dataclass(frozen=True)
class Ran:
    """How a command went."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def ndjson(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Cli:
    """The command line, pointed at one server."""

    def __init__(
        self, server: str | None = None, folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.server = server
        self.more = dict(env or {})
        self.folder = folder

    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        return {**kept, **({"HEADRACE_LOG": self.server} if self.server else {}), **self.more}

    def run(self, *arguments: str, stdin: str | bytes = b"", timeout: float = 60) -> Ran:
        """Run a command to its end, whatever that is."""
        done = subprocess.run(
            [HEADRACE, *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=self.env(),
            cwd=self.folder,
            timeout=timeout,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def __call__(self, *arguments: str, stdin: str | bytes = b"", timeout: float = 60) -> Ran:
        """Run a command that must work and have nothing to complain about."""
        ran = self.run(*arguments, stdin=stdin, timeout=timeout)
        assert ran.code == 0, f"headrace {' '.join(arguments)} exited with {ran.code}: {ran.err}"
        assert ran.err == ""
        return ran

    def fails(self, *arguments: str, stdin: str | bytes = b"", timeout: float = 60) -> str:
        """Run a command that must fail properly; what it says on stderr."""
        ran = self.run(*arguments, stdin=stdin, timeout=timeout)
        assert ran.code == 1, f"headrace {' '.join(arguments)} exited with {ran.code}: {ran.out}{ran.err}"
        assert "Traceback" not in ran.err
        assert ran.err.startswith(("Error: ", '{"error":')), ran.err
        return ran.err
