"""How many examples tests of properties try: enough to see a mistake in ``make test``, far more in ``make faults``."""

from __future__ import annotations

import os

from hypothesis import settings

TIMES = int(os.environ.get("HEADRACE_EXAMPLES", "1"))


def examples(count: int) -> settings:
    """So many, times what HEADRACE_EXAMPLES says."""
    return settings(max_examples=count * TIMES)
