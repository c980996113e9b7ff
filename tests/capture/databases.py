"""Real database servers for tests: PostgreSQL (and MariaDB) in temporary folders on free ports.

PostgreSQL refuses to run as root, so as root its processes are those of the user ``nobody``.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import ROOT, ServerFailed, die_with_parent, free_port

__all__ = ["Postgres", "postgres_bin"]


def postgres_bin() -> Path | None:
    """Where PostgreSQL's programs are: on the machine, or fetched by scripts/fetch-databases."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for folder in [*folders, ROOT / ".tools" / "postgres" / "bin"]:
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def _as_nobody() -> None:
    die_with_parent()
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        die_with_parent()  # setuid clears it


class Postgres:
    """A PostgreSQL server on a folder. It can be stopped, killed and started again on the same folder and port."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, *, wal_level: str = "logical") -> None:
        self.folder = folder
        self.port = free_port()
        self._bin = postgres_bin()
        self._child: subprocess.Popen[bytes] | None = None
        if self._bin is None:
            raise ServerFailed("PostgreSQL is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            _reachable(folder)
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        options = {"wal_level": wal_level, "fsync": "off", "max_wal_senders": "10", "max_replication_slots": "10"}
        self._settings = {**options, **(settings or {})}
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        hba = self.data / "pg_hba.conf"
        hba.write_text(
            "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost replication postgres 127.0.0.1/32 trust\n"
            "host all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n"
        )
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def dsn(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}"

    def _run(self, program: str, *arguments: str) -> None:
        assert self._bin is not None
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=_as_nobody,
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        if done.returncode:
            raise ServerFailed(f"{program}: {done.stdout}{done.stderr}")

    def start(self) -> None:
        assert self._bin is not None
        command: Sequence[str] = [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        options = {**self._settings, "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "postgres.log").open("ab") as log:
            self._child = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_as_nobody,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise ServerFailed((self.folder / "postgres.log").read_text(errors="replace")[-2000:]) from None
                time.sleep(0.05)

    def connect(
        self, database: str = "postgres", user: str = "postgres", password: str = ""
    ) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(database, user, password), autocommit=True, connect_timeout=10)

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with self.connect(database) as connection:
            found = connection.execute(sql.encode())
            return found.fetchall() if found.description else []

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is its fast stop."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(how)
            try:
                self._child.wait(30)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None

    def kill9(self) -> None:
        """SIGKILL; its children end when they see it."""
        self.stop(signal.SIGKILL)


def _reachable(folder: Path) -> None:
    """Let another user pass through the folders above one of ours; pytest makes them for their owner alone."""
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if parent.stat().st_uid == os.getuid() and not mode & 0o001:
            parent.chmod(mode | 0o011)
