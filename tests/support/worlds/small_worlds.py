"""Small float64 worlds, and comparisons of runs."""

from dataclasses import replace

import numpy as np

import rftlab.sim.run
from rftlab.sim.policy.style import token_style
from rftlab.sim.run import simulate
from rftlab.sim.world import World, make_contexts


def styled(world, tokens, by_style=0.0, jitter=0.0, n_styles=2):
    """The world with style tokens instead of Gaussian nuisance."""
    explores = world.exploration > 0
    return world._replace(style=token_style(tokens, by_style, jitter, n_styles, world.nuisance, explores))


def mixed_world(tokens=5.0, by_style=0.6, jitter=0.3, nuisance=0.7):
    """15 contexts that differ, in float64: 5 arms, format, style tokens."""
    rng, shape = np.random.default_rng(5), (15, 5)
    logits, formats = rng.standard_normal(shape), rng.standard_normal(15) + 0.5
    contexts = make_contexts(np.zeros((0, 0)), logits, formats, rng.random(shape) < 0.4)
    return styled(World(contexts, contexts, 5, 1.5, nuisance), tokens, by_style, jitter)


def spelt_world(n, tokens, width, nuisance=0.7, **extras):
    """n contexts in float64 with formats that are learnt, answers of several tokens with `width` arms each, of which
    some are right."""
    rng = np.random.default_rng(5)
    logits, correct = rng.standard_normal((n, tokens * width)), rng.random((n, tokens * width)) < 0.5
    contexts = make_contexts(np.zeros((0, 0)), logits, rng.standard_normal(n) + 0.5, correct, tokens)
    return World(contexts, contexts, tokens * width, 1.5, nuisance, answer_tokens=tokens, **extras)


def forced(monkeypatch, run, world):
    """The outcome of a run by the general round, whether or not it needs it."""
    with monkeypatch.context() as patch:
        patch.setattr(rftlab.sim.run, "is_general", lambda run, world: True)
        return simulate(run, world)


def with_estimator(design, **changes):
    return replace(design, estimator=replace(design.estimator, **changes))


def same(a, b, but=("seconds",)):
    """Bitwise equality of two curves, but for some columns."""
    columns = zip(a._fields, a, b, strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for name, x, y in columns if name not in but)
