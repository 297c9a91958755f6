"""Bad input: every message of shared/ names what is wrong, its value and what is allowed."""

import ast
import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rftlab.shared.cards import preset
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.shaping import Length
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Vespo
from rftlab.shared.design import Design
from rftlab.shared.effective_batch import Costs, NoiseRatios, best_split, token_costs
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.evalstats import pass_at_k, sampling_error
from rftlab.shared.plumbing import errors
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import Batch
from rftlab.sim.config import Linear, Optimizer, Sampler, Tabular
from tests.support.estimators.vectors import REAL, no_kl

NAN, INF = math.nan, math.inf
ZEROS, ONES, STARTS, GROUP = np.zeros(3), np.ones(3), np.arange(4), np.zeros(3, dtype=np.int64)
PLAIN, WITH_KL = no_kl(Advantage("group_mean")), Estimator(kl=KL("k3"))
POOL = Pool(ONES, np.array([0, 3]))
BATCH = Batch(ONES, ONES, ZEROS, ZEROS, ZEROS, GROUP)
PASS_2, GREEDY, VALUE = Advantage("none", credit="pass_at_k", k=2), Advantage("greedy"), Advantage("value")
OTB = Advantage("optimal_token")
SEVERAL = "rollouts > 1 without support, replay"


def advantages(spec: Advantage = PLAIN.advantage, rewards=ONES, group=GROUP, pool: Pool = POOL, **rest) -> np.ndarray:
    return REAL.advantages(spec, rewards, np.asarray(group), pool, **rest)


def prepare(estimator: Estimator = PLAIN, starts=STARTS, old_logp=ZEROS, **rest) -> Batch:
    return REAL.prepare(estimator, ONES, GROUP, starts, old_logp, **rest)


def shaped(starts=STARTS, old_logp=ZEROS, ref_logp=ZEROS) -> np.ndarray:
    return REAL.shaped_rewards(Estimator(kl=KL("k1", 0.1, "reward")), ONES, starts, old_logp, ref_logp)


def by_token(spec: Advantage, rewards=ONES, starts=STARTS, baseline=None) -> np.ndarray:
    return REAL.token_advantages(spec, rewards, starts, baseline)


def planted(part, field: str) -> object:
    """The numbers for kernels of a part with a choice that its class refuses."""
    object.__setattr__(part, field, "z")
    return as_rule(replace(PLAIN, **{type(part).__name__.lower(): part}))


