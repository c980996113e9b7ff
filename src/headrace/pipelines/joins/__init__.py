"""Joins that Spark does not have."""
