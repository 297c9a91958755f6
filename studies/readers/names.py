"""Translate metric names of other programs to rftlab's by one table.

Sources: verl (verl/trainer/ppo/metric_utils.py and core_algos.py), TRL (trl/trainer/grpo_trainer.py, 1.16), what slime,
NeMo-RL, tinker-cookbook and the trainers of `_OTHERS` log, and public logs of self-written loops. If a run has
several names for one metric, the first in the table is taken; the others keep their own names.
"""

import re
from typing import NamedTuple

RATES = re.compile(
    r"pass_at_\d+|format_rate|zero_signal_fraction|clip_fraction|best_at_\d+|maj_at_\d+|truncated_fraction"
)
"""Metrics of rftlab that lie between 0 and 1, so that values in per cent can be recognised."""
LONGEST_NAME = 300
SCORES = ("pass_at_1", "reward_mean", "format_rate", "response_length", "truncated_fraction")
"""Metrics that an evaluation may have; its other metrics keep the source's names."""


class Name(NamedTuple):
    """Name of a source's metric in rftlab's terms."""

    split: str
    metric: str
    task: str
    rank: float
    """Place in the table. Of two sources of one metric, the one with the lower rank is taken."""
    scale: float = 1.0
    """Factor from the source's values to rftlab's."""


_TEST = r"(?:eval|evaluation|test|val|valid|validation|heldout|held_out|dev)"
_SPLIT = re.compile(
    rf"(?P<test>{_TEST})(?:[/_.](?P<rest>.+))?|"
    r"(?:(?:actor|policy|actor_train|(?:ppo|grpo)_actor/update)/|(?:train|training|rollouts?|rl|grpo)[/_.])(?P<own>.+)",
    re.IGNORECASE,
)

_AVERAGE = re.compile(r"(?:avg|average|mean)_(?P<first>.+)|(?P<last>.+)[_/](?:avg|mean)", re.IGNORECASE)

_WORD = re.compile(rf"(?:(?P<test>{_TEST})|train|training|rollouts?)(?:/.*)?", re.IGNORECASE)

_VERL_TEST = (
    (r"val-core/(?P<task>.+)/acc/mean@\d+", "pass_at_1"),
    (r"val-core/(?P<task>.+)/reward/mean@\d+", "score"),
    (r"(?:val/)?test_score/(?P<task>.+)", "score"),
    (r"val-(?:core|aux)/(?P<task>.+)/acc/best@(?P<k>\d+)/mean", "best_at_{k}"),
    (r"val-(?:core|aux)/(?P<task>.+)/acc/maj@(?P<k>\d+)/mean", "maj_at_{k}"),
    (r"val-(?:core|aux)/(?P<task>.+)/reward/best@(?P<k>\d+)/mean", "best_at_{k}"),
    (r"val-(?:core|aux)/(?P<task>.+)/reward/maj@(?P<k>\d+)/mean", "maj_at_{k}"),
    (r"val-aux/(?P<task>.+)/acc/mean@\d+", "pass_at_1"),
    (r"val-aux/(?P<task>.+)/(?:reward|score)/mean@\d+", "reward_mean"),
)
"""verl's validation metrics. Its best@k is a bootstrap with replacement of the responses that there are, not the
unbiased pass@k, so it has a name of its own."""

_PODS = (
    (r"eval/(?P<task>[^/]+)/ans_acc", "pass_at_1"),
    (r"eval/(?P<task>[^/]+)/for_acc", "format_rate"),
    (r"eval/(?P<task>[^/]+)/lengths", "response_length"),
)
"""Metrics in PODS' results (YixuanEvenXu/pods), which rate the answer alone and the format alone."""

_TINKER = (
    (r"env/all/correct", "pass_at_1"),
    (r"env/all/reward/total", "reward_mean"),
    (r"env/all/format", "format_rate"),
    (r"env/all/ac_tokens_per_turn", "response_length"),
)
"""tinker-cookbook's means over all environments (rl/metric_util.py); the prefix test/ marks those of an evaluation. The
policy of step s is evaluated before it is trained."""

