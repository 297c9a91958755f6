"""The general round against its slow twin, which tells every knob, and wrong twins, which it does not follow."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rftlab import KL, Advantage, Aggregation, Correction, Length, Optimizer, Ratio, Sampler, Sampling
from rftlab.shared.config.mask import Divergence, KLCov
from rftlab.shared.config.surrogate import Reinforce
from rftlab.sim.environments import build
from rftlab.sim.policy.style import token_style
from rftlab.sim.setup import is_general
from tests.support.naive.general import NaiveGeneral, differences, general_curve
from tests.support.naive.model import NaiveModel
from tests.support.worlds.general import BASE, OTHER_SAMPLER, PULL, RUNS, WORLD, corrected, styled_run
from tests.support.worlds.problems import ALL, COMMON, OTHERS, virtual
from tests.support.worlds.simulations import SMALL
from tests.support.worlds.small_worlds import mixed_world, spelt_world, styled

EXACT, FLOAT32 = 1e-9, 1e-5
TOGETHER = {
    "corrected kl cov": (
        styled_run(OTHER_SAMPLER, mask=KLCov(0.2), kl=PULL, correction=Correction("truncate")),
        styled_run(OTHER_SAMPLER, kl=PULL),
    ),
    "old anchor, ratio to the sampler": (
        styled_run(OTHER_SAMPLER, kl=replace(PULL, anchor="old"), correction=Correction("ratio")),
        styled_run(OTHER_SAMPLER, kl=PULL, correction=Correction("ratio")),
    ),
    "one update of several tries": (
        styled_run(sampling=Sampling(tries=5), design=replace(BASE, epochs=1, minibatches=1)),
        styled_run(design=replace(BASE, epochs=1, minibatches=1)),
    ),
    "mean of uneven prompts": (
        styled_run(sampling=Sampling(budget="difficulty"), aggregation=Aggregation("prompt_mean")),
        styled_run(sampling=Sampling(budget="difficulty")),
    ),
    "tries by difficulty": (
        styled_run(sampling=Sampling(tries=5, budget="difficulty")),
        styled_run(sampling=Sampling(tries=5)),
    ),
    "keep of tries by difficulty": (
        styled_run(sampling=Sampling(tries=3, keep=2, budget="difficulty")),
        styled_run(sampling=Sampling(tries=3, budget="difficulty")),
    ),
    "penalised difficulty": (
        styled_run(sampling=Sampling(budget="difficulty"), length=Length(3.0, 6, 4)),
        styled_run(length=Length(3.0, 6, 4)),
    ),
    **{f"{name} of the sampler": (run, styled_run(OTHER_SAMPLER)) for name, run in corrected().items()},
}
EQUAL_REWARDS = {
    "kl in reward": ("clip_fraction", "zero_signal_fraction"),
    "replayed, by difficulty": ("zero_signal_fraction",),
}
"""Metrics that ask whether rewards are equal, which penalties leave to rounding before the first update."""
ONE_TOKEN = mixed_world(tokens=0.0)


@cache
def twin(run):
    return general_curve(run, WORLD)


def follows(name, run, columns, world=WORLD):
    """Whether a run has these columns, but for what rounding decides."""
    found = differences(run, columns, world)
    return max(value for metric, value in found.items() if metric not in EQUAL_REWARDS.get(name, ())) < EXACT


@pytest.mark.parametrize("name", [*RUNS, *TOGETHER])
def test_it_follows_its_slow_twin_which_tells_every_knob(name):
    run, without = TOGETHER.get(name) or (RUNS[name], styled_run())
    assert follows(name, run, twin(run))
    assert differences(run, twin(without), WORLD)["train_pass_at_1"] > 1e-3


OF_BOTH = "token sum, mean of means, mean of micro-batches, mean of sums, sequence ratio, sequence token ratio, "
OF_BOTH += "tapered, product ratio, geometric mean, length penalty, support and window, mean of prompts, "
OF_BOTH += "shrunk, over the mean, length weighted"
"""Runs that the plain round can do where responses have one token."""


@pytest.mark.parametrize("name", RUNS)
def test_every_knob_is_heard_with_one_token_too(name):
    """Whichever round `simulate` picks, with Gaussian nuisance."""
    assert is_general(RUNS[name], ONE_TOKEN) == (name not in OF_BOTH.split(", "))
    assert follows(name, RUNS[name], general_curve(RUNS[name], ONE_TOKEN), ONE_TOKEN)


OTHER_RUNS = {
    "seed": (styled_run(seed=4), WORLD),
    "noise": (styled_run(Sampler(3, 0.41)), WORLD),
    "lag": (styled_run(Sampler(2, 0.4)), WORLD),
    "queue": (styled_run(Sampler(3, 0.4, every=2)), WORLD),
    "slope": (styled_run(OTHER_SAMPLER), WORLD._replace(nuisance=1.01 * WORLD.nuisance)),
    "jitter": (styled_run(OTHER_SAMPLER), mixed_world(jitter=0.5)),
}


@pytest.mark.parametrize("name", OTHER_RUNS)
def test_the_twin_tells_runs_apart(name):
    assert differences(RUNS["sampler"], general_curve(*OTHER_RUNS[name]), WORLD)["train_pass_at_1"] > 1e-6


# --- with answers of several tokens and what contexts have in common ---


def spelt(**extras):
    return spelt_world(15, 2, 4, **extras)


STYLE, WEAR = (5.0, 0.6, 0.3), COMMON | {"damage": 0.5}
WORLDS = {
    "style": styled(spelt(interference=0.4, forgetting=0.3), *STYLE),
    "noise": spelt(surprise=0.8, interference=0.4, forgetting=0.3),
    "worn, style": styled(spelt(**WEAR, interference=0.4, forgetting=0.3), *STYLE),
    "worn, noise": spelt(**WEAR, **OTHERS),
    "exploration": styled(spelt(**ALL, exploration=3.0, interference=0.4), *STYLE),
    "virtual lengths": virtual(spelt(**ALL, **OTHERS)),
    "verbosity": spelt(**ALL, **OTHERS)._replace(style=token_style(0, 0.0, 0.0, 2, 0.7)),
}
SPELT_RUNS = RUNS | {
    "of itself": styled_run(),
    "all": styled_run(
        OTHER_SAMPLER,
        entropy=0.2,
        sampling=Sampling(tries=3, budget="difficulty"),
        advantage=Advantage("optimal"),
        correction=Correction("truncate"),
    ),
}
SPELT = (
    "of itself, sampler, kl cov, many tries, keep, replayed, difficulty, entropy, support and window, truncate, value, "
)
SPELT += "length penalty, greedy, optimal, optimal_token, moving_average, all"
WORN = ("sampler", "many tries", "entropy", "optimal", "truncate", "all")
LENGTHS = ("sampler", "many tries", "entropy", "mean of means", "truncate", "mean of micro-batches")
OF_WORLDS = [(world, name) for world in ("style", "noise") for name in SPELT.split(", ")]
OF_WORLDS += [(f"worn, {world}", name) for world in ("style", "noise") for name in WORN]
OF_WORLDS += [(world, name) for world in ("exploration", "virtual lengths") for name in LENGTHS]


@pytest.mark.parametrize(("world", "name"), [*OF_WORLDS, ("verbosity", "optimal")])
def test_with_answers_of_several_tokens_it_follows_its_slow_twin(world, name):
    columns = general_curve(SPELT_RUNS[name], WORLDS[world])
    assert follows(name, SPELT_RUNS[name], columns, WORLDS[world])
    assert np.ptp(columns["train_pass_at_1"]) > 1e-3


class Still(NaiveGeneral):
    """A twin without noise that keeps its gradient instead of taking a step."""

    def squares(self, policy, response, weight):
        return 0.0

    def step(self, grad):
        self.grad = grad


def test_the_gradient_of_the_twin_is_a_finite_difference():
    """Of sum_t w_t log pi(token t) + 0.3 H(token t), in every parameter, away from the base policy. Forgetting,
    damage and interference are no part of the gradient."""
    world = styled(spelt(**COMMON, verbosity=0.9, exploration=3.0), *STYLE)
    run = styled_run(
        advantage=Advantage("none"),
        surrogate=Reinforce(),
        kl=KL("none"),
        aggregation=Aggregation("token_sum"),
        entropy=0.3,
    )
    twin, rng = Still(run, world), np.random.default_rng(1)
    theta, n = 0.3 * rng.random(twin.moments[0].size), twin.w.size

    def put(theta):
        twin.w, twin.common, twin.theta_f = theta[:n].reshape(twin.w.shape), theta[n:-1], theta[-1]

    put(theta)
    twin.past = [(twin.w, twin.theta_f, twin.common)]
    rows = [trained for trained, _ in twin.sample()]
    responses = [response for row in rows for response in row]
    weight = rng.standard_normal(sum(len(response.old) for response in responses))
    twin.update(0, rows, weight, {"kl": [], "clipped": [], "norms": []})

    def objective(theta):
        put(theta)
        seen = [(twin.view(response.context), response) for response in responses]
        logp, entropy = (np.concatenate([part(*one) for one in seen]) for part in (twin.logps, twin.entropies))
        return weight @ logp + 0.3 * entropy.sum()

    found = [(objective(theta + 1e-5 * e) - objective(theta - 1e-5 * e)) / 2e-5 for e in np.eye(theta.size)]
    np.testing.assert_allclose(twin.grad, found, atol=1e-6)
    assert np.abs(found[n:]).min() > 1e-3


def first_style(self, arms, u):
    return NaiveGeneral.length(self, arms[:1], u)


def unforgetful(self, *arguments, **rest):
    """The policy of a world in which nothing is forgotten."""
    world, self.world = self.world, self.world._replace(forgetting=0.0)
    policy = NaiveGeneral.view(self, *arguments, **rest)
    self.world = world
    return policy


def drifting(change):
    """A twin whose style drifts with `change` of the logits too."""

    def view(self, context, w=None, theta_f=None, noise=0.0, common=None):
        policy = NaiveGeneral.view(self, context, w, theta_f, noise, common)
        return replace(policy, moved=policy.moved + change(self, context, w, common))

    return {"view": view}


def whole_entropy_gradient(self, p):
    return (np.diag(p) - np.outer(p, p)) @ (-np.log(p) - 1)


def now_remembered(self, logits, w=None):
    return NaiveGeneral.remembered(self, logits)


def replayed_as_new(self, context):
    """Replayed responses with the log-probabilities that they have now."""
    past = NaiveGeneral.recalled(self, context)
    return [replace(one, old=self.logps(self.view(context), one)) for one in past]


def oldest_replayed(self, context):
    return self.buffer[context][: self.design.sampling.replayed]


def even_reference(self, policy, response):
    found = NaiveGeneral.logps(self, policy, response)
    at_base = not policy.moved.any() and policy.style == -1.5
    return np.append(found[:1], np.full(len(found) - 1, np.log(0.5))) if at_base else found


def readier_sampler(self, common=None):
    return NaiveGeneral.readiness(self, None if common is None or common.any() else common)


def noisy_exploration(self, r, context, score, variance):
    last = np.arange(self.common.size) == self.common.size - 1
    noise = np.sqrt(variance) * self.common_noise(r, context) * last
    return NaiveGeneral.common_gradient(self, r, context, score, variance) + noise


def first_tokens_squares(self, policy, response):
    return np.full(len(response.old), (policy.p[: self.width] ** 2).sum())


def first_baselines(self, everyone, starts, group):
    return np.repeat(NaiveGeneral.token_baselines(self, everyone, starts, group)[starts[:-1]], np.diff(starts))


def square_without_verbosity(self, context, p, arms):
    score = self.directions(context)[-1] @ self.answer_score(p, arms)
    return NaiveGeneral.common_square(self, context, p, arms) - score**2


def square_as_noisy_as_others(self, context, p, arms):
    noise = self.world.nuisance**2 * self.variance(p, arms)
    noise += self.world.interference**2 * (self.answer_score(p, arms) ** 2).sum()
    return NaiveGeneral.common_square(self, context, p, arms) + (1 - self.world.verbosity_noise**2) * noise


WRONG = {
    ("of itself", "style"): {
        "nothing is forgotten": {"view": unforgetful},
        "style drifts with what is forgotten": drifting(
            lambda self, c, w, _: self.remembered(self.z0[c], w) - self.z0[c]
        ),
        "length by the first token's style": {"length": first_style},
        "nothing is disturbed": {"taught": lambda self, round_index, context: self.x[context]},
    },
    ("sampler", "noise"): {"the sampler forgets what the trainer does": {"remembered": now_remembered}},
    ("entropy", "noise"): {"entropy of one softmax": {"entropy_gradient": whole_entropy_gradient}},
    ("optimal", "noise"): {
        "the same others in every round": {"others": lambda self, r, batch: NaiveGeneral.others(self, 0, batch)}
    },
    ("optimal_token", "noise"): {"squares of the first token": {"sums_of_squares": first_tokens_squares}},
    ("optimal_token", "style"): {"one baseline for all tokens": {"token_baselines": first_baselines}},
    ("replayed", "noise"): {"replays forget who sampled them": {"recalled": replayed_as_new}},
    ("replayed", "style"): {"the oldest are replayed": {"recalled": oldest_replayed}},
    ("sampler", "worn, noise"): {
        "the sampler is as damaged as the trainer": {"harm": lambda self, common: NaiveModel.harm(self, self.common)},
        "the sampler is as sharp as the trainer": {
            "base": lambda self, context, w=None, common=None: NaiveModel.base(self, context, w)
        },
    },
    ("entropy", "worn, style"): {
        "style drifts with sharpness": drifting(
            lambda self, c, w, common: self.base(c, w, common) - self.remembered(self.z0[c], w)
        ),
        "style tokens teach nothing in common": {"squares": lambda self, policy, response, weight: 0.0},
    },
    ("optimal", "worn, noise"): {
        "an optimal baseline without parameters in common": {"common_square": lambda self, context, p, arms: 0.0}
    },
    ("sampler", "exploration"): {
        "the reference is even": {"logps": even_reference},
        "the base policy is even": {"readiness": lambda self, common=None: 1.5 + NaiveGeneral.readiness(self, common)},
        "the slope is that of even tokens": {"slope": lambda self: 2 * self.world.nuisance / np.sqrt(5)},
        "exploration is fixed": {"readiness": lambda self, common=None: -1.5},
        "the sampler is as ready as the trainer": {"readiness": readier_sampler},
        "style drifts with verbosity": drifting(lambda self, *_: self.lengthen(self.common) * self.long_arms()),
        "exploration is noisy": {"common_gradient": noisy_exploration},
    },
    ("optimal", "verbosity"): {
        "an optimal baseline without verbosity": {"common_square": square_without_verbosity},
        "verbosity is as noisy as others": {"common_square": square_as_noisy_as_others},
    },
}
"""Wrong twins by run and world; test_plain_twin.py has more."""


@pytest.mark.parametrize(("name", "world", "wrong"), [(*key, wrong) for key, twins in WRONG.items() for wrong in twins])
def test_it_does_not_follow_a_wrong_twin(name, world, wrong):
    twin = type("Wrong", (NaiveGeneral,), WRONG[name, world][wrong])
    columns = general_curve(SPELT_RUNS[name], WORLDS[world], twin)
    assert differences(SPELT_RUNS[name], columns, WORLDS[world])["train_pass_at_1"] > 1e-6


# --- the linear environment ---

SPELT_LINEAR = replace(SMALL, answer_tokens=2, interference=0.4, forgetting=1.0)
LINEAR = {
    "style tokens": (Sampler(), {}),
    "sampler, correction, mask": (
        OTHER_SAMPLER,
        {"correction": Correction("truncate", "sequence"), "mask": Divergence("kl", 1e-4, 1e-4), "entropy": 0.1},
    ),
    "optimal": (Sampler(), {"advantage": Advantage("optimal")}),
    "value, tries": (
        Sampler(),
        {
            "advantage": Advantage("value"),
            "sampling": Sampling(tries=3, budget="difficulty"),
            "ratio": Ratio("sequence"),
        },
    ),
    "Gaussian nuisance, greedy": (Sampler(0, 0.3), {"advantage": Advantage("greedy"), "entropy": 0.1}),
    "four, optimal, entropy": (OTHER_SAMPLER, {"advantage": Advantage("optimal"), "entropy": 0.1}),
    "two tokens, style, greedy, tries": (
        OTHER_SAMPLER,
        {"advantage": Advantage("greedy"), "sampling": Sampling(tries=3, budget="difficulty")},
    ),
}
ENVIRONMENTS = {"Gaussian nuisance, greedy": SMALL, "four, optimal, entropy": replace(SPELT_LINEAR, surprise=0.6)}


@pytest.mark.parametrize("name", LINEAR)
def test_the_linear_environment_follows_its_slow_twin(name):
    sampler, knobs = LINEAR[name]
    environment = ENVIRONMENTS.get(name) or replace(
        SPELT_LINEAR if "two" in name else SMALL, style_tokens=5.0, length_by_style=0.6, length_jitter=0.3
    )
    optimizer = Optimizer(learning_rate=0.02, eps=1e-3)
    run = replace(styled_run(sampler, **knobs), environment=environment, optimizer=optimizer)
    world = build(environment)
    columns = general_curve(run, world)
    found = differences(run, columns, world)
    assert found["rollouts"] == found["tokens"] == 0
    assert max(value for metric, value in found.items() if metric != "grad_norm") < FLOAT32
    assert found["grad_norm"] < FLOAT32 * np.nanmax(columns["grad_norm"])
    assert np.ptp(columns["train_pass_at_1"]) > 100 * FLOAT32
