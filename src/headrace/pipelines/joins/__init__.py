"""Joins that Spark lacks: two streams within an interval (``window_join``), a stream and a table (``enrich``)."""
