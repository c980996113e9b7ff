"""Tails the changelogs of all views into their stores.

One thread does everything, a bounded piece at a time, so a view that is being rebuilt does not hold up the others:
``step`` follows the catalog, brings the builds of every view in line with it, and takes in some records of each
(``keeping``). Where several processes share a store, some views are only followed (``sharing``). What is known of each
view is published as a new dictionary after every step (``states``), for other threads to look at. Errors never end the
loop. A store that is away is opened again, and every view goes on from what is in it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.errors import HeadraceError, StoreAway
from headrace.views.catalog import Catalog, CatalogReader, ViewName, ViewSpec
from headrace.views.keeping import RETRY_AFTER_S, ViewKeeper, ViewState
from headrace.views.sharing import Sharing
from headrace.views.store import Store, Stores

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["Materialiser", "ViewState"]

CATALOG_EVERY_S = 0.25
STORES_CHECKED_EVERY_S = 1.0
FOLLOWED_EVERY_S = 0.2

_logger = logging.getLogger(__name__)


class Materialiser:
    """Keeps stores in step with the log. ``changed`` is called after news. ``sharing`` says which views are kept here;
    None: all."""

    def __init__(
        self,
        feed: Feed,
        stores: Stores,
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
        sharing: Sharing | None = None,
    ) -> None:
        self.states: dict[ViewName, ViewState] = {}
        self.catalog_read = False
        self.trouble: str | None = None
        self._feed = feed
        self._stores = stores
        self._clock = clock
        self._changed = changed
        self._sharing = sharing
        self._reader = CatalogReader(feed)
        self._apps: dict[str, _App] = {}
        self._catalog_due = 0.0

    @property
    def shared_trouble(self) -> str | None:
        """Why it is not known which views are kept here, if so."""
        return self._sharing.trouble if self._sharing is not None else None

    @property
    def catalog(self) -> Catalog:
        """What the catalog said last."""
        return self._reader.catalog

    def run(self, stop: threading.Event) -> None:
        """Step until told to stop: at once while there is something to do, else less and less often."""
        pause = 0.0
        while not stop.wait(pause):
            try:
                busy = self.step()
                self.trouble = None
            except HeadraceError as error:
                if self.trouble is None:
                    _logger.warning("the log cannot be read now: %s", error)
                self.trouble, pause = error.message, RETRY_AFTER_S
                continue
            pause = 0.0 if busy else min(max(pause * 1.5, 0.01), 0.1)

    def step(self) -> bool:
        """Take in a bounded amount of news; True if there was any."""
        now = self._clock.monotonic()
        busy = False
        if now >= self._catalog_due:
            self._catalog_due = now + CATALOG_EVERY_S
            if self._reader.poll():
                busy = True
                self._match_apps()
        self._share_out(now)
        for app in self._apps.values():
            busy = app.step(now) or busy
        states = {(app, name): state for app, kept in self._apps.items() for name, state in kept.states().items()}
        if busy or states != self.states:
            self.states = states
            self._changed()
        self.catalog_read = True
        return busy

    def close(self) -> None:
        """Close the stores, and leave those that we share views with."""
        if self._sharing is not None:
            self._sharing.close()
        for app in self._apps.values():
            app.close()
        self._apps.clear()

    def _match_apps(self) -> None:
        wanted: dict[str, dict[str, ViewSpec]] = {}
        for (app, name), spec in self.catalog.views.items():
            wanted.setdefault(app, {})[name] = spec
        for app, specs in wanted.items():
            if app not in self._apps:
                self._apps[app] = _App(app, self._feed, self._stores, self._sharing)
            self._apps[app].wanted = specs
        for app in self._apps.keys() - wanted.keys():
            self._apps[app].wanted = {}

    def _share_out(self, now: float) -> None:
        if self._sharing is None:
            return
        self._sharing.poll(now)
        kept = self._sharing.kept(self.catalog.views)
        for name, app in self._apps.items():
            app.kept = {view for one, view in kept if one == name}


class _App:
    """The views of one app and their store."""

    def __init__(self, name: str, feed: Feed, stores: Stores, sharing: Sharing | None) -> None:
        self.name = name
        self.wanted: dict[str, ViewSpec] = {}
        self.kept: set[str] = set()
        """Where views are shared: those that are kept here."""
        self._sharing = sharing
        self._feed = feed
        self._stores = stores
        self._store: Store | None = None
        self._views: dict[str, ViewKeeper] = {}
        self._known: dict[str, ViewState] = {}
        self._check_at = self._retry_at = self._follow_at = 0.0
        self._trouble: str | None = None

    def step(self, now: float) -> bool:
        if now < self._retry_at:
            return False
        try:
            busy = self._stepped(now)
            self._trouble = None
            return busy
        except (StoreAway, OSError) as error:
            self._retry_at = now + RETRY_AFTER_S
            if self._trouble != str(error):
                self._trouble = str(error)
                _logger.warning("the store of app %s cannot be used: %s; it is tried again", self.name, error)
            self.close()
            return False

    def _stepped(self, now: float) -> bool:
        store = self._opened(now)
        if store is None:
            return False
        busy = False
        for name in self.wanted.keys() - self._views.keys():
            self._views[name] = self._keeper(name, store)
        for name in [name for name in self._views if self._is_ours(name)]:
            view, spec = self._views[name], self.wanted.get(name)
            if spec is not None:
                busy = view.step(spec, now) or busy
            elif view.dropped(now):
                del self._views[name]
                busy = True
        if now >= self._follow_at:
            self._follow_at = now + FOLLOWED_EVERY_S
            self._follow(store, now)
        return busy

    def _is_ours(self, name: str) -> bool:
        if self._sharing is None:
            return True
        return name in self.kept if name in self.wanted else self._sharing.clears((self.name, name))

    def _follow(self, store: Store, now: float) -> None:
        """See how far others have come with their views."""
        theirs = [name for name in self._views if not self._is_ours(name)]
        if not theirs:
            return
        found = store.builds()
        for name in theirs:
            self._views[name].follow([build for build in found if build.spec.name == name], now)
            if name not in self.wanted and not self._views[name].builds:
                del self._views[name]

    def _keeper(self, name: str, store: Store) -> ViewKeeper:
        return ViewKeeper(name, self._feed, store, shared=self._sharing is not None)

    def _opened(self, now: float) -> Store | None:
        """The store, opened again if its contents were taken away; None if there is nothing to keep in it."""
        if self._store is not None and now >= self._check_at:
            self._check_at = now + STORES_CHECKED_EVERY_S
            if self._store.lost():
                _logger.warning("the store of app %s was removed: it is rebuilt from the log", self.name)
                self.close()
        if self._store is None and self.wanted:
            self._store = self._stores.open(self.name, self._feed.cluster_id())
            names = {build.spec.name for build in self._store.builds()}
            self._views = {name: self._keeper(name, self._store) for name in names}
        return self._store

    def states(self) -> dict[str, ViewState]:
        """Of every view of the catalog; what is not known while the store is away is as it was."""
        self._known = {name: self._state(name, spec) for name, spec in self.wanted.items()}
        return self._known

    def _state(self, name: str, spec: ViewSpec) -> ViewState:
        view = self._views.get(name)
        if view is not None and view.is_known:
            return view.state(spec, self._trouble)
        last = self._known.get(name, ViewState(spec))
        nobody = self._sharing.trouble if self._sharing is not None else None
        return replace(last, trouble=self._trouble or (view.trouble if view else None) or nobody)

    def close(self) -> None:
        """Let go of the store; what it holds is looked at again when it is opened."""
        store, self._store, self._views = self._store, None, {}
        if store is not None:
            store.close()
