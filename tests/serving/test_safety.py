"""Who may look, who may change, and what nobody gets: tokens, roles, sessions, other sites, paths, bodies."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from headrace.node import Tokens, WebAddress, WebAddressFailed, ensure_guarded
from headrace.serving.access import COOKIE, SESSION_S, Access, Role
from headrace.serving.answers import ARROW
from headrace.serving.api import build_api
from headrace.serving.bodies import MAX_BODY_BYTES
from headrace.serving.door import FAILED_PAUSE_S
from headrace.serving.hub import Hub
from headrace.serving.metrics import NodeMetrics
from headrace.serving.source import Source
from headrace.views.places import stores_at
from tests.cli.command import HEADRACE
from tests.serving.conftest import Site
from tests.views.memory_feed import MemoryFeed

TOKEN, READ_TOKEN = "a-secret-to-change", "a-secret-to-look"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OPEN = {"/ping", "/ready", "/version", "/session", "/openapi.json", "/", "/page/page.css"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A node that others can reach, with both tokens."""
    feed = MemoryFeed(rows_at_once=1000)
    hub = Hub(stores_at(None, tmp_path_factory.mktemp("guarded") / "views"), lambda: feed)
    metrics = NodeMetrics(hub, lambda: "kafka_brokers 1\n")
    api = build_api(hub, "0.0.0.0", Source(lambda: feed), Access(TOKEN, READ_TOKEN), metrics=metrics)
    with TestClient(api, "http://node.example:8080") as client:
        yield client


