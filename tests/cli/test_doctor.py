"""The doctor sees what is wrong, and says what to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from headrace import _kernel
from headrace.cli.doctor import folder, machine, network
from headrace.cli.doctor.finding import Finding, Verdict, findings_of
from headrace.log import LogStore
from headrace.log.checked_file import write_checked
from headrace.log.files import DiskFiles
from tests.cli.command import Cli
from tests.servers import Headrace, free_port


def looked(data: Path) -> dict[str, Finding]:
    return {finding.check: finding for name, check in folder.checks(data) for finding in findings_of(name, check)}


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def store_with(data: Path, timestamp_ms: int) -> LogStore:
    store = LogStore.open(data)
    store.create_topic("orders", 1, {"message.timestamp.after.max.ms": str(2**62)})
    store.partition("orders", 0).append(_kernel.build_batch([(timestamp_ms, b"k", b"v", [])]), acks_all=False)
    return store


def test_a_running_node_is_fine_and_its_process_is_named(tmp_path: Path) -> None:
    node = Headrace(tmp_path / "node")
    try:
        file = tmp_path / "some.toml"
        file.write_text(f'server = "{node.bootstrap}"\n[up]\nlisten = "{node.bootstrap}"\nhttp = "none"\n')
        ran = Cli(folder=tmp_path).run("doctor", "--data", str(node.data), "--settings", str(file), "-o", "json")
        found = {each["check"]: each for each in ran.json["findings"]}
        assert ran.code == 0, ran.out
        assert found["lock"]["seen"] == f"a node runs on it, process {node.pid}"
        assert f"held by process {node.pid}" in found["port listen"]["seen"]
        assert found["log"]["verdict"] == found["kernel"]["verdict"] == found["settings"]["verdict"] == "ok"
        assert "1 node" in found["log"]["seen"]
        assert found["sync"]["seen"].startswith("a sync takes")
        assert not list(node.data.glob(".doctor*"))
    finally:
        node.kill9()
    after = looked(node.data)
    assert after["last stop"].verdict is Verdict.WARN
    assert "lock" not in after


def test_what_does_not_work_is_told_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('dat = "x"\n')
    ran = Cli(f"127.0.0.1:{free_port()}", tmp_path).run("doctor")
    assert ran.code == 1
    assert "fail  settings: headrace.toml:1: dat: there is no such setting." in ran.out
    assert "what to do: did you mean data?" in ran.out
    assert "fail  log: " in ran.out
    assert "2 failed" in ran.out


def test_the_log_is_asked_with_the_settings_that_every_command_has(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[client]\n"security.protocol" = "of-the-file"\n')
    env = {"HEADRACE_CLIENT": "security.protocol=of-the-environment"}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = f"127.0.0.1:{listening.getsockname()[1]}"
        assert "of-the-environment" in Cli(server, tmp_path, env).run("doctor").out
        assert "of-the-file" in Cli(server, tmp_path).run("doctor").out


def test_what_up_refuses_is_seen(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[up]\nhttp = "0.0.0.0:0"\nmetrics = "192.0.2.1:9308"\n')
    ran = Cli(folder=tmp_path).run("doctor", "-o", "json")
    found = {each["check"]: each for each in ran.json["findings"]}
    assert ran.code == 1
    assert found["token"]["verdict"] == "fail"
    assert "can be reached from other machines, and no token is set" in found["token"]["seen"]
    assert found["port metrics"]["verdict"] == "fail"
    assert "--metrics HOST:PORT" in found["port metrics"]["todo"]
    with_token = Cli(folder=tmp_path, env={"HEADRACE_TOKEN": "hush", "HEADRACE_METRICS": "127.0.0.1:0"})
    ran = with_token.run("doctor", "-o", "json")
    assert "hush" not in ran.out
    assert "fail" not in {
        each["verdict"] for each in ran.json["findings"] if each["check"] in ("token", "port metrics")
    }


def test_packages_of_versions_that_do_not_fit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["kio>=0.6.5,<0.7", "rich>=14", "uvloop>=0.22", 'pyspark>=4.2,<5; extra == "pipelines"']
    there = {"kio": "0.7.1", "rich": "15.0", "pyspark": "3.5.4"}

    def version(name: str) -> str:
        if name not in there:
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(importlib.metadata, "requires", lambda _: wanted)
    monkeypatch.setattr(importlib.metadata, "version", version)
    found = {one.check: one for one in machine.packages()}
    assert found["packages"].verdict is Verdict.FAIL
    assert found["packages"].seen == "kio is 0.7.1, not <0.7,>=0.6.5; uvloop is missing"
    assert found["extra pipelines"].verdict is Verdict.FAIL
    assert found["extra pipelines"].seen.startswith("pyspark is 3.5.4, not <5,>=4.2")
    there |= {"kio": "0.6.9", "uvloop": "0.22.1"}
    del there["pyspark"]
    found = {one.check: one for one in machine.packages()}
    assert found["packages"].verdict is Verdict.OK
    assert found["extra pipelines"].verdict is Verdict.WARN


def test_a_clock_that_nothing_keeps_right_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for right, verdict in ((True, Verdict.OK), (False, Verdict.WARN)):
        monkeypatch.setattr(machine, "_is_synchronised", lambda right=right: right)
        assert next(iter(machine.clock())).verdict is verdict


def test_folders_that_no_node_starts_on(tmp_path: Path) -> None:
    LogStore.open(tmp_path / "new").close()
    node = {"format": 99, "cluster_id": "x", "node_id": 1, "leader_epoch": 0, "clean": True}
    write_checked(DiskFiles(), tmp_path / "new" / "node", json.dumps(node).encode())
    assert looked(tmp_path / "new")["format"].verdict is Verdict.FAIL
    (tmp_path / "new" / "node").write_bytes(b"HRF1nonsense")
    (tmp_path / "new" / "node.previous").unlink()
    assert "is damaged" in looked(tmp_path / "new")["format"].seen
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "restoring").touch()
    assert looked(tmp_path / "half")["lock"].verdict is Verdict.FAIL
    (tmp_path / "file").touch()
    assert looked(tmp_path / "file")["data"].verdict is Verdict.FAIL
    assert looked(tmp_path / "nothing" / "yet")["data"].verdict is Verdict.OK


def test_a_clock_that_is_behind_the_newest_record_is_told(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    store_with(tmp_path / "good", now - 5000).close()
    assert looked(tmp_path / "good")["newest record"].verdict is Verdict.OK
    store_with(tmp_path / "bad", now + 86_400_000).close()
    assert "in the future" in looked(tmp_path / "bad")["newest record"].seen


def test_a_port_that_another_process_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        found = only(network.port("listen", f"127.0.0.1:{number}", "--listen"))
        assert found.verdict is not Verdict.FAIL
        assert f"held by process {os.getpid()}" in found.seen
    assert only(network.port("listen", f"127.0.0.1:{free_port()}", "--listen")).verdict is Verdict.OK
    assert only(network.port("listen", "x:y:z", "--listen")).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("says", "verdict"),
    [('openjdk version "21.0.1"', Verdict.OK), ('java version "1.8.0_391"', Verdict.FAIL), ("nonsense", Verdict.FAIL)],
)
def test_java_is_run_to_see_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, verdict: Verdict
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = next(iter(machine.java()))
    assert found.verdict is verdict
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert next(iter(machine.java())).verdict is Verdict.WARN


def test_a_database_that_does_not_answer_and_no_password_of_it() -> None:
    found = only(network.views(f"postgresql://me:hush@127.0.0.1:{free_port()}/views"))
    assert found.verdict is Verdict.FAIL
    assert "hush" not in found.seen + str(found.todo)


def test_a_check_that_breaks_says_so() -> None:
    def broken() -> Iterable[Finding]:
        raise RuntimeError("oops")

    assert only(findings_of("x", broken)).verdict is Verdict.FAIL
