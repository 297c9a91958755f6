"""Bad input: every message of shared/ names what is wrong, its value and what is allowed."""

import ast
import math
import re
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rftlab import KL, Advantage, Aggregation, Correction, Design, Length, Ratio, Sampling, UserError
from rftlab.shared.cards import CARDS, PRESETS, preset
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov, SecondMoment, TopEntropy
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Vespo
from rftlab.shared.effective_batch import Costs, NoiseRatios, best_split, token_costs
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.evalstats import pass_at_k, sampling_error
from rftlab.shared.plumbing import errors
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
OTB, GDPO = Advantage("optimal_token"), Advantage("group_mean", combine="advantages")
SEVERAL = "rollouts > 1 without support, replay"
LONELY, BY_LENGTH = (Estimator(Advantage(**one)) for one in ({"singleton": "error"}, {"baseline": "length_weighted"}))
WHITENED, TO_SAMPLER = Advantage("none", whiten="tokens"), no_kl(correction=Correction("ratio"))
PAIR = Pool(ONES, np.array([0, 2, 3]))


def advantages(spec: Advantage = PLAIN.advantage, rewards=ONES, group=GROUP, pool: Pool = POOL, **rest) -> np.ndarray:
    return REAL.advantages(spec, rewards, np.asarray(group), pool, **rest)


def combined(rewards, weights) -> np.ndarray:
    return REAL.combined_advantages(GDPO, [rewards], weights, GROUP)


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


