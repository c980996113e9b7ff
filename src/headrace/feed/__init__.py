"""Committed records of topics as Arrow, for whoever reads the log from another process.

Two readers with the same results: segment files on the log's machine, the Kafka protocol everywhere else.
"""

from headrace.feed.feed import Feed, open_feed

__all__ = ["Feed", "open_feed"]
