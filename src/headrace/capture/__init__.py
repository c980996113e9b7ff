"""Change capture: databases as streams of changes in the log."""
