"""The site's page of precomputed curves: its numbers are the simulator's, and its sliders move the chart's lines."""

from dataclasses import replace
from itertools import product

import pytest

import rftlab as rl
from dev import try_page
from dev.try_page import ADVANTAGES, BATCH, LARGEST, PAIRS, RATES, ROLLOUTS, curve, page

AXES = (PAIRS, BATCH, ROLLOUTS, ADVANTAGES, RATES)
POINTS = try_page.ROUNDS // try_page.EVERY + 1


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The page with made-up curves: of each choice another constant, test a tenth of train."""
    names = [".".join(map(str, places)) for places in product(*(range(len(axis)) for axis in AXES))]
    curves = {name: [[place] * POINTS, [place // 10] * POINTS] for place, name in enumerate(names)}
    path = tmp_path_factory.mktemp("try") / "try.html"
    path.write_text(page(curves))
    assert path.stat().st_size < LARGEST / 5
    return path


def test_a_curve_is_that_of_the_design():
    run = rl.start_at("qwen-gsm8k-fragile", "sim")
    design = rl.Design(8, 2, estimator=rl.preset("grpo"), rounds=20, eval_every=10)
    optimizer = replace(run.optimizer, learning_rate=4 * run.optimizer.learning_rate)
    direct = rl.simulate(replace(run, design=design, optimizer=optimizer, seed=0)).curve
    found = curve(("qwen-gsm8k-fragile", 8, 2, "grpo", 4.0), rounds=20, every=10)
    assert found == [[round(1000 * float(v)) for v in of] for of in (direct.train_pass_at_1, direct.test_pass_at_1)]
    assert found != curve(("qwen-gsm8k-fragile", 8, 2, "grpo", 1.0), rounds=20, every=10)


def test_sliders_move_the_lines(browser, path):
    browser.open(path)
    middle = 36 + 12 + 2 * 4 + 1
    said = "return document.getElementById('said').textContent"
    assert browser.run(said) == f"After training: train {middle / 1000:.3f}, test {middle // 10 / 1000:.3f}."
    to_five = "const range = document.querySelector('input'); range.value = 5; range.dispatchEvent(new Event('input'))"
    browser.run(to_five)
    now = middle + 5 * 108
    assert f"train {now / 1000:.3f}" in browser.run(said)
    lines = browser.run("return [...document.querySelectorAll('[data-v] path')].map(e => e.getAttribute('d'))")
    height = float(lines[2].split("L")[0].split()[1])
    assert height == pytest.approx(162 - 153 * now / 1000, abs=0.1) and lines[0] != lines[2]
    assert browser.seen().errors == [] and browser.seen().requests == []
