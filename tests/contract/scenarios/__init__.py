"""Conversations that are held with both brokers; the answers must be the same."""
