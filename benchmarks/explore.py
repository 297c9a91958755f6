"""The explorer as its user waits for it: `python -m benchmarks.explore`; needs Chromium, the extras explore and test.

From the start of the process to the page's first whole curve; the server's memory at rest; and from a change of a
slider, in the browser, to the first points of the new curve, to the whole of its first seed and to all seeds, with the
processor time of both; medians over changes of the learning rate. Compiled before: a first server fills the cache.
"""

import argparse
import contextlib
import io
import os
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from rftlab.sim.environments import build
from rftlab.sim.lanes.tiles import TARGET
from rftlab.sim.run import simulate
from rftlab.studies.explore.choices import Choices, chosen_run
from tests.support.web.browser import until
from tests.support.web.explorer_page import chromium, explorer, settled, text_of

DESIGNS = ((32, 8), (256, 8), (2048, 1))
WATCH = """
    const chart = getElement(Number(document.querySelector('.chart').id.slice(1))).chart;
    const line = name => chart.getOption().series.find(s => s.name === name)?.data ?? [];
    const old = line('now, test')[1][1], slider = document.querySelector('#knob-rate'), seen = {};
    const began = performance.now();
    window.watched = null;
    const note = what => { seen[what] ??= performance.now() - began; };
    const fresh = points => points.length > 1 && points[1][1] !== old;
    const whole = points => fresh(points) && points[points.length - 1][0] === arguments[1];
    const look = () => {
        if (fresh(line('now, test'))) note('first');
        if (seen.first && whole(line('now, test, seed 0'))) note('seed');
        if (whole(line('now, test'))) {
            note('all');
            chart.off('rendered', look);
            window.watched = [seen.first, seen.seed, seen.all];
        }
    };
    chart.on('rendered', look);
    slider.value = arguments[0];
    slider.dispatchEvent(new Event('input'));
"""


class Change(NamedTuple):
    """Times of a change of a slider: seconds, and processor seconds of the server and of the browser."""

    first: float
    one_seed: float
    whole: float
    server: float
    browser: float


def changes(driver, server: int, address: str, batch: int, group: int, count: int, rounds: int) -> list[Change]:
    """Return the times of each change. server: id of its process."""
    driver.get(f"{address}?B={batch}&K={group}&rounds={rounds}")
    settled(driver)
    found, processes = [], (server, driver.service.process.pid)
    for turn in range(count):
        time.sleep(0.5)  # until the work of the last change is done
        before = [processor_seconds(one) for one in processes]
        driver.execute_script(WATCH, str(3 + turn % 2 * 2), rounds)
        seen = until(lambda: driver.execute_script("return window.watched"), "the new curve")
        settled(driver)
        spent = [processor_seconds(one) - old for one, old in zip(processes, before, strict=True)]
        found.append(Change(*(ms / 1000 for ms in seen), *spent))
    return found


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and all that it started."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = int(fields[11]) + int(fields[12])

    def below(one: int) -> int:
        return ticks[one] + sum(below(child) for child, parent in parents.items() if parent == one)

    return below(pid) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Return the resident megabytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def processor_times() -> None:
    """Print the CPU-seconds of one seed to its first points and to the last, which do not depend on other processes."""
    world = build(Choices().origin.environment)
    for batch, group in (DESIGNS[0], *DESIGNS):  # the first compiles
        run, seen = chosen_run(Choices().moving("B", batch).moving("K", group)), []
        began = time.thread_time()
        simulate(run, world, watch=lambda _, seen=seen, began=began: seen.append(time.thread_time() - began))
        print(
            f"({batch}, {group}): one seed takes {seen[1]:.3f} CPU-seconds to its first points, {seen[-1]:.2f} in all"
        )


def pictures(folder: Path) -> None:
    """Save pictures of the page, wide and narrow, light and dark, with a pinned curve and a map."""
    from PIL import Image

    state = "B=32&K=8&pin=B%3D256%26K%3D1&name=%28256%2C+1%29&axis=rollouts"
    with explorer() as (address, _):
        for name, width, height in (("wide", 1400, 1130), ("narrow", 390, 1100)):
            for dark in (0, 1):
                with chromium(width, height) as driver:
                    driver.get(f"{address}?{state}&dark={dark}")
                    settled(driver)
                    driver.execute_script("document.querySelector('#heat-fill').click()")
                    until(lambda driver=driver: "done" in text_of(driver, "#heat-status"), "the map")
                    image = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
                place = folder / f"explore-{name}-{'dark' if dark else 'light'}.png"
                image.quantize(96).save(place, optimize=True)
                print(f"{place}: {place.stat().st_size:,} bytes")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=11)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--pictures", type=Path, help="make the pictures of docs/explore.md in this folder instead")
    arguments = parser.parse_args()
    if arguments.pictures:
        pictures(arguments.pictures)
        return
    print(f"{TARGET.name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    processor_times()
    with chromium(1400) as driver:
        with explorer() as (address, _):
            driver.get(f"{address}?rounds=200")
            settled(driver)
        began = time.perf_counter()
        with explorer() as (address, process):
            listening = time.perf_counter() - began
            driver.get(f"{address}?rounds={arguments.rounds}")
            until(lambda: driver.execute_script("return !!document.querySelector('.chart canvas')"), "the page")
            drawn = time.perf_counter() - began
            settled(driver)
            whole = time.perf_counter() - began
            time.sleep(2)
            print(f"address after {listening:.2f} s, page after {drawn:.2f} s, first curve whole after {whole:.2f} s")
            print(f"server at rest: {memory(process.pid):.0f} MB")
            for batch, group in DESIGNS:
                times = changes(driver, process.pid, address, batch, group, arguments.changes, arguments.rounds)
                middle = Change(*map(statistics.median, zip(*times, strict=True)))
                worst = max(one.first for one in times)
                print(f"({batch}, {group}): first points {middle.first:.2f} s (worst {worst:.2f}), one seed "
                      f"{middle.one_seed:.2f} s, all {middle.whole:.2f} s; server {middle.server:.2f} and browser "
                      f"{middle.browser:.2f} CPU-seconds; load {os.getloadavg()[0]:.1f}")  # fmt: skip
            print(f"server afterwards: {memory(process.pid):.0f} MB")


if __name__ == "__main__":
    main()
