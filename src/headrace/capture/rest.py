"""Kafka Connect's REST interface, as far as we use it: JSON over HTTP on the loopback device."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from headrace.errors import HeadraceError, ServerAway

__all__ = ["ConnectRest", "RestRefused", "cause_of", "patiently"]

_PATIENCE_S = 20.0


class RestRefused(HeadraceError):
    """Connect answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Kafka Connect refused it ({status}).", detail=message[:800])
        self.status = status


class ConnectRest:
    """One worker's REST interface."""

    def __init__(self, port: int, patience_s: float = _PATIENCE_S) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._patience_s = patience_s

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self._patience_s) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise RestRefused(error.code, _message(error.read())) from None
        except (OSError, TimeoutError) as away:
            raise ServerAway(f"Kafka Connect does not answer: {away}.") from None
        return json.loads(text) if text else None

    def connectors(self) -> list[str]:
        """The names of all connectors; answers only once the worker is part of its group."""
        found: list[str] = self._ask("GET", "/connectors")
        return found

    def config(self, name: str) -> dict[str, str] | None:
        """A connector's configuration, with secrets as references; None if there is no such connector."""
        try:
            found: dict[str, str] = self._ask("GET", f"/connectors/{quote(name)}/config")
        except RestRefused as refused:
            if refused.status == 404:
                return None
            raise
        return found

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Make a connector, or change it; its task starts anew."""
        self._ask("PUT", f"/connectors/{quote(name)}/config", config)

    def status(self, name: str) -> dict[str, Any]:
        """States of the connector and its tasks, with the trace of a failure."""
        found: dict[str, Any] = self._ask("GET", f"/connectors/{quote(name)}/status")
        return found

    def restart(self, name: str) -> None:
        """Start the connector anew, and its task."""
        self._ask("POST", f"/connectors/{quote(name)}/restart?includeTasks=true")

    def stop(self, name: str) -> None:
        """Stop the task and let its connections go; the configuration stays."""
        self._ask("PUT", f"/connectors/{quote(name)}/stop")

    def resume(self, name: str) -> None:
        """Go on after a pause or a stop."""
        self._ask("PUT", f"/connectors/{quote(name)}/resume")

    def delete(self, name: str) -> None:
        """Remove the connector, if it is there."""
        try:
            self._ask("DELETE", f"/connectors/{quote(name)}")
        except RestRefused as refused:
            if refused.status != 404:
                raise

    def offsets(self, name: str) -> dict[str, Any] | None:
        """The position that is stored, if there is one."""
        found = self._ask("GET", f"/connectors/{quote(name)}/offsets")["offsets"]
        return dict(found[0]["offset"]) if found and found[0].get("offset") else None

    def stop_and_wait(self, name: str, given_up: threading.Event, patience_s: float = 60.0) -> None:
        """Stop a connector, and wait until its task is gone."""
        patiently(lambda: self.stop(name), given_up)
        self._wait(name, _is_stopped, given_up, patience_s, "does not stop")

    def resume_and_wait(self, name: str, given_up: threading.Event, patience_s: float = 60.0) -> None:
        """Let a stopped connector go on, and wait until it is no longer called stopped."""
        patiently(lambda: self.resume(name), given_up)
        self._wait(
            name, lambda status: status["connector"]["state"] != "STOPPED", given_up, patience_s, "does not go on"
        )

    def _wait(
        self,
        name: str,
        enough: Callable[[dict[str, Any]], bool],
        given_up: threading.Event,
        patience_s: float,
        complaint: str,
    ) -> None:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not given_up.is_set():
            try:
                if enough(self.status(name)):
                    return
            except RestRefused:  # it rebalances, or has no status yet
                pass
            time.sleep(0.1)
        raise ServerAway(f"connector {name} {complaint}.")

    def forget_offsets(self, name: str) -> None:
        """Forget the position of a stopped connector: it begins anew."""
        self._ask("DELETE", f"/connectors/{quote(name)}/offsets")


def patiently(ask: Callable[[], None], stop: threading.Event, patience_s: float = 60.0) -> None:
    """Ask Connect again while it rebalances (409) or is busy."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except RestRefused as refused:
            if refused.status not in (409, 500, 503) or time.monotonic() > deadline or stop.is_set():
                raise
        time.sleep(0.2)


def _is_stopped(status: Mapping[str, Any]) -> bool:
    """A task that ended after Connect had forgotten it is told of as unassigned, until the next rebalance."""
    tasks = status.get("tasks") or []
    return status["connector"]["state"] == "STOPPED" and all(task["state"] == "UNASSIGNED" for task in tasks)


def cause_of(trace: str) -> str:
    """The innermost reason of a Java trace, in one line."""
    lines = [line.strip() for line in trace.splitlines() if line and not line.startswith(("\t", "    at"))]
    causes = [line.removeprefix("Caused by: ") for line in lines]
    return causes[-1][:500] if causes else "unknown"


def _message(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")