Row = tuple[Callable[[], object], tuple[str, ...]]
FIELDS: dict[str, Row] = {
    # advantage
    "surrogate": (lambda: Estimator(surrogate=5), ("surrogate = 5", "Reinforce, Clip, Cispo")),
    "aggregation.empty of a rule": (lambda: planted(Aggregation(), "empty"), ("aggregation.empty", "skip, count")),
    "kl.place of a rule": (lambda: planted(KL(), "place"), ("kl.place", "loss, reward")),
    "kl.anchor of a rule": (lambda: planted(KL(), "anchor"), ("kl.anchor", "base, old")),
    "advantage.baseline": (
        lambda: Advantage("z"),
        ("advantage.baseline", "'z'", "none, group_mean, leave_one_out, length_weighted, second_best, james_stein"),
    ),
    "advantage.scale": (
        lambda: Advantage(scale="z"),
        ("advantage.scale", "'z'", "none, group_std, others_std, group_mean, batch_std, nonzero"),
    ),
    "advantage.whiten": (lambda: Advantage(whiten="z"), ("advantage.whiten", "'z'", "none, tokens, responses")),
    "advantage.credit": (lambda: Advantage(credit="z"), ("advantage.credit", "'z'", "reward, set_mean, pass_at_k")),
    "advantage.singleton": (lambda: Advantage(singleton="one"), ("advantage.singleton", "'one'", "raw, zero, error")),
    "advantage.ddof": (lambda: Advantage(ddof=2), ("advantage.ddof", "2", "0, 1")),
    "advantage.eps": (lambda: Advantage(eps=-0.5), ("advantage.eps", "-0.5", "0 or more")),
    "advantage.eps nan": (lambda: Advantage(eps=NAN), ("advantage.eps", "nan", "0 or more")),
    "advantage.k": (lambda: Advantage("none", credit="pass_at_k", k=0), ("advantage.k", "0", "1 or more")),
    "advantage.k without pass_at_k": (lambda: Advantage(k=2), ("advantage.k", "2", "allowed: 1", "credit is reward")),
    "advantage.decay": (lambda: Advantage(decay=1.5), ("advantage.decay", "1.5", "0 to 1")),
    "advantage.gamma": (lambda: Advantage("none", gamma=-0.1), ("advantage.gamma", "-0.1", "0 to 1")),
    "advantage.lam": (lambda: Advantage("value", lam=NAN), ("advantage.lam", "nan", "0 to 1")),
    "advantage.gamma of a group": (
        lambda: Advantage("group_mean", gamma=0.9),
        ("advantage.gamma", "scale none", "no group's baseline"),
    ),
    "advantage.value scaled": (lambda: Advantage("value", "batch_std"), ("baseline value", "scale none")),
    "advantage.lam of a group": (lambda: Advantage(lam=0.9), ("advantage.lam", "0.9", "allowed: 1", "group_mean")),
    "advantage.scale of a given baseline": (
        lambda: Advantage("greedy", "group_std"),
        ("advantage.scale", "group_std", "greedy"),
    ),
    "advantage.baseline of set_mean": (
        lambda: Advantage("leave_one_out", credit="set_mean"),
        ("advantage.baseline", "set_mean", "allowed: none"),
    ),
    "advantage.baseline of pass_at_k": (
        lambda: Advantage("group_mean", credit="pass_at_k"),
        ("advantage.baseline", "pass_at_k", "none, leave_one_out"),
    ),
    "advantage.scale of a credit": (
        lambda: Advantage("none", "group_std", credit="set_mean"),
        ("advantage.scale", "group_std", "none, batch_std", "set_mean"),
    ),
    # surrogate, ratio, mask
    "surrogate.low": (lambda: Clip(low=1.5), ("surrogate.low", "1.5", "0 to 1")),
    "surrogate.low negative": (lambda: Cispo(low=-0.1), ("surrogate.low", "-0.1", "0 to 1")),
    "surrogate.high": (lambda: Clip(high=-0.2), ("surrogate.high", "-0.2", "0 or more")),
    "surrogate.high nan": (lambda: Cispo(high=NAN), ("surrogate.high", "nan", "0 or more")),
    "surrogate.dual": (lambda: Clip(dual=1.0), ("surrogate.dual", "1.0", "more than 1")),
    "surrogate.tau": (lambda: Sapo(tau_positive=0.0), ("surrogate.tau", "0.0", "more than 0")),
    "surrogate.tau nan": (lambda: Sapo(tau_negative=NAN), ("surrogate.tau", "nan", "more than 0")),
    "surrogate.beta": (lambda: Dro(-1.0), ("surrogate.beta", "-1.0", "0 or more")),
    "surrogate.low of a log-ratio": (lambda: GeometricMean(low=-0.1), ("surrogate.low, high", "-0.1", "0 or more")),
    "surrogate.high of a log-ratio": (lambda: GeometricMean(high=NAN), ("surrogate.low, high", "nan", "0 or more")),
    "surrogate.lam": (lambda: Vespo(lam_negative=0.0), ("surrogate.lam", "0.0", "more than 0")),
    "surrogate.k": (lambda: Vespo(k_positive=INF), ("surrogate.k_positive", "inf", "any finite number")),
    "surrogate.lam nan": (lambda: Vespo(lam_negative=NAN), ("surrogate.lam", "nan", "more than 0")),
    "ratio.level": (lambda: Ratio("word"), ("ratio.level", "'word'", "token, sequence, sequence_token, product")),
    "ratio.floor": (lambda: Ratio(floor=0.0), ("ratio.floor, cap", "0.0", "less than 0, more than 0")),
    "ratio.cap": (lambda: Ratio(cap=NAN), ("ratio.floor, cap", "nan", "less than 0, more than 0")),
    "mask.measure": (lambda: Divergence("js"), ("mask.measure", "'js'", "tv, kl")),
    "mask.low": (lambda: Divergence(low=-0.1), ("mask.low, high", "-0.1", "0 or more")),
    "mask.high": (lambda: Divergence(high=NAN), ("mask.low, high", "nan", "0 or more")),
    "mask.low of a covariance": (lambda: ClipCov(low=NAN), ("mask.low, high", "nan", "low <= high")),
    "mask.threshold": (lambda: Drift(-1.0), ("mask.threshold", "-1.0", "0 or more")),
    "mask.fraction": (lambda: ClipCov(0.0), ("mask.fraction", "0.0", "more than 0, at most 1")),
    "mask.fraction above 1": (lambda: KLCov(1.5), ("mask.fraction", "1.5", "more than 0, at most 1")),
    # penalties, aggregation, correction, sampling
    "kl.kind": (lambda: KL("k4"), ("kl.kind", "'k4'", "none, k1, k2, k3, abs")),
    "kl.place": (lambda: KL(place="grad"), ("kl.place", "'grad'", "loss, reward")),
    "kl.anchor": (lambda: KL(anchor="new"), ("kl.anchor", "'new'", "base, old")),
    "kl.coef": (lambda: KL(coef=-1.0), ("kl.coef", "-1.0", "0 or more")),
    "kl in the reward": (
        lambda: KL("k1", place="reward", weighted=True),
        ("kl.place", "reward", "weighted", "their defaults"),
    ),
    "kl in the reward, old": (
        lambda: KL("k1", place="reward", anchor="old"),
        ("kl.place", "reward", "anchor old", "their defaults"),
    ),
    "length.coef": (lambda: Length(coef=-1.0), ("length.coef", "-1.0", "0 or more")),
    "length.limit": (lambda: Length(limit=INF), ("length.limit", "inf", "more than 0, finite")),
    "length.buffer": (lambda: Length(limit=5, buffer=6), ("length.buffer", "6", "more than 0, at most", "5")),
    "aggregation.kind": (
        lambda: Aggregation("mean"),
        (
            "aggregation.kind",
            "'mean'",
            "token_mean, token_sum, seq_mean_token_sum, seq_mean_token_mean, prompt_mean, micro_batch_",
        ),
    ),
    "aggregation.empty": (lambda: Aggregation(empty="drop"), ("aggregation.empty", "'drop'", "skip, count")),
    "aggregation.length of a mean": (
        lambda: Aggregation("token_mean", length=7.0),
        ("aggregation.length", "7.0", "None", "token_mean"),
    ),
    "aggregation.length": (lambda: Aggregation("token_sum", length=0), ("aggregation.length", "0", "more than 0")),
    "aggregation.micro_batch left out": (
        lambda: Aggregation("micro_batch_token_mean"),
        ("aggregation.micro_batch", "None", "1 or more", "micro_batch_token_mean"),
    ),
    "aggregation.micro_batch of a mean": (
        lambda: Aggregation("token_mean", micro_batch=4),
        ("aggregation.micro_batch", "4", "None", "token_mean"),
    ),
    "aggregation.micro_batch": (
        lambda: Aggregation("micro_batch_token_mean", micro_batch=0),
        ("aggregation.micro_batch", "0", "1 or more"),
    ),
    "aggregation.eps": (lambda: Aggregation(eps=-1e-8), ("aggregation.eps", "-1e-08", "0 or more")),
    "correction.kind": (lambda: Correction("clip"), ("correction.kind", "'clip'", "none, truncate, mask, ratio")),
    "correction.level": (
        lambda: Correction(level="word"),
        ("correction.level", "'word'", "token, sequence, geometric"),
    ),
    "correction.low inf": (lambda: Correction(low=INF, high=INF), ("correction.low", "inf", "0 or more, finite")),
    "correction.low": (lambda: Correction(low=3.0), ("correction.low, high", "3.0, 2.0", "0 <= low <= high")),
    "sampling.budget": (lambda: Sampling(budget="all"), ("sampling.budget", "'all'", "equal, difficulty")),
    "sampling.tries": (lambda: Sampling(tries=0), ("sampling.tries", "0", "1 or more")),
    "sampling.keep": (lambda: Sampling(keep=-1), ("sampling.keep", "-1", "0 or more")),
    # estimator
    "entropy": (lambda: Estimator(entropy=-0.1), ("entropy", "-0.1", "0 or more")),
    "ratio.level of REINFORCE": (
        lambda: Estimator(surrogate=Reinforce(), ratio=Ratio("sequence")),
        ("ratio.level", "'sequence'", "Reinforce: token"),
    ),
    "ratio.level of VESPO": (lambda: Estimator(surrogate=Vespo()), ("ratio.level", "'token'", "Vespo: product")),
    "KLCov without KL": (lambda: Estimator(mask=KLCov()), ("KLCov", "KL penalty in the loss")),
    "KLCov in the reward": (
        lambda: Estimator(kl=KL("k1", place="reward"), mask=KLCov()),
        ("KLCov", "KL penalty in the loss"),
    ),
    "ClipCov of responses": (
        lambda: Estimator(ratio=Ratio("sequence"), mask=ClipCov()),
        ("ClipCov", "ratio.level token"),
    ),
    "ClipCov of GMPO": (
        lambda: Estimator(surrogate=GeometricMean(), mask=ClipCov()),
        ("ClipCov", "other than GeometricMean"),
    ),
    "weighted KL of GMPO": (
        lambda: Estimator(surrogate=GeometricMean(), kl=KL("k3", weighted=True)),
        ("kl.weighted", "True", "GeometricMean: False"),
    ),
    "pass_at_k of shaped rewards": (
        lambda: Estimator(PASS_2, length=Length(0.5)),
        ("pass_at_k", "0/1 rewards", "length.coef 0"),
    ),
    "pass_at_k with KL in the reward": (
        lambda: Estimator(PASS_2, kl=KL("k1", place="reward")),
        ("pass_at_k", "0/1 rewards", "no KL in the reward"),
    ),
    "estimator": (lambda: preset("no_such"), ("estimator", "'no_such'", "minimalist, grpo, dr_grpo, rloo")),
    # design
    "batch_size": (lambda: Design(batch_size=0), ("batch_size", "0", "1 or more")),
    "support_rollouts": (lambda: Design(support_rollouts=-1), ("support_rollouts", "-1", "0 or more")),
    "replay_window": (
        lambda: Design(rollouts=4, replay_window=3),
        ("replay_window", "3", "0, or at least rollouts = 4"),
    ),
    "lonely group": (
        lambda: Design(estimator=Estimator(Advantage(singleton="error"))),
        ("baseline set = 1", "rollouts", "2 or more", "singleton"),
    ),
    "k of a design": (lambda: Design(estimator=Estimator(PASS_2)), ("advantage.k", "2", "smallest baseline set, 1")),
    "eval_every": (lambda: Design(rounds=100, eval_every=30), ("eval_every", "30", "divide rounds = 100")),
    "minibatches": (lambda: Design(batch_size=32, minibatches=5), ("minibatches", "5", "divide batch_size = 32")),
    "sampling.tries of one rollout": (lambda: Design(sampling=Sampling(tries=2)), ("sampling.tries", "2", SEVERAL)),
    "sampling.keep of few": (
        lambda: Design(rollouts=2, sampling=Sampling(keep=3)),
        ("sampling.keep", "3", "at most rollouts = 2"),
    ),
    "sampling.keep with support": (
        lambda: Design(support_rollouts=2, sampling=Sampling(keep=1)),
        ("sampling.keep", "1", "0 with support rollouts"),
    ),
    "sampling.budget of one rollout": (
        lambda: Design(sampling=Sampling(budget="difficulty")),
        ("sampling.budget", "difficulty", SEVERAL),
    ),
    "length_weighted with support": (
        lambda: Design(support_rollouts=2, estimator=Estimator(Advantage("length_weighted"))),
        ("length_weighted", "without support rollouts, replay window"),
    ),
}
CALLS: dict[str, Row] = {
    # the effective batch
    "token_costs: below 0": (lambda: token_costs(-1.0, 1.0, 0.0, 0.0, 0.0), ("cost of a prompt", "-1")),
    "token_costs: free rollouts": (
        lambda: token_costs(1.0, 0.0, 0.0, 9.0, 9.0),
        ("cost of a rollout", "0", "more than 0"),
    ),
    "best_split: too little": (
        lambda: best_split(NoiseRatios(0.1, 1.0), Costs(1.0, 1.0), 2.5, True),
        ("budget", "2.5", "3 or more"),
    ),
    # baseline sets and advantages
    "make_pool: shapes": (
        lambda: REAL.make_pool(1, (ONES, GROUP[:2])),
        ("rewards (3,)", "group (2,)", "one entry per response"),
    ),
    "make_pool: shapes that add up": (
        lambda: REAL.make_pool(1, (ONES, GROUP[:2]), (ONES[:2], GROUP)),
        ("rewards (3,)", "group (2,)", "one entry per response"),
    ),
    "make_pool: labels": (lambda: REAL.make_pool(2, (ONES, [0, 2, 1])), ("group", "2", "0 .. 1")),
    "make_pool: negative label": (lambda: REAL.make_pool(2, (ONES, [0, -1, 1])), ("group", "-1", "0 .. 1")),
    "advantages: shapes": (
        lambda: advantages(group=GROUP[:2]),
        ("rewards (3,)", "group (2,)", "one entry per response"),
    ),
    "advantages: labels": (lambda: advantages(group=[0, 0, 5]), ("group", "5", "0 .. 0")),
    "advantages: starts": (lambda: advantages(starts=STARTS[:3]), ("starts (3,)", "rewards (3,)", "one entry more")),
    "advantages: empty": (
        lambda: advantages(group=[0, 1, 0], pool=Pool(ONES, np.array([0, 3, 3]))),
        ("group 1", "empty", "1 reward or more"),
    ),
    "advantages: one reward": (
        lambda: advantages(Advantage(singleton="error"), group=[0, 1, 0], pool=Pool(ONES, np.array([0, 2, 3]))),
        ("group 1", "one reward", "two", "advantage.singleton", "raw, zero"),
    ),
    "advantages: pass_at_k of other rewards": (
        lambda: advantages(PASS_2, pool=Pool(0.5 * ONES, np.array([0, 3]))),
        ("pass_at_k", "0 or 1"),
    ),
    "advantages: k above a set": (
        lambda: advantages(Advantage("none", credit="pass_at_k", k=4)),
        ("advantage.k", "4", "smallest baseline set, 3"),
    ),
    "advantages: no baseline": (lambda: advantages(GREEDY), ("greedy", "baseline array is needed")),
    "advantages: a baseline too many": (
        lambda: advantages(baseline=ONES),
        ("group_mean", "baseline array is not read"),
    ),
    "advantages: baseline": (
        lambda: advantages(GREEDY, baseline=np.ones(2)),
        ("baseline (2,)", "one entry per response (3,)"),
    ),
    "token_advantages: shapes": (
        lambda: by_token(VALUE, baseline=np.ones(2)),
        ("rewards (3,)", "baseline (2,)", "one entry per token"),
    ),
    "token_advantages: a group's": (
        lambda: by_token(Advantage("group_mean")),
        ("advantage.baseline group_mean", "not per token"),
    ),
    "token_advantages: the batch's": (
        lambda: by_token(Advantage("batch_mean")),
        ("advantage.baseline batch_mean", "not per token"),
    ),
    "token_advantages: one token": (
        lambda: by_token(Advantage("none", whiten="tokens"), ONES[:1], STARTS[:2]),
        ("advantage.whiten", "one token", "two or more"),
    ),
    # windows, averages, sampling
    "window size": (lambda: REAL.empty_windows(2, 0), ("window size", "0", "1 or more")),
    "push: shapes": (
        lambda: REAL.push(REAL.empty_windows(2, 1), [0, 1], [1.0]),
        ("contexts (2,)", "rewards (1,)", "one entry per reward"),
    ),
    "push: labels": (lambda: REAL.push(REAL.empty_windows(2, 1), [0, 2], [1.0, 1.0]), ("contexts", "2", "0 .. 1")),
    "window_pool: labels": (lambda: REAL.window_pool(REAL.empty_windows(2, 1), [-1]), ("contexts", "-1", "0 .. 1")),
    "read_averages: labels": (lambda: REAL.read_averages(REAL.empty_averages(2), [2]), ("contexts", "2", "0 .. 1")),
    "add: shapes": (
        lambda: REAL.add(REAL.empty_averages(2), [0], ONES, 0.9),
        ("rewards (3,)", "one row per context (1)"),
    ),
    "add: labels": (lambda: REAL.add(REAL.empty_averages(2), [-1], [[1.0]], 0.9), ("contexts", "-1", "0 .. 1")),
    "add: decay": (lambda: REAL.add(REAL.empty_averages(2), [0], [[1.0]], 1.5), ("decay", "1.5", "0 to 1")),
    "allocate: p": (lambda: REAL.allocate([0.5, NAN], 2), ("p = ", "nan", "0 to 1")),
    "allocate: mean": (lambda: REAL.allocate([0.5], 0), ("mean", "0", "1 or more")),
    "keep_shortest: keep": (lambda: REAL.keep_shortest([1, 2], [0, 2], 0), ("keep", "0", "1 or more")),
    # aggregation, corrections
    "shares: start": (lambda: REAL.shares(Aggregation(), [1, 2]), ("starts", "[1 2]", "begin at 0 and never fall")),
    "shares: order": (
        lambda: REAL.shares(Aggregation(), [0, 2, 1]),
        ("starts", "[0 2 1]", "begin at 0 and never fall"),
    ),
    "shares: nothing": (lambda: REAL.shares(Aggregation(), []), ("starts", "[]", "begin at 0 and never fall")),
    "corrections: old_logp": (
        lambda: REAL.corrections(Correction(), STARTS, np.ones(2), ONES),
        ("old_logp (2,)", "one entry per token (3,)"),
    ),
    "corrections: sampler_logp": (
        lambda: REAL.corrections(Correction(), STARTS, ONES, np.ones(2)),
        ("sampler_logp (2,)", "one entry per token (3,)"),
    ),
    "corrections: order": (
        lambda: REAL.corrections(Correction(), [0, 2, 1, 3], ONES, ONES),
        ("starts", "[0 2 1 3]", "begin at 0 and never fall"),
    ),
    # prepare
    "prepare: starts": (lambda: prepare(starts=STARTS[:3]), ("starts (3,)", "rewards (3,)", "one entry more")),
    "prepare: old_logp": (lambda: prepare(old_logp=np.zeros(4)), ("old_logp (4,)", "one entry per token (3,)")),
    "prepare: order": (lambda: prepare(starts=[0, 2, 1, 3]), ("starts", "[0 2 1 3]", "begin at 0 and never fall")),
    "prepare: correction": (lambda: prepare(correction=np.ones(1)), ("correction (1,)", "one entry per token (3,)")),
    "prepare: two corrections": (
        lambda: prepare(correction=ONES, sampler_logp=ZEROS),
        ("sampler_logp", "correction", "one of them"),
    ),
    "prepare: sampler_logp": (
        lambda: prepare(sampler_logp=np.ones(1)),
        ("sampler_logp (1,)", "one entry per token (3,)"),
    ),
    "prepare: ratio to the sampler": (
        lambda: prepare(no_kl(correction=Correction("ratio")), sampler_logp=np.ones(1)),
        ("sampler_logp (1,)", "one entry per token (3,)"),
    ),
    "prepare: n_tokens": (lambda: prepare(n_tokens=0), ("n_tokens", "0", "more than 0")),
    "prepare: n_rows": (lambda: prepare(n_rows=-1), ("n_rows", "-1", "more than 0")),
    "prepare: token_rewards": (
        lambda: prepare(no_kl(), token_rewards=np.ones(2)),
        ("token_rewards (2,)", "one entry per token (3,)"),
    ),
    "prepare: token_rewards of groups": (
        lambda: prepare(token_rewards=np.ones(2)),
        ("token_rewards (2,)", "one entry per token (3,)"),
    ),
    "prepare: baseline": (
        lambda: prepare(no_kl(VALUE), baseline=np.ones(2)),
        ("baseline (2,)", "one entry per response or per token"),
    ),
    "prepare: no values": (lambda: prepare(no_kl(VALUE)), ("value", "baseline array is needed")),
    "prepare: no squares": (lambda: prepare(no_kl(OTB)), ("optimal_token", "baseline array is needed")),
    "prepare: squares": (lambda: prepare(no_kl(OTB), squares=np.ones(2)), ("squares (2,)", "one entry per token (3,)")),
    "prepare: old_logp of squares": (
        lambda: prepare(no_kl(OTB), old_logp=np.zeros(2), squares=np.ones(3)),
        ("old_logp (2,)", "one entry per token (3,)"),
    ),
    "prepare: squares of nobody": (lambda: prepare(squares=ZEROS), ("squares are not read",)),
    "prepare: ref_logp": (
        lambda: prepare(WITH_KL, ref_logp=np.zeros(2)),
        ("ref_logp (2,)", "one entry per token (3,)"),
    ),
    "prepare: no ref_logp": (lambda: prepare(WITH_KL), ("KL penalty", "needs ref_logp")),
    "batch_from_advantages: advantage": (
        lambda: REAL.batch_from_advantages(PLAIN, np.ones(4), STARTS, ZEROS),
        ("advantage (4,)", "one entry per token (3,)"),
    ),
    "shaped_rewards: starts": (lambda: shaped(starts=STARTS[:3]), ("starts (3,)", "rewards (3,)", "one entry more")),
    "shaped_rewards: order": (
        lambda: shaped(starts=[0, 2, 1, 3]),
        ("starts", "[0 2 1 3]", "begin at 0 and never fall"),
    ),
    "shaped_rewards: old_logp": (lambda: shaped(old_logp=np.zeros(2)), ("old_logp (2,)", "one entry per token (3,)")),
    "shaped_rewards: ref_logp": (lambda: shaped(ref_logp=np.zeros(2)), ("ref_logp (2,)", "one entry per token (3,)")),
    "shaped_rewards: no ref_logp": (partial(shaped, ref_logp=None), ("KL penalty", "needs ref_logp")),
    # objective
    "objective_and_weights: logp": (
        lambda: REAL.objective_and_weights(PLAIN, BATCH, np.zeros(2)),
        ("logp (2,)", "one entry per token (3,)"),
    ),
    "apply_mask: logp": (
        lambda: REAL.apply_mask(no_kl(mask=Drift()), BATCH, np.zeros(2)),
        ("logp (2,)", "one entry per token (3,)"),
    ),
    "apply_mask: no keys": (
        lambda: REAL.apply_mask(no_kl(mask=ClipCov()), BATCH, ZEROS),
        ("ClipCov", "keys", "one random number per token"),
    ),
    # evalstats
    "sampling_error: n": (lambda: sampling_error(0.5, 0), ("n = 0", "allowed: 1 or more")),
    "pass_at_k: k": (lambda: pass_at_k(4, 1, 5), ("k = 5", "allowed: 1 to n = 4")),
    "pass_at_k: correct": (lambda: pass_at_k(4, 5, 2), ("correct", "0 .. n")),
    "apply_mask: keys": (
        lambda: REAL.apply_mask(no_kl(mask=ClipCov()), BATCH, ZEROS, np.ones(2)),
        ("keys (2,)", "one entry per token (3,)"),
    ),
}
ROWS = FIELDS | CALLS


