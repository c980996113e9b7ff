"""The master that Spark is given: where its executors run, what it must be told, and what is refused before it starts.

======================  =====================================================================================
``local[*]``            threads of the driver's own process
``local-cluster[N,C,M]``  N executors with C cores and M MB each, processes of this machine: a cluster to try things on
``spark://HOST:PORT``   Spark's own cluster manager
``k8s://URL``           Kubernetes; the driver runs here (client mode)
``yarn``                Hadoop; the driver runs here (client mode)
======================  =====================================================================================
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import InvalidConfig

__all__ = ["ENVIRONMENT", "OURS", "Manager", "Master", "ensure_reachable", "ensure_usable", "is_loopback"]

ENVIRONMENT = "environment"
"""What executors know the archive of ``headrace pack`` by: ``spark.archives=env.tar.gz#environment``."""

OURS = {
    "spark.master": "say it with --spark",
    "spark.remote": "Spark Connect cannot run Headrace's queries: see --spark",
    "spark.submit.deployMode": "the driver runs where `headrace run` does; start that in the cluster instead",
    "spark.sql.adaptive.enabled": "a batch done again must be cut up in the same way",
    "spark.speculation": "two attempts at one task at the same time would write state over each other",
    "spark.sql.session.timeZone": "times are kept in UTC",
    "spark.sql.streaming.stateStore.providerClass": "the state of operators needs RocksDB",
}
"""Settings of Spark that are not the user's to make, each with its reason."""

_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_STANDALONE = re.compile(r"spark://[^/\s]+:\d+(,[^/\s]+:\d+)*")
_KUBERNETES = re.compile(r"k8s://(https?://)?[^/\s]+(:\d+)?/?")
_FORMS = "local[*], local-cluster[2,1,1024], spark://host:7077, k8s://https://host:6443, yarn"


class Manager(StrEnum):
    """Who starts executors."""

    LOCAL = "local"
    LOCAL_CLUSTER = "local-cluster"
    STANDALONE = "standalone"
    KUBERNETES = "kubernetes"
    YARN = "yarn"


@dataclass(frozen=True, slots=True)
class Master:
    """A master that Headrace can run on."""

    url: str
    manager: Manager

    @staticmethod
    def parse(url: str) -> Master:
        """What a person wrote; InvalidConfig if it is none, or one that cannot work."""
        if url.startswith("sc://"):
            raise InvalidConfig(
                f"{url} is a Spark Connect server, which cannot run Headrace's queries.",
                detail="they look at Spark's plans in its Java process, write batches from the driver with the "
                "transactions of this run, and run each query in a pool of its own: Connect offers none of the three",
                hint=f"give the cluster's master itself: {_FORMS}",
            )
        forms = {
            Manager.LOCAL: _LOCAL.fullmatch(url),
            Manager.LOCAL_CLUSTER: _LOCAL_CLUSTER.fullmatch(url),
            Manager.STANDALONE: _STANDALONE.fullmatch(url),
            Manager.KUBERNETES: _KUBERNETES.fullmatch(url),
            Manager.YARN: re.fullmatch("yarn", url),
        }
        found = next((manager for manager, fits in forms.items() if fits), None)
        if found is None:
            raise InvalidConfig(f"{url!r} is not a master of Spark.", hint=f"say one like {_FORMS}")
        return Master(url, found)

    @property
    def is_here(self) -> bool:
        """Whether all executors are on the driver's machine."""
        return self.manager in (Manager.LOCAL, Manager.LOCAL_CLUSTER)

    @property
    def is_ours(self) -> bool:
        """Whether it is known to be on the driver's machine: then its executors may be, too."""
        if self.manager is not Manager.STANDALONE:
            return self.is_here
        hosts = [address.rpartition(":")[0] for address in self.url.removeprefix("spark://").split(",")]
        return all(is_loopback(host) or host == socket.gethostname() for host in hosts)

    def cores(self, settings: Mapping[str, str]) -> int | None:
        """How many tasks run at once, if that is known."""
        if self.manager is Manager.LOCAL:
            asked = _LOCAL.fullmatch(self.url)
            number = asked[2] if asked and asked[1] else "1"
            return (os.cpu_count() or 1) if number == "*" else int(number)
        if self.manager is Manager.LOCAL_CLUSTER and (asked := _LOCAL_CLUSTER.fullmatch(self.url)):
            return int(asked[1]) * int(asked[2])
        if "spark.cores.max" in settings:
            return int(settings["spark.cores.max"])
        if "spark.executor.instances" in settings:
            return int(settings["spark.executor.instances"]) * int(settings.get("spark.executor.cores", "1"))
        return None


def ensure_usable(
    master: Master, settings: Mapping[str, str], environ: Mapping[str, str], *, shared_checkpoints: bool
) -> None:
    """Refuse what could not work, before anything is started."""
    for name in settings.keys() & OURS.keys():
        raise InvalidConfig(f"{name} cannot be set.", detail=OURS[name], hint="leave it away")
    if remote := environ.get("SPARK_REMOTE"):
        raise InvalidConfig(
            f"SPARK_REMOTE is set ({remote}): Spark would connect to a Spark Connect server, whatever --spark says.",
            hint="unset SPARK_REMOTE",
        )
    if master.manager is Manager.YARN and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        raise InvalidConfig(
            "on yarn, Spark must know where Hadoop's settings are.",
            hint="set HADOOP_CONF_DIR (or YARN_CONF_DIR) to the folder with core-site.xml and yarn-site.xml",
        )
    if master.manager is Manager.KUBERNETES and not any(name.endswith("container.image") for name in settings):
        raise InvalidConfig(
            "on Kubernetes, Spark must know which image its executors run.",
            hint="add --spark-conf spark.kubernetes.container.image=IMAGE",
        )
    if not master.is_ours and not shared_checkpoints:
        raise InvalidConfig(
            f"checkpoints would be in a folder of this machine, which executors of {master.url} cannot reach.",
            hint="say --checkpoints URL: s3a://bucket/folder, hdfs://host/folder, or a folder that all machines mount",
        )


def ensure_reachable(master: Master, bootstrap: str, brokers: Iterable[str]) -> None:
    """Refuse a log that executors on other machines cannot reach. ``brokers``: the hosts that clients are told."""
    if master.is_ours:
        return
    given = [_host(address) for address in bootstrap.split(",")]
    told = list(brokers)
    if any(is_loopback(host) for host in told) or all(is_loopback(host) for host in given):
        where = f"is told to clients as {', '.join(told)}" if not all(map(is_loopback, given)) else f"is at {bootstrap}"
        raise InvalidConfig(
            f"the log {where}: executors of {master.url} on other machines would look for it on their own.",
            hint="start the node with `headrace up --listen 0.0.0.0:9092 --advertise HOST:9092`, where HOST is this "
            "machine's name to the others, and say --server HOST:9092",
        )


def is_loopback(host: str) -> bool:
    """Whether a name or address stands for the machine that looks it up."""
    return host in ("localhost", "::1", "0.0.0.0", "::") or host.startswith("127.")


def _host(address: str) -> str:
    host, colon, port = address.strip().rpartition(":")
    return (host if colon and port.isdigit() else address.strip()).strip("[]")
