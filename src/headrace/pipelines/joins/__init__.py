"""Joins that Spark lacks: streams within an interval (``window_join``), a stream and a table's versions (``enrich``)."""
