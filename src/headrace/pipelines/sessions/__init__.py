"""Session windows with partial results.

Spark gives a session only once it is over. So a view's session aggregation is taken apart: ``operator`` keeps the rows
of open sessions and puts out, in each batch, all rows of those that changed; ``split`` has Spark aggregate these anew,
batch by batch, with the view's own aggregate and whatever follows it.
"""

from headrace.pipelines.sessions.split import Split, split

__all__ = ["Split", "split"]