FINITE = {
    "advantage.eps": lambda value: Advantage(eps=value),
    "aggregation.length": lambda value: Aggregation("token_sum", length=value),
    "aggregation.eps": lambda value: Aggregation(eps=value),
    "kl.coef": lambda value: KL(coef=value),
    "length.coef": lambda value: Length(value),
    "entropy": lambda value: Estimator(entropy=value),
    "surrogate.beta": Dro,
    "surrogate.tau_positive": lambda value: Sapo(tau_positive=value),
    "surrogate.tau_negative": lambda value: Sapo(tau_negative=value),
    "surrogate.lam_positive": lambda value: Vespo(lam_positive=value),
    "surrogate.lam_negative": lambda value: Vespo(lam_negative=value),
    "surrogate.k_negative": lambda value: Vespo(k_negative=value),
    "optimizer.learning_rate": lambda value: Optimizer(learning_rate=value),
    "optimizer.eps": lambda value: Optimizer(eps=value),
    "sampler.noise": lambda value: Sampler(noise=value),
    "environment.base_scale": lambda value: Tabular(base_scale=value),
    "environment.nuisance": lambda value: Tabular(nuisance=value),
    **{
        f"environment.{name}": lambda value, name=name: Linear(**{name: value})
        for name in (
            "base_format",
            "kappa",
            "nuisance",
            "interference",
            "forgetting",
            "format_scale",
            "sharpening",
            "correctness",
            "familiarity",
        )
    },
}
"""Numbers of which no infinite one has a meaning. Bounds that inf turns off are not among them."""


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("name", FINITE)
def test_infinite_numbers_and_nan_are_refused(name, value):
    with pytest.raises(UserError, match=rf"{name} = {value}; allowed: .*finite"):
        FINITE[name](value)


