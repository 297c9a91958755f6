"""Write the README's badges to docs/badges.svg, with facts of this checkout: `python -m dev.badges`."""

import tomllib
from html import escape
from pathlib import Path

from rftlab.shared.cards import SHIPPED
from rftlab.studies.theory import ALL_CHECKS

ROOT = Path(__file__).parent.parent
BADGES = ROOT / "docs" / "badges.svg"
CHARACTER, PAD, HEIGHT = 6.6, 12, 20


def facts() -> dict[str, str]:
    """Return the text of each badge: version, Python and license of pyproject.toml, estimators that run, checks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runnable = sum(card.estimator is not None for card in SHIPPED.values())
    return {
        "version": project["version"],
        "python": project["requires-python"].replace(">=", "") + " or newer",
        "license": project["license"],
        "estimators": str(runnable),
        "theory checks": str(len(ALL_CHECKS)),
    }


def draw() -> str:
    """Return the badges in a row, as SVG."""
    parts, left = [], 0.0
    for name, value in facts().items():
        widths = [len(text) * CHARACTER + PAD for text in (name, value)]
        for text, width, colour in zip((name, value), widths, ("#444", "#0b5394"), strict=True):
            parts.append(f'<rect x="{left:.1f}" width="{width:.1f}" height="{HEIGHT}" fill="{colour}"/>')
            parts.append(f'<text x="{left + width / 2:.1f}" y="14">{escape(text)}</text>')
            left += width
        left += 6
    style = 'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    label = escape(", ".join(f"{name} {value}" for name, value in facts().items()))
    size = f'width="{left - 6:.0f}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}"><g {style}>\n' + "\n".join(
        [*parts, "</g></svg>\n"]
    )


if __name__ == "__main__":
    BADGES.write_text(draw(), encoding="utf-8")
