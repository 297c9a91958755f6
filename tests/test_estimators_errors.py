"""Bad input: every message of shared/ names what is wrong, its value and what is allowed."""

import ast
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shared import errors
from shared.advantage import Pool
from shared.design import Design
from shared.errors import UserError
from shared.estimator import KL, Advantage, Aggregation, Estimator, Surrogate, rule_of
from shared.presets import preset
from shared.weigh import Batch
from tests.vectors import REAL, no_kl

ZEROS, ONES, STARTS, GROUP = np.zeros(3), np.ones(3), np.arange(4), np.zeros(3, dtype=np.int64)
PLAIN, WITH_KL = no_kl(Advantage("group_mean")), Estimator(kl=KL("k3"))
POOL = Pool(ONES, np.array([0, 3]))
BATCH = Batch(ONES, ONES, ZEROS, ZEROS, ZEROS)


def advantages(group=GROUP, pool: Pool = POOL, **spec) -> np.ndarray:
    return REAL.advantages(rule_of(no_kl(Advantage("group_mean", **spec))), ONES, np.asarray(group), pool)


def prepare(estimator: Estimator = PLAIN, starts=STARTS, old_logp=ZEROS, **rest) -> Batch:
    return REAL.prepare(estimator, ONES, GROUP, starts, old_logp, **rest)


def shaped(starts=STARTS, old_logp=ZEROS, ref_logp=ZEROS) -> np.ndarray:
    return REAL.shaped_rewards(Estimator(kl=KL("k1", 0.1, "reward")), ONES, starts, old_logp, ref_logp)


