"""``NAME=VALUE`` as people write it on a command line."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cli.failures import CommandFailed

__all__ = ["name_values"]


def name_values(pairs: Sequence[str] | None, option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a dict."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandFailed(
                f"{option} {pair!r} is not NAME=VALUE.", hint=f"say it like {option} retention.ms=3600000"
            )
        found[name.strip()] = value
    return found
