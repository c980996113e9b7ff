"""NEXMark: the events of an auction site, its queries and patterns as apps, beside Flink and plain Spark."""