@pytest.mark.parametrize("name", ROWS)
def test_message(name):
    call, parts = ROWS[name]
    with pytest.raises(UserError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value), f"{part!r} is missing in: {caught.value}"


SHARED = Path(errors.__file__).parent


def places() -> set[tuple[str, int, int]]:
    """(file, first line, last line) of everything in shared/ that may raise a UserError, but of numba_parts.py, which
    tests/test_architecture.py imports, of custom functions, which tests/estimators/test_custom.py has, and of
    choices that no kernel computes, which tests/estimators/test_unknown.py plants."""
    elsewhere = ("errors", "files", "folders", "numba_parts", "own", "plugins", "source")
    found = set()
    for path in sorted(SHARED.rglob("*.py")):
        if {path.stem, path.parent.name}.isdisjoint(elsewhere):
            for node in ast.walk(ast.parse(path.read_text())):
                called = node.exc if isinstance(node, ast.Raise) else node
                if isinstance(called, ast.Call) and getattr(called.func, "id", "") in (
                    "UserError",
                    "check",
                    "check_choice",
                    "check_count",
                    "check_finite",
                    "check_labels",
                ):
                    if "no kernel computes" in ast.unparse(called):
                        continue
                    found.add((path.relative_to(SHARED).as_posix(), called.lineno, called.end_lineno))
    return found


