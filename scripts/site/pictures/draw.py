"""Draws all pictures into docs/pictures: ``.venv/bin/python scripts/site/pictures/draw.py``. A test compares."""

from __future__ import annotations

import sys
from pathlib import Path

import joins
import systems
import time_pictures

__all__ = ["drawn"]


def drawn() -> dict[str, str]:
    """The SVG files, by name."""
    every = {**time_pictures.pictures(), **joins.pictures(), **systems.pictures()}
    return {f"{name}.svg": picture.svg() for name, picture in every.items()}


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    for name, text in drawn().items():
        (folder / name).write_text(text)
