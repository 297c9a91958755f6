"""Small simulated runs, and the mean gradient of one, which several test modules look at."""

from dataclasses import replace

import numpy as np

from rftlab.shared.cards import preset
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Linear, Optimizer, Simulation, Tabular
from rftlab.sim.environments import tabular_world
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.run import as_rule, batches
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals

SMALL = Linear(n_train=40, n_test=30, n_features=19, n_answers=3, n_styles=2, base_format=-1.0, nuisance=0.7)
CUSTOM = Estimator(
    Advantage("batch_mean"), Clip(low=0.1, high=0.3, dual=1.5), KL("k2", 0.3, place="reward"), Aggregation("token_mean")
)
TOLERANCE = 1e-5
"""float32 against float64 over 12 rounds of Adam, whose eps keeps tiny gradients from acting by their sign; the
tabular twin is equal to 1e-9."""
DESIGNS = {
    "raw": Design(8, 1, estimator=preset("minimalist")),
    "support": Design(8, 1, 7, estimator=preset("paper_text")),
    "group": Design(7, 20, estimator=preset("grpo")),
    "window": Design(8, 2, 3, replay_window=5, estimator=preset("paper_text")),
    "updates": Design(8, 4, estimator=preset("paper_code"), epochs=3, minibatches=2),
    "micro-batches": Design(7, 2, estimator=preset("paper_code")),
    "sequence": Design(
        8, 4, estimator=Estimator(ratio=Ratio("sequence"), surrogate=Clip(0.02, 0.02)), epochs=3, minibatches=2
    ),
    "kl in reward": Design(8, 3, 2, replay_window=4, estimator=CUSTOM, epochs=2),
}


def run_of(design, environment=SMALL, rounds=12, **more):
    return Simulation(
        environment,
        replace(design, rounds=rounds, eval_every=rounds // 4),
        Optimizer(learning_rate=0.02, eps=1e-3),
        **more,
    )


LOGITS = np.array([[0.3, -0.2, 0.9, 0.1], [1.2, 0.4, -0.7, 0.2], [-0.5, 0.6, 0.1, -1.0]])
CORRECT = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 1]], dtype=bool)


def mean_gradient(estimator, rollouts, world=None, seeds=24, rounds=4000):
    """Average gradient of the simulator (SGD with a rate too small to move the policy) in the logits of three
    contexts, one per seed."""
    world, rate = world or tabular_world(LOGITS, CORRECT), 1e-9
    design = Design(3, rollouts, estimator=estimator, rounds=rounds, eval_every=rounds)
    found = []
    for seed in range(seeds):
        run = Simulation(Tabular(n_contexts=3), design, Optimizer("sgd", learning_rate=rate), seed=seed)
        state = start_state(run, world)
        train_rounds(
            world.train,
            make_plan(run, world),
            as_rule(estimator),
            state,
            make_work(run, world),
            batches(3, 3, seed, 0, rounds),
            0,
            no_totals(),
        )
        found.append(state.theta[:-1].reshape(3, -1) / (rate * rounds))
    return np.array(found)


def z_scores(found, expected):
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert error.max() < 0.01 * np.abs(expected).max()
    return np.abs(found.mean(axis=0) - expected) / error


UNBIASED = {"raw": (Estimator(Advantage("none"), Reinforce()), 1, 1.0), "rloo": (preset("rloo"), 4, 1.0)}