Row = tuple[Callable[[], object], str]
FIELDS: list[Row] = [
    # advantage
    (lambda: Estimator(surrogate=5), "surrogate = 5|Reinforce, Clip, Cispo"),
    (lambda: planted(Aggregation(), "empty"), "aggregation.empty|skip, count"),
    (lambda: planted(KL(), "place"), "kl.place|loss, reward"),
    (lambda: planted(KL(), "anchor"), "kl.anchor|base, old"),
    (lambda: Advantage("z"), "advantage.baseline|'z'|none, group_mean, leave_one_out, length_weighted, second_best"),
    (lambda: Advantage(scale="z"), "advantage.scale|'z'|none, group_std, others_std, group_mean, batch_std, nonzero"),
    (lambda: Advantage(whiten="z"), "advantage.whiten|'z'|none, tokens, responses"),
    (lambda: Advantage(credit="z"), "advantage.credit|'z'|reward, set_mean, pass_at_k"),
    (lambda: Advantage(singleton="one"), "advantage.singleton|'one'|raw, zero, error"),
    (lambda: Advantage(ddof=2), "advantage.ddof|2|0, 1"),
    (lambda: Advantage(eps=-0.5), "advantage.eps|-0.5|0 or more"),
    (lambda: Advantage("none", credit="pass_at_k", k=0), "advantage.k|0|1 or more"),
    (lambda: Advantage(k=2), "advantage.k|2|allowed: 1|credit is reward"),
    (lambda: Advantage(decay=1.5), "advantage.decay|1.5|0 to 1"),
    (lambda: Advantage(constant=NAN), "advantage.constant|nan|finite"),
    (lambda: Advantage("none", constant=0.5), "advantage.constant|0.5|allowed: 0 where baseline is none"),
    (lambda: Advantage("greedy", combine="advantages"), "advantage.combine|rewards where credit is reward"),
    (lambda: Advantage("none", gamma=-0.1), "advantage.gamma|-0.1|0 to 1"),
    (lambda: Advantage("value", lam=NAN), "advantage.lam|nan|0 to 1"),
    (lambda: Advantage("group_mean", gamma=0.9), "advantage.gamma|scale none|no group's baseline"),
    (lambda: Advantage("value", "batch_std"), "baseline value|scale none"),
    (lambda: Advantage(lam=0.9), "advantage.lam|0.9|allowed: 1|group_mean"),
    (lambda: Advantage("greedy", "group_std"), "advantage.scale|group_std|greedy"),
    (lambda: Advantage("leave_one_out", credit="set_mean"), "advantage.baseline|set_mean|allowed: none"),
    (lambda: Advantage("group_mean", credit="pass_at_k"), "advantage.baseline|pass_at_k|none, leave_one_out"),
    (lambda: Advantage("none", "group_std", credit="set_mean"), "advantage.scale|group_std|none, batch_std|set_mean"),
    # surrogate, ratio, mask
    (lambda: Clip(low=1.5), "surrogate.low|1.5|0 to 1"),
    (lambda: Cispo(low=-0.1), "surrogate.low|-0.1|0 to 1"),
    (lambda: Clip(high=-0.2), "surrogate.high|-0.2|0 or more"),
    (lambda: Cispo(high=NAN), "surrogate.high|nan|0 or more"),
    (lambda: Clip(dual=1.0), "surrogate.dual|1.0|more than 1"),
    (lambda: Sapo(tau_positive=0.0), "surrogate.tau|0.0|more than 0"),
    (lambda: Dro(-1.0), "surrogate.beta|-1.0|0 or more"),
    (lambda: GeometricMean(low=-0.1), "surrogate.low, high|-0.1|0 or more"),
    (lambda: GeometricMean(high=NAN), "surrogate.low, high|nan|0 or more"),
    (lambda: Vespo(lam_negative=0.0), "surrogate.lam|0.0|more than 0"),
    (lambda: Vespo(k_positive=INF), "surrogate.k_positive|inf|any finite number"),
    (lambda: Ratio("word"), "ratio.level|'word'|token, sequence, sequence_token, product"),
    (lambda: Ratio(floor=0.0), "ratio.floor, cap|0.0|less than 0, more than 0"),
    (lambda: Ratio(cap=NAN), "ratio.floor, cap|nan|less than 0, more than 0"),
    (lambda: Divergence("js"), "mask.measure|'js'|tv, kl"),
    (lambda: Divergence(low=-0.1), "mask.low, high|-0.1|0 or more"),
    (lambda: Divergence(high=NAN), "mask.low, high|nan|0 or more"),
    (lambda: ClipCov(low=NAN), "mask.low, high|nan|low <= high"),
    (lambda: Drift(-1.0), "mask.threshold|-1.0|0 or more"),
    (lambda: SecondMoment(-1.0), "mask.threshold|-1.0|0 or more"),
    (lambda: ClipCov(0.0), "mask.fraction|0.0|more than 0, at most 1"),
    (lambda: KLCov(1.5), "mask.fraction|1.5|more than 0, at most 1"),
    # penalties, aggregation, correction, sampling
    (lambda: KL("k4"), "kl.kind|'k4'|none, k1, k2, k3, abs"),
    (lambda: KL(place="grad"), "kl.place|'grad'|loss, reward"),
    (lambda: KL(anchor="new"), "kl.anchor|'new'|base, old"),
    (lambda: KL(coef=-1.0), "kl.coef|-1.0|0 or more"),
    (lambda: KL("k1", place="reward", weighted=True), "kl.place|reward|weighted|their defaults"),
    (lambda: KL("k1", place="reward", anchor="old"), "kl.place|reward|anchor old|their defaults"),
    (lambda: Length(coef=-1.0), "length.coef|-1.0|0 or more"),
    (lambda: Length(limit=INF), "length.limit|inf|more than 0, finite"),
    (lambda: Length(limit=5, buffer=6), "length.buffer|6|more than 0, at most|5"),
    (lambda: Aggregation("mean"), "aggregation.kind|'mean'|token_mean, token_sum, seq_mean_token_sum, seq_mean_token"),
    (lambda: Aggregation(empty="drop"), "aggregation.empty|'drop'|skip, count"),
    (lambda: Aggregation("token_mean", length=7.0), "aggregation.length|7.0|None|token_mean"),
    (lambda: Aggregation("token_sum", length=0), "aggregation.length|0|more than 0"),
    (lambda: Aggregation("micro_batch_token_mean"), "aggregation.micro_batch|None|1 or more|micro_batch_token_mean"),
    (lambda: Aggregation("token_mean", micro_batch=4), "aggregation.micro_batch|4|None|token_mean"),
    (lambda: Aggregation("micro_batch_token_mean", micro_batch=0), "aggregation.micro_batch|0|1 or more"),
    (lambda: Aggregation(eps=-1e-8), "aggregation.eps|-1e-08|0 or more"),
    (lambda: Correction("clip"), "correction.kind|'clip'|none, truncate, mask, ratio"),
    (lambda: Correction(level="word"), "correction.level|'word'|token, sequence, geometric"),
    (lambda: Correction(low=INF, high=INF), "correction.low|inf|0 or more, finite"),
    (lambda: Correction(low=3.0), "correction.low, high|3.0, 2.0|0 <= low <= high"),
    (lambda: Sampling(budget="all"), "sampling.budget|'all'|equal, difficulty"),
    (lambda: Sampling(tries=0), "sampling.tries|0|1 or more"),
    (lambda: Sampling(keep=-1), "sampling.keep|-1|0 or more"),
    (lambda: Sampling(replayed=-1), "sampling.replayed|-1|0 or more"),
    (lambda: Sampling(tries=2, replayed=1), "sampling.replayed|1|0 with sampling.tries above 1 or sampling.keep"),
    # estimator
    (lambda: Estimator(entropy=-0.1), "entropy|-0.1|0 or more"),
    (lambda: Estimator(entropy=2.0, entropy_target=0.5), "entropy|2.0|with a target|0 to 1"),
    (lambda: Estimator(GDPO, kl=KL("k1", place="reward")), "combine advantages|no KL in the reward"),
    (lambda: Estimator(surrogate=Reinforce(), ratio=Ratio("sequence")), "ratio.level|'sequence'|Reinforce: token"),
    (lambda: Estimator(surrogate=Vespo()), "ratio.level|'token'|Vespo: product"),
    (lambda: Estimator(mask=KLCov()), "KLCov|KL penalty in the loss"),
    (lambda: Estimator(kl=KL("k1", place="reward"), mask=KLCov()), "KLCov|KL penalty in the loss"),
    (lambda: Estimator(ratio=Ratio("sequence"), mask=ClipCov()), "ClipCov|ratio.level token"),
    (lambda: Estimator(surrogate=GeometricMean(), mask=ClipCov()), "ClipCov|other than GeometricMean"),
    (lambda: Estimator(surrogate=GeometricMean(), kl=KL("k3", weighted=True)), "kl.weighted|True|GeometricMean: False"),
    (lambda: Estimator(PASS_2, length=Length(0.5)), "pass_at_k|0/1 rewards|length.coef 0"),
    (lambda: Estimator(PASS_2, kl=KL("k1", place="reward")), "pass_at_k|0/1 rewards|no KL in the reward"),
    (lambda: preset(next(iter(CARDS.keys() - PRESETS.keys()))), "estimator|cannot run here"),
    (lambda: preset(["grpo"]), "estimator|['grpo'] is unknown"),
    (lambda: preset(np.array(["grpo", "rloo"])), "estimator|is unknown"),
    (lambda: preset("no_such"), "estimator|'no_such'|minimalist, grpo, dr_grpo, rloo"),
    # design
    (lambda: Design(batch_size=0), "batch_size|0|1 or more"),
    (lambda: Design(support_rollouts=-1), "support_rollouts|-1|0 or more"),
    (lambda: Design(rollouts=4, replay_window=3), "replay_window|3|0, or at least rollouts = 4"),
    (lambda: Design(estimator=LONELY), "baseline set = 1|rollouts|2 or more|singleton"),
    (lambda: Design(estimator=Estimator(PASS_2)), "advantage.k|2|smallest baseline set, 1"),
    (lambda: Design(rounds=100, eval_every=30), "eval_every|30|divide rounds = 100"),
    (lambda: Design(batch_size=32, minibatches=5), "minibatches|5|divide batch_size = 32"),
    (lambda: Design(sampling=Sampling(tries=2)), f"sampling.tries|2|{SEVERAL}"),
    (lambda: Design(rollouts=2, sampling=Sampling(keep=3)), "sampling.keep|3|at most rollouts = 2"),
    (lambda: Design(support_rollouts=2, sampling=Sampling(keep=1)), "sampling.keep|1|0 with support rollouts"),
    (lambda: Design(support_rollouts=2, sampling=Sampling(replayed=1)), "sampling.replayed|1|0 with support rollouts"),
    (lambda: Design(estimator=Estimator(OTB), sampling=Sampling(replayed=1)), "replayed|1|0 with|optimal_token"),
    (lambda: Design(replay_window=4, estimator=Estimator(GDPO)), "advantage.combine|without support rollouts"),
    (lambda: Design(sampling=Sampling(budget="difficulty")), f"sampling.budget|difficulty|{SEVERAL}"),
    (lambda: Design(support_rollouts=2, estimator=BY_LENGTH), "length_weighted|without support rollouts, replay"),
]
CALLS: list[Row] = [
    # the effective batch
    (lambda: token_costs(-1.0, 1.0, 0.0, 0.0, 0.0), "cost of a prompt|-1"),
    (lambda: token_costs(1.0, 0.0, 0.0, 9.0, 9.0), "cost of a rollout|0|more than 0"),
    (lambda: best_split(NoiseRatios(0.1, 1.0), Costs(1.0, 1.0), 2.5, True), "budget|2.5|3 or more"),
    # baseline sets and advantages
    (lambda: REAL.make_pool(1, (ONES, GROUP[:2])), "rewards (3,)|group (2,)|one entry per response"),
    (lambda: REAL.make_pool(1, (ONES, GROUP[:2]), (ONES[:2], GROUP)), "rewards (3,)|group (2,)|one entry per response"),
    (lambda: REAL.make_pool(2, (ONES, [0, 2, 1])), "group|2|0 .. 1"),
    (lambda: REAL.make_pool(2, (ONES, [0, -1, 1])), "group|-1|0 .. 1"),
    (lambda: advantages(group=GROUP[:2]), "rewards (3,)|group (2,)|one entry per response"),
    (lambda: advantages(group=[0, 0, 5]), "group|5|0 .. 0"),
    (lambda: advantages(starts=STARTS[:3]), "starts (3,)|rewards (3,)|one entry more"),
    (lambda: advantages(group=[0, 1, 0], pool=Pool(ONES, np.array([0, 3, 3]))), "group 1|empty|1 reward or more"),
    (lambda: advantages(LONELY.advantage, group=[0, 1, 0], pool=PAIR), "group 1|one reward|advantage.singleton|raw"),
    (lambda: advantages(PASS_2, pool=Pool(0.5 * ONES, np.array([0, 3]))), "pass_at_k|0 or 1"),
    (lambda: advantages(Advantage("none", credit="pass_at_k", k=4)), "advantage.k|4|smallest baseline set, 3"),
    (lambda: advantages(GREEDY), "greedy|baseline array is needed"),
    (lambda: advantages(baseline=ONES), "group_mean|baseline array is not read"),
    (lambda: advantages(GREEDY, baseline=np.ones(2)), "baseline (2,)|one entry per response (3,)"),
    (lambda: by_token(VALUE, baseline=np.ones(2)), "rewards (3,)|baseline (2,)|one entry per token"),
    (lambda: by_token(Advantage("group_mean")), "advantage.baseline group_mean|not per token"),
    (lambda: by_token(Advantage("batch_mean")), "advantage.baseline batch_mean|not per token"),
    (lambda: by_token(WHITENED, ONES[:1], STARTS[:2]), "advantage.whiten|one token|two or more"),
    (lambda: combined(ONES, np.ones(2)), "rewards (1, 3)|weights (2,)|group (3,)|allowed: (C, R), (C,), (R,)"),
    (lambda: combined(NAN * ONES, np.ones(1)), "rewards and weights|finite ones"),
    # windows, averages, sampling
    (lambda: REAL.empty_windows(2, 0), "window size|0|1 or more"),
    (lambda: REAL.push(REAL.empty_windows(2, 1), [0, 1], [1.0]), "contexts (2,)|rewards (1,)|one entry per reward"),
    (lambda: REAL.push(REAL.empty_windows(2, 1), [0, 2], [1.0, 1.0]), "contexts|2|0 .. 1"),
    (lambda: REAL.window_pool(REAL.empty_windows(2, 1), [-1]), "contexts|-1|0 .. 1"),
    (lambda: REAL.read_averages(REAL.empty_averages(2), [2]), "contexts|2|0 .. 1"),
    (lambda: REAL.add(REAL.empty_averages(2), [0], ONES, 0.9), "rewards (3,)|one row per context (1)"),
    (lambda: REAL.add(REAL.empty_averages(2), [-1], [[1.0]], 0.9), "contexts|-1|0 .. 1"),
    (lambda: REAL.add(REAL.empty_averages(2), [0], [[1.0]], 1.5), "decay|1.5|0 to 1"),
    (lambda: REAL.allocate([0.5, NAN], 2), "p = |nan|0 to 1"),
    (lambda: REAL.allocate([0.5], 0), "mean|0|1 or more"),
    (lambda: REAL.keep_shortest([1, 2], [0, 2], 0), "keep|0|1 or more"),
    # aggregation, corrections
    (lambda: REAL.shares(Aggregation("prompt_mean"), STARTS), "prompt_mean|needs group"),
    (lambda: REAL.shares(Aggregation("prompt_mean"), STARTS, group=GROUP[:2]), "group (2,)|one entry per resp"),
    (lambda: REAL.shares(Aggregation(), [1, 2]), "starts|[1 2]|begin at 0 and never fall"),
    (lambda: REAL.shares(Aggregation(), [0, 2, 1]), "starts|[0 2 1]|begin at 0 and never fall"),
    (lambda: REAL.shares(Aggregation(), []), "starts|[]|begin at 0 and never fall"),
    (lambda: REAL.corrections(Correction(), STARTS, np.ones(2), ONES), "old_logp (2,)|one entry per token (3,)"),
    (lambda: REAL.corrections(Correction(), STARTS, ONES, np.ones(2)), "sampler_logp (2,)|one entry per token (3,)"),
    (lambda: REAL.corrections(Correction(), [0, 2, 1, 3], ONES, ONES), "starts|[0 2 1 3]|begin at 0 and never fall"),
    # prepare
    (lambda: prepare(starts=STARTS[:3]), "starts (3,)|rewards (3,)|one entry more"),
    (lambda: prepare(old_logp=np.zeros(4)), "old_logp (4,)|one entry per token (3,)"),
    (lambda: prepare(starts=[0, 2, 1, 3]), "starts|[0 2 1 3]|begin at 0 and never fall"),
    (lambda: prepare(correction=np.ones(1)), "correction (1,)|one entry per token (3,)"),
    (lambda: prepare(correction=ONES, sampler_logp=ZEROS), "sampler_logp|correction|one of them"),
    (lambda: prepare(sampler_logp=np.ones(1)), "sampler_logp (1,)|one entry per token (3,)"),
    (lambda: prepare(TO_SAMPLER, sampler_logp=np.ones(1)), "sampler_logp (1,)|one entry per token (3,)"),
    (lambda: prepare(n_tokens=0), "n_tokens|0|more than 0"),
    (lambda: prepare(n_rows=-1), "n_rows|-1|more than 0"),
    (lambda: prepare(no_kl(), token_rewards=np.ones(2)), "token_rewards (2,)|one entry per token (3,)"),
    (lambda: prepare(token_rewards=np.ones(2)), "token_rewards (2,)|one entry per token (3,)"),
    (lambda: prepare(no_kl(VALUE), baseline=np.ones(2)), "baseline (2,)|one entry per response or per token"),
    (lambda: prepare(no_kl(VALUE)), "value|baseline array is needed"),
    (lambda: prepare(no_kl(OTB)), "optimal_token|baseline array is needed"),
    (lambda: prepare(no_kl(OTB), squares=np.ones(2)), "squares (2,)|one entry per token (3,)"),
    (lambda: prepare(no_kl(OTB), old_logp=np.zeros(2), squares=np.ones(3)), "old_logp (2,)|one entry per token (3,)"),
    (lambda: prepare(squares=ZEROS), "squares are not read"),
    (lambda: prepare(no_kl(GDPO), baseline=ONES), "baseline|none where advantages are combined"),
    (lambda: prepare(WITH_KL, ref_logp=np.zeros(2)), "ref_logp (2,)|one entry per token (3,)"),
    (lambda: prepare(WITH_KL), "KL penalty|needs ref_logp"),
    (lambda: REAL.batch_from_advantages(PLAIN, np.ones(4), STARTS, ZEROS), "advantage (4,)|one entry per token (3,)"),
    (lambda: shaped(starts=STARTS[:3]), "starts (3,)|rewards (3,)|one entry more"),
    (lambda: shaped(starts=[0, 2, 1, 3]), "starts|[0 2 1 3]|begin at 0 and never fall"),
    (lambda: shaped(old_logp=np.zeros(2)), "old_logp (2,)|one entry per token (3,)"),
    (lambda: shaped(ref_logp=np.zeros(2)), "ref_logp (2,)|one entry per token (3,)"),
    (partial(shaped, ref_logp=None), "KL penalty|needs ref_logp"),
    (lambda: REAL.prepare("grpo", ONES, GROUP, STARTS, ZEROS), "estimator is a str|allowed: an Estimator"),
    (lambda: REAL.prepare(PLAIN, ONES, None, STARTS, ZEROS), "None is no array of numbers"),
    (lambda: REAL.prepare(PLAIN, ONES, GROUP + 0.5, STARTS, ZEROS), "allowed: whole numbers"),
    (lambda: prepare(starts=[0, np.nan]), "[0, nan]|allowed: a sequence of numbers"),
    (lambda: prepare(starts=np.zeros((2, 2))), "starts|begin at 0 and never fall"),
    (lambda: prepare(starts=-1), "starts|[-1]|begin at 0 and never fall"),
    # objective
    (lambda: REAL.objective_and_weights(PLAIN, (), ZEROS), "batch is a tuple|allowed: a Batch"),
    (lambda: REAL.objective_and_weights(None, BATCH, ZEROS), "estimator is a NoneType|allowed: an Estimator"),
    (lambda: REAL.objective_and_weights(PLAIN, BATCH, ["a"]), "['a'] is no array of numbers"),
    (lambda: REAL.objective_and_weights(PLAIN, BATCH, np.zeros(2)), "logp (2,)|one entry per token (3,)"),
    (lambda: REAL.apply_mask(no_kl(mask=Drift()), BATCH, np.zeros(2)), "logp (2,)|one entry per token (3,)"),
    (lambda: REAL.apply_mask(no_kl(mask=ClipCov()), BATCH, ZEROS), "ClipCov|keys|one random number per token"),
    (lambda: REAL.apply_mask(no_kl(mask=TopEntropy()), BATCH, ZEROS), "TopEntropy|keys|the entropy of each token"),
    # evalstats
    (lambda: sampling_error(0.5, 0), "n = 0|allowed: 1 or more"),
    (lambda: pass_at_k(4, 1, 5), "k = 5|allowed: 1 to n = 4"),
    (lambda: pass_at_k(4, 5, 2), "correct|0 .. n"),
    (lambda: REAL.apply_mask(no_kl(mask=ClipCov()), BATCH, ZEROS, np.ones(2)), "keys (2,)|one entry per token (3,)"),
]
ROWS = [*FIELDS, *CALLS]