_BENCHMARKS = r"(?:aime|amc|gsm8k|math|olympiad(?:bench)?|minerva|gpqa|mmlu|countdown|humaneval|mbpp|livecodebench)"
_OTHERS_TEST = (
    (r"(?:eval/)?eval_(?P<task>.+)_pass1", "score"),
    (r"(?:eval/)?eval_(?P<task>.+)_pass(?P<k>\d+)", "pass_at_{k}"),
    (r"(?:eval/)?eval_(?P<task>.+)_response_length_mean", "response_length"),
    (r"(?:eval/)?eval_(?P<task>.+)_truncated_rate", "truncated_fraction"),
    (r"val_correct/(?P<task>.+)/mean", "pass_at_1"),
    (r"val_score/(?P<task>.+)/mean", "score"),
    (r"eval-rollout/reward(?:/avg)?", "score"),
    (r"val/accuracy_reward", "pass_at_1"),
    (r"val/format_reward", "format_rate"),
    (r"val/reward_score|val/overall_reward", "reward_mean"),
    (rf"{_TEST}[/_](?P<task>{_BENCHMARKS}[-_]?\d{{0,4}})", "score"),
)
"""Evaluations of OpenRLHF (openrlhf/trainer/ppo_trainer.py; pass1 is the mean reward), ROLL (roll/pipeline), AReaL,
EasyR1 (verl/trainer/ray_trainer.py), and slime, whose evaluations have the name of their set alone
(slime/observability)."""

_OTHERS = (
    (r"reward/avg_raw_reward", "reward_mean"),
    (r"reward/avg_pass_at_(?P<k>\d+)", "pass_at_{k}"),
    (r"generate/avg_num_tokens", "response_length"),
    (r"policy/policy_kl", "kl_ref"),
    (r"policy/policy_lr", "learning_rate"),
    (r"policy/raw_grad_norm", "grad_norm"),
    (r"policy/loss_metrics/clip_ratio|policy/ppo_clip_ratio", "clip_fraction"),
    (r"ppo_actor/task_reward/avg|grpo_actor/task_reward/avg|actor/rewards", "reward_mean"),
    (r"objective/verifiable_correct_rate|reward/accuracy", "pass_at_1"),
    (r"reward/format", "format_rate"),
    (
        r"objective/scores|rewards|reward/overall|response/raw_rewards/mean|reward/evaluate_response/avg_total_reward",
        "reward_mean",
    ),
    (r"val/sequence_lengths|actor/response_tok_len|tokens/response_length/mean", "response_length"),
    (r"rollout/truncated_ratio|ppo_actor/no_eos_ratios/avg|grpo_actor/no_eos_ratios/avg", "truncated_fraction"),
)
"""Training metrics of SkyRL (skyrl/train, skyrl/backends), AReaL (areal/trainer/ppo/actor.py), TRL's PPO and
open-instruct, whose val/ holds values of training (open_instruct/grpo_fast.py), oat (oat/actors), torchtune (bare
names), torchforge, EasyR1, xtuner and ROLL."""

_TRAIN = (
    (r"critic/score/mean|critic/rewards/mean", "score"),
    (r"actor/entropy|actor/entropy_loss", "entropy"),
    (r"actor/kl_loss|actor/reward_kl_penalty|critic/kl", "kl_ref"),
    (r"actor/lr\(1e-4\)", "learning_rate", 1e-4),
    (r"response_length/mean", "response_length"),
    (r"response_length/clip_ratio", "truncated_fraction"),
    (r"training/rollout_probs_diff_mean|rollout_probs_diff_mean", "rollout_probs_diff"),
    (r"perf/time_per_step|timing_s/step|timing/step|timing/train/total_step_time", "seconds"),
    (r"optim/entropy", "entropy"),
    (r"optim/lr", "learning_rate"),
)

_PLAIN = (
    (r"pass@1|pass_at_1|pass1", "pass_at_1"),
    (r"pass(?:@|_at_)(?P<k>\d+)", "pass_at_{k}"),
    (
        r"final_answer_accuracy|answer_accuracy|accuracy|acc|answer_acc|answer_rate|correct|solve_rate|success_rate|successes",
        "pass_at_1",
    ),
    (r"rewards/[^/]*(?:accuracy|correct)[^/]*(?:/mean)?", "pass_at_1"),
    (r"format_accuracy|format_rate|format_acc|format|fmt|rewards/[^/]*format[^/]*(?:/mean)?", "format_rate"),
    (r"rewards/(?P<reward>[^/]+)/mean", "reward/{reward}"),
    (r"(?:avg|mean)@\d+", "pass_at_1"),
    (r"raw_reward|reward|rewards/mean|rewards/score/mean|scores?", "reward_mean"),
    (r"total_rewards?(?:_mean|/mean)", "reward_mean"),
    (
        r"completions/mean_length|response_length|completion_length|response_token_length|response_len|resp_len|response_lengths"
        r"|mean_gen_tokens_per_sample|generation_length|mean_length|avg_len|mean_len|completion_len|response_tok_len"
        r"|sequence_lengths",
        "response_length",
    ),
    (r"completions/clipped_ratio|truncated_fraction|truncated", "truncated_fraction"),
    (r"entropy|token_entropy|policy_entropy|approx_entropy", "entropy"),
    (r"approx_kl|approxkl|ppo_kl|policy_kl|old_kl|approx_kl_old|approx_policy_kl", "kl"),
    (r"kl|kl_ref|reference_kl|ref_kl|kl_loss|kl_to_ref", "kl_ref"),
    (r"clip_ratio/region_mean|clip_fraction|clip_ratio|clipfrac|pg_clipfrac|clip_frac", "clip_fraction"),
    (
        r"frac_reward_zero_std|zero_signal_fraction|zero_std_fraction|frac_zero_std|degenerate_frac",
        "zero_signal_fraction",
    ),
    (r"grad_norm|gradient_norm", "grad_norm"),
    (r"learning_rate|lr", "learning_rate"),
    (r"_runtime|elapsed_seconds", "elapsed_seconds"),
    (r"step_time|total_step_time|step_seconds|time_per_step|seconds_per_step", "seconds"),
)
"""Names without the prefix of a split and without a word for an average. TRL's `kl` is the KL to the reference model,
and so is a bare `kl` of other trainers."""


