"""kcat, an older librdkafka from the shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.servers import Headrace

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed: apt-get install kcat")


def kcat(node: Headrace, *words: str, input: str | None = None) -> str:
    done = subprocess.run(
        ["kcat", "-b", node.bootstrap, *words], input=input, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_what_it_wrote(node: Headrace, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic()
    sent = [f"k{n}:v{n}" for n in range(1000)]
    kcat(node, "-P", "-t", topic, "-K:", "-z", codec, input="\n".join(sent))
    printed = kcat(node, "-C", "-t", topic, "-K:", "-o", "beginning", "-e", "-q")
    assert printed.splitlines() == sent


def test_kcat_lists_the_broker_and_its_topics(node: Headrace, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    printed = kcat(node, "-L", "-t", topic)
    assert f"broker 1 at {node.bootstrap}" in printed
    assert f'topic "{topic}" with 3 partitions' in printed


def test_kcat_consumes_in_a_group(node: Headrace, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    kcat(node, "-P", "-t", topic, input="\n".join(map(str, range(500))))
    printed = kcat(node, "-G", f"{topic}-group", "-X", "auto.offset.reset=earliest", "-c", "500", "-q", topic)
    assert sorted(map(int, printed.split())) == list(range(500))
