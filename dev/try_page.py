"""The page of precomputed curves that `make docs` adds to the site: sliders, no server, nothing loaded.

    python -m dev.try_page build/docs/try.html     # simulates 648 designs of 400 rounds, some minutes

Pairs are the fragile ones, whose runs can fail. Every design runs once, with seed 0, and the page holds its curve in
thousandths. The chart is that of every page (rftlab.studies.report.svg): a script moves its lines.
"""

import argparse
import base64
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from string import Template

import rftlab as rl
from rftlab.shared.plumbing.files import write_file
from rftlab.studies.report.chart import DASHES, Chart, LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries
from rftlab.studies.report.svg import chart_html

PAIRS = {
    "qwen-gsm8k-fragile": "Qwen2.5-0.5B-Instruct, GSM8K",
    "llama-gsm8k-fragile": "Llama-3.2-1B-Instruct, GSM8K",
    "olmo-gsm8k-fragile": "OLMo-2-1B-Instruct, GSM8K",
    "qwen-math-fragile": "Qwen2.5-0.5B-Instruct, MATH",
    "llama-math-fragile": "Llama-3.2-1B-Instruct, MATH",
    "olmo-math-fragile": "OLMo-2-1B-Instruct, MATH",
}
BATCH, ROLLOUTS, RATES = (4, 16, 64), (2, 8, 32), (0.25, 1.0, 4.0, 16.0)
ADVANTAGES = {"minimalist": "raw reward", "dr_grpo": "minus the group mean", "grpo": "GRPO: divided by the deviation"}
ROUNDS, EVERY = 400, 50
TEMPLATE = Path(__file__).parent.parent / "studies" / "report" / "templates"
LARGEST = 1_000_000
"""Largest size of the page in bytes."""


@cache
def start(pair: str):
    """Return the run from which those of a pair start."""
    return rl.start_at(pair, "sim")


def curve(choice: tuple[str, int, int, str, float], rounds: int = ROUNDS, every: int = EVERY) -> list[list[int]]:
    """Return train and test Pass@1 of a design in thousandths, one for each evaluation."""
    pair, batch, rollouts, advantage, rate = choice
    run = start(pair)
    design = rl.Design(batch, rollouts, estimator=rl.preset(advantage), rounds=rounds, eval_every=every)
    optimizer = replace(run.optimizer, learning_rate=rate * run.optimizer.learning_rate)
    curve = rl.simulate(replace(run, design=design, optimizer=optimizer, seed=0)).curve
    return [[round(1000 * float(value)) for value in getattr(curve, f"{split}_pass_at_1")] for split in DASHES]


def chart() -> Chart:
    """Return the chart with lines at 0 and at 1, from which the script knows the places of all values."""
    rounds = list(range(0, ROUNDS + 1, EVERY))
    styles = [MarkStyle(colour, dash) for colour in ("#8a8f98", "#0b5cad") for dash in DASHES.values()]
    names = [f"{split}{kept}" for kept in (", kept", "") for split in DASHES]
    lines = [PlotSeries(rounds, [place % 2] * len(rounds), style) for place, style in enumerate(styles)]
    keys = tuple(LegendKey(name, style) for name, style in zip(names, styles, strict=True))
    axes = PlotAxis("rounds", low=0, high=ROUNDS), PlotAxis("Pass@1", low=0, high=1)
    return Chart((Panel("", *axes, tuple(lines)),), (5.0, 3.0), keys=keys)


def page(curves: dict[str, list[list[int]]]) -> str:
    """Return the page of curves by their choice, places in the menus joined by dots."""
    menus = {
        "pair": list(PAIRS.values()),
        "prompts a round (B)": list(BATCH),
        "rollouts of a prompt (K)": list(ROLLOUTS),
        "advantage": list(ADVANTAGES.values()),
        "learning rate, times the usual": list(RATES),
    }
    data = json.dumps({"menus": menus, "curves": curves}, separators=(",", ":")).replace("<", "\\u003c")
    script = Template(Path(__file__).with_name("try_page.js").read_text()).substitute(data=data)
    name = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{name}'">
<title>rftlab: try a design</title><style>{(TEMPLATE / "page.css").read_text()}
body {{ padding: 12px; }} label {{ display: grid; grid-template-columns: 15em 1fr 16em; gap: 10px; }}
@media (max-width: 700px) {{ label {{ grid-template-columns: 1fr; gap: 0; margin: 6px 0; }} }}</style></head>
<body><h1>Try a design</h1><p>Rehearse a change before you pay for the run; <code>rftlab check</code> says what your own
run is. Simulated Pass@1 of one seed. Use it for signs, orders and sizes of effects, not as
evidence about a language model.</p><form id="choices"></form><p id="said" role="status"></p>{chart_html(chart())}
<p><button type="button" id="keep">Keep this curve</button></p><script>{script}</script></body></html>
"""


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    path = parser.parse_args().path
    axes = (PAIRS, BATCH, ROLLOUTS, ADVANTAGES, RATES)
    names = [".".join(map(str, places)) for places in product(*(range(len(axis)) for axis in axes))]
    with ThreadPoolExecutor() as pool:
        curves = dict(zip(names, pool.map(curve, product(*axes)), strict=True))
    text = page(curves)
    assert len(text) < LARGEST, f"{path}: {len(text)} bytes; allowed: below {LARGEST}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())


if __name__ == "__main__":
    main()