CALLS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    # estimator
    "advantage.kind": (lambda: Advantage("z"), ("advantage.kind", "'z'", "reward, group_mean, group_zscore, leave_one_out, batch_mean")),
    "advantage.singleton": (lambda: Advantage(singleton="one"), ("advantage.singleton", "'one'", "raw, zero, error")),
    "advantage.ddof": (lambda: Advantage(ddof=2), ("advantage.ddof", "2", "0, 1")),
    "advantage.eps": (lambda: Advantage(eps=-0.5), ("advantage.eps", "-0.5", "0 or more")),
    "advantage.eps nan": (lambda: Advantage(eps=float("nan")), ("advantage.eps", "nan", "0 or more")),
    "surrogate.kind": (lambda: Surrogate("ppo"), ("surrogate.kind", "'ppo'", "reinforce, clip")),
    "surrogate.low": (lambda: Surrogate(low=1.5), ("surrogate.low", "1.5", "0 to 1")),
    "surrogate.low negative": (lambda: Surrogate(low=-0.1), ("surrogate.low", "-0.1", "0 to 1")),
    "surrogate.high": (lambda: Surrogate(high=-0.2), ("surrogate.high", "-0.2", "0 or more")),
    "surrogate.dual": (lambda: Surrogate(dual=1.0), ("surrogate.dual", "1.0", "None or more than 1")),
    "kl.kind": (lambda: KL("k4"), ("kl.kind", "'k4'", "none, k1, k2, k3, abs")),
    "kl.place": (lambda: KL(place="grad"), ("kl.place", "'grad'", "loss, reward")),
    "kl.coef": (lambda: KL(coef=-1.0), ("kl.coef", "-1.0", "0 or more")),
    "aggregation.kind": (lambda: Aggregation("mean"), ("aggregation.kind", "'mean'", "token_mean, token_sum, seq_mean_token_sum, seq_mean_token_mean")),
    "aggregation.empty": (lambda: Aggregation(empty="drop"), ("aggregation.empty", "'drop'", "skip, count")),
    "aggregation.length of a mean": (lambda: Aggregation("token_mean", length=7.0), ("aggregation.length", "7.0", "None", "token_mean")),
    "aggregation.length": (lambda: Aggregation("token_sum", length=0), ("aggregation.length", "0", "None or more than 0")),
    "aggregation.eps": (lambda: Aggregation(eps=-1e-8), ("aggregation.eps", "-1e-08", "0 or more")),
    "estimator": (lambda: preset("ppo"), ("estimator", "'ppo'", "minimalist, grpo, dr_grpo, rloo")),
    # design
    "batch_size": (lambda: Design(batch_size=0), ("batch_size", "0", "1 or more")),
    "support_rollouts": (lambda: Design(support_rollouts=-1), ("support_rollouts", "-1", "0 or more")),
    "replay_window": (lambda: Design(rollouts=4, replay_window=3), ("replay_window", "3", "0, or at least rollouts = 4")),
    "lonely group": (
        lambda: Design(estimator=Estimator(Advantage(singleton="error"))),
        ("rollouts + support_rollouts", "1", "2 or more", "singleton"),
    ),
    "eval_every": (lambda: Design(rounds=100, eval_every=30), ("eval_every", "30", "divide rounds = 100")),
    "minibatches": (lambda: Design(batch_size=32, minibatches=5), ("minibatches", "5", "divide batch_size = 32")),
    # baseline sets
    "pool_of: shapes": (lambda: REAL.pool_of(1, (ONES, GROUP[:2])), ("rewards (3,)", "group (2,)", "one entry per response")),
    "pool_of: shapes that add up": (lambda: REAL.pool_of(1, (ONES, GROUP[:2]), (ONES[:2], GROUP)), ("rewards (3,)", "group (2,)", "one entry per response")),
    "pool_of: labels": (lambda: REAL.pool_of(2, (ONES, [0, 2, 1])), ("group", "2", "0 .. 1")),
    "pool_of: negative label": (lambda: REAL.pool_of(2, (ONES, [0, -1, 1])), ("group", "-1", "0 .. 1")),
    "advantages: shapes": (lambda: advantages(group=GROUP[:2]), ("rewards (3,)", "group (2,)", "one entry per response")),
    "advantages: labels": (lambda: advantages(group=[0, 0, 5]), ("group", "5", "0 .. 0")),
    "advantages: empty": (lambda: advantages(group=[0, 1, 0], pool=Pool(ONES, np.array([0, 3, 3]))), ("group 1", "empty", "1 reward or more")),
    "advantages: one reward": (
        lambda: advantages(group=[0, 1, 0], pool=Pool(ONES, np.array([0, 2, 3])), singleton="error"),
        ("group 1", "one reward", "two", "advantage.singleton", "raw, zero"),
    ),
    # windows
    "window size": (lambda: REAL.empty_windows(2, 0), ("window size", "0", "1 or more")),
    "push: shapes": (lambda: REAL.push(REAL.empty_windows(2, 1), [0, 1], [1.0]), ("contexts (2,)", "rewards (1,)", "one entry per reward")),
    "push: labels": (lambda: REAL.push(REAL.empty_windows(2, 1), [0, 2], [1.0, 1.0]), ("contexts", "2", "0 .. 1")),
    "window_pool: labels": (lambda: REAL.window_pool(REAL.empty_windows(2, 1), [-1]), ("contexts", "-1", "0 .. 1")),
    # aggregation, prepare and weigh
    "shares: start": (lambda: REAL.shares(rule_of(PLAIN), [1, 2]), ("starts", "[1 2]", "begin at 0 and never fall")),
    "shares: order": (lambda: REAL.shares(rule_of(PLAIN), [0, 2, 1]), ("starts", "[0 2 1]", "begin at 0 and never fall")),
    "shares: nothing": (lambda: REAL.shares(rule_of(PLAIN), []), ("starts", "[]", "begin at 0 and never fall")),
    "prepare: starts": (lambda: prepare(starts=STARTS[:3]), ("starts (3,)", "rewards (3,)", "one entry more")),
    "prepare: old_logp": (lambda: prepare(old_logp=np.zeros(4)), ("old_logp (4,)", "one entry per token (3,)")),
    "prepare: order": (lambda: prepare(starts=[0, 2, 1, 3]), ("starts", "[0 2 1 3]", "begin at 0 and never fall")),
    "prepare: correction": (lambda: prepare(correction=np.ones(1)), ("correction (1,)", "one entry per token (3,)")),
    "prepare: n_tokens": (lambda: prepare(n_tokens=0), ("n_tokens", "0", "more than 0")),
    "prepare: n_rows": (lambda: prepare(n_rows=-1), ("n_rows", "-1", "more than 0")),
    "freeze: advantage": (lambda: REAL.freeze(rule_of(PLAIN), np.ones(4), STARTS, ZEROS), ("advantage (4,)", "one entry per token (3,)")),
    "shaped_rewards: starts": (lambda: shaped(starts=STARTS[:3]), ("starts (3,)", "rewards (3,)", "one entry more")),
    "shaped_rewards: order": (lambda: shaped(starts=[0, 2, 1, 3]), ("starts", "[0 2 1 3]", "begin at 0 and never fall")),
    "shaped_rewards: old_logp": (lambda: shaped(old_logp=np.zeros(2)), ("old_logp (2,)", "one entry per token (3,)")),
    "shaped_rewards: ref_logp": (lambda: shaped(ref_logp=np.zeros(2)), ("ref_logp (2,)", "one entry per token (3,)")),
    "prepare: ref_logp": (lambda: prepare(WITH_KL, ref_logp=np.zeros(2)), ("ref_logp (2,)", "one entry per token (3,)")),
    "prepare: no ref_logp": (lambda: prepare(WITH_KL), ("KL penalty", "needs ref_logp")),
    "shaped_rewards: no ref_logp": (
        lambda: shaped(ref_logp=None),
        ("KL penalty", "needs ref_logp"),
    ),
    "weigh: logp": (lambda: REAL.weigh(PLAIN, BATCH, np.zeros(2)), ("logp (2,)", "one entry per token (3,)")),
}