OF_LINEAR = "base_format kappa nuisance interference forgetting format_scale"
FINITE = {
    "advantage": (Advantage, "eps"),
    "aggregation": (partial(Aggregation, "token_sum"), "length eps"),
    "kl": (KL, "coef"),
    "length": (Length, "coef"),
    "estimator": (Estimator, "entropy"),
    "dro": (Dro, "beta"),
    "sapo": (Sapo, "tau_positive tau_negative"),
    "vespo": (Vespo, "lam_positive lam_negative k_negative"),
    "optimizer": (Optimizer, "learning_rate eps"),
    "sampler": (Sampler, "noise"),
    "tabular": (Tabular, "base_scale nuisance"),
    "linear": (Linear, f"{OF_LINEAR} sharpening correctness familiarity"),
}
"""Numbers of which no infinite one has a meaning. Bounds that inf turns off are not among them."""


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("part", FINITE)
def test_infinite_numbers_and_nan_are_refused(part, value):
    kind, names = FINITE[part]
    for name in names.split():
        with pytest.raises(UserError, match=rf"{name} = {value}; allowed: .*finite"):
            kind(**{name: value})


@pytest.mark.parametrize(("call", "message"), ROWS, ids=[message for _, message in ROWS])
def test_message(call, message):
    with pytest.raises(UserError) as caught:
        call()
    for part in message.split("|"):
        assert part in str(caught.value), f"{part!r} is missing in: {caught.value}"


