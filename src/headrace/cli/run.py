"""``headrace run``: an app's pipelines, in the foreground."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace import tracing
from headrace.cli.capturing import captures_of
from headrace.cli.child import node_for
from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import Checkpoints, ClientSettings, Http, Logs, MaybeLog, SparkSettings, Views
from headrace.cli.pairs import own_client_settings, spark_settings
from headrace.cli.start import DEFAULT_DATA, DEFAULT_HTTP, views_place
from headrace.cli.stopping import stop_signals
from headrace.logs import LogForm, spoken
from headrace.operations.cluster import DEFAULT_SERVER

if TYPE_CHECKING:
    from headrace.capture.run import CaptureRun
    from headrace.pipelines.app import App
    from headrace.pipelines.settings import RunSettings

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE[:APP]", show_default=False, help="A Python file with an hr.App.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Process what is there now, then stop.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing more is to do.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build anew what has changed or lost its checkpoint, then swap.")
    ] = False,
    start_from: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Where a checkpoint is lost: go on from this time, state empty."),
    ] = None,
    log: MaybeLog = None,
    data: Annotated[
        Path,
        typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="Checkpoints, and the node's data."),
    ] = Path(DEFAULT_DATA),
    spark: Annotated[
        str,
        typer.Option(
            "--spark",
            "--master",
            envvar="HEADRACE_SPARK",
            metavar="URL",
            help="Spark's master: local[*], local-cluster[2,1,1024], spark://host:7077, k8s://https://host:6443, yarn.",
        ),
    ] = "local[*]",
    spark_conf: SparkSettings = None,
    checkpoints: Checkpoints = None,
    interval: Annotated[str, typer.Option(metavar="TIME", help="How often a batch begins at most.")] = "100 ms",
    views: Views = None,
    http: Http = DEFAULT_HTTP,
    client: ClientSettings = None,
    logs: Logs = LogForm.text,
) -> None:
    """Run an app: its views, derived streams and alerts. Ctrl-C stops it within seconds; it goes on where it was.

    [bold]Examples[/bold]

    \b
    headrace run shop.py
    headrace run shop.py --once
    headrace run shop.py --log kafka://kafka1:9092,kafka2:9092 --data /var/lib/shop
    headrace run shop.py --rebuild           after a view was changed
    headrace run shop.py --views postgresql://headrace@db.example/views
    headrace run shop.py --log kafka://kafka1:9092 --spark spark://spark.example:7077 \\
        --checkpoints hdfs://store.example/shop --spark-conf spark.archives=env.tar.gz#environment

    What Spark itself prints is in DIR/spark/spark.log. Views are kept by the node: --views and --http are for one that
    is started here; one that runs already keeps them as `headrace up` told it. On Apache Kafka a node that serves
    the views is started, unless one is at the usual address; --http none leaves that to others.
    """
    from headrace.pipelines.settings import RunSettings, Until

    if once and until_idle:
        raise CommandFailed("--once and --until-idle exclude each other.")
    interval_ms = _milliseconds(interval)
    _ensure_time(start_from)
    in_spark, hidden = spark_settings(spark_conf)
    wanted = RunSettings(
        log or DEFAULT_SERVER,
        data,
        client=own_client_settings(client),
        master=spark,
        interval_ms=interval_ms,
        rebuild=rebuild,
        start_from=start_from,
        until=Until.ONCE if once else Until.IDLE if until_idle else Until.STOPPED,
        checkpoints=checkpoints,
        spark=in_spark,
        hidden=hidden,
    )
    wanted.ensure_usable()
    loaded = _loaded(file, wanted)
    views_place(views)
    with node_for(log, data, wanted.client, _tell, views or None, http) as node:
        chosen = replace(wanted, bootstrap=node.server, log_data=node.log_data)
        chosen.ensure_reachable()
        with captures_of(loaded, chosen, _tell) as captures:
            code = _run(loaded, chosen, captures)
    _leave(code)


def _loaded(file: str, settings: RunSettings) -> App:
    """The app of the file. Its mistakes are found without Spark, unless the file itself needs it, as a udf does."""
    from headrace.pipelines.load import NeedsSpark, load_app

    try:
        return load_app(file)
    except NeedsSpark:
        _tell(f"{file} uses Spark as it is loaded: starting Spark")
        settings.start_spark(Path(file).stem)
        return load_app(file)


def _run(loaded: App, settings: RunSettings, captures: CaptureRun | None) -> int:
    from headrace.pipelines.class_archive import make_in_background
    from headrace.pipelines.runner import Runner
    from headrace.pipelines.settings import Until

    runner = Runner(loaded, settings, _tell)
    if captures is not None and settings.until is not Until.STOPPED:
        _tell(f"app {loaded.name}: waiting until what the databases have is captured")
        if not captures.wait_until_current(runner.stop_asked):
            raise CommandFailed(
                "the captures did not come to what the databases have.",
                detail=captures.trouble,
                hint="headrace capture status",
            )
    ready = False

    def stop() -> None:
        runner.stop_asked.set()
        if not ready:
            raise KeyboardInterrupt

    with stop_signals(stop):
        try:
            _tell(f"app {loaded.name}: starting Spark")
            runner.prepare()
            ready = True
        except KeyboardInterrupt:
            pass
        if runner.stop_asked.is_set():  # whoever was interrupted may have kept it to himself
            _tell(f"app {loaded.name}: stopped before it ran")
            return 128 + signal.SIGINT
        make_in_background()
        return runner.run()


def _tell(sentence: str) -> None:
    spoken("headrace.run", sentence)


def _milliseconds(text: str) -> int:
    from headrace.pipelines.durations import milliseconds

    try:
        return milliseconds(text)
    except ValueError as bad:
        raise CommandFailed(f"--interval: {bad}.", hint='say it like --interval "100 ms"') from None


def _ensure_time(start_from: str | None) -> None:
    from headrace.pipelines.time import moment_ms

    try:
        moment_ms(start_from or "1970-01-01")
    except ValueError:
        raise CommandFailed(
            f"--from: {start_from!r} is not a time.", hint="write it like 2026-01-31T12:00Z (without a zone it is UTC)"
        ) from None


def _leave(code: int) -> None:
    """End now: everything is written, and Spark would take seconds to take itself apart."""
    tracing.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None and getattr(gateway, "proc", None) is not None:
        gateway.proc.stdin.close()
    os._exit(code)
