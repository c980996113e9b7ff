"""Hand-written codecs of the two hot messages, Produce and Fetch. Everything else is in ``broker/wire.py``."""
