"""The plain round against its slow twin, which tells every knob, and wrong twins, which it does not follow.

The general round is equal to it bit for bit (test_general.py), so that one twin is that of both."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab import Optimizer, simulate
from rftlab.sim.environments import build
from rftlab.sim.lanes.random import INTERFERENCE, NUISANCE, ROLLOUT
from rftlab.sim.round.plain import CHUNK
from tests.support.naive.general import NaiveGeneral, general_curve
from tests.support.naive.model import NaiveModel, sigmoid
from tests.support.worlds.problems import NINE, PROBLEMS, TABULAR
from tests.support.worlds.simulations import DESIGNS, SMALL, TOLERANCE, run_of

RATES = ("train_pass_at_1", "train_flexible")


def apart(run, world, twin_run=None, twin_world=None, twin=NaiveGeneral, moves=0.0):
    """Largest differences (2,) of a run's rates, strict and flexible, from those of a twin; moves: the least that the
    rates change over the run."""
    curve, columns = simulate(run, world).curve, general_curve(twin_run or run, twin_world or world, twin)
    assert np.ptp(curve.train_pass_at_1) >= moves
    return np.array([np.abs(getattr(curve, name) - columns[name]).max() for name in RATES])


FEW = ("updates", "window", "kl in reward")
"""Designs on every problem; the others on two, because a twin takes its time for each response."""


def cases(problems, both):
    return [(problem, name) for problem in problems for name in DESIGNS if name in FEW or problem in both]


@pytest.mark.parametrize(("problem", "name"), cases(PROBLEMS, ("plain", "everything")))
def test_linear_environment_follows_its_slow_twin(problem, name):
    run = run_of(DESIGNS[name], PROBLEMS[problem], seed=3)
    assert apart(run, build(run.environment), moves=1e-3).max() < TOLERANCE


@pytest.mark.parametrize(("problem", "name"), cases(TABULAR, ("in common", "everything")))
def test_in_float64_it_is_equal_to_its_slow_twin(problem, name):
    assert apart(run_of(DESIGNS[name], NINE, seed=4), TABULAR[problem], moves=1e-3).max() < 1e-9


LARGE = [
    ("raw", "four"),
    ("raw", "in common"),
    ("raw", "everything"),
    ("micro-batches", "everything"),
    ("window", "four"),
]


@pytest.mark.parametrize(("name", "problem"), LARGE)
def test_batches_of_several_chunks_follow_their_slow_twin(name, problem):
    environment = replace(PROBLEMS[problem], n_train=600)
    run = run_of(replace(DESIGNS[name], batch_size=2 * CHUNK + 14), environment, rounds=4, seed=5)
    assert apart(run, build(environment)).max() < TOLERANCE


BF16 = [replace(run_of(DESIGNS["window"]).optimizer, bf16_rate=rate) for rate in (1e-7, 3e-6, 1e-4)]


@pytest.mark.parametrize("optimizer", [*BF16, Optimizer("sgd", learning_rate=0.5)])
def test_steps_on_bf16_weights_and_those_of_sgd_follow_their_slow_twin(optimizer):
    assert apart(replace(run_of(DESIGNS["window"]), optimizer=optimizer), build(SMALL)).max() < TOLERANCE


@pytest.mark.parametrize("change", ["seed", "rate", "nuisance", "window"])
def test_the_twin_tells_runs_apart(change):
    run = run_of(DESIGNS["window"], seed=3)
    other = {
        "seed": replace(run, seed=4),
        "rate": replace(run, optimizer=Optimizer(learning_rate=0.021, eps=1e-3)),
        "nuisance": replace(run, environment=replace(SMALL, nuisance=1.4)),
        "window": replace(run, design=replace(run.design, replay_window=2)),
    }[change]
    assert apart(run, build(SMALL), other, build(other.environment)).max() > 5 * TOLERANCE


class OneRate(NaiveGeneral):
    """A flexible rate that counts the format."""

    def pass_at_1(self):
        return (super().pass_at_1()[0],) * 2


def test_the_twin_tells_a_flexible_rate_that_counts_the_format():
    strict, flexible = apart(run_of(DESIGNS["window"], seed=3), build(SMALL), twin=OneRate)
    assert strict < TOLERANCE and flexible > 0.1


# --- wrong twins ---


def variance(change):
    """A twin whose nuisance has `change(share, distances)` for its relative variance; distances (T,): |e - pi|^2 of
    each token."""

    def method(self, p, arms):
        return change(self.world.surprise, (self.answer_score(p, arms) ** 2).reshape(len(arms), -1).sum(axis=1))

    return {"variance": method}


def others(key):
    """A twin that interferes with the context drawn under `key(round, context, place in the batch)`: stream, round,
    context."""

    def method(self, round_index, batch):
        u = [self.draw(*key(round_index, context, place), 1)[0, 0] for place, context in enumerate(batch)]
        return np.floor(np.array(u) * len(self.z0)).astype(int)

    return {"others": method}


def forgetful_reference(self, context):
    f = sigmoid(self.remembered(self.h0[context]))
    return replace(
        NaiveGeneral.base_policy(self, context), p=self.softmax(self.remembered(self.z0[context])[None])[0], f=f
    )


def faded(distance):
    """A twin whose base policy fades with `distance` of its parameters."""
    return {"remembered": lambda self, logits, w=None: logits * np.exp(-self.world.forgetting * distance(self))}


def sharp_reference(self, context):
    z = self.base(context, 0 * self.w)
    return replace(NaiveGeneral.base_policy(self, context), p=self.softmax(z[None])[0])


def sharp(part):
    """A twin of which another part is as sharp as the base policy's answers."""

    def view(self, context, *rest, **more):
        before = getattr(self, part)
        setattr(self, part, self.sharpness(more.get("common", self.common)) * before)
        policy = NaiveGeneral.view(self, context, *rest, **more)
        setattr(self, part, before)
        return policy

    return {"view": view}


