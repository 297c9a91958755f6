"""Record the explorer's moving picture in the README: `python -m dev.record_explorer`.

It starts `rftlab explore` without a window, pins a design, and drags the sliders of K, M and B in Chromium. Each curve
that follows is a frame of docs/explorer.gif. It needs chromium, chromedriver and the extras explore and test.
"""

import argparse
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from dev.house import ROOT
from rftlab.studies.explore.choices import BY_NAME
from tests.support.web.explorer_page import chromium, explorer, settled

PINNED = "B=32&K=8&rounds=2000"
START = f"{PINNED}&{urlencode({'pin': PINNED, 'name': '(32, 8)'})}"
MOVES = tuple(
    (name, value)
    for name, values in (("K", (4, 2, 1)), ("M", (1, 3, 7)), ("B", (64, 128, 256)), ("K", (2, 4, 8)))
    for value in values
)
"""Moves of the recording: a slider, and the value to which it is dragged."""
WIDTH, HEIGHT, SHOWN, COLORS = 1120, 800, 840, 48
MOVE = """
    const slider = document.querySelector(arguments[0]);
    slider.value = arguments[1];
    slider.focus();
    slider.dispatchEvent(new Event('input'));
"""


def take_screenshots(driver: Any, address: str) -> Iterator[bytes]:
    """Yield a PNG of the page at its start and after each stop of a slider, once its curves are whole."""
    driver.get(f"{address}?{START}")
    curves = settled(driver)
    yield driver.get_screenshot_as_png()
    for name, value in MOVES:
        before = curves
        driver.execute_script(MOVE, f"#knob-{name}", BY_NAME[name].stops.index(value))
        while curves == before:  # until the server has received it
            time.sleep(0.1)
            curves = settled(driver)
        time.sleep(0.5)  # until the last points are drawn
        yield driver.get_screenshot_as_png()


def write_gif(shots: list[bytes], path: Path) -> None:
    """Write PNG screenshots as one GIF, scaled, in the colors of all frames together."""
    images = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    size = (SHOWN, round(SHOWN * images[0].height / images[0].width))
    small = [image.resize(size, Image.Resampling.LANCZOS) for image in images]
    sheet = Image.new("RGB", (size[0], size[1] * len(small)))
    for place, image in enumerate(small):
        sheet.paste(image, (0, place * size[1]))
    palette = sheet.quantize(COLORS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in small]
    pauses = [1500, *[700] * (len(frames) - 2), 2500]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=pauses, loop=0, optimize=True)


def main() -> None:
    """Record the picture, and print its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, nargs="?", default=ROOT / "docs" / "explorer.gif")
    path = parser.parse_args().path
    with explorer() as (address, _), chromium(WIDTH, HEIGHT) as driver:
        shots = list(take_screenshots(driver, address))
    write_gif(shots, path)
    print(f"{path}: {len(shots)} frames, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
