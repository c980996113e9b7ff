"""Serving: the HTTP API over views, live changes, and the page.

``process`` is the child process of a node; ``hub`` joins the materialiser's thread with the event loop; ``api`` has
the routes, ``answers`` how rows are written, ``changes`` the event streams, ``guard`` who may ask.
"""

from __future__ import annotations
