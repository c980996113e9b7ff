"""One module per API. What each must have is said in ``broker/dispatch.py``."""
