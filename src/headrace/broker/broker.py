"""The broker: what its handlers share, and its life from opening the data folder to closing it.

``async with Broker(settings) as broker`` opens the log, loads the groups, listens, and looks after retention and
compaction until the end of the block. All of it runs on one event loop; syncs and slow maintenance run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final
from uuid import UUID

from headrace.broker import error_codes
from headrace.broker.control import ControlServer
from headrace.broker.dynamic_settings import DynamicSettings
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.group_configs import GroupConfigs
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.modern_group import ModernSettings
from headrace.broker.groups.modern_records import GroupType
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.metrics import Metrics
from headrace.broker.metrics_server import MetricsServer
from headrace.broker.overflow import Overflow
from headrace.broker.quotas import Quotas
from headrace.broker.server import Server
from headrace.broker.shares.coordinator import ShareCoordinator
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.broker.transactions.settings import TransactionSettings
from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError, InvalidConfig, UnknownTopicId
from headrace.log.files import DiskFiles, Files
from headrace.log.group_commit import GroupCommit
from headrace.log.job import Job
from headrace.log.partition import PartitionLog
from headrace.log.snapshot import take_cut, write_snapshot
from headrace.log.store import LogStore, Topic
from headrace.settings import BrokerSettings, host_port

if TYPE_CHECKING:
    from headrace.broker.dispatch import Api

__all__ = ["Broker"]

_logger = logging.getLogger(__name__)

_UNSPECIFIED: Final = ("", "0.0.0.0", "::")
_METRICS_PORT: Final = 9308


class Broker:
    """A Kafka broker over one data folder."""

    store: LogStore
    commit: GroupCommit
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    shares: ShareCoordinator
    overflow: Overflow
    server: Server
    dynamic_settings: DynamicSettings
    group_configs: GroupConfigs
    quotas: Quotas
    loop: asyncio.AbstractEventLoop
    advertised_host: str
    advertised_port: int

    def __init__(self, settings: BrokerSettings, *, clock: Clock | None = None, files: Files | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.sessions = FetchSessions(self.clock, settings.value("max.incremental.fetch.session.cache.slots"))
        self.fetch_max_bytes: int = settings.value("fetch.max.bytes")
        self.port = 0
        self.metrics_address: str | None = None
        """Where the metrics can be had, if that was asked for."""
        self._files = files or DiskFiles()
        self._metrics = MetricsServer(Metrics(self).text)
        self._control = ControlServer(settings.data, self.snapshot)
        self._maintenance: asyncio.Task[None] | None = None
        self._tending = asyncio.Lock()
        """Held by who removes, replaces or indexes files of the log, or must not have it done."""
        self._job: Job | None = None
        self._stopping = False
        self._wake = asyncio.Event()
        self._crowded: set[PartitionLog] = set()
        self._started = False

    @property
    def host(self) -> str:
        """The address that it listens on."""
        return self.settings.host

    @property
    def apis(self) -> dict[int, Api]:
        """The APIs that it has, by key."""
        return self.server.apis

    # Life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the data folder and listen."""
        settings = self.settings
        self.loop = asyncio.get_running_loop()
        self.dynamic_settings = DynamicSettings(settings, self._files, settings.data)
        self.dynamic_settings.load()
        self.group_configs = GroupConfigs(settings, self._files, settings.data)
        self.group_configs.load()
        self.quotas = Quotas(self.clock, self._files, settings.data)
        self.quotas.load()
        defaults = self.dynamic_settings.topic_defaults()
        self.store = LogStore.open(settings.data, files=self._files, clock=self.clock, defaults=defaults)
        self.commit = GroupCommit(self.loop.call_soon_threadsafe)
        self.store.on_sync_wanted = self.commit.request
        self.store.on_removal_wanted = self._on_removal_wanted
        self.groups = GroupCoordinator(
            self.store,
            self.commit,
            self.clock,
            self.loop,
            _group_settings(settings),
            settings_of=self._settings_of_group,
        )
        try:
            self.groups.load()
            self.transactions = TransactionCoordinator(
                self.store, self.commit, self.groups, self.clock, self.loop, _transaction_settings(settings)
            )
            self.transactions.load()
            self.shares = ShareCoordinator(
                self.store, self.commit, self.groups, self.group_configs, self.clock, self.loop, settings
            )
            self.shares.load()
            self.overflow = Overflow(self.position_of, self.loop)
            self.server = Server(self)
            self.port = await self.server.start()
            await self._start_metrics()
        except BaseException:
            self.groups.close()
            self.commit.close()
            self.store.close()
            raise
        self.advertised_host = settings.advertised_host or _reachable(settings.host)
        self.advertised_port = settings.advertised_port or self.port
        self.dynamic_settings.note_address(self.host, self.port, self.advertised_host, self.advertised_port)
        self._maintenance = self.loop.create_task(self._maintain())
        await self._control.start()
        self._started = True

    async def stop(self) -> None:
        """Close every connection, then the data folder; everything acknowledged is on disk when it returns."""
        if not self._started:
            return
        self._started = False
        self.overflow.close()
        await self._control.stop()
        await self._metrics.stop()
        await self.server.stop()
        self._stopping = True
        self._wake.set()
        if self._job is not None:
            self._job.cancelled = True
        if self._maintenance is not None:
            await self._maintenance
        self.shares.close()
        self.transactions.close()
        self.groups.close()
        await self.loop.run_in_executor(None, self.commit.close)
        await asyncio.sleep(0)
        self.store.close()

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start_metrics(self) -> None:
        wanted = self.settings.value("headrace.metrics.listener")
        if not wanted:
            return
        try:
            self.metrics_address = await self.serve_metrics(*host_port(wanted, _METRICS_PORT))
        except OSError as error:
            await self.server.stop()
            raise InvalidConfig(
                f"metrics cannot be served at {wanted}: {error.strerror or error}.",
                hint="Choose another address in headrace.metrics.listener (--metrics HOST:PORT).",
            ) from error

    async def serve_metrics(self, host: str, port: int) -> str:
        """Answer ``GET /metrics`` from now on; where. Once."""
        port = await self._metrics.start(host, port)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    # What handlers share ---------------------------------------------------------------------------------------

    def find_topic(self, key: str | bytes | UUID) -> tuple[Topic | None, int]:
        """The topic of a name or an id (raw or not), or None and the error code that says so."""
        if isinstance(key, str):
            topic = self.store.topics.get(key)
            return topic, error_codes.NONE if topic else error_codes.UNKNOWN_TOPIC_OR_PARTITION
        try:
            return self.store.topic_by_id(key), error_codes.NONE
        except UnknownTopicId:
            return None, error_codes.UNKNOWN_TOPIC_ID

    def position_of(self, group: str, partition: PartitionLog) -> int | None:
        """The offset that a group has committed in a partition, or has settled all before; None if it has not."""
        committed = self.groups.offset(group, partition.topic, partition.index)
        return self.shares.position(group, partition) if committed is None else committed.offset

    def coordinator_of(self, topic: str) -> GroupCoordinator | TransactionCoordinator | ShareCoordinator | None:
        """Whose state a topic holds, if it is an internal one."""
        if topic == self.shares.journal.topic:
            return self.shares
        if topic == self.transactions.journal.topic:
            return self.transactions
        return self.groups if topic == self.groups.journal.topic else None

    def _settings_of_group(self, group_type: GroupType, group_id: str) -> ModernSettings:
        """What a consumer group or share group has, or the broker has for its like."""
        value = self.group_configs.value
        return ModernSettings(
            session_timeout_ms=value(group_id, f"{group_type}.session.timeout.ms"),
            heartbeat_interval_ms=value(group_id, f"{group_type}.heartbeat.interval.ms"),
            assignment_interval_ms=value(group_id, f"{group_type}.assignment.interval.ms"),
            max_size=self.settings.value(f"group.{group_type}.max.size"),
        )

    # Maintenance -----------------------------------------------------------------------------------------------

    async def _maintain(self) -> None:
        """Look after the log now and then: retention, compaction, checkpoints, files of deleted topics."""
        settings = self.settings
        retention_interval = settings.value("log.retention.check.interval.ms") / 1000
        interval = max(min(retention_interval, settings.value("log.cleaner.backoff.ms") / 1000), 0.01)
        round_at = self.clock.monotonic() + interval
        retention_at = self.clock.monotonic() + retention_interval
        while not await self._stops_within(max(round_at - self.clock.monotonic(), 0)):
            now = self.clock.monotonic()
            try:
                if now < round_at:
                    crowded, self._crowded = self._crowded, set()
                    for partition in crowded:
                        await self._run_jobs(self.store.jobs_of(partition))
                    continue
                round_at = now + interval
                retention = now >= retention_at
                if retention:
                    retention_at = now + retention_interval
                await self.maintain_once(retention=retention)
            except Exception:
                _logger.exception("maintenance of the log failed; it is tried again later")

    def _on_removal_wanted(self, partition: PartitionLog) -> None:
        """A ring has segments to remove: not at the next round, but now, so that the disk does not fill meanwhile."""
        self._crowded.add(partition)
        self._wake.set()

    async def _stops_within(self, seconds: float) -> bool:
        """Whether the node is to stop; earlier if there is something to do."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        self._wake.clear()
        return self._stopping

    async def maintain_once(self, *, retention: bool = True) -> None:
        """Do all that is due now; the slow parts in a thread."""
        await self._run_jobs(self.store.jobs(retention=retention))
        async with self._tending:
            await self.loop.run_in_executor(None, self.store.remove_deleted)

    async def snapshot(self, folder: Path) -> None:
        """Make a folder of the log as it is at one moment."""
        async with self._tending:
            cut = take_cut(self.store)
            await self.loop.run_in_executor(None, write_snapshot, cut, folder)

    async def _run_jobs(self, jobs: Iterator[Job]) -> None:
        for job in jobs:
            if self._stopping:
                return
            self._job = job
            try:
                async with self._tending:
                    await self.loop.run_in_executor(None, job.run)
                    if not job.partition.deleted:
                        job.finish()
            except (HeadraceError, OSError) as error:
                _logger.error("maintenance of partition %s failed: %s", job.partition.name, error)


def _reachable(host: str) -> str:
    """An address that a client on this machine can use, where the broker listens on all."""
    return "127.0.0.1" if host in _UNSPECIFIED else host


def _group_settings(settings: BrokerSettings) -> GroupSettings:
    policy = settings.value("group.consumer.migration.policy").lower()
    return GroupSettings(
        may_upgrade=policy in ("bidirectional", "upgrade"),
        may_downgrade=policy in ("bidirectional", "downgrade"),
        initial_rebalance_delay_ms=settings.value("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=settings.value("group.min.session.timeout.ms"),
        max_session_timeout_ms=settings.value("group.max.session.timeout.ms"),
        max_size=settings.value("group.max.size"),
        offset_metadata_max_bytes=settings.value("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.value("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=settings.value("offsets.retention.check.interval.ms"),
        offsets_topic_segment_bytes=settings.value("offsets.topic.segment.bytes"),
    )


def _transaction_settings(settings: BrokerSettings) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=settings.value("transaction.max.timeout.ms"),
        id_expiration_ms=settings.value("transactional.id.expiration.ms"),
        expiry_check_interval_ms=settings.value("transaction.remove.expired.transaction.cleanup.interval.ms"),
        state_topic_segment_bytes=settings.value("transaction.state.log.segment.bytes"),
    )
