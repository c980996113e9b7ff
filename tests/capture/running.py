"""A capture that runs for a test, in the test's process, with a real worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace.capture.declarations import Captured
from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from tests.servers import ROOT

HOME = ROOT / ".tools" / "capture"
os.environ.setdefault("HEADRACE_CAPTURE_JAVA", "-XX:TieredStopAtLevel=1")  # short lives: less compiling


class Running:
    """``CaptureRun`` with what it told."""

    def __init__(self, app: str, tables: Sequence[Captured], bootstrap: str, folder: Path, **more: Any) -> None:
        self.told: list[str] = []
        self.settings = CaptureSettings(bootstrap, folder, home=HOME, look_every_s=0.5, **more)
        self.run = CaptureRun(app, tables, self.settings, self.told.append)
        self.run.start()

    @property
    def worker_pid(self) -> int:
        supervisor = self.run.supervisor
        return supervisor.worker.pid if supervisor is not None and supervisor.worker is not None else 0

    def kill_worker(self) -> None:
        supervisor = self.run.supervisor
        assert supervisor is not None
        assert supervisor.worker is not None
        supervisor.worker.kill()

    def until(self, enough: Callable[[], bool], patience: float = 240.0) -> None:
        deadline = time.monotonic() + patience
        while not enough():
            assert time.monotonic() < deadline, f"told: {self.told}; {[one.entry() for one in self.run.statuses]}"
            time.sleep(0.1)

    def state(self, table: str) -> str:
        return next(one.state for one in self.run.statuses if one.name == table)

    def stop(self) -> None:
        self.run.stop()
