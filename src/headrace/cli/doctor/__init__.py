"""``headrace doctor``: looks at all that a node and its apps need, and says what to do about what is missing.

``command`` (what is printed) · ``finding`` (what a check says) · ``machine`` (Python, Java, memory, clock), ``folder``
(the data folder and its disk), ``network`` (ports, the log, databases). Nothing is changed, apart from a file that is
written to the data folder to see how long it takes, and removed.
"""

from __future__ import annotations

from headrace.cli.doctor.command import app

__all__ = ["app"]
