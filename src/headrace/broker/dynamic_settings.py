"""Settings of the broker that change while it runs, over those that it was started with.

They are kept in the data folder (``dynamic-settings``, a checked file). What is set for this broker wins over what is
set for all brokers. Only defaults of topics can be changed; they take effect at once on every topic.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import StorageError
from headrace.log.checked_file import DamagedFile, read_checked, write_checked
from headrace.log.topic_config import DEFINITIONS as TOPIC_DEFINITIONS
from headrace.log.topic_config import TopicConfig
from headrace.settings import NODE_ID, BrokerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.files import Files
    from headrace.log.store import LogStore

__all__ = ["DynamicSettings"]

_logger = logging.getLogger(__name__)

_FILE: Final = "dynamic-settings"


class DynamicSettings:
    """What was set when, and what it comes to."""

    def __init__(self, settings: BrokerSettings, files: Files, folder: Path) -> None:
        self.started_with: Mapping[str, str] = {
            "broker.id": str(NODE_ID),
            "log.dirs": str(folder.absolute()),
            "node.id": str(NODE_ID),
            **settings.properties,
        }
        self.for_all: dict[str, str] = {}
        self.for_this: dict[str, str] = {}
        self._settings = settings
        self._files = files
        self._path = folder / _FILE

    def load(self) -> None:
        """Read what was set before."""
        try:
            payload = read_checked(self._files, self._path)
        except DamagedFile as damaged:
            _logger.error("%s; the broker runs with what it was started with", damaged)
            return
        if payload is not None:
            kept: dict[str, Any] = json.loads(payload)
            self.for_all, self.for_this = kept["for_all"], kept["for_this"]

    def note_address(self, host: str, port: int, advertised_host: str, advertised_port: int) -> None:
        """What is known only once the broker listens."""
        self.started_with = {
            "listeners": f"PLAINTEXT://{host}:{port}",
            "advertised.listeners": f"PLAINTEXT://{advertised_host}:{advertised_port}",
            **self.started_with,
        }

    def topic_defaults(self) -> dict[str, str]:
        """The defaults of topics, by topic-setting name, as they are now."""
        return self._topic_defaults(self.for_all, self.for_this)

    def change(
        self, store: LogStore, *, for_all: dict[str, str] | None = None, for_this: dict[str, str] | None = None
    ) -> None:
        """Replace what is set for all brokers, or for this one; kept on disk, then in effect."""
        new_all = self.for_all if for_all is None else for_all
        new_this = self.for_this if for_this is None else for_this
        defaults = self._topic_defaults(new_all, new_this)
        configs = {name: TopicConfig.parse(topic.overrides, defaults) for name, topic in store.topics.items()}
        payload = json.dumps({"for_all": new_all, "for_this": new_this}).encode()
        try:
            write_checked(self._files, self._path, payload, keep_previous=True)
        except OSError as error:
            raise StorageError(f"the settings could not be written: {error.strerror or error}") from error
        self.for_all, self.for_this = new_all, new_this
        store.defaults.clear()
        store.defaults.update(defaults)
        for name, config in configs.items():
            topic = store.topics[name]
            topic.config = config
            for partition in topic.partitions:
                partition.config = config

    def _topic_defaults(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> dict[str, str]:
        now = self._settings.with_properties({**for_all, **for_this})
        return now.topic_defaults(TOPIC_DEFINITIONS.values())
