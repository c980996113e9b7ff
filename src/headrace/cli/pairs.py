"""``NAME=VALUE`` as people write it on a command line, and settings of Kafka clients, which may be secret."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from headrace.cli.failures import CommandFailed

__all__ = [
    "CLIENT_VARIABLE",
    "as_lines",
    "client_layers",
    "client_settings",
    "name_values",
    "over_file",
    "own_client_settings",
    "spark_settings",
]

CLIENT_VARIABLE = "HEADRACE_CLIENT"
_FOLD = "\\n"
_FILE: ContextVar[Mapping[str, str] | None] = ContextVar("client settings of the settings file", default=None)


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


def client_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """Settings of the Kafka client: what the settings file says, over it ``HEADRACE_CLIENT``, one a line, and over both
    what was given with ``-X``; ``@FILE`` stands for the lines of a file. Command lines can be seen by others, these
    cannot."""
    return {name: value for _, layer in client_layers(_FILE.get() or {}, pairs) for name, value in layer.items()}


def own_client_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """The same for commands that read and write by themselves: what their promises rest on is refused."""
    from headrace.feed.client_settings import ensure_usable

    settings = client_settings(pairs)
    ensure_usable(settings)
    return settings


@contextmanager
def over_file(file: Mapping[str, str]) -> Iterator[None]:
    """Within: what the settings file says of the client, beneath what others say."""
    token = _FILE.set(file)
    try:
        yield
    finally:
        _FILE.reset(token)


def client_layers(file: Mapping[str, str], pairs: Sequence[str] | None) -> list[tuple[str, Mapping[str, str]]]:
    """Who says what of the client's settings: later ones hold over earlier ones."""
    flags: dict[str, str] = {}
    for pair in pairs or []:
        flags |= _of_file(pair[1:], "-X") if pair.startswith("@") else name_values([pair], "-X")
    said = _lines(os.environ.get(CLIENT_VARIABLE, ""), CLIENT_VARIABLE)
    return [("file", file), (f"environment {CLIENT_VARIABLE}", said), ("flag", flags)]


def spark_settings(pairs: Sequence[str] | None) -> tuple[dict[str, str], frozenset[str]]:
    """Settings of Spark, where ``@FILE`` stands for the lines of a file; and the names of those that are from a file,
    because they may be secret."""
    found: dict[str, str] = {}
    hidden: set[str] = set()
    for pair in pairs or []:
        in_file = pair.startswith("@")
        said = _of_file(pair[1:], "--spark-conf") if in_file else name_values([pair], "--spark-conf")
        hidden = hidden | said.keys() if in_file else hidden - said.keys()
        found |= said
    return found, frozenset(hidden)


def _of_file(name: str, option: str) -> dict[str, str]:
    try:
        return _lines(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{option} @{name}: the file cannot be read: {error}.") from None


def _lines(text: str, where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.strip():  # the line may hold a password: it is not shown
            raise CommandFailed(f"line {number} of {where} is not NAME=VALUE.", hint="write one setting a line")
        found[name.strip()] = _unfolded(name.strip(), value.strip())
    return found


def as_lines(settings: Mapping[str, str]) -> str:
    """Settings as ``HEADRACE_CLIENT`` has them, for a process that we start."""
    return "\n".join(f"{name}={value.replace(chr(10), _FOLD)}" for name, value in settings.items())


def _unfolded(name: str, value: str) -> str:
    """Certificates and keys may be given themselves; they have lines."""
    return value.replace(_FOLD, "\n") if name.endswith(".pem") else value
