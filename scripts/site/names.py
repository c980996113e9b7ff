"""The reference of the Python names: which page has which, in the order in which a reader meets them.

What is said of each is its docstring, put in by mkdocstrings. Nothing here may be forgotten: ``tests/site`` compares.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAGES", "NamesPage", "names_page"]


@dataclass(frozen=True)
class NamesPage:
    """A page of the reference."""

    title: str
    text: str
    sections: dict[str, tuple[str, ...]]
    """Names with their modules, under headings."""


PAGES = {
    "app": NamesPage(
        "The app",
        "What an app's file declares. `import headrace as hr`; `hr.F` is `pyspark.sql.functions`, `hr.__version__` the "
        "version. The guide is [Apps](../apps.md).",
        {
            "Declaring": ("headrace.App", "headrace.Table", "headrace.DeviceClock"),
            "Where alerts go": ("headrace.Webhook", "headrace.Email", "headrace.LogLine"),
        },
    ),
    "operators": NamesPage(
        "Operators",
        "Functions to use inside views, derived streams and alerts, beside all of Spark's own. Drawn in "
        "[Windows](../ideas/windows.md) and [Joins](../ideas/joins.md).",
        {
            "Windows": ("headrace.tumbling", "headrace.hopping", "headrace.session", "headrace.sliding"),
            "Joins": ("headrace.window_join", "headrace.enrich", "headrace.join"),
            "Tables": ("headrace.aggregate", "headrace.top", "headrace.latest", "headrace.history"),
            "Patterns": ("headrace.match", "headrace.match_recognize"),
            "Your own": ("headrace.operator",),
            "Aggregates": (
                "headrace.count",
                "headrace.sum",
                "headrace.avg",
                "headrace.min",
                "headrace.max",
                "headrace.count_distinct",
                "headrace.first",
                "headrace.last",
            ),
        },
    ),
    "databases": NamesPage(
        "Databases",
        'Where captured tables and streams come from. `snapshot="initial"` reads the rows that are there first, '
        '`"never"` begins with changes. The guide is [Change capture](../capture.md).',
        {
            "Tables": ("headrace.Postgres", "headrace.MariaDB", "headrace.MySQL", "headrace.SQLite"),
            "Outboxes": ("headrace.outbox",),
        },
    ),
    "client": NamesPage(
        "The client",
        "Reading views from Python. The guide is [Reading views](../guides/reading.md).",
        {
            "Connecting": ("headrace.connect",),
            "What it gives": ("headrace.client.Client", "headrace.client.View", "headrace.client.Change"),
        },
    ),
    "testing": NamesPage(
        "Testing",
        "`headrace.testing`, for tests of apps. The guide is [Testing an app](../guides/testing.md).",
        {
            "The app under test": ("headrace.testing.AppUnderTest", "headrace.testing.ManualClock"),
            "What is sent and read": (
                "headrace.testing.Crash",
                "headrace.testing.Deleted",
                "headrace.testing.Letter",
            ),
        },
    ),
}
"""By file name."""


INTERNAL = {
    "headrace.App": ("queries", "captured", "learn"),
    "headrace.Table": ("net", "pairs", "versions"),
    "headrace.DeviceClock": ("columns",),
    "headrace.Postgres": ("schema", "table_name"),
    "headrace.MariaDB": ("table_name",),
    "headrace.SQLite": ("server", "table_name"),
    "headrace.client.Client": ("get_json", "get_arrow", "stream"),
    "headrace.testing.AppUnderTest": ("cluster",),
}
"""Members that other parts use, and users do not need."""


def names_page(page: NamesPage) -> str:
    """The page in Markdown."""
    parts = [f"# {page.title}", page.text]
    for heading, names in page.sections.items():
        parts += [f"## {heading}", *(_included(name) for name in names)]
    return "\n\n".join(parts) + "\n"


def _included(name: str) -> str:
    hidden = ["!^_", *(f"!^{member}$" for member in INTERNAL.get(name, ()))]
    return f"::: {name}\n    options:\n      filters: {hidden}"
