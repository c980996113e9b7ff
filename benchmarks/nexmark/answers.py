"""The other half of ``bench_nexmark``: a process that runs queries one after the other, as it is asked to.

It reads lines of JSON from its standard input, ``{"query": "q5", "warm": "first", "topic": "events"}``, runs the query
over one topic to warm up and then anew over the other, and answers with a line that begins with ``ANSWER``: seconds and
processor seconds of the second run, from its start to its end, of all processes below this one. Needs only the standard
library.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks.meter import cpu_seconds

__all__ = ["MARK", "serve"]

MARK = "ANSWER "


def serve(run: Callable[[str, str], None]) -> None:
    """Until the input ends. ``run`` runs a query over all of a topic, with new state."""
    print(MARK + json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(MARK + json.dumps(_measured(run, **asked)), flush=True)


def _measured(run: Callable[[str, str], None], query: str, warm: str, topic: str) -> dict[str, Any]:
    try:
        run(query, warm)
        started, cpu = time.perf_counter(), cpu_seconds(os.getpid())
        run(query, topic)
        return {"seconds": time.perf_counter() - started, "cpu": cpu_seconds(os.getpid()) - cpu}
    except Exception:
        return {"failed": traceback.format_exc()[-3000:]}
