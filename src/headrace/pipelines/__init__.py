"""Pipelines on Spark: what a user declares, and the queries that run it.

``app`` holds the declarations, ``plan`` turns them into Spark DataFrames, ``sink`` writes a query's rows to
its topic once, ``runner`` starts, supervises and stops the queries.
"""
