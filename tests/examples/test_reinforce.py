"""The newcomer's loop and the simulator learn alike: mean curves of many seeds, and what they end at, by two-sample
tests."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import rftlab as rl
from rftlab.shared.config.surrogate import Reinforce
from rftlab.sim.environments import build
from tests.support.estimators.vectors import ROOT

PATH = ROOT / "examples" / "reinforce.py"
SEEDS, LEVEL = 200, 0.001
"""Runs on each side, and the chance of refusing curves that are equal in distribution."""


def module_of(source: str):
    """The example as a module, from its source or a wrong variant of it."""
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader("reinforce", loader=None))
    exec(compile(source, str(PATH), "exec"), vars(found))
    return found


def example():
    return module_of(PATH.read_text())


def simulation(loop) -> rl.Simulation:
    """The example's problem and design in the words of the simulator."""
    sizes = {"batch_size": loop.BATCH_SIZE, "rollouts": loop.ROLLOUTS}
    rounds = {"rounds": loop.ROUNDS, "eval_every": loop.EVALUATE_EVERY}
    design = rl.Design(**sizes, **rounds, estimator=rl.Estimator(rl.Advantage("group_mean"), Reinforce()))
    return rl.Simulation(rl.Tabular(loop.CONTEXTS, loop.ARMS), design, rl.Optimizer("sgd", loop.LEARNING_RATE))


@pytest.fixture(scope="module")
def simulated() -> np.ndarray:
    """Pass@1 (seeds, evaluations) of the simulator."""
    run = simulation(example())
    frame = rl.sweep(run, [run.design], seeds=SEEDS, threads=1)
    return frame["train_pass_at_1"].to_numpy().reshape(SEEDS, -1)


def base_logits(loop) -> np.ndarray:
    return loop.base_policy(np.random.Generator(np.random.Philox(0)))


def curves(loop) -> np.ndarray:
    """Pass@1 (seeds, evaluations) of the example."""
    return np.array([loop.train(base_logits(loop), seed) for seed in range(SEEDS)])


def p_value(a: np.ndarray, b: np.ndarray) -> float:
    """Smallest p of Welch's test of the means at each evaluation and of Kolmogorov and Smirnov's at the last, times
    their number."""
    means = stats.ttest_ind(a[:, 1:], b[:, 1:], equal_var=False).pvalue
    return float(min(*means, stats.ks_2samp(a[:, -1], b[:, -1]).pvalue) * (len(means) + 1))


def test_the_problem_is_the_simulator_s():
    loop = example()
    world = build(simulation(loop).environment)
    np.testing.assert_array_equal(base_logits(loop), world.train.base_logits[:, : loop.ARMS])


def test_the_loop_learns_as_the_simulator_does(simulated):
    found = curves(example())
    np.testing.assert_allclose(found[:, 0], simulated[:, 0], atol=1e-12)
    assert p_value(found, simulated) > LEVEL and found[:, -1].mean() > found[:, 0].mean() + 0.5


MUTANTS = {
    "half a baseline": ("- rewards.mean(axis=1, keepdims=True)", "- 0.5 * rewards.mean(axis=1, keepdims=True)"),
    "leave-one-out": (
        "- rewards.mean(axis=1, keepdims=True)",
        "- (rewards.sum(axis=1, keepdims=True) - rewards) / (ROLLOUTS - 1)",
    ),
    "a rate 5% too high": ("LEARNING_RATE = 2.0", "LEARNING_RATE = 2.1"),
    "contexts drawn with replacement": (
        "order = rng.permutation(CONTEXTS)",
        "order = rng.integers(0, CONTEXTS, CONTEXTS)",
    ),
    "an even policy rolls out": ("arms = sample(chances, rng)", "arms = sample(np.full_like(chances, 1 / ARMS), rng)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_loop_is_refused(name, simulated):
    right, wrong = MUTANTS[name]
    source = PATH.read_text()
    assert source.count(right) == 1
    assert p_value(curves(module_of(source.replace(right, wrong))), simulated) < LEVEL


def test_it_prints_its_curve_needs_numpy_alone_and_is_read_in_one_go():
    lines = subprocess.check_output([sys.executable, str(PATH)], text=True).splitlines()
    assert lines[0] == "round  Pass@1" and lines[1].startswith("    0   0.242") and len(lines) == 12
    source = PATH.read_text().splitlines()
    assert [line for line in source if line.startswith(("import ", "from "))] == ["import numpy as np"]
    assert len(source) <= 110
