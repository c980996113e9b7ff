"""Real database servers for tests: PostgreSQL, MariaDB and MySQL in temporary folders on free ports.

PostgreSQL refuses to run as root, so as root its processes are those of the user ``nobody``.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from pymysql.constants import CLIENT

from tests.servers import ROOT, ServerFailed, die_with_parent, free_port

__all__ = ["MariaDB", "MySQL", "Postgres", "mariadb_bin", "mysql_bin", "need_postgres", "postgres_bin"]


def postgres_bin() -> Path | None:
    """Where PostgreSQL's programs are: on the machine, or fetched by scripts/optional-tools."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for folder in [*folders, ROOT / ".tools" / "postgres" / "bin"]:
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def need_postgres() -> None:
    """Without PostgreSQL its tests are skipped; where ``CI`` is set, all of them have to run, and they fail."""
    if postgres_bin() is None:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up("PostgreSQL is not installed: apt-get install postgresql, or scripts/optional-tools, with Maven")


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

    def __init__(self, settings: Mapping[str, str] | None = None, *, wal_level: str = "logical") -> None:
        # not in pytest's folder: another run of pytest shuts that to all users but its own
        self._holder = tempfile.TemporaryDirectory(prefix="headrace-postgres-")
        self.folder = folder = Path(self._holder.name)
        self.port = free_port()
        self._bin = postgres_bin()
        self._child: subprocess.Popen[bytes] | None = None
        if self._bin is None:
            raise ServerFailed("PostgreSQL is not installed")
        if os.getuid() == 0:
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        options = {"wal_level": wal_level, "fsync": "off", "max_wal_senders": "100", "max_replication_slots": "100"}
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

    def create(self, database: str) -> str:
        """A database of its own; returns its address."""
        self.execute(f"create database {database}")
        return self.dsn(database)

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

    def close(self) -> None:
        """Stop, and remove everything."""
        self.stop()
        self._holder.cleanup()

    def kill9(self) -> None:
        """SIGKILL; its children end when they see it."""
        self.stop(signal.SIGKILL)


def mariadb_bin() -> Path | None:
    """Where MariaDB's server is; None also where what sets up its data folder is not there."""
    if shutil.which("my_print_defaults") is None:
        return None
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


def mysql_bin() -> Path | None:
    """Where MySQL's server is: fetched by scripts/optional-tools (Debian has none)."""
    found = ROOT / ".tools" / "mysql" / "bin" / "mysqld"
    return found if found.exists() else None


class MariaDB:
    """A MariaDB server on a folder, with a binary log of rows."""

    _as = staticmethod(_as_nobody)

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._bin = self._program()
        self._child: subprocess.Popen[bytes] | None = None
        if self._bin is None:
            raise ServerFailed(f"{type(self).__name__} is not installed")
        self._holder = tempfile.TemporaryDirectory(prefix="headrace-mariadb-")
        self.folder = Path(self._holder.name)
        self.port = free_port()
        self._settings: dict[str, str | None] = {
            "log-bin": "binlog", "server-id": "1", "binlog-format": "ROW", "binlog-row-image": "FULL",
            **(settings or {}),
        }  # fmt: skip
        if os.getuid() == 0:
            os.chown(self.folder, pwd.getpwnam("nobody").pw_uid, -1)
        done = subprocess.run(
            self._installation(), capture_output=True, text=True, check=False, preexec_fn=self._as, cwd=self.folder
        )
        if done.returncode:
            raise ServerFailed(done.stdout + done.stderr)
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def _program(self) -> Path | None:
        return mariadb_bin()

    def _installation(self) -> list[str]:
        """What makes the data folder."""
        return [
            "mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ]  # fmt: skip

    def dsn(self, database: str, user: str = "root", password: str = "") -> str:
        who = f"{user}:{password}" if password else user
        return f"{type(self).__name__.lower()}://{who}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        command = [
            str(self._bin), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.folder}/s", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M",
            *(f"--{name}={value}" for name, value in self._settings.items() if value is not None),
        ]  # fmt: skip
        with (self.folder / "mariadb.log").open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self._as, start_new_session=True
            )
        deadline = time.monotonic() + 90
        while True:
            try:
                self.execute("select 1")
                return
            except pymysql.MySQLError:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise ServerFailed((self.folder / "mariadb.log").read_text(errors="replace")[-2000:]) from None
                time.sleep(0.1)

    def restart(self, settings: Mapping[str, str | None] | None = None) -> None:
        """On the same folder and port; None takes a setting away."""
        self.stop()
        self._settings.update(settings or {})
        self.start()

    def execute(self, sql: str, database: str | None = None) -> list[tuple[Any, ...]]:
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, connect_timeout=10,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )  # fmt: skip
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                found = list(cursor.fetchall())
                while cursor.nextset():
                    found = list(cursor.fetchall())
                return found
        finally:
            connection.close()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(how)
            try:
                self._child.wait(30)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None

    def close(self) -> None:
        """Stop, and remove everything."""
        self.stop()
        self._holder.cleanup()


class MySQL(MariaDB):
    """A MySQL server, the same. As root it runs as root: others may not be let into the folder of its program."""

    _as = staticmethod(die_with_parent)

    def __init__(self) -> None:
        super().__init__({"mysqlx": "OFF", **self._user})

    @property
    def _user(self) -> dict[str, str]:
        return {"user": "root"} if os.getuid() == 0 else {}

    def _program(self) -> Path | None:
        return mysql_bin()

    def _installation(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self._user.items()]
        return [str(self._bin), "--no-defaults", "--initialize-insecure", f"--datadir={self.data}", *options]
