"""Small runs of the general round."""

from dataclasses import replace

from rftlab import KL, Advantage, Aggregation, Correction, Design, Estimator, Length, Ratio, Sampling
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov, SecondMoment, TopEntropy
from rftlab.shared.config.surrogate import Clip, GeometricMean, Topr, Vespo
from rftlab.sim.config import Optimizer, Sampler, Simulation, Tabular
from tests.support.worlds.small_worlds import mixed_world, with_estimator

PULL = KL("k2", 0.5)
BASE = Design(
    6,
    4,
    estimator=Estimator(Advantage("group_mean"), Clip(0.1, 0.1), KL("k3", 0.05), Aggregation("token_mean")),
    rounds=9,
    eval_every=3,
    epochs=2,
    minibatches=2,
)
WORLD, OTHER_SAMPLER = mixed_world(), Sampler(3, 0.4)


def styled_run(sampler=None, design=BASE, sampling=None, seed=3, **estimator):
    """A run of the mixed world: BASE with other knobs."""
    design = replace(with_estimator(design, **estimator), sampling=sampling or Sampling())
    return Simulation(Tabular(15, 5), design, Optimizer(learning_rate=0.1, eps=1e-3), sampler or Sampler(), seed=seed)


def corrected(**more):
    return {name: styled_run(OTHER_SAMPLER, correction=Correction(*spec), **more) for name, spec in CORRECTIONS.items()}


CORRECTIONS = {
    "truncate": ("truncate", "token", 0.5, 1.2),
    "truncate sequence": ("truncate", "sequence", 0.5, 1.2),
    "mask geometric": ("mask", "geometric", 0.9, 1.1),
    "ratio": ("ratio",),
}
RUNS = {
    "token sum": styled_run(aggregation=Aggregation("token_sum", length=20)),
    "mean of means": styled_run(aggregation=Aggregation("seq_mean_token_mean")),
    "mean of micro-batches": styled_run(aggregation=Aggregation("micro_batch_token_mean", micro_batch=3)),
    "mean of sums": styled_run(aggregation=Aggregation("seq_mean_token_sum")),
    "sequence ratio": styled_run(ratio=Ratio("sequence"), surrogate=Clip(0.02, 0.02)),
    "sequence token ratio": styled_run(
        ratio=Ratio("sequence_token"), surrogate=Clip(0.02, 0.02), aggregation=Aggregation("seq_mean_token_mean")
    ),
    "product ratio": styled_run(ratio=Ratio("product"), surrogate=Vespo()),
    "tapered": styled_run(ratio=Ratio("product"), surrogate=Topr()),
    "geometric mean": styled_run(surrogate=GeometricMean(0.02, 0.02)),
    "mask tv": styled_run(mask=Divergence("tv", 0.01, 0.01)),
    "mask kl": styled_run(mask=Divergence("kl", 1e-4, 1e-4)),
    "mask drift": styled_run(mask=Drift(0.001)),
    "top entropy": styled_run(mask=TopEntropy(0.3)),
    "second moment": styled_run(mask=SecondMoment(1e-4)),
    "clip cov": styled_run(mask=ClipCov(0.2, 0.01, 5.0)),
    "kl cov": styled_run(mask=KLCov(0.2), kl=PULL),
    "sampler": styled_run(OTHER_SAMPLER),
    "queue": styled_run(Sampler(1, 0.4, every=3)),
    **corrected(),
    "tries": styled_run(sampling=Sampling(tries=2)),
    "many tries": styled_run(sampling=Sampling(tries=12)),
    "replayed": styled_run(OTHER_SAMPLER, sampling=Sampling(replayed=2)),
    "replayed, by difficulty": styled_run(
        sampling=Sampling(budget="difficulty", replayed=3), kl=KL("k1", 0.1, place="reward")
    ),
    "keep": styled_run(sampling=Sampling(keep=2)),
    "difficulty": styled_run(sampling=Sampling(budget="difficulty")),
    "length penalty": styled_run(length=Length(0.5, 8, 4)),
    "entropy": styled_run(entropy=0.3),
    "moving entropy": styled_run(entropy=0.3, entropy_target=0.9, entropy_step=0.1),
    "old anchor": styled_run(kl=replace(PULL, anchor="old", weighted=True)),
    "kl in reward": styled_run(OTHER_SAMPLER, kl=KL("k1", 0.1, place="reward")),
    "support and window": styled_run(design=replace(BASE, rollouts=2, support_rollouts=2, replay_window=3)),
    "mean of prompts": styled_run(aggregation=Aggregation("prompt_mean")),
    "shrunk": styled_run(advantage=Advantage("james_stein")),
    "over the mean": styled_run(advantage=Advantage("group_mean", "group_mean")),
    "length weighted": styled_run(advantage=Advantage("length_weighted", "batch_std")),
    **{name: styled_run(advantage=Advantage(name)) for name in ("greedy", "moving_average", "optimal")},
    "optimal_token": styled_run(OTHER_SAMPLER, advantage=Advantage("optimal_token")),
    "optimal_token, tries": styled_run(
        advantage=Advantage("optimal_token", whiten="tokens"), sampling=Sampling(tries=3), kl=KL("k1", 0.1, "reward")
    ),
    "value": styled_run(advantage=Advantage("value", whiten="tokens")),
}
