"""Running an app: everything is checked and prepared, then each query runs in the care of its own thread.

``prepare`` starts Spark, plans all queries, and decides which generation of each to go on with; a query that has
changed or has lost its checkpoint stops it here, before anything runs. ``run`` starts them, obeys commands from the
catalog, puts a rebuilt view in the old one's place once it has caught up, and ends as asked.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import FolderInUse, HeadraceError, ServerAway, UnknownTopic
from headrace.feed.catalog import Catalog, Commands, iso_now, read_catalog
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, MARKS, delete_topics, ensure_topic, read_table
from headrace.pipelines.app import App
from headrace.pipelines.captured import ensure_input_topic, learn_columns
from headrace.pipelines.checkpoint import Checkpoint
from headrace.pipelines.declarations import Kind, Query
from headrace.pipelines.delivery import Deliverer
from headrace.pipelines.fingerprint import fingerprint
from headrace.pipelines.folders import Folder, open_folder
from headrace.pipelines.generations import Generation, choose, generations_of
from headrace.pipelines.jobs import QueryJob, ensure_checkpoint
from headrace.pipelines.marks import Mark, mark_key
from headrace.pipelines.plan import planned, sources
from headrace.pipelines.running import RunningQuery
from headrace.pipelines.settings import RunSettings, Until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Runner", "ends_of", "lock_app"]

LOOK_EVERY_S = 0.2
STOP_PATIENCE_S = 8.0


class Runner:
    """One run of an app."""

    def __init__(
        self,
        app: App,
        settings: RunSettings,
        told: Callable[[str], None],
        *,
        spark: SparkSession | None = None,
        crash: Callable[[str], None] | None = None,
    ) -> None:
        self.app, self.settings = app, settings
        self.jobs: dict[str, QueryJob] = {}
        self.running: dict[str, RunningQuery] = {}
        self.stop_asked = threading.Event()
        self.cluster = Cluster(settings.bootstrap, settings.client)
        self._told, self._spark, self._crash = told, spark, crash
        self._swaps: dict[str, dict[str, dict[int, int]]] = {}
        self._deliverers: list[Deliverer] = []
        self._older: list[Generation] = []
        self._lock: int | None = None

    def prepare(self) -> None:
        """Check everything, start Spark, and choose what to go on with."""
        if not self.app.queries:
            raise HeadraceError(
                f"app {self.app.name!r} has no view, derived stream or alert.",
                hint="declare one with @app.view(key=...)",
            )
        self._catalog = Catalog(self.cluster)
        self._lock = lock_app(self.settings.folder / "checkpoints" / self._own, self.app.name)
        ensure_topic(self.cluster, MARKS)
        learn_columns(self.app, self.cluster, self._told, rebuild=self.settings.rebuild)
        for one in self.app:
            if not isinstance(one, Query):
                ensure_input_topic(self.cluster, one, self._told)
        if self._spark is None:
            self._spark = self.settings.start_spark(self.app.name)
        self._choose(self._spark, self._folder())

    @property
    def _own(self) -> str:
        """Where the app's own things are, among those of all clusters and apps."""
        return f"{self.cluster.id() or 'unnamed'}/{self.app.name}"

    def _folder(self) -> Folder:
        found = open_folder(self._session, self.settings.checkpoints_at)
        return found.below(self._own)

    def _session(self) -> SparkSession:
        if self._spark is None:
            raise HeadraceError("Spark is not running.")
        return self._spark

    def _choose(self, spark: SparkSession, folder: Folder) -> None:
        plans = planned(spark, self.app)
        marks = read_table(self.cluster, MARKS, f"{self.app.name}.")
        building, topics = threading.Lock(), dict[str, str]()
        chosen: dict[str, Generation] = {}
        for name, plan in plans.items():
            for remark in plan.remarks:
                self._told(f"{plan.query}: {remark}")
            inputs = sources(self.app, plans, topics)
            read_as = [inputs[r].read_as for r in plan.query.reads]
            said = fingerprint(plan.query, [*read_as, *(["partial sessions"] if plan.sessions else [])])
            found = generations_of(plan.query, marks)
            generation = self._generation(plan.query, said, found, folder)
            topics[name], chosen[name] = generation.topic, generation
            self._older += [Generation(plan.query, n, "") for n in found if n < generation.number]
            checkpoint = Checkpoint(folder.below(generation.id))
            mark = found.get(generation.number)
            if mark is not None and mark.entry and self.settings.start_from is None:
                ensure_checkpoint(plan, checkpoint)
            if self.settings.start_from is not None and checkpoint.is_there:
                self._told(f"{plan.query.kind} {name} has its checkpoint: it goes on where it was, not from the time")
            if generation.is_new:
                checkpoint.delete()
            read = {name: inputs[name] for name in plan.query.reads}
            self.jobs[name] = QueryJob(
                spark, plan, generation, read, self.settings, checkpoint, building=building, crash=self._crash
            )
        for generation in chosen.values():
            self._make_topics(generation)

    def _generation(self, query: Query, said: str, found: Mapping[int, Mark], folder: Folder) -> Generation:
        written = {n: mark for n, mark in found.items() if mark.entry or self._has_rows(Generation(query, n, ""))}
        generation = choose(query, said, found, written, rebuild=self.settings.rebuild)
        mark = found.get(generation.number)
        lost = mark is not None and mark.entry and not Checkpoint(folder.below(generation.id)).is_there
        if lost and self.settings.rebuild:
            return Generation(query, max(found) + 1, said, is_new=True)
        return generation

    def _has_rows(self, generation: Generation) -> bool:
        try:
            return any(end for _, end in self.cluster.bounds(generation.topic).values())
        except UnknownTopic:
            return False

    def _make_topics(self, generation: Generation) -> None:
        query = generation.query
        policy = COMPACTED if query.kind is Kind.VIEW else {}
        ensure_topic(self.cluster, generation.topic, query.partitions, policy)
        if query.kind is Kind.ALERT:
            ensure_topic(self.cluster, f"{query.id}.dead", 1, {})
        else:
            ensure_topic(self.cluster, f"{generation.id}.dead")

    def run(self) -> int:
        """Run until it is enough; returns the exit code: 1 if a query failed."""
        if self.stop_asked.is_set():
            self.stop()
            return 0
        self.register_views()
        commands = Commands(self.cluster, self.app.name)
        try:
            for job in self.jobs.values():
                self._start(job)
            targets = self._ends() if self.settings.until is Until.ONCE else None
            while not self.stop_asked.is_set():
                for name, action in commands.poll(LOOK_EVERY_S):
                    self._obey(name, action)
                if self._look(targets):
                    break
        finally:
            self.stop()
            commands.close()
        return 1 if any(one.status.state == "failed" for one in self.running.values()) else 0

    def _look(self, targets: Mapping[str, dict[str, dict[int, int]]] | None) -> bool:
        """Swap what caught up; whether it is enough. While the broker is away, neither."""
        try:
            self.swap_what_caught_up()
            return self._is_enough(targets)
        except ServerAway:
            self.cluster.close()
            return False

    def stop(self) -> None:
        """Stop all queries, within seconds."""
        for deliverer in self._deliverers:
            deliverer.ask_to_stop()
        for running in self.running.values():
            running.ask_to_stop()
        deadline = time.monotonic() + STOP_PATIENCE_S
        for running in self.running.values():
            running.join(max(0.1, deadline - time.monotonic()))
        for deliverer in self._deliverers:
            deliverer.join(max(0.1, deadline - time.monotonic()))
        if self._lock is not None:  # else there is nothing that it could have said
            self._catalog.drain()
            os.close(self._lock)
            self._lock = None

    def _start(self, job: QueryJob) -> None:
        def publish(status: dict[str, Any]) -> None:
            self._catalog.put(f"query/{job.app}/{job.name}", status)

        def publish_plan(plan: str) -> None:
            self._catalog.put(f"plan/{job.app}/{job.name}", {"plan": plan, "at": iso_now()})

        self.running[job.name] = RunningQuery(job, os.getpid(), self._told, publish, publish_plan)
        self.running[job.name].start()
        query = job.plan.query
        if query.kind is Kind.ALERT and query.to is not None:
            deliverer = Deliverer(job.cluster, query, job.generation.topic, self._told)
            deliverer.start()
            self._deliverers.append(deliverer)

    def _obey(self, name: str, action: str) -> None:
        running = self.running.get(name)
        if running is None or action not in ("stop", "restart"):
            return
        self._told(f"{running.job.kind} {name}: {action} was asked for")
        running.ask_to_stop()
        running.join(STOP_PATIENCE_S)
        if action == "restart":
            self._restart(self.jobs[name])

    def _restart(self, job: QueryJob) -> None:
        for deliverer in [one for one in self._deliverers if one.query.name == job.name]:
            deliverer.ask_to_stop()
            deliverer.join(STOP_PATIENCE_S)
            self._deliverers.remove(deliverer)
        self._start(job)

    def register_views(self) -> None:
        """Tell the catalog of views; one that is built anew takes the old one's place when it has caught up."""
        known = read_catalog(self.cluster, "view")
        for job in self.jobs.values():
            if job.kind is not Kind.VIEW:
                continue
            entry = known.get(f"{job.app}/{job.name}")
            if entry is None or entry["topic"] == job.generation.topic:
                self._enter(job)
            else:
                self._swaps[job.name] = ends_of(self.cluster, job)
        if not self._swaps:
            self._remove_older()

    def _enter(self, job: QueryJob) -> None:
        columns = [{"name": column.name, "type": column.type} for column in job.plan.columns]
        self._catalog.put(
            f"view/{job.app}/{job.name}",
            {
                "app": job.app,
                "name": job.name,
                "topic": job.generation.topic,
                "key": list(job.plan.query.key),
                "columns": columns,
                "fingerprint": job.generation.fingerprint,
                "built_at": iso_now(),
            },
        )

    def swap_what_caught_up(self) -> None:
        """Views that were built anew and have read what was there at the start take the old ones' places."""
        for name, ends in list(self._swaps.items()):
            if self.jobs[name].has_read(ends):
                del self._swaps[name]
                self._enter(self.jobs[name])
                self._told(f"view {name} is built anew and takes the place of the old one")

    def _remove_older(self) -> None:
        """Generations that nobody reads any more: marks, checkpoints, topics."""
        folder = self._folder()
        for old in self._older:
            Checkpoint(folder.below(old.id)).delete()
        delete_topics(self.cluster, [topic for old in self._older for topic in (old.topic, f"{old.id}.dead")])
        self._catalog.forget_marks([mark_key(old.id) for old in self._older])
        self._older.clear()

    def _ends(self) -> dict[str, dict[str, dict[int, int]]]:
        return {name: ends_of(self.cluster, job) for name, job in self.jobs.items()}

    def _is_enough(self, targets: Mapping[str, dict[str, dict[int, int]]] | None) -> bool:
        active = {name: one for name, one in self.running.items() if not one.is_over}
        if not active:
            return all(one.status.state == "failed" for one in self.running.values()) or (
                self.settings.until is not Until.STOPPED
            )
        if self.settings.until is Until.STOPPED:
            return False
        for name, running in active.items():
            job = self.jobs[name]
            own = {r: one.topic for r, one in job.inputs.items() if isinstance(one.declared, Query)}
            ends = ends_of(self.cluster, job)
            if targets is not None:
                ends = {
                    topic: targets[name][topic] if topic not in own.values() else found for topic, found in ends.items()
                }
            if not job.has_read(ends) or not _is_quiet(running):
                return False
        return not self._swaps and all(one.has_sent_all() for one in self._deliverers)


def _is_quiet(running: RunningQuery) -> bool:
    """Whether Spark has nothing to do for a query: no data, and no windows to close."""
    query = running.spark_query
    if query is None or running.status.state != "running":
        return False
    done = threading.Event()

    def wait() -> None:
        try:
            query.processAllAvailable()
            done.set()
        except Exception:
            return

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(5.0)
    return done.is_set()


def ends_of(cluster: Cluster, job: QueryJob) -> dict[str, dict[int, int]]:
    """Where the topics that a query reads end now."""
    return {
        one.topic: {partition: end for partition, (_, end) in cluster.bounds(one.topic).items()}
        for one in job.inputs.values()
    }


def lock_app(folder: Path, app: str) -> int:
    """Hold the app's checkpoints: two runs on one machine would write into each other's."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(lock, 20).decode(errors="replace").strip() or "?"
        os.close(lock)
        raise FolderInUse(
            f"app {app!r} is already running here, as process {holder}.", hint="stop that one first (Ctrl-C or kill)"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock
