"""A picture as SVG: lines, boxes, dots and words, in colours that suit light and dark.

The colours are CSS variables: the viewer's preference sets them in a file of its own, the page's scheme where the
picture stands in a page. Positions are in units of about a pixel; y grows downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

__all__ = ["Picture"]

LIGHT = "--ink:#1d2a33;--soft:#66747f;--a:#1f6fb5;--b:#b4570d;--c:#1f7f4e;--d:#b32d2d;--wash:.13"
DARK = "--ink:#e4eaee;--soft:#a3b0ba;--a:#76b7f2;--b:#f2a65e;--c:#6fce9b;--d:#f28b8b;--wash:.22"
STYLE = f"""
.hp{{{LIGHT};font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}}
@media (prefers-color-scheme:dark){{.hp{{{DARK}}}}}
[data-md-color-scheme=default] .hp{{{LIGHT}}}
[data-md-color-scheme=slate] .hp{{{DARK}}}
.hp text{{font-size:14px;fill:var(--ink)}}.hp .small{{font-size:12.5px}}.hp .strong{{font-weight:600}}
.hp .mono{{font-family:ui-monospace,SFMono-Regular,"DejaVu Sans Mono",monospace;font-size:12.5px;white-space:pre}}
"""
_COLOURS = {name: f"var(--{name})" for name in ("ink", "soft", "a", "b", "c", "d")}


@dataclass
class Picture:
    """A drawing with a size and a sentence that says what it shows."""

    width: int
    height: int
    says: str
    parts: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, words: str, colour: str = "ink", *, anchor: str = "start", kind: str = ""
    ) -> None:
        """Words; ``kind`` is small, strong or mono, or several. Lines are told apart by newlines."""
        for number, line in enumerate(words.split("\n")):
            self.parts.append(
                f'<text x="{x:g}" y="{y + 17 * number:g}" text-anchor="{anchor}" class="{kind}" '
                f'style="fill:{_COLOURS[colour]}">{escape(line)}</text>'
            )

    def line(self, *points: tuple[float, float], colour: str = "ink", width: float = 1.5, dash: str = "") -> None:
        """A line through points."""
        joined = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f'<polyline points="{joined}" fill="none" style="stroke:{_COLOURS[colour]}" stroke-width="{width:g}"'
            + (f' stroke-dasharray="{dash}"' if dash else "")
            + "/>"
        )

    def arrow(self, *points: tuple[float, float], colour: str = "ink", width: float = 1.5, dash: str = "") -> None:
        """A line with a head at its last point."""
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        back = (x1 - 9 * dx, y1 - 9 * dy)
        self.line(*points[:-1], back, colour=colour, width=width, dash=dash)
        left, right = (back[0] - 4.5 * dy, back[1] + 4.5 * dx), (back[0] + 4.5 * dy, back[1] - 4.5 * dx)
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x1, y1), left, right))
        self.parts.append(f'<polygon points="{corners}" style="fill:{_COLOURS[colour]}"/>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str = "ink",
        *,
        dash: str = "",
        washed: bool = True,
    ) -> None:
        """A box, faintly filled."""
        fill = f"fill:{_COLOURS[colour]};fill-opacity:var(--wash)" if washed else "fill:none"
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{min(5, height / 4):g}" '
            f'style="{fill};stroke:{_COLOURS[colour]}" stroke-width="1.4"'
            + (f' stroke-dasharray="{dash}"' if dash else "")
            + "/>"
        )

    def named(
        self, x: float, y: float, width: float, height: float, words: str, colour: str = "ink", *, kind: str = "small"
    ) -> None:
        """A box with words in its middle."""
        self.box(x, y, width, height, colour)
        lines = words.count("\n") + 1
        self.text(x + width / 2, y + height / 2 + 4.5 - 8.5 * (lines - 1), words, anchor="middle", kind=kind)

    def dot(self, x: float, y: float, colour: str = "a", words: str = "", *, hollow: bool = False) -> None:
        """An event, with its name in it or none."""
        radius = 10 if words else 5
        fill = "none" if hollow else _COLOURS[colour]
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" '
            f'style="fill:{fill};stroke:{_COLOURS[colour]};fill-opacity:{0.25 if words else 1}" stroke-width="1.5"/>'
        )
        if words:
            self.text(x, y + 4.5, words, anchor="middle", kind="small strong")

    def span(self, x0: float, x1: float, y: float, words: str = "", colour: str = "soft") -> None:
        """A length with an end at each side, and words under it."""
        self.line((x0, y), (x1, y), colour=colour)
        for x in (x0, x1):
            self.line((x, y - 5), (x, y + 5), colour=colour)
        if words:
            self.text((x0 + x1) / 2, y + 17, words, colour, anchor="middle", kind="small")

    def cross(self, x: float, y: float, colour: str = "d", size: float = 7) -> None:
        """Something went wrong here."""
        self.line((x - size, y - size), (x + size, y + size), colour=colour, width=2.5)
        self.line((x - size, y + size), (x + size, y - size), colour=colour, width=2.5)

    def svg(self) -> str:
        """The file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hp" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" aria-label="{escape(self.says)}"><style>{STYLE}</style>'
        )
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"
