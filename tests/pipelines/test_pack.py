"""`headrace pack`: the archive has a Python that needs nothing else, and executors of a cluster manager run with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from headrace.errors import InvalidInput
from headrace.pipelines.environment import pack, with_dependencies
from tests.cli.command import Cli
from tests.servers import Headrace, _Process, free_port

SPARK = Path(pyspark.__file__).parent
CLEAN = {"PATH": "/usr/bin:/bin", **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}}
PARTS = """
import sys, headrace, headrace._kernel, numpy, pandas, polars, pyarrow, pyspark, confluent_kafka, google.protobuf
import ctypes, ssl, sqlite3
print([sys.prefix, *(one.__file__ for one in (headrace, headrace._kernel, polars, pyarrow, pyspark, ctypes))])
"""
APP = """
import os, sys
import headrace as hr
from headrace import F
import prices

app = hr.App("shop")
app.stream("orders", "order_id string, amount double")

@F.udf("string")
def python(amount):
    return f"{sys.executable} {os.getcwd()} {prices.rounded(amount)}"

@app.view(key="order_id")
def where(orders):
    return orders.select("order_id", python("amount").alias("python"))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("archive") / "env.tar.gz"
    assert (
        f"{made}#environment" in Cli()("pack", "-o", str(made), "-p", "pyarrow", "--compression", "0", timeout=300).out
    )
    return made


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A cluster of Spark's own kind, with one worker, whose processes know nothing of ours."""
    url = f"spark://127.0.0.1:{free_port()}"
    java = [str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.{0}.{1}"]
    clean = ["env", "-i", *(f"{name}={value}" for name, value in CLEAN.items()), f"SPARK_HOME={SPARK}"]
    host = ["--host", "127.0.0.1", "--webui-port", "0"]
    begun = [*clean, java[0], java[1].format("master", "Master"), *host, "--port", url.rpartition(":")[2]]
    joins = [*clean, java[0], java[1].format("worker", "Worker"), *host, "--work-dir", str(tmp_path / "work")]
    processes = [_Process(begun, tmp_path / "master.log")]
    try:
        until_printed(processes[0], b"I have been elected leader")
        processes.append(_Process([*joins, "--cores", "1", "--memory", "1g", url], tmp_path / "worker.log"))
        until_printed(processes[1], b"Successfully registered with master")
        yield url
    finally:
        for process in reversed(processes):
            process.end(signal.SIGTERM, 20.0)


@pytest.mark.system
def test_its_python_needs_nothing_else(archive: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "xf", str(archive), "-C", str(tmp_path)], check=True)
    done = subprocess.run(
        [str(tmp_path / "bin" / "python"), "-c", PARTS], env=CLEAN, cwd="/", capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.replace("'", '"'))
    assert all(place.startswith(str(tmp_path)) for place in found), found
    assert not (tmp_path / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/pytest").exists()


@pytest.mark.system
@pytest.mark.timeout(900)
def test_executors_of_a_standalone_cluster_run_with_it(archive: Path, master: str, tmp_path: Path) -> None:
    node = Headrace(tmp_path / "node")
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "prices.py").write_text("def rounded(amount):\n    return round(amount)\n")
    try:
        cli = Cli(node.bootstrap)
        cli("produce", "orders", stdin=b'{"order_id": "1", "amount": 2.6}\n')
        cli(
            *("run", str(tmp_path / "shop.py"), "--once", "--spark", master, "--data", str(tmp_path / "run")),
            *("--spark-conf", f"spark.archives={archive}#environment", "--spark-conf", "spark.executor.memory=700m"),
            *("--spark-conf", f"spark.submit.pyFiles={tmp_path / 'prices.py'}"),
            timeout=500,
        )
        (row,) = cli("consume", "shop.where", "--exit-at-end").ndjson
        python, folder, price = row["python"].split(" ")
        assert Path(folder).is_relative_to(tmp_path / "work")
        assert (Path(python).is_relative_to(Path(folder) / "environment"), price) == (True, "3")
    finally:
        node.stop()


def test_a_package_brings_what_it_needs() -> None:
    assert {"pandas", "numpy", "python-dateutil"} <= with_dependencies(["pandas"])
    assert "polars" not in with_dependencies(["headrace"])
    assert {"headrace", "polars", "pyspark", "py4j"} <= with_dependencies(["headrace[pipelines]"])
    with pytest.raises(InvalidInput, match="'no-such-thing' is not installed"):
        with_dependencies(["no-such-thing"])


def test_an_archive_has_a_name_that_spark_unpacks(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"end with \.tar\.gz"):
        pack(tmp_path / "env.tar")


def until_printed(process: _Process, text: bytes) -> None:
    deadline = time.monotonic() + 120
    while text not in process.printed():
        assert not process.dead(0.1), process.printed()
        assert time.monotonic() < deadline, process.printed()
