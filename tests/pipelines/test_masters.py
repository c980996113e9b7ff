"""What Spark is told on each kind of master, and what is refused before anything starts."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.cli.failures import CommandFailed
from headrace.cli.pairs import spark_settings
from headrace.errors import InvalidConfig
from headrace.pipelines.executors import absolute_files, python_command, stand_in
from headrace.pipelines.masters import OURS, Manager, Master, ensure_reachable, ensure_usable
from headrace.pipelines.settings import RunSettings
from headrace.pipelines.spark import session_settings, told_in_a_file
from tests.cli.command import Cli

Told = Mapping[str, str]
ELSEWHERE = ["spark://spark.example:7077", "k8s://https://k8s.example:6443", "yarn"]
IMAGE = {"spark.kubernetes.container.image": "registry.example/headrace:1"}
HADOOP = {"HADOOP_CONF_DIR": "/etc/hadoop"}


@pytest.mark.parametrize(
    ("url", "manager", "is_here"),
    [
        ("local", Manager.LOCAL, True),
        ("local[*]", Manager.LOCAL, True),
        ("local[4,3]", Manager.LOCAL, True),
        ("local-cluster[2,1,1024]", Manager.LOCAL_CLUSTER, True),
        ("local-cluster[2, 1, 1024]", Manager.LOCAL_CLUSTER, True),
        ("spark://a.example:7077,b.example:7077", Manager.STANDALONE, False),
        ("k8s://https://k8s.example:6443", Manager.KUBERNETES, False),
        ("k8s://k8s.example", Manager.KUBERNETES, False),
        ("yarn", Manager.YARN, False),
    ],
)
def test_a_master_says_where_executors_are(url: str, manager: Manager, is_here: bool) -> None:
    found = Master.parse(url)
    assert (found.manager, found.is_here, found.url) == (manager, is_here, url)


@pytest.mark.parametrize(
    "url", ["", "locale", "local[x]", "local-cluster[2,1]", "spark://host", "mesos://host:5050", "yarn-client"]
)
def test_what_is_no_master_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is not a master of Spark\. Hint: say one like local\[\*\]"):
        Master.parse(url)


def test_spark_connect_is_refused_and_says_what_it_lacks() -> None:
    with pytest.raises(InvalidConfig, match=r"Spark Connect server.*Java process.*transactions.*pool.*spark://"):
        Master.parse("sc://spark.example:15002")
    with pytest.raises(InvalidConfig, match="unset SPARK_REMOTE"):
        usable("local[*]", environ={"SPARK_REMOTE": "sc://spark.example"})


def test_cores_decide_how_many_parts_a_shuffle_has(tmp_path: Path) -> None:
    told = {"spark.executor.instances": "3", "spark.executor.cores": "2"}
    parts = {
        "local[3]": ({}, "3"),
        "local": ({}, "1"),
        "local-cluster[2,2,1024]": ({}, "4"),
        "yarn": ({}, "8"),
        "k8s://k8s.example": (told, "6"),
        "spark://spark.example:7077": ({"spark.cores.max": "5"}, "5"),
    }
    for url, (settings, wanted) in parts.items():
        found = session_settings(Master.parse(url), tmp_path, settings)
        assert found["spark.sql.shuffle.partitions"] == wanted, url


@pytest.mark.parametrize("url", [*ELSEWHERE, "local-cluster[2,1,1024]"])
def test_executors_get_what_workers_of_this_process_have(url: str, tmp_path: Path) -> None:
    found = session_settings(Master.parse(url), tmp_path, {})
    assert found["spark.executorEnv.POLARS_MAX_THREADS"] == "1"
    assert "Tier4InvocationThreshold" in found["spark.executor.extraJavaOptions"]
    assert str(tmp_path) not in found["spark.executor.extraJavaOptions"]
    assert ("spark.local.dir" in found) is (url not in ELSEWHERE)


def test_checkpoints_elsewhere_are_written_as_spark_does(tmp_path: Path) -> None:
    ours = "spark.sql.streaming.checkpointFileManagerClass"
    assert ours in session_settings(Master.parse("yarn"), tmp_path, {})
    assert ours not in session_settings(Master.parse("yarn"), tmp_path, {}, local_checkpoints=False)


def test_what_the_user_sets_wins_and_files_are_named_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.tar.gz").touch()
    given = {"spark.driver.memory": "3g", "spark.archives": "env.tar.gz#environment, hdfs://a/b.zip#b"}
    found = session_settings(Master.parse("yarn"), tmp_path, given)
    assert found["spark.driver.memory"] == "3g"
    assert found["spark.archives"] == f"{tmp_path}/env.tar.gz#environment,hdfs://a/b.zip#b"
    with pytest.raises(InvalidConfig, match=r"spark\.jars: there is no file no\.jar"):
        absolute_files({"spark.jars": "no.jar"})


def test_python_is_that_of_the_archive_or_the_one_that_runs(tmp_path: Path) -> None:
    packed = {"spark.archives": "hdfs://store/env.tar.gz#environment"}
    assert python_command({}, {}) == sys.executable
    assert python_command(packed, {}) == "./environment/bin/python"
    assert python_command({"spark.pyspark.python": sys.executable, **packed}, {}) == sys.executable
    assert python_command(packed, {"PYSPARK_PYTHON": "python3"}) == "python3"
    with pytest.raises(InvalidConfig, match=r"no Python at /opt/no/python on this machine.*headrace pack"):
        python_command({"spark.pyspark.python": "/opt/no/python"}, {})
    assert stand_in(sys.executable, tmp_path) is None
    assert stand_in("python3", tmp_path) is None
    assert stand_in("./environment/bin/python", tmp_path) == tmp_path
    assert sys.executable in (tmp_path / "environment" / "bin" / "python").read_text()


def usable(
    url: str, settings: dict[str, str] | None = None, environ: dict[str, str] | None = None, *, shared: bool = True
) -> None:
    ensure_usable(Master.parse(url), settings or {}, environ or {}, shared_checkpoints=shared)


def test_what_a_manager_needs_is_asked_for() -> None:
    usable("yarn", environ=HADOOP)
    usable("k8s://k8s.example", IMAGE)
    usable("spark://spark.example:7077")
    with pytest.raises(InvalidConfig, match="HADOOP_CONF_DIR"):
        usable("yarn")
    with pytest.raises(InvalidConfig, match=r"spark\.kubernetes\.container\.image"):
        usable("k8s://k8s.example")


@pytest.mark.parametrize("url", ELSEWHERE)
def test_executors_elsewhere_need_checkpoints_that_they_can_reach(url: str) -> None:
    with pytest.raises(InvalidConfig, match="say --checkpoints URL"):
        usable(url, IMAGE, HADOOP, shared=False)


@pytest.mark.parametrize("name", OURS)
def test_settings_that_would_break_a_promise_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"{name} cannot be set"):
        usable("local[*]", {name: "x"})


@pytest.mark.parametrize("url", ELSEWHERE)
def test_a_log_on_loopback_is_refused_where_executors_are_elsewhere(url: str) -> None:
    master = Master.parse(url)
    ensure_reachable(master, "log.example:9092,[2001:db8::1]:9092", ["log.example"])
    for bootstrap in ("127.0.0.1:9092", "localhost:9092,127.0.0.2:9092", "[::1]:9092", "localhost"):
        with pytest.raises(InvalidConfig, match=r"on other machines would look for it on their own.*--advertise"):
            ensure_reachable(master, bootstrap, [])
    with pytest.raises(InvalidConfig, match=r"is told to clients as 127\.0\.0\.1"):
        ensure_reachable(master, "log.example:9092", ["127.0.0.1"])


def test_a_cluster_of_this_machine_may_use_its_folders_and_addresses() -> None:
    for url in ("local-cluster[1,1,512]", "spark://127.0.0.1:7077", f"spark://{socket.gethostname()}:7077"):
        usable(url, shared=False)
        ensure_reachable(Master.parse(url), "127.0.0.1:9092", ["127.0.0.1"])


def test_checkpoints_are_below_the_data_folder_unless_told_otherwise() -> None:
    assert RunSettings("log:9092", Path("data")).checkpoints_at == "data/checkpoints"
    assert RunSettings("log:9092", Path("data"), checkpoints="s3a://bucket/shop").checkpoints_at == "s3a://bucket/shop"


def test_settings_of_spark_from_a_file_are_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s3.properties").write_text("# of the store\nspark.hadoop.fs.s3a.secret.key=a=b\\ c\nspark.b=2\n")
    said = [f"@{tmp_path / 's3.properties'}", "spark.b=3", "spark.c=4"]
    settings, hidden = spark_settings(said)
    assert settings == {"spark.hadoop.fs.s3a.secret.key": "a=b\\ c", "spark.b": "3", "spark.c": "4"}
    assert hidden == {"spark.hadoop.fs.s3a.secret.key"}
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name mine pyspark-shell")
    with told_in_a_file({name: settings[name] for name in hidden}):
        option, name, *others = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert (option, others) == ("--properties-file", ["--load-spark-defaults", "--name", "mine", "pyspark-shell"])
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
        assert Path(name).read_text() == "spark.hadoop.fs.s3a.secret.key=a\\u003db\\u005c\\u0020c\n"
    assert not Path(name).exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file x pyspark-shell")
    with pytest.raises(InvalidConfig, match="Spark reads one of them"), told_in_a_file({"spark.b": "2"}):
        pass
    with pytest.raises(CommandFailed, match="--spark-conf @nowhere: the file cannot be read"):
        spark_settings(["@nowhere"])


@pytest.mark.system
def test_the_command_refuses_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("raise SystemExit('it was loaded')")
    cli = Cli(folder=tmp_path)
    assert "Spark Connect" in cli.fails("run", "shop.py", "--spark", "sc://spark.example")
    assert "is not a master" in cli.fails("run", "shop.py", "--master", "mesos://host:5050")
    assert "--checkpoints URL" in cli.fails("run", "shop.py", "--spark", "spark://spark.example:7077")
    elsewhere = ("--spark", "spark://spark.example:7077", "--checkpoints", "s3a://bucket/shop")
    assert "--advertise" in cli.fails("run", "shop.py", *elsewhere)
    assert "spark.speculation cannot be set" in cli.fails("run", "shop.py", "--spark-conf", "spark.speculation=true")
    assert not (tmp_path / "headrace-data").exists()