@pytest.mark.parametrize("name", CALLS)
def test_message(name):
    call, parts = CALLS[name]
    with pytest.raises(UserError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value), f"{part!r} is missing in: {caught.value}"


def places() -> set[tuple[str, int, int]]:
    """(file, first line, last line) of everything in shared/ that may raise a UserError."""
    found = set()
    for path in sorted(Path(errors.__file__).parent.glob("*.py")):
        if path.name != "errors.py":
            for node in ast.walk(ast.parse(path.read_text())):
                called = node.exc if isinstance(node, ast.Raise) else node
                if isinstance(called, ast.Call) and getattr(called.func, "id", "") in ("UserError", "check", "check_choice", "check_labels"):
                    found.add((path.name, called.lineno, called.end_lineno))
    return found


def test_every_place_has_a_test():
    """A new check in shared/ needs a line in `CALLS`."""
    reached = set()
    for call, _ in CALLS.values():
        try:
            call()
        except UserError as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent.name == "shared"]
            last = [frame for frame in frames if not frame.filename.endswith("errors.py")][-1]
            reached |= {place for place in places() if place[0] == Path(last.filename).name and place[1] <= last.lineno <= place[2]}
    assert places() - reached == set()


def test_good_input_passes():
    """The limits themselves are allowed."""
    Advantage(eps=0.0), Surrogate(low=0.0, high=0.0), Surrogate(low=1.0, high=float("inf"), dual=1.0001), KL(coef=0.0), Aggregation(eps=0.0)
    Design(rollouts=4, replay_window=4, rounds=100, eval_every=100, batch_size=4, minibatches=4)
    assert advantages(group=[0, 1, 0], pool=Pool(ONES, np.array([0, 2, 3])), singleton="zero").tolist() == [0.0, 0.0, 0.0]
    support_alone = Pool(ONES, np.array([0, 2, 3]))
    assert advantages(pool=support_alone, singleton="error").tolist() == [0.0, 0.0, 0.0]
    assert REAL.weigh(PLAIN, prepare(), ZEROS).weight.tolist() == [0.0, 0.0, 0.0]