def _rules(rows: tuple, first: int) -> list[tuple[re.Pattern, Name]]:
    """Return compiled rows, ranked from `first` on; alternatives of a pattern without groups rank in their order."""
    rules: list[tuple[re.Pattern, Name]] = []
    for pattern, metric, *scale in rows:
        simple = "(" not in pattern.replace(r"\(", "")
        for part in pattern.split("|") if simple else [pattern]:
            rules.append((re.compile(part, re.IGNORECASE), Name("", metric, "", first + len(rules), *scale)))
    return rules


_OF_TEST, _OF_TRAIN, _OF_EITHER = (
    _rules((*_VERL_TEST, *_PODS, *_OTHERS_TEST), 0),
    _rules((*_TRAIN, *_OTHERS), 1000),
    _rules((*_TINKER, *_PLAIN), 2000),
)

METRICS = tuple(sorted({name.metric for _, name in (*_OF_TEST, *_OF_TRAIN, *_OF_EITHER)} - {"score"}))
"""Names of rftlab's metrics; {k} stands for a number, {reward} for the name of one of several rewards."""


def is_metric(name: str) -> bool:
    """Whether a user's name, with or without its split, is a metric of rftlab."""
    alone = re.sub(r"^(?:test|train)\.", "", name)
    general = re.sub(r"^reward/.+", "reward/{reward}", re.sub(r"\d+$", "{k}", alone))
    return alone == "reward" or alone in METRICS or general in METRICS


def translate_metric(source: str) -> Name | None:
    """Return the name of a metric in rftlab's terms; None where the table lacks it. The metric "score" is Pass@1 or a
    mean reward, which its values decide later."""
    if len(source) > LONGEST_NAME:
        return None
    for rules, split in ((_OF_TEST, "test"), (_OF_TRAIN, "train")):
        if name := _look_up(rules, source, split):
            return name
    split, rest = _split(source)
    name = _look_up(_OF_EITHER, rest, split)
    if name is None and split == "test" and rest.count("/") == 1:  # <set>/<metric>, as in test/gsm8k/acc
        task, rest = rest.split("/")
        name = _look_up(_OF_EITHER, rest, split, task)
    if name and split == "test" and name.metric not in SCORES and not name.metric.startswith(("pass_at_", "reward/")):
        return None
    return name


def is_test_metric(source: str) -> bool:
    """Whether the name of a metric, in the table or not, says that it is of an evaluation."""
    source = source[:LONGEST_NAME]
    return _split(source)[0] == "test" or _look_up(_OF_TEST, source, "test") is not None


def split_of(text: str) -> str:
    """Return the split that a text beside numbers names, train or test; "" where it names none."""
    match = _WORD.fullmatch(text)
    return "" if match is None else "test" if match["test"] else "train"


def _look_up(rules: list[tuple[re.Pattern, Name]], text: str, split: str, task: str = "") -> Name | None:
    """Return the name in the first row whose pattern fits a text. Where none fits, the text is tried without a word for
    an average, and ranks lower."""
    for pattern, name in rules:
        if match := pattern.fullmatch(text):
            parts = match.groupdict()
            metric = name.metric.format(k=parts.get("k") or "", reward=parts.get("reward") or "")
            return name._replace(split=split, metric=metric, task=parts.get("task") or task)
    if rules is _OF_EITHER and (average := _AVERAGE.fullmatch(text)):
        plain_name = _look_up(rules, average["first"] or average["last"], split, task)
        return plain_name and plain_name._replace(rank=plain_name.rank + 0.5)
    return None


def _split(source: str) -> tuple[str, str]:
    """Return the split of a metric's name, and the name without it."""
    match = _SPLIT.fullmatch(source)
    if match and match["test"] and match["rest"]:
        return "test", match["rest"]
    return "train", match["own"] if match and match["own"] else source