SHARED = Path(errors.__file__).parents[1]
RAISING = ("UserError", "check", "check_choice", "check_count", "check_finite", "check_labels")


def places() -> set[tuple[str, int, int]]:
    """(file, first line, last line) of everything in shared/ that may raise a UserError, but of numba_parts.py, which
    tests/test_architecture.py imports, of custom functions, which tests/estimators/test_custom.py has, and of
    choices that no kernel computes, which tests/estimators/test_unknown.py plants."""
    elsewhere = ("errors", "files", "folders", "numba_parts", "custom")
    paths = [path for path in SHARED.rglob("*.py") if {path.stem, path.parent.name}.isdisjoint(elsewhere)]
    nodes = ((str(path), node) for path in paths for node in ast.walk(ast.parse(path.read_text())))
    calls = ((path, node.exc if isinstance(node, ast.Raise) else node) for path, node in nodes)
    calls = [(path, one) for path, one in calls if getattr(getattr(one, "func", None), "id", "") in RAISING]
    calls = [one for one in calls if not re.search("no kernel computes|of your own", ast.unparse(one[1]))]
    return {(path, one.lineno, one.end_lineno) for path, one in calls}


def test_every_place_has_a_test():
    """A new check in shared/ needs a line in `FIELDS` or `CALLS`."""
    reached, known = set(), places()
    for call, _ in ROWS:
        try:
            call()
        except UserError as error:
            frames = [one for one in traceback.extract_tb(error.__traceback__) if SHARED in Path(one.filename).parents]
            last = [frame for frame in frames if not frame.filename.endswith("errors.py")][-1:]
            reached |= {at for one in last for at in known if at[0] == one.filename and at[1] <= one.lineno <= at[2]}
    assert known - reached == set()


