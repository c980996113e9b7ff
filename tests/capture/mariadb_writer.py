"""A program that changes a table of a MariaDB without end. Every row has a version, which its updates count."""

from __future__ import annotations

import random
import threading
from contextlib import closing

import pymysql
from pymysql.cursors import Cursor

__all__ = ["TABLE", "Writer"]

KEYS = 300
TABLE = "create table kills (id int primary key, v int not null, pad varchar(250));"


class Writer:
    """Inserts, updates (single rows and many in one go), deletes, moves keys and rolls back."""

    def __init__(self, port: int, database: str, seed: int) -> None:
        self._port, self._database, self._random = port, database, random.Random(seed)
        self._stopping = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed

    def _write(self) -> None:
        try:
            with (
                closing(
                    pymysql.connect(host="127.0.0.1", port=self._port, user="root", database=self._database)
                ) as one,
                one.cursor() as cursor,
            ):
                while not self._stopping.wait(self._random.uniform(0, 0.004)):
                    for _ in range(self._random.randrange(1, 4)):
                        self._change(cursor)
                    (one.rollback if self._random.random() < 0.05 else one.commit)()
        except BaseException as error:
            self._failed = error

    def _change(self, cursor: Cursor) -> None:
        choose, key = self._random.random(), self._random.randrange(KEYS)
        if choose < 0.35:
            cursor.execute("insert ignore into kills values (%s, 1, 'x')", [key])
        elif choose < 0.75:
            pad = "p" * self._random.randrange(200)
            cursor.execute("update kills set v = v + 1, pad = %s where id = %s", [pad, key])
        elif choose < 0.8:
            cursor.execute("update kills set v = v + 1 where id between %s and %s", [key, key + 50])
        elif choose < 0.93:
            cursor.execute("delete from kills where id = %s", [key])
        else:
            other = KEYS + self._random.randrange(KEYS)
            cursor.execute("delete from kills where id = %s", [other])
            cursor.execute("update kills set id = %s, v = 1 where id = %s", [other, key])
