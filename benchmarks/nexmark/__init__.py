"""NEXMark: an auction site's events, 24 queries and 4 patterns, beside Flink and plain Spark. See ``generator``, ``oracle``, ``apps``."""