def noisy(change):
    """A twin whose parameters in common are taught by `change` of the score and its variance."""

    def method(self, round_index, context, score, variance):
        changed = change(self, round_index, context, score, variance)
        return NaiveModel.common_gradient(self, round_index, context, *changed)

    return {"common_gradient": method}


def drawn(change):
    """A twin whose noise of the parameters in common is `change` of what it is."""
    return {
        "common_noise": lambda self, round_index, context: change(
            lambda r: NaiveModel.common_noise(self, r, context), round_index
        )
    }


def first_right(self, context):
    found = NaiveModel.right_arms(self, context)
    return found * (np.cumsum(found) == 1)


def swapped(self, common):
    parts = NaiveModel.split(self, common)
    return [*parts[:2], common[-4:], common[3:4], parts[4]]


FOUR = {
    "one right token is enough": {"right": lambda self, bits: bits.any(axis=-1)},
    "tokens share their draw": {
        "answers": lambda self, p, v: NaiveModel.answers(self, p, np.repeat(v[:, :1], v.shape[1], axis=1))
    },
    "log-probability of the first token": {
        "answer_logp": lambda self, p, arms: NaiveModel.answer_logp(self, p, arms[:, :, :1])
    },
    "score of the last token": {"answer_score": lambda self, p, arms: NaiveModel.answer_score(self, p, arms[1:])},
    "one softmax over all tokens": {
        "softmax": lambda self, z: NaiveModel.softmax(self, z) / self.world.answer_tokens,
        "answers": lambda self, p, v: NaiveModel.answers(self, self.world.answer_tokens * p, v),
    },
    "surprise of the first token": variance(lambda q, distances: 1 - q + q * distances[0]),
    "mean of the tokens' surprise": variance(lambda q, distances: 1 - q + q * distances.mean()),
    "distance, not its square": variance(lambda q, distances: 1 - q + q * np.sqrt(distances.sum())),
    "nuisance without surprise": variance(lambda q, distances: 1.0),
    "surprise on top": variance(lambda q, distances: 1 + q * distances.sum()),
    "interference with itself": {"others": lambda self, round_index, batch: batch},
    "interference with a neighbour": {"others": lambda self, round_index, batch: np.subtract(batch, 1)},
    "the same others in every round": others(lambda r, context, place: (INTERFERENCE, 0, context)),
    "others by place in the batch": others(lambda r, context, place: (INTERFERENCE, r, place)),
    "the reference forgets too": {"base_policy": forgetful_reference},
    "nothing is forgotten": {"remembered": lambda self, logits, w=None: logits},
    "only the format is remembered": {
        "remembered": lambda self, logits, w=None: logits if logits.ndim == 1 else NaiveModel.remembered(self, logits)
    },
    "fading with the distance, not its square": faded(lambda self: np.sqrt((self.w**2).sum() / self.world.n_arms)),
    "fading with the format's parameter too": faded(
        lambda self: ((self.w**2).sum() + self.theta_f**2) / self.world.n_arms
    ),
    "fading with every parameter's mean square": faded(lambda self: (self.w**2).mean()),
    "others by the draws of rollouts": others(lambda r, context, place: (ROLLOUT, r, context)),
}
IN_COMMON = {
    "the reference is sharper too": {"base_policy": sharp_reference},
    "the format is sharper too": sharp("h0"),
    "what W learns is sharper too": sharp("x"),
    "no sharpening": {"sharpness": lambda self, common: 1.0},
    "an exponential": {"sharpness": lambda self, common: np.exp(self.world.sharpening * common[0])},
    "the mean of the parts": {"lift": lambda self, common: NaiveModel.lift(self, common) / np.sqrt(3)},
    "the first part": {"lift": lambda self, common: NaiveModel.lift(self, common * (np.arange(8) < 2))},
    "one right arm": {"right_arms": first_right},
    "forgetting has no part in the slope": {
        "directions": lambda self, context: (
            NaiveModel.directions(self, context) / np.r_[self.remembered(np.ones(1)), np.ones(7)][:, None]
        )
    },
    "one noise for all parts": drawn(lambda noise, r: noise(r)[[0, 1, 1, 1, 4, 5, 6, 7]]),
    "one noise for all damage": drawn(lambda noise, r: noise(r)[[0, 1, 2, 3, 4, 4, 4, 4]]),
    "no damage": {"harm": lambda self, common: 0.0},
    "the sum of squares": {"harm": lambda self, common: 4 * NaiveModel.harm(self, common)},
    "the square of the mean": {"harm": lambda self, common: 300 * common[-4:].mean() ** 2},
    "damage raises correct arms": {
        "lift": lambda self, common: NaiveModel.lift(self, common) + self.split(common)[2].sum()
    },
    "damage is learnt": {
        "directions": lambda self, context: np.vstack(
            [NaiveModel.directions(self, context)[:4], np.outer(self.common[4:], self.right_arms(context))]
        )
    },
    "the same noise in every round": drawn(lambda noise, r: noise(0)),
    "that of the nuisance": {"common_noise": lambda self, r, context: np.resize(self.gauss(NUISANCE, r, context), 8)},
    "no noise": drawn(lambda noise, r: 0 * noise(r)),
    "no leaking": noisy(lambda self, r, context, s, v: (s, v - self.world.interference**2 * (s**2).sum())),
    "scores with their nuisance": noisy(
        lambda self, r, context, s, v: (s + np.sqrt(v) * self.gauss(NUISANCE, r, context), v)
    ),
    "leaking of the whole score": noisy(
        lambda self, r, context, s, v: (s, v + self.world.interference**2 * self.world.n_arms * v)
    ),
}
EVERYTHING = {
    "lengths count twice": {"stretch": lambda self, arms: NaiveModel.stretch(self, arms) ** 2},
    "long answers count more": {"stretch": lambda self, arms: 1 / NaiveModel.stretch(self, arms)},
    "the first token's style": {"relative_length": lambda self, arms: 1 + 0.8 * (2 * (arms[..., 0] % 2) - 1)},
    "noise does not grow with length": {"relative_length": lambda self, arms: np.ones(arms.shape[:-1])},
    "short arms are raised": {"long_arms": lambda self: 1 - NaiveModel.long_arms(self)},
    "verbosity has the noise of the others": {
        "noisiness": lambda self: NaiveModel.noisiness(self) ** 0 * (np.arange(self.common.size) < 8)
    },
    "verbosity is fixed": {"lengthen": lambda self, common: 0.0},
    "verbosity is correctness": {"long_arms": lambda self: self.right_arms(0)},
    "damage and verbosity change places": {"split": swapped},
}
OF_UPDATES = {
    "lengths do not count": {"stretch": lambda self, arms: np.ones(len(arms))},
    "micro-batches are the batch": {
        "stretch": lambda self, arms: len(arms) / np.full(len(arms), self.relative_length(arms).sum())
    },
}
WRONG = [("kl in reward", "four", name, methods) for name, methods in FOUR.items()]
WRONG += [("kl in reward", "in common", name, methods) for name, methods in IN_COMMON.items()]
WRONG += [("micro-batches", "everything", name, methods) for name, methods in EVERYTHING.items()]
WRONG += [("updates", "everything", name, methods) for name, methods in OF_UPDATES.items()]


@pytest.mark.parametrize(("design", "world", "wrong", "methods"), WRONG, ids=[row[2] for row in WRONG])
def test_it_does_not_follow_a_wrong_twin(design, world, wrong, methods):
    with np.errstate(invalid="ignore"):
        twin = type("Wrong", (NaiveGeneral,), methods)
        assert apart(run_of(DESIGNS[design], NINE, seed=4), TABULAR[world], twin=twin).max() > 1e-6