def test_good_input_passes():
    """The limits themselves are allowed."""
    kinds = [(Advantage, {"eps": 0.0, "decay": 0.0}), (KL, {"coef": 0.0}), (Aggregation, {"eps": 0.0})]
    kinds += [
        (KLCov, {"fraction": 1.0}),
        (Correction, {"low": 2.0, "high": 2.0}),
        (Length, {"coef": 0.0}),
        (Dro, {"beta": 0.0}),
    ]
    kinds += [(Clip, {"low": 0.0, "high": 0.0}), (Clip, {"low": 1.0, "high": INF, "dual": 1.0001})]
    kinds += [(GeometricMean, {"low": 0.0, "high": INF}), (Divergence, {"low": 0.0, "high": 0.0})]
    assert all(kind(**fields) for kind, fields in kinds) and Advantage("value", gamma=0.0, lam=0.0)
    Design(rollouts=4, replay_window=4, rounds=100, eval_every=100, batch_size=4, minibatches=4)
    assert advantages(Advantage(singleton="zero"), group=[0, 1, 0], pool=PAIR).tolist() == [0.0, 0.0, 0.0]
    assert advantages(LONELY.advantage, pool=PAIR).tolist() == [0.0, 0.0, 0.0]
    assert advantages(Advantage("none", credit="pass_at_k", k=3)).tolist() == [3.0, 3.0, 3.0]
    assert REAL.objective_and_weights(PLAIN, prepare(), ZEROS).weight.tolist() == [0.0, 0.0, 0.0]
