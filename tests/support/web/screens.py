"""Pictures of a page for the documentation, small: wide and narrow, light and dark.

python -m tests.support.web.screens results/report/report.html docs/gallery
python -m tests.support.web.screens results/report/figures/agreement.png docs/gallery    # a figure, made small
"""

import io
import sys
from pathlib import Path

from tests.support.web.browser import Page, start

SHOTS = (
    ("report-wide-light", 1280, 900, "light", "#choose"),
    ("report-wide-dark", 1280, 900, "dark", "#tradeoff"),
    ("report-narrow-light", 390, 900, "light", "#claims"),
    ("report-narrow-dark", 390, 900, "dark", "#tradeoff"),
)
"""Name, width, height, theme, and what stands at the top."""
HOVERED = "#tradeoff .panel[data-pair='qwen-gsm8k'] svg.plot"
COLOURS, WIDTH = 256, 900


def shoot(page: Path, folder: Path) -> None:
    """Write the pictures of a page."""
    driver = start()
    try:
        for name, width, height, theme, place in SHOTS:
            shown = Page(driver)
            shown.open(page, width, theme)
            screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            shown.run("document.querySelector(arguments[0]).scrollIntoView()", place)
            frames = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
            driver.execute_async_script(frames)
            if place == "#tradeoff":
                hover(shown)
            small(io.BytesIO(driver.get_screenshot_as_png()), folder / f"{name}.png")
    finally:
        driver.quit()


def hover(page: Page) -> None:
    """Point at the sixth mark of a line."""
    page.run(
        "const plot = document.querySelector(arguments[0]);"
        "const row = JSON.parse(plot.querySelector('g.s[data-split=\"test\"]').dataset.v)[5];"
        "const at = new DOMPoint(row[0], row[1]).matrixTransform(plot.getScreenCTM());"
        "plot.dispatchEvent(new PointerEvent('pointermove', {clientX: at.x, clientY: at.y}));",
        HOVERED,
    )


def small(source: Path | io.BytesIO, target: Path) -> None:
    """A picture in few colours, at most so wide."""
    from PIL import Image

    picture = Image.open(source).convert("RGB")
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    given, into = map(Path, sys.argv[1:])
    if given.suffix == ".html":
        shoot(given, into)
    else:
        small(given, into / given.name)