def test_every_place_has_a_test():
    """A new check in shared/ needs a line in `FIELDS` or `CALLS`."""
    reached, known = set(), places()
    for call, _ in ROWS.values():
        try:
            call()
        except UserError as error:
            frames = [
                frame for frame in traceback.extract_tb(error.__traceback__) if SHARED in Path(frame.filename).parents
            ]
            last = [frame for frame in frames if not frame.filename.endswith("errors.py")][-1:]
            reached |= {
                place
                for frame in last
                for place in known
                if SHARED / place[0] == Path(frame.filename) and place[1] <= frame.lineno <= place[2]
            }
    assert known - reached == set()


def test_good_input_passes():
    """The limits themselves are allowed."""
    (
        Advantage(eps=0.0, decay=0.0),
        Advantage("value", gamma=0.0, lam=0.0),
        KL(coef=0.0),
        Aggregation(eps=0.0),
        Correction(low=2.0, high=2.0),
        Length(0.0),
    )
    (
        Clip(low=0.0, high=0.0),
        Clip(low=1.0, high=math.inf, dual=1.0001),
        GeometricMean(0.0, math.inf),
        Dro(0.0),
        Divergence("kl", 0.0, 0.0),
        KLCov(1.0),
    )
    Design(rollouts=4, replay_window=4, rounds=100, eval_every=100, batch_size=4, minibatches=4)
    two_groups = Pool(ONES, np.array([0, 2, 3]))
    assert advantages(Advantage(singleton="zero"), group=[0, 1, 0], pool=two_groups).tolist() == [0.0, 0.0, 0.0]
    assert advantages(Advantage(singleton="error"), pool=two_groups).tolist() == [0.0, 0.0, 0.0]
    assert advantages(Advantage("none", credit="pass_at_k", k=3)).tolist() == [3.0, 3.0, 3.0]
    assert REAL.objective_and_weights(PLAIN, prepare(), ZEROS).weight.tolist() == [0.0, 0.0, 0.0]
