"""Charts as inline SVG, and the page around them: one file that needs nothing else and prints well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

WIDTH, HEIGHT, LEFT, BELOW, ABOVE = 720, 200, 64, 28, 10
BLUE, YELLOW = "#4269d0", "#efb118"


class Series(msgspec.Struct, frozen=True):
    """Values over equal steps of the axis below, drawn as bars, or as a line through points."""

    label: str
    values: tuple[float, ...]
    colour: str = BLUE


def bars(series: Sequence[Series], ticks: Sequence[tuple[float, str]]) -> str:
    """Return an SVG of bars, those of several series side by side; ticks are (share of the width, text)."""
    top = round_up(max((max(each.values, default=0.0) for each in series), default=0.0))
    steps = max(len(each.values) for each in series)
    inner, tall = WIDTH - LEFT - 10, HEIGHT - BELOW - ABOVE
    wide = inner / steps / len(series)
    parts = []
    for number, each in enumerate(series):
        for index, value in enumerate(each.values):
            x, high = LEFT + (index * len(series) + number) * wide, tall * value / top
            place = f'x="{x:.2f}" y="{ABOVE + tall - high:.2f}" width="{max(wide * 0.92, 0.5):.2f}" height="{high:.2f}"'
            parts.append(f'<rect {place} fill="{each.colour}"><title>{escape(f"{each.label} {value:,.6g}".strip())}</title></rect>')
    legend = "".join(f'<span><i style="background:{each.colour}"></i>{escape(each.label)}</span>' for each in series if each.label)
    return _svg("".join(parts), ticks, f"{top:,.6g}") + (f'<p class="legend">{legend}</p>' if legend else "")


def curve(points: Sequence[tuple[float, float, str]], ticks: Sequence[tuple[float, str]], top: str = "100%") -> str:
    """Return an SVG of a line through points: (share of the width, share of the height, what a pointer over it says)."""
    inner, tall = WIDTH - LEFT - 10, HEIGHT - BELOW - ABOVE
    placed = [(LEFT + x * inner, ABOVE + tall * (1 - y), text) for x, y, text in points]
    line = " ".join(f"{x:.2f},{y:.2f}" for x, y, _ in placed)
    dots = "".join(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" fill="{BLUE}"><title>{escape(text)}</title></circle>' for x, y, text in placed)
    return _svg(f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>{dots}', ticks, top)


def _svg(drawn: str, ticks: Sequence[tuple[float, str]], top: str) -> str:
    inner, ground = WIDTH - LEFT - 10, HEIGHT - BELOW
    axis = f'<path d="M{LEFT} {ABOVE}V{ground}H{WIDTH - 10}" fill="none" stroke="#888"/>'
    texts = f'<text x="{LEFT - 6}" y="{ABOVE + 8}" text-anchor="end">{escape(top)}</text>'
    texts += f'<text x="{LEFT - 6}" y="{ground}" text-anchor="end">0</text>'
    for share, text in ticks:
        anchor = "start" if share < 0.05 else "end" if share > 0.95 else "middle"
        texts += f'<text x="{LEFT + share * inner:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{escape(text)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{drawn}{axis}{texts}</svg>'


def round_up(value: float) -> float:
    """Return the end of an axis: 1, 2 or 5 times a power of ten, not below the value.

    >>> round_up(34.0), round_up(0.0), round_up(0.15)
    (50.0, 1.0, 0.2)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def figure(heading: str, axis: str, drawn: str) -> list[str]:
    """Return a heading, and a drawing with what its axis is."""
    return [f"<h2>{escape(heading)}</h2>", f"<figure><figcaption>{escape(axis)}</figcaption>{drawn}</figure>"]


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """Return a whole page; `style` is what it needs beside what all pages have."""
    return PAGE.format(title=escape(title), body="\n".join(body), style=style)


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b; background: #fff; }}
h1 {{ font-size: 1.6rem; }} h2 {{ font-size: 1.1rem; margin: 2rem 0 0; }}
figure {{ margin: 0; }} figcaption {{ color: #555; font-size: .85em; }}
svg {{ width: 100%; height: auto; }} svg text {{ font: 11px system-ui, sans-serif; fill: #555; }}
.legend {{ margin: 0; }} .legend span {{ display: inline-block; margin-right: 1rem; }}
.legend i {{ display: inline-block; width: .8em; height: .8em; margin-right: .3em; }}
@media print {{
  body {{ margin: 0; font-size: 11px; }} h2 {{ break-after: avoid; }} figure {{ break-inside: avoid; }} * {{ print-color-adjust: exact; }}
}}
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
