"""What MkDocs calls while it builds the site: pages made from the code, pictures in the page's colours.

``mkdocs.yml`` names this file. ``commands`` and ``names`` write pages; ``pictures`` has drawn the SVG files.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from commands import commands_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from names import PAGES, names_page

_IMAGE = re.compile(r'<img alt="([^"]*)" src="[^"]*pictures/([\w-]+)\.svg" ?/?>')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=names_page(page)))
    return files


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page itself, so that its colours, light or dark, are theirs."""
    folder = Path(config.docs_dir) / "pictures"

    def drawn(image: re.Match[str]) -> str:
        label, name = image.groups()
        picture = (folder / f"{name}.svg").read_text()
        labelled = re.sub(r'aria-label="[^"]*"', lambda _: f'aria-label="{html.escape(html.unescape(label))}"', picture)
        return f'<span class="picture" tabindex="0">{labelled.strip()}</span>'

    return _IMAGE.sub(drawn, content)
