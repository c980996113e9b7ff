"""Reading views of a node from Python: ``headrace.connect("http://127.0.0.1:8080").view("revenue").to_polars()``.

Plain HTTP with the standard library. Tables travel as Arrow, so types are what Spark made them; pandas, Polars and
pyarrow are imported only where their tables are asked for. A view's changes are an iterator that comes back after a
lost connection and goes on where it was.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from headrace.errors import HeadraceError, InvalidQuery, ServerAway, UnknownView

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["Change", "Client", "View", "connect"]

DEFAULT_URL = "http://127.0.0.1:8080"
ARROW = "application/vnd.apache.arrow.stream"
QUIET_S = 60.0
"""A node says something on an event stream at least every 15 seconds; after this long it is gone."""


@dataclass(frozen=True)
class Change:
    """A row that changed: ``row`` is None if it was deleted. ``version`` is the view's version with this change.

    ``kind`` is ``change``; or ``gone`` (what was asked for is older than the log, it begins at ``version``), or
    ``rebuilt`` (the view was built anew: read it again; changes go on from ``version``).
    """

    kind: str
    version: str
    key: dict[str, Any] | None = None
    row: dict[str, Any] | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    skipped: int = 0


def connect(url: str = DEFAULT_URL, *, timeout: float = 30.0, token: str | None = None) -> Client:
    """A client of the node whose web address this is: ``hr.connect("http://127.0.0.1:8080").view("revenue").rows()``.

    ``timeout`` is in seconds. No connection is kept: each question makes its own. ``token`` is what HEADRACE_TOKEN says
    if it is not given.
    """
    return Client(url, timeout=timeout, token=token)


class Client:
    """A node's views."""

    def __init__(self, url: str, *, timeout: float = 30.0, token: str | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidQuery(f"{url!r} is not the address of a node", hint=f"write it like {DEFAULT_URL}")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._parts = parts
        self._timeout = timeout
        self._token = token or os.environ.get("HEADRACE_TOKEN") or os.environ.get("HEADRACE_READ_TOKEN")

    def view(self, name: str) -> View:
        """A view by its name, or ``app.name``."""
        return View(self, name)

    def views(self) -> list[dict[str, Any]]:
        """What views there are, and how they are doing."""
        found: list[dict[str, Any]] = self.get_json("/views")
        return found

    def queries(self) -> list[dict[str, Any]]:
        """The state of the queries behind the views."""
        found: list[dict[str, Any]] = self.get_json("/queries")
        return found

    def query(self, sql: str, params: Sequence[Any] = (), *, limit: int | None = None) -> dict[str, Any]:
        """Read-only SQL over all views: columns, rows, the versions that they reflect, whether rows were cut off."""
        asked = {"sql": sql, "params": list(params), **({} if limit is None else {"limit": limit})}
        body = json.dumps(asked).encode()
        answer = self._request("POST", "/query", body, {"Content-Type": "application/json"})
        found: dict[str, Any] = json.loads(answer.read())
        return found

    def get_json(self, path: str) -> Any:
        """A JSON document of the node."""
        return json.loads(self._request("GET", path).read())

    def get_arrow(self, path: str) -> pyarrow.Table:
        """A table of the node."""
        import pyarrow

        answer = self._request("GET", path, headers={"Accept": ARROW})
        table = pyarrow.ipc.open_stream(answer.read()).read_all()
        return table.replace_schema_metadata({"headrace.version": answer.headers.get("Headrace-Version", "")})

    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """The events of an event stream, until it ends."""
        answer = self._request("GET", path, headers=headers, timeout=QUIET_S)
        event: dict[str, str] = {}
        try:
            for raw in answer:
                line = raw.decode().rstrip("\r\n")
                if not line and "data" in event:
                    yield event
                name, _, value = line.partition(":")
                event = {**event, name: value.removeprefix(" ")} if name else event if line else {}
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from error
        finally:
            answer.close()

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> http.client.HTTPResponse:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert self._parts.hostname is not None
        connection = kind(self._parts.hostname, self._parts.port, timeout=timeout or self._timeout)
        try:
            # The response then owns the socket, and closes it when it was read.
            asked = {**(headers or {}), "Connection": "close"}
            if self._token:
                asked["Authorization"] = f"Bearer {self._token}"
            connection.request(method, self._parts.path.rstrip("/") + path, body, asked)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._away(error) from error
        if answer.status >= 400:
            raise _told(answer)
        return answer

    def _away(self, error: Exception) -> ServerAway:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        hint = "is it up? `headrace up` starts one and says its address"
        return ServerAway(f"no node answers at {self.url}.", detail=reason, hint=hint)


@dataclass(frozen=True)
class View:
    """A view of a node. Reading it gives all of its rows, or those asked for.

    ``where=["region=EU", "revenue>=100"]`` are conditions that all hold, ``order="-revenue,region"`` what to order by
    (a minus is descending), ``select="region,revenue"`` the columns wanted, ``limit`` how many rows at most. With
    ``wait_for`` it waits until the view has that version.
    """

    client: Client
    name: str

    def to_arrow(
        self,
        *,
        where: Sequence[str] = (),
        order: str | None = None,
        select: str | None = None,
        limit: int | None = None,
        wait_for: str | None = None,
    ) -> pyarrow.Table:
        """The rows as an Arrow table; its schema's metadata says the version (``headrace.version``)."""
        return self.client.get_arrow(self._path(_asked(where, order, select, limit, wait_for)))

    def to_pandas(self, **asked: Any) -> pandas.DataFrame:
        """The rows as a pandas frame; takes what ``to_arrow`` takes."""
        return self.to_arrow(**asked).to_pandas()

    def to_polars(self, **asked: Any) -> polars.DataFrame:
        """The rows as a Polars frame; takes what ``to_arrow`` takes."""
        import polars

        frame = polars.from_arrow(self.to_arrow(**asked))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def rows(
        self,
        *,
        where: Sequence[str] = (),
        order: str | None = None,
        select: str | None = None,
        limit: int | None = None,
        wait_for: str | None = None,
    ) -> list[dict[str, Any]]:
        """The rows as dictionaries, with values as JSON has them."""
        found: list[dict[str, Any]] = self.read(_asked(where, order, select, limit, wait_for))["rows"]
        return found

    def read(self, parameters: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """What the node answers: columns, rows, version."""
        found: dict[str, Any] = self.client.get_json(self._path(parameters))
        return found

    def get(self, *key: Any) -> dict[str, Any] | None:
        """The row of a key (its values in the key's order); None if there is none."""
        path = self._path(tail="/" + quote(json.dumps(list(key)), safe=""))
        try:
            found: dict[str, Any] = self.client.get_json(path)["row"]
        except UnknownView as error:
            if "has no row" not in error.message:
                raise
            return None
        return found

    def changes(
        self, since: str | None = None, *, until: str | None = None, reconnect: bool = True
    ) -> Iterator[Change]:
        """Changes as they happen, since a version (``start``: all that the log still has; None: from now on).

        It ends at the version ``until``, or never. A lost connection is made again, and changes go on where they were;
        with ``reconnect=False`` it is an error.
        """
        headers: dict[str, str] = {}
        while True:
            asked = [(name, text) for name, text in (("from", since), ("until", until)) if text is not None]
            try:
                for event in self.client.stream(self._path(asked, "/changes"), headers):
                    headers = {"Last-Event-ID": event["id"]}
                    if event["event"] != "start":
                        yield _change(event)
                if until is not None:
                    return
            except ServerAway:
                if not reconnect:
                    raise
            time.sleep(0.5)

    def _path(self, parameters: Sequence[tuple[str, str]] = (), tail: str = "") -> str:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"/views/{quote(self.name, safe='')}{tail}{query}"


def _asked(
    where: Sequence[str], order: str | None, select: str | None, limit: int | None, wait_for: str | None
) -> list[tuple[str, str]]:
    conditions = [where] if isinstance(where, str) else where
    asked = [("where", condition) for condition in conditions]
    asked += [(name, text) for name, text in (("order", order), ("select", select), ("wait_for", wait_for)) if text]
    return [*asked, ("limit", "all" if limit is None else str(limit))]


def _change(event: Mapping[str, str]) -> Change:
    said = json.loads(event["data"])
    if event["event"] != "change":
        return Change(event["event"], event["id"])
    return Change(
        "change",
        event["id"],
        said["key"],
        said["row"],
        said["partition"],
        said["offset"],
        said["timestamp"],
        said["skipped"],
    )


def _told(answer: http.client.HTTPResponse) -> HeadraceError:
    try:
        said = json.loads(answer.read())
        kind = {404: UnknownView, 400: InvalidQuery, 503: ServerAway}.get(answer.status, HeadraceError)
        return kind(said["error"], detail=said.get("detail"), hint=said.get("hint"))
    except (ValueError, KeyError, TypeError):
        return HeadraceError(f"the node answered {answer.status} {answer.reason}")
