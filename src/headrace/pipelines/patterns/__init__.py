"""Patterns over streams: sequences of rows of one key, in event time, found by the kernel.

Declared: ``declaration`` (what a user says), ``recognize`` (the same from SQL), ``tokens``, ``sequence`` (the
pattern's text), ``expressions`` (conditions and measures). Compiled: ``automaton``, ``conditions``, ``program``. Run:
``engine``; on Spark: ``match``.
"""

from headrace.pipelines.patterns.declaration import Pattern, pattern
from headrace.pipelines.patterns.engine import Found, run
from headrace.pipelines.patterns.program import Program, compile_pattern
from headrace.pipelines.patterns.recognize import Recognized, recognize

__all__ = [
    "Found",
    "Pattern",
    "Program",
    "Recognized",
    "compile_pattern",
    "pattern",
    "recognize",
    "run",
]
