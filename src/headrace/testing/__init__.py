"""Small real implementations behind the production seams, for tests: an app, a clock to move, a disk that fails.

``AppUnderTest``, ``Crash`` and ``ManualClock`` are for tests of apps; see ``app``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.app import AppUnderTest, Crash, Deleted, Letter
    from headrace.testing.clock import ManualClock

__all__ = ["AppUnderTest", "Crash", "Deleted", "Letter", "ManualClock"]

_HOMES = {
    "AppUnderTest": "headrace.testing.app",
    "Crash": "headrace.testing.app",
    "Deleted": "headrace.testing.app",
    "Letter": "headrace.testing.app",
    "ManualClock": "headrace.testing.clock",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")
