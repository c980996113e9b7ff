"""Windows of event time: ``hr.tumbling``, ``hr.hopping``, ``hr.session``. They are columns to group by.

In a view's result a window is two columns: NAME is its start, NAME_end its end; and a last column ``final`` says
whether the watermark has passed its end, so that the row will not change any more. Tumbling and hopping windows show
their partial results as they change, and so do sessions; a session that is swallowed by another is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipelines.building import current
from headrace.pipelines.places import caller, wrong

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["hopping", "session", "tumbling"]


def tumbling(size: str, *, on: str | None = None, offset: str | None = None) -> Column:
    """Windows of one size, one after the other: every event is in one.

    ``orders.groupBy(hr.tumbling("1 minute").alias("minute"))``. Windows begin at multiples of ``size`` since 1970,
    moved by ``offset``. ``on`` is the event time's column, if there are several.
    """
    from pyspark.sql import functions as F

    return F.window(_time(on), size, None, offset)


def hopping(size: str, *, every: str, on: str | None = None) -> Column:
    """Windows of one size, a new one beginning ``every`` so often: they overlap, and an event is in several.

    ``orders.groupBy(hr.hopping("10 minutes", every="1 minute").alias("window"))``.
    """
    from pyspark.sql import functions as F

    return F.window(_time(on), size, every)


def session(gap: str, *, on: str | None = None) -> Column:
    """Windows that last while events come, and end when nothing came for ``gap``.

    ``clicks.groupBy("visitor", hr.session("30 minutes").alias("visit"))``. A late event may join two to one.
    """
    from pyspark.sql import functions as F

    return F.session_window(_time(on), gap)


def _time(on: str | None) -> Column:
    from pyspark.sql import functions as F

    if on is not None:
        return F.col(on)
    known = tuple(dict.fromkeys(current().event_times))
    if len(known) == 1:
        return F.col(known[0])
    if not known:
        raise wrong(
            "a window needs an event time, and nothing that is read has one.",
            caller(),
            "declare the stream with event_time=",
        )
    raise wrong(f"a window could be over {' or '.join(known)}.", caller(), f'say which: on="{known[0]}"')
