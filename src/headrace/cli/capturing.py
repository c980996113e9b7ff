"""The captures of an app, for commands that run one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.capture.run import CaptureRun
    from headrace.capture.settings import CaptureSettings
    from headrace.pipelines.app import App
    from headrace.pipelines.settings import RunSettings

__all__ = ["capture_settings", "captures_of"]


def capture_settings(server: str, data: Path, client: dict[str, str], log_data: Path | None = None) -> CaptureSettings:
    """How captures are run."""
    from headrace.capture.settings import CaptureSettings

    return CaptureSettings(server, data.resolve(), client, log_data)


@contextlib.contextmanager
def captures_of(app: App, settings: RunSettings, told: Callable[[str], None]) -> Iterator[CaptureRun | None]:
    """The captures of an app while the block runs; None if it has no captured table. Checked before anything runs."""
    tables = app.captured
    if not tables:
        yield None
        return
    from headrace.capture.run import CaptureRun

    chosen = capture_settings(settings.bootstrap, settings.folder, dict(settings.client), settings.log_data)
    run = CaptureRun(app.name, tables, chosen, told)
    run.start()
    told(f"app {app.name}: capturing {', '.join(table.name for table in tables)}")
    try:
        yield run
    finally:
        run.stop()
