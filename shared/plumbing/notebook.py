"""Show objects in a notebook: tables of values that differ from the defaults, and a small picture of a curve.

The HTML is our own, with escaped values, the notebook's colours and no scripts.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from html import escape
from math import isfinite
from typing import Any

WIDTH, HEIGHT, EDGE = 360, 120, 6
"""Width, height and margin of a picture, in pixels."""
LONGEST = 200
"""Largest number of letters of a value."""


def table(title: str, rows: list[tuple[str, Any]]) -> str:
    """Return an HTML table of names and values below a title."""
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(_shown(value))}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{body}</table>"


def changed_table(title: str, value: Any) -> str:
    """Return an HTML table of the fields of a dataclass that differ from their defaults, at any depth, or one line
    where none does. All fields of the class and of its parts need defaults."""
    rows = list(_changed(value, type(value)(), ""))
    return table(title, rows or [("all fields", "at their defaults")])


def _shown(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _changed(value: Any, usual: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield paths and values of fields that differ from those of `usual`. For a part of another class the name comes
    first, then what differs from that class's own defaults."""
    for name in (field.name for field in fields(value)):
        own, other, where = getattr(value, name), getattr(usual, name), f"{path}{name}"
        if not is_dataclass(own):
            if own != other:
                yield where, own
        elif type(own) is type(other):
            yield from _changed(own, other, f"{where}.")
        else:
            kind: Any = type(own)
            yield where, kind.__name__
            yield from _changed(own, kind(), f"{where}.")


def polylines(lines: dict[str, tuple[list[float], list[float]]], dashed: tuple[str, ...] = ()) -> str:
    """Return an SVG picture of lines (x, y) by name, with y from 0 to 1 and a description for screen readers."""
    xs = [x for line in lines.values() for x in line[0] if isfinite(x)]
    right = max(xs, default=1.0) or 1.0
    drawn = "".join(_line(_points(*line, right), name in dashed) for name, line in lines.items())
    frame = f'<path d="M{EDGE} {EDGE}V{HEIGHT - EDGE}H{WIDTH - EDGE}" fill="none" stroke="currentColor" opacity="0.4"/>'
    summary = escape(", ".join(lines))
    return f'<svg role="img" aria-label="{summary}" width="{WIDTH}" height="{HEIGHT}">{frame}{drawn}</svg>'


def _line(points: str, dashed: bool) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline fill="none" stroke="currentColor" stroke-width="1.5"{dash} points="{points}"/>'


def _points(x: list[float], y: list[float], right: float) -> str:
    """Return the pixels of a line; points without finite numbers are left out."""
    known = [(a, b) for a, b in zip(x, y, strict=True) if isfinite(a) and isfinite(b)]
    across, up = WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE
    return " ".join(f"{EDGE + a / right * across:.1f},{HEIGHT - EDGE - b * up:.1f}" for a, b in known)