def endpoints(client: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, told in methods.items():
            yield method.upper(), path.replace("{", "").replace("}", ""), told


def test_without_a_token_nothing_is_told(guarded: TestClient) -> None:
    seen = 0
    for method, path, told in endpoints(guarded):
        answer = guarded.request(method, path)
        if told["x-role"] == "anybody":
            continue
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        seen += 1
    assert seen > 20
    for path in OPEN:
        assert guarded.get(path).status_code in (200, 503), path


def test_who_may_look_may_not_change(guarded: TestClient) -> None:
    seen = 0
    for method, path, told in endpoints(guarded):
        if "text/event-stream" in told["responses"]["200"]["content"]:
            continue
        answer = guarded.request(method, path, headers={"Authorization": f"Bearer {READ_TOKEN}"}, content=b"{}")
        if told["x-role"] == "change":
            assert answer.status_code == 403, (method, path)
            assert "may look, not change" in answer.json()["error"]
            seen += 1
        else:
            assert answer.status_code not in (403, 500), (method, path)
    assert seen == 4


def test_metrics_are_for_who_may_look(guarded: TestClient) -> None:
    assert guarded.get("/metrics").status_code == 401
    for token in (TOKEN, READ_TOKEN):
        answer = guarded.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        assert answer.text.startswith("kafka_brokers 1\n")
        assert "headrace_log_up 1" in answer.text


def test_a_session_is_opened_with_a_token_and_ended(guarded: TestClient) -> None:
    assert guarded.get("/session").json() == {"role": None, "needed": True}
    wrong = guarded.post("/session", json={"token": "guess"})
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    answer = guarded.post("/session", json={"token": READ_TOKEN})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert READ_TOKEN not in cookie
    assert guarded.get("/session").json()["role"] == "look"
    assert guarded.get("/views").status_code == 200
    guarded.delete("/session")
    assert guarded.get("/views").status_code == 401


def test_a_session_that_was_made_up_or_is_over_gives_nothing() -> None:
    access = Access(TOKEN, READ_TOKEN)
    good = access.session(Role.LOOK)
    role, until, signature = good.split(".")

    def of(cookie: str) -> Role | None:
        return access.role_of(_cookie(cookie))

    assert of(good) is Role.LOOK
    for bad in (
        f"change.{until}.{signature}",
        f"{role}.{int(until) + 1}.{signature}",
        f"{role}.{until}.",
        "",
        "look",
        "x.1.y",
    ):
        assert of(bad) is None
    assert of(access.session(Role.LOOK, now=-2 * SESSION_S)) is None
    assert Access("another", "token").role_of(_cookie(good)) is None
    assert Access(TOKEN).role_of(_cookie(good)) is None


def _cookie(value: str) -> Headers:
    return Headers({"Cookie": f"{COOKIE}={value}"})


def api_of(folder: Path, host: str, *tokens: str) -> Starlette:
    """An API without views, of a node that listens there."""
    feed = MemoryFeed(rows_at_once=1000)
    hub = Hub(stores_at(None, folder / "views"), lambda: feed)
    return build_api(hub, host, Source(lambda: feed), Access(*tokens))


@contextmanager
def asked_from(folder: Path, *addresses: str) -> Iterator[list[TestClient]]:
    """Clients at these addresses of a node with a token."""
    api = api_of(folder, "0.0.0.0", TOKEN)
    with TestClient(api, "http://node.example", client=(addresses[0], 1)) as first:
        yield [first, *(TestClient(api, "http://node.example", client=(one, 1)) for one in addresses[1:])]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long wrong tokens would have waited."""
    slept: list[float] = []

    async def noted(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("headrace.serving.door.asyncio", SimpleNamespace(sleep=noted))
    return slept


def test_guessing_is_slow_and_then_refused(tmp_path: Path, pauses: list[float]) -> None:
    with asked_from(tmp_path, "192.0.2.1", "192.0.2.2") as (client, other):
        statuses = [client.post("/session", json={"token": f"guess {at}"}).status_code for at in range(25)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert pauses == [FAILED_PAUSE_S] * 20
        assert client.post("/session", json={"token": TOKEN}).status_code == 429
        assert other.post("/session", json={"token": TOKEN}).status_code == 200


def test_guessing_at_bearer_tokens_is_the_same_guessing(tmp_path: Path, pauses: list[float]) -> None:
    with asked_from(tmp_path, "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1") as (client, neighbour, other):
        assert [client.get("/views", headers=BEARER).status_code for _ in range(30)] == [200] * 30
        assert pauses == []
        client.post("/session", json={"token": TOKEN})
        guesses = [{"Authorization": f"Bearer guess {at}"} for at in range(30)]
        statuses = [client.get("/views", headers=guess).status_code for guess in guesses]
        assert statuses == [401] * 20 + [429] * 10
        assert len(pauses) == 20
        assert neighbour.get("/session", headers=BEARER).status_code == 429
        assert client.get("/ping", headers=guesses[0]).status_code == 200
        assert client.get("/views").status_code == 200, "a session that is open goes on"
        assert other.get("/views", headers=BEARER).status_code == 200


def test_what_breaks_is_told_as_json_without_what_was_in_it(
    sales: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError(f"the password is {TOKEN}")

    monkeypatch.setattr(sales.hub.reader, "select", broken)
    answer = sales.client.get("/views/sales")
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("this could not be answered")
    assert TOKEN not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"
    assert "GET /views/sales broke" in caplog.text


def test_secrets_are_in_no_text_of_what_holds_them() -> None:
    for one in (
        Access(TOKEN, READ_TOKEN),
        Tokens(TOKEN, READ_TOKEN),
        Source(lambda: None, "x:1", {"sasl.password": TOKEN}),
    ):
        assert TOKEN not in repr(one)
        assert READ_TOKEN not in repr(one)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "node.example"])
def test_an_address_that_others_reach_takes_a_token(host: str) -> None:
    with pytest.raises(WebAddressFailed) as failed:
        ensure_guarded(WebAddress(host, 8080), Tokens())
    assert "HEADRACE_TOKEN" in str(failed.value)
    ensure_guarded(WebAddress(host, 8080), Tokens("secret"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_a_loopback_address_takes_none(host: str) -> None:
    ensure_guarded(WebAddress(host, 8080), Tokens())


def test_up_refuses_an_open_address_without_a_token(tmp_path: Path) -> None:
    command = [HEADRACE, "up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no token is set" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_other_sites_change_nothing_even_with_a_session(
    guarded: TestClient, method: str, headers: dict[str, str]
) -> None:
    for path in ("/session", "/topics/orders/records", "/groups/billing", "/dead-letters/x/redrive"):
        assert guarded.request(method, path, headers={**BEARER, **headers}, json={}).status_code == 403


SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    ("host", "said", "status"),
    [
        ("node.example", {"Origin": "https://node.example", **SAME}, 200),  # a proxy that keeps the name
        ("node.example", {"Origin": "https://node.example"}, 200),  # for a browser that says no more
        ("node.example", {"Origin": "https://node.example:8443", **SAME}, 200),  # one that leaves the port away
        ("127.0.0.1:8080", {"Origin": "https://node.example", **SAME}, 200),  # one that has a name of its own
        ("127.0.0.1:8080", {"Origin": "https://node.example"}, 403),
        ("127.0.0.1:8080", {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ("127.0.0.1:8080", {"Origin": "https://evil.node.example", "Sec-Fetch-Site": "same-site"}, 403),
        ("node.example", {"Origin": "https://node.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ("127.0.0.1:8080", {"Origin": "https://node.example", "Sec-Fetch-Site": "none"}, 403),
        ("", {"Origin": "null"}, 403),
    ],
)
def test_the_page_works_behind_a_proxy_on_this_machine(
    tmp_path: Path, host: str, said: dict[str, str], status: int
) -> None:
    with TestClient(api_of(tmp_path, "127.0.0.1", TOKEN), "http://127.0.0.1:8080") as client:
        forwarded = {"Host": host, "X-Forwarded-Proto": "https"}
        assert client.get("/", headers=forwarded).status_code == 200
        assert client.get("/views", headers={**forwarded, **SAME}).status_code == 401
        answer = client.post("/session", json={"token": TOKEN}, headers={**forwarded, **said})
        assert answer.status_code == status, answer.text
        assert client.get("/views", headers={**BEARER, **forwarded}).status_code == 200


def test_a_strange_name_gets_nothing_of_a_node_without_a_token_whatever_a_page_says(tmp_path: Path) -> None:
    with TestClient(api_of(tmp_path, "127.0.0.1"), "http://127.0.0.1:8080") as client:
        strange = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080", **SAME}
        for method, path in (("GET", "/"), ("GET", "/views"), ("GET", "/version"), ("POST", "/query")):
            assert client.request(method, path, headers=strange).status_code == 403, path
        proxied = {"Origin": "https://node.example", **SAME}
        assert client.post("/query", json={"sql": "SELECT 1"}, headers=proxied).status_code == 200


@pytest.mark.parametrize("host", ["[::1", "[", "a]b", "[v1.x", "evil.example@[::1"])
def test_what_can_be_no_name_is_refused(tmp_path: Path, host: str) -> None:
    for api in (api_of(tmp_path, "127.0.0.1"), api_of(tmp_path, "0.0.0.0", TOKEN)):
        client = TestClient(api, "http://127.0.0.1:8080")
        for said in ({"Host": host.encode()}, {"Origin": f"http://{host}".encode()}):
            answer = client.post("/session", headers={name.encode(): text for name, text in said.items()})
            assert answer.status_code == 403, said
            assert answer.json()["error"]
            assert "content-security-policy" in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/page/../api.py",
        "/page/..%2fapi.py",
        "/page/%2e%2e/api.py",
        "/page/js/../../process.py",
        "/page//etc/passwd",
        "/page/js/",
        "/../../../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/topics/..%2f..%2fetc%2fpasswd",
        "/topics/..%00",
        "/aside/..%2f..%2fcatalog.dead",
        "/views/..%2fshop",
        "/dead-letters/%2e%2e",
    ],
)
def test_no_path_leads_out(shop: Site, path: str) -> None:
    answer = shop.client.get(path)
    assert answer.status_code in (400, 404, 503), answer.text
    assert "root:" not in answer.text
    assert "import" not in answer.text


@pytest.mark.parametrize(
    "where", ["region=' OR '1'='1", "region=x'; DROP TABLE sales;--", 'region"=1', "(SELECT 1)=1", "1=1"]
)
def test_sql_in_conditions_is_a_value_or_refused(shop: Site, where: str) -> None:
    answer = shop.client.get("/views/sales", params={"where": where})
    assert answer.status_code in (200, 400)
    assert answer.status_code == 400 or answer.json()["rows"] == []
    assert len(shop.get("/views/sales")["rows"]) == 3


def test_bodies_are_bounded_json_and_of_known_fields(shop: Site) -> None:
    path = "/topics/orders/records"
    assert shop.client.post(path, content=b"x" * (MAX_BODY_BYTES + 1)).status_code == 413
    for body in (
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"nope": 1}',
        b'{"key": 1}',
        b'{"partition": -1}',
        b'{"headers": {"a": 1}}',
    ):
        answer = shop.client.post(path, content=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]
    assert shop.client.post(path, content=b'{"value": "\\ud800"}').status_code == 400


DEEP = "[" * 200_000
DIGITS = "9" * 5000


@pytest.mark.parametrize("text", [f"0:{DIGITS}", f"{DIGITS}:0", "0", "0:", ":0", "-1:0", "\u0660:\u0660"])
def test_places_of_dead_letters_that_can_be_none_are_refused(shop: Site, text: str) -> None:
    answer = shop.client.post("/dead-letters/t1/redrive", json={"letters": [text]})
    assert answer.status_code == 400
    assert "is not PARTITION:OFFSET" in answer.json()["error"]


@pytest.mark.parametrize("to", [f"@-{DIGITS}m", f"@{DIGITS}", DIGITS, f"-{DIGITS}"])
def test_places_in_a_log_that_can_be_none_are_refused(shop: Site, to: str) -> None:
    for position in (to, to[:100]):
        assert shop.client.post("/groups/billing", json={"to": position}).status_code == 400
    assert shop.client.get("/topics/orders/records", params={"from": to[:4000]}).status_code == 400


@pytest.mark.parametrize("body", [DEEP, DIGITS, '{"sql": ' + DEEP, '{"sql": "SELECT ?", "params": [' + DIGITS + "]}"])
def test_json_that_python_does_not_take_is_no_query(shop: Site, body: str) -> None:
    answer = shop.client.post("/query", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert shop.client.post("/session", content=body).status_code == 400


def test_nested_keys_and_conditions_end_somewhere(shop: Site) -> None:
    deep = DEEP[:15_000]
    assert shop.client.get(f"/views/sales/{deep}").status_code == 400
    assert shop.client.get("/views/sales", params={"where": f"tags={deep}"}).status_code == 400


def test_bytes_of_sql_are_base64_as_those_of_views(shop: Site) -> None:
    told = shop.query("SELECT x'ff00' AS b, 'text' AS t")
    assert told["rows"] == [["/wA=", "text"]]
    assert [column["type"] for column in told["columns"]] == ["binary", "string"]
    arrow = shop.client.post("/query", json={"sql": "SELECT x'ff00' AS b"}, headers={"Accept": ARROW})
    assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == [{"b": b"\xff\x00"}]


def asked_slowly(api: Starlette, path: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """What is answered to a request whose body goes on for ever after these messages."""
    coming, sent = list(messages), list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return coming.pop(0) if coming else await asyncio.Future[dict[str, Any]]()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [(b"host", b"localhost")]}
    asyncio.run(api(scope, receive, send))
    return sent


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.serving.bodies.BODY_S", 0.0)
    half = {"type": "http.request", "body": b'{"token": ', "more_body": True}
    api = api_of(tmp_path, "127.0.0.1")
    for path in ("/session", "/query"):
        head, body = asked_slowly(api, path, half)
        assert head["status"] == 408
        assert (b"connection", b"close") in head["headers"]
        assert b"did not come within" in body["body"]


def test_a_body_that_is_broken_off_is_no_mistake_of_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    half = {"type": "http.request", "body": b'{"token": ', "more_body": True}
    head, _ = asked_slowly(api_of(tmp_path, "127.0.0.1"), "/session", half, {"type": "http.disconnect"})
    assert head["status"] == 400
    assert caplog.text == ""


@pytest.mark.parametrize(
    "query", ["limit=x", "limit=-1", "limit=1001", "limit=1&limit=2", "nope=1", "partition=1e9", "whole=1"]
)
def test_parameters_are_checked(shop: Site, query: str) -> None:
    assert shop.client.get(f"/topics/orders/records?{query}").status_code == 400


def test_every_answer_forbids_what_a_page_does_not_need(guarded: TestClient) -> None:
    for path in ("/", "/views", "/nowhere", "/openapi.json"):
        headers = guarded.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
