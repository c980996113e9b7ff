"""Backups of a node under clients: what each holds is what the clients had been told when it was taken, and goes on."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.backup.manifest import read_manifest
from headrace.backup.saving import save
from headrace.errors import StorageError
from tests.checker.history import Event, load
from tests.checker.laws import check
from tests.cli.command import Cli
from tests.faults.campaign import OPTIONS, ROLES, Campaign, Crew, patiently
from tests.servers import Headrace

CREW = tuple(role for role in ROLES if role.kind != "reader" and role.name not in ("copier-1", "copier-2", "worker-1"))
GOING_ON = tuple(role for role in CREW if role.kind in ("copier", "follower", "worker"))
HEADRACE = str(Path(sys.executable).with_name("headrace"))


def headrace(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HEADRACE, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def past_of(history: list[Event], backup: Path) -> list[Event]:
    """What had happened at the moment of a backup: the clients and the node look at the same clock."""
    moment_ns = read_manifest(backup).moment_ns
    return [event for event in history if event.time <= moment_ns]


def options() -> list[str]:
    return list(itertools.chain(*(("--set", option) for option in (*OPTIONS, "log.cleaner.backoff.ms=50"))))


@pytest.mark.timeout(900)
def test_a_restored_node_has_what_clients_were_told_before_and_goes_on(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    campaign = Campaign(tmp_path / "before", seed, CREW)
    node = Headrace(tmp_path / "node", options=options())
    taken: list[Path] = []
    try:
        crew = campaign.begin(node.bootstrap)
        try:
            for number in range(3):
                enough = 20 * (number + 1)
                patiently(lambda enough=enough: _ends(campaign.history) > enough, "clients do nothing")
                more = ("--since", taken[-1]) if taken else ()
                taken.append(tmp_path / f"backup-{number}")
                done = headrace("backup", taken[-1], "--data", node.data, *more)
                assert done.returncode == 0, done.stderr
        finally:
            crew.kill_all()
        assert node.running
    finally:
        node.kill9()
    one = campaign.dice.choice(taken)
    _check_restored(tmp_path / "after", one, past_of(load(campaign.history), one))


def _ends(history: Path) -> int:
    """How many transactions have ended."""
    return sum('"ok","end"' in line for path in history.glob("*.jsonl") for line in path.read_text().splitlines())


def _check_restored(folder: Path, backup: Path, past: list[Event]) -> None:
    """The same clients go on with the restored node, and all that they are told fits what they were told before."""
    campaign = Campaign(folder, 1, CREW)
    (campaign.history / "past.jsonl").write_text("".join(event.line() + "\n" for event in past))
    done = headrace("restore", backup, "--data", folder / "node" / "data")
    assert done.returncode == 0, done.stderr
    node = Headrace(folder / "node", options=options())
    try:
        crew = Crew(node.bootstrap, campaign.history, campaign.dice)
        crew._lives = Counter(dict.fromkeys(CREW, 1000))
        for role in GOING_ON:
            crew.start(role)
        try:
            campaign.finish(crew)
        finally:
            crew.kill_all()
    finally:
        node.kill9()
    findings = check(load(campaign.history))
    assert findings == []
    counts = Counter(event.f for event in past if event.type == "ok")
    assert counts["send"] > 100
    assert counts["end"] > 10


def test_a_backup_that_is_killed_is_not_whole_and_leaves_nothing_in_the_node(tmp_path: Path) -> None:
    node = Headrace(tmp_path / "node")
    try:
        made = subprocess.run(
            [HEADRACE, "produce", "orders", "-s", node.bootstrap],
            input="\n".join(f"{n:0100}" for n in range(20_000)),
            text=True,
            capture_output=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        target = tmp_path / "backup"
        stopped = subprocess.Popen(
            [sys.executable, "-c", STOPS_IN_THE_MIDDLE, str(node.data), str(target)], stdout=subprocess.PIPE, text=True
        )
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "in the middle\n"
        assert list((node.data / "~snapshots").iterdir())
        stopped.kill()
        stopped.wait()
        stopped.stdout.close()
        patiently(lambda: not list((node.data / "~snapshots").iterdir()) or None, "the snapshot stays")
        refused = headrace("restore", target, "--data", tmp_path / "restored")
        assert refused.returncode == 1
        assert "not a whole backup" in refused.stderr
        assert not (tmp_path / "restored").exists()
        again = headrace("backup", target, "--data", node.data, "-o", "json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["records"] == 20_000
    finally:
        node.kill9()


def test_a_node_that_is_started_again_ends_the_backup_of_it(tmp_path: Path) -> None:
    node = Headrace(tmp_path / "node")
    try:
        Cli(node.bootstrap)("produce", "orders", stdin="one\ntwo\n")
        began = []

        @contextlib.contextmanager
        def step(what: str, size: int) -> Iterator[Callable[[int], None]]:
            if not began:
                began.append(what)
                node.stop()
                node.start()
            yield lambda done: None

        with pytest.raises(StorageError, match="was started again"):
            save(node.data, tmp_path / "backup", step)
        assert not (tmp_path / "backup" / "manifest").exists()
        save(node.data, tmp_path / "backup", step)
    finally:
        node.kill9()


STOPS_IN_THE_MIDDLE = """
import contextlib, sys, time
from pathlib import Path
from headrace.backup.saving import save

@contextlib.contextmanager
def step(what, size):
    def tell(done):
        print("in the middle", flush=True)
        time.sleep(600)
    yield tell

save(Path(sys.argv[1]), Path(sys.argv[2]), step)
"""
