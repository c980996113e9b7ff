"""What Spark says of a state that it cannot load: lost for good, or not."""

from __future__ import annotations

import pytest

from headrace.pipelines.running import _is_for_good, reason
from headrace.pipelines.state.damage import state_lost

FOLDER = "/data/checkpoints/c/shop/shop.totals"
LOADING = "An error occurred during loading state."


def said(kind: str, cause: str) -> RuntimeError:
    """As Spark's error reads in Python."""
    return RuntimeError(
        "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
        f"awaitResult: \n\tat a.b(C.scala:7)\nCaused by: org.apache.spark.SparkException: "
        f"[CANNOT_LOAD_STATE_STORE.{kind}] {LOADING}  SQLSTATE: 58030\n\tat d.e(F.scala:7)\n"
        f"Caused by: {cause}\n\tat g.h"
    )


FILE = f"file:{FOLDER}/state/0/1/2.changelog"
LOST = {
    "bytes that changed": said("UNCATEGORIZED", f"org.apache.hadoop.fs.ChecksumException: Checksum error: {FILE} at 0"),
    "without a checksum": said("UNCATEGORIZED", "java.io.IOException: Stream is corrupted"),
    "an empty file": said("UNCATEGORIZED", "java.io.EOFException"),
    "a file that is gone": said("UNCATEGORIZED", f"java.io.FileNotFoundException: File {FILE} does not exist"),
    "a file that Java does not find": said(
        "UNCATEGORIZED", f"java.io.FileNotFoundException: {FILE} (No such file or directory)"
    ),
    "changes that are gone": said("CANNOT_READ_STREAMING_STATE_FILE", f"java.io.Exception: {FILE} does not exist"),
    "a base that is gone": said("CANNOT_READ_MISSING_SNAPSHOT_FILE", "an error of its own"),
}
NOT_LOST = {
    "memory": said("ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY", "java.lang.OutOfMemoryError"),
    "a thread that is slow": said("UNRELEASED_THREAD_ERROR", "nothing"),
    "a full disk": said("UNCATEGORIZED", "java.io.IOException: No space left on device"),
    "a folder of its own": said("UNCATEGORIZED", "java.io.FileNotFoundException: /tmp/spark-7/3.sst does not exist"),
    "a store far away": said("UNCATEGORIZED", "java.io.EOFException: End of File Exception between local host and s3"),
    "too many files": said("UNCATEGORIZED", f"java.io.FileNotFoundException: {FILE} (Too many open files)"),
    "no permission": said("UNCATEGORIZED", f"java.io.FileNotFoundException: {FILE} (Permission denied)"),
    "something else": RuntimeError(f"java.io.FileNotFoundException: {FILE}"),
}


@pytest.mark.parametrize("what", LOST)
def test_a_file_of_the_state_that_is_damaged_or_gone_is_told_with_the_way_on(what: str) -> None:
    found = state_lost(LOST[what], "shop.totals", FOLDER)
    assert found is not None
    assert _is_for_good(found)
    file = "the file state/0/1/2.changelog" if "changelog" in str(LOST[what]) else "a file"
    assert reason(found).startswith(f"the state of shop.totals cannot be read: {file} is damaged or gone.")
    assert f"in {FOLDER}" in reason(found)
    assert "headrace run FILE --rebuild" in reason(found)


@pytest.mark.parametrize("what", NOT_LOST)
def test_what_may_be_better_at_the_next_attempt_is_not_lost(what: str) -> None:
    assert state_lost(NOT_LOST[what], "shop.totals", FOLDER) is None
