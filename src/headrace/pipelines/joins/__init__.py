"""Joins that Spark lacks: streams (``window_join``), a stream and a table (``enrich``), tables (``tables``)."""
