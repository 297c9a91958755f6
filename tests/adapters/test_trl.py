"""Our estimators inside TRL's trainer, which trains: `make test-trl`."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

if not find_spec("trl"):
    pytest.skip("needs trl: make test-trl", allow_module_level=True)

import torch
from trl.trainer.callbacks import TrainerCallback

from rftlab import UserError, objective_and_weights, preset
from rftlab.llm.training.update import add_gradient
from rftlab.shared.aggregation import shares
from rftlab.shared.config.surrogate import Cispo, Clip
from rftlab.shared.prepare import batch_from_advantages
from rftlab.studies.analysis.diagnose.alarms import FiredAlarm, alarms_so_far, watched_metrics
from rftlab.studies.integrations.alarms import watch_alarms
from rftlab.studies.readers import read_collection, read_logs
from tests.support.trainer.tiny_trl import GROUPS, K, KeepCurve, forward, seen_reward, trainer_of

pytestmark = pytest.mark.filterwarnings("default")


def gradient_by_our_trainer(estimator, update):
    """Of the objective that `rftlab train` follows, compiled, for the same responses and advantages."""
    logp, entropy, starts, columns = forward(update.model.train(), update.parts)
    old = columns.get("old_per_token_logps", logp.detach().double().numpy())
    sampler = columns.get("sampling_per_token_logps")
    sampler = sampler if sampler is None else np.where(np.isnan(sampler), old, sampler)
    batch = batch_from_advantages(
        estimator, columns["advantages"], starts, old, columns.get("ref_per_token_logps"), sampler_logp=sampler
    )
    weighed = objective_and_weights(estimator, batch, logp.detach().double().numpy())
    update.model.zero_grad()
    slopes = [weighed.weight, estimator.entropy * shares(estimator.aggregation, starts)]
    add_gradient([logp.double(), entropy.double()], slopes)
    return torch.cat([p.grad.flatten() for p in update.model.parameters() if p.grad is not None])


def largest_gap(estimator, updates):
    """Of all updates: the largest difference of gradients, by the largest gradient."""
    expected = [gradient_by_our_trainer(estimator, update) for update in updates]
    assert all(update.gradient.abs().max() > 1e-4 for update in updates)
    pairs = zip(updates, expected, strict=True)
    return max(float((update.gradient - own).abs().max() / own.abs().max()) for update, own in pairs)


WIDE = replace(preset("gspo"), surrogate=Clip(0.2, 0.2), entropy=0.01)
"""GSPO whose clip leaves something after an update as large as these."""
TRUNCATED = replace(preset("tis"), correction=replace(preset("tis").correction, high=1.02))


@pytest.mark.parametrize(
    "estimator", ["grpo", WIDE, "dapo", "reinforce_pp", TRUNCATED], ids=["grpo", "gspo", "dapo", "reinforce_pp", "tis"]
)
def test_gradients_are_those_of_our_trainer(tmp_path, estimator):
    """Of two updates on the same responses, so that ratios and the reference have moved; in two micro-batches."""
    trainer, watch = trainer_of(tmp_path, estimator, rows=K * GROUPS // 2, max_steps=2, num_iterations=2)
    trainer.train()
    known = preset(estimator) if isinstance(estimator, str) else estimator
    assert [len(update.parts) for update in watch.updates] == [2, 2]
    assert largest_gap(known, watch.updates) < 1e-5
    other = replace(known, surrogate=Cispo(1.0, 4.0), ratio=replace(known.ratio, level="token"))
    assert largest_gap(other, watch.updates) > 1e-3


def test_advantages_are_those_of_the_group_whatever_the_split(tmp_path):
    """By hand, and gradients of one micro-batch, of two and of four are one."""
    found = []
    for rows in (12, 6, 3):
        kept = []
        trainer, watch = trainer_of(tmp_path, "dapo", rows=rows, reward=seen_reward(kept), seed=3)
        trainer.train()
        found.append((kept, watch.updates[0]))
    rewards = np.array(found[0][0][0][1]).reshape(GROUPS, K)
    centred = rewards - rewards.mean(1, keepdims=True)
    by_hand = centred / (rewards.std(1, keepdims=True, ddof=1) + preset("dapo").advantage.eps)
    advantages = torch.cat([part["advantages"] for part in found[0][1].parts])
    assert np.abs(by_hand).max() > 0.1
    assert np.allclose(np.sort(advantages.numpy()), np.sort(by_hand.ravel()), atol=1e-6)
    for kept, update in found[1:]:
        assert kept == found[0][0]
        assert (update.gradient - found[0][1].gradient).abs().max() < 1e-6


def test_advantages_of_tokens_are_whitened_over_the_whole_batch(tmp_path):
    """REINFORCE++: rewards of 0 and 1, each token counts once."""
    trainer, watch = trainer_of(tmp_path, "reinforce_pp", rows=K * GROUPS // 2)
    trainer.train()
    parts = watch.updates[0].parts
    tokens = torch.cat(
        [a.repeat_interleave(n) for a, n in ((p["advantages"], p["completion_mask"].sum(1)) for p in parts)]
    )
    assert len(tokens) == parts[0]["rftlab_counts"][1] and len(tokens.round(decimals=6).unique()) == 2
    assert tokens.mean().abs() < 1e-6 and abs(tokens.std() - 1) < 1e-6


def test_each_of_several_rewards_has_its_own_advantage(tmp_path):
    """GDPO by hand: z-scores of each reward in its group, summed with weights, whitened over the batch's tokens."""
    kept, weights = [], (1.0, 0.25)

    def length(prompts, completions, **more):
        kept.append([30.0 * len(text.split()) for text in completions])
        return kept[-1]

    seen = []
    trainer, watch = trainer_of(tmp_path, "gdpo", reward=[seen_reward(seen), length], seed=3, reward_weights=weights)
    trainer.train()
    rewards = np.array([seen[0][1], kept[0]]).reshape(2, GROUPS, K)
    centred = rewards - rewards.mean(2, keepdims=True)
    scores = centred / (rewards.std(2, keepdims=True, ddof=1) + preset("gdpo").advantage.eps)
    by_hand = (np.array(weights)[:, None, None] * scores).sum(0).ravel()
    (part,) = watch.updates[0].parts
    tokens = part["completion_mask"].sum(1).numpy()
    whitened = part["advantages"].double().numpy()
    assert abs(whitened @ tokens) < 1e-5 and np.abs(by_hand).max() > 0.5
    slope, shift = np.polyfit(np.sort(by_hand), np.sort(whitened), 1)
    assert slope > 0 and np.allclose(np.sort(whitened), slope * np.sort(by_hand) + shift, atol=1e-5)
    summed = np.sort(((rewards * np.array(weights)[:, None, None]).sum(0) - 1).ravel())
    assert np.abs(np.sort(whitened) - np.polyval(np.polyfit(summed, np.sort(whitened), 1), summed)).max() > 0.05


def test_advantages_may_differ_from_token_to_token(tmp_path):
    """Rewards discounted from the end of a response, in gradients too."""
    card = preset("reinforce_pp")
    discounted = replace(card, advantage=replace(card.advantage, gamma=0.9, whiten="none"))
    trainer, watch = trainer_of(tmp_path, discounted, rows=K * GROUPS // 2)
    trainer.train()
    for part in watch.updates[0].parts:
        for advantage, n in zip(part["advantages"], part["completion_mask"].sum(1).tolist(), strict=True):
            reward = float(advantage[n - 1])
            assert reward in (0.0, 1.0)
            assert np.allclose(advantage[:n], reward * 0.9 ** np.arange(n)[::-1])
    assert largest_gap(discounted, watch.updates) < 1e-5


def advantages_of(update):
    """Of an update's responses, in the order of their size."""
    return np.sort(torch.cat([part["advantages"] for part in update.parts]).numpy())


def test_support_is_in_the_baseline_alone(tmp_path):
    kept = []
    trainer, watch = trainer_of(tmp_path, "dr_grpo", support=1, rows=K * GROUPS // 3, reward=seen_reward(kept))
    trainer.train()
    rewards = np.array(kept[0][1]).reshape(GROUPS, K)
    by_hand = rewards[:, :-1] - rewards.mean(1, keepdims=True)
    assert np.allclose(advantages_of(watch.updates[0]), np.sort(by_hand.ravel()), atol=1e-12)
    alone = rewards[:, :-1] - rewards[:, :-1].mean(1, keepdims=True)
    assert np.abs(alone - by_hand).max() > 0.05
    parts = watch.updates[0].parts
    assert [len(part["completion_ids"]) for part in parts] == [3, 3, 3]
    assert largest_gap(preset("dr_grpo"), watch.updates) < 1e-5


def test_a_window_holds_the_rewards_of_earlier_rounds(tmp_path):
    """By hand, over three rounds of the same prompts; and a run that goes on from a checkpoint has it too."""
    kept, found, size, names = [], [], 6, [f"{i} {i}" for i in range(GROUPS)]
    given = {"window": size, "prompts": names, "save_strategy": "steps", "save_steps": 2}
    trainer, watch = trainer_of(tmp_path, "dr_grpo", reward=seen_reward(kept), max_steps=3, **given)
    trainer.train()
    earlier = {name: [] for name in names}
    for prompts, rewards in kept:
        for place in range(0, len(prompts), K):
            held = earlier[prompts[place]]
            held += rewards[place : place + K]
            found.append(np.array(rewards[place : place + K]) - np.mean(held[-size:]))
    rounds = [np.sort(np.concatenate(found[i : i + GROUPS])) for i in range(0, len(found), GROUPS)]
    for update, by_hand in zip(watch.updates, rounds, strict=True):
        assert np.allclose(advantages_of(update), by_hand, atol=1e-12)
    assert {name: list(held) for name, held in trainer.windows.rewards.items()} == {
        name: held[-size:] for name, held in earlier.items()
    }
    later, again = trainer_of(tmp_path, "dr_grpo", max_steps=3, **given)
    later.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert np.allclose(advantages_of(again.updates[0]), rounds[2], atol=1e-12)
    place = tmp_path / "checkpoint-2" / "rftlab_windows.json"
    for text, message in (
        ('{"size": 5, "rewards": {}}', "window = 5; allowed: as in this run, 6"),
        ('{"size": 6, "rewards": {"a": "b"}}', "cannot be read"),
    ):
        place.write_text(text)
        with pytest.raises(UserError, match=message):
            later.windows.load(place)


def test_the_entropy_of_each_update_moves_the_bonus_of_the_next(tmp_path):
    """By hand, with two micro-batches an update; and a run that goes on from a checkpoint has its coefficient."""
    settings = {"max_steps": 4, "rows": K, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.03}
    estimator = replace(preset("adaptive_entropy"), entropy=0.02, entropy_step=0.01, entropy_target=1e-9)
    made, watch = trainer_of(tmp_path / "off", estimator, **settings)
    made.train()
    entropies = [float(forward(update.model.train(), update.parts).entropy.detach().mean()) for update in watch.updates]
    target = float(np.median(entropies))
    estimator = replace(estimator, entropy_target=target)
    made, watch = trainer_of(tmp_path / "on", estimator, **settings)
    made.train()
    coefficient, bonus, expected = 0.02, 0.0, []
    for update in watch.updates:
        assert largest_gap(replace(estimator, entropy=bonus, entropy_target=0.0), [update]) < 1e-5
        mean = float(forward(update.model.train(), update.parts).entropy.detach().mean())
        coefficient = min(1.0, max(0.0, coefficient + (0.01 if mean <= target else -0.01)))
        bonus = coefficient if mean <= target else 0.0
        expected.append((coefficient, bool(bonus)))
    seen = [row["entropy_coef"] for row in made.state.log_history if "entropy_coef" in row]
    np.testing.assert_allclose(seen, [coefficient for coefficient, _ in expected], atol=1e-12)
    assert {on for _, on in expected} == {True, False}
    steps = [row for row in made.state.log_history if "policy_loss" in row]
    costs = [3 * row["policy_loss"] - row["loss"] for row in steps]  # a metric is the mean of three micro-batches
    before = [0.0, *(coefficient * on for coefficient, on in expected[:-1])]
    np.testing.assert_allclose(costs, [c * row["entropy"] for c, row in zip(before, steps, strict=True)], atol=2e-4)
    later, _ = trainer_of(tmp_path / "on", estimator, **settings)
    later.train(resume_from_checkpoint=str(tmp_path / "on" / "checkpoint-2"))
    assert [row["entropy_coef"] for row in later.state.log_history if "entropy_coef" in row] == seen
    place = tmp_path / "on" / "checkpoint-2" / "rftlab_bonus.json"
    for text in ("[2.0, 1.0]", "[0.1]", "{}", "[NaN, 1.0]", "nothing"):
        place.write_text(text)
        with pytest.raises(UserError, match=r"cannot be read: .*; allowed: the entropy bonus of a checkpoint"):
            later._load_optimizer_and_scheduler(str(place.parent))


def test_a_response_that_nobody_scored_is_in_no_baseline(tmp_path):
    """As in TRL: where every reward function says None."""

    def some(completions, **more):
        return [None if place % K == 1 else float(place % K == 0) for place in range(len(completions))]

    trainer, watch = trainer_of(tmp_path, "dr_grpo", reward=some)
    trainer.train()
    by_hand = np.sort(np.tile([2 / 3, 0.0, -1 / 3, -1 / 3], GROUPS))
    assert np.allclose(advantages_of(watch.updates[0]), by_hand, atol=1e-6)


def test_the_run_is_kept_as_one_of_ours(tmp_path):
    """Mean rewards a round, and the design; the same that `rftlab import` finds in the last checkpoint."""
    kept, more = [], {"max_steps": 4, "num_iterations": 2, "save_strategy": "steps", "save_steps": 4, "support": 1}
    curve = KeepCurve("mine", tmp_path / "results")
    trainer, _ = trainer_of(tmp_path, "grpo", reward=seen_reward(kept), callbacks=[curve], **more)
    trainer.train()
    (run,) = read_collection(tmp_path / "results", "mine")
    known = run.design
    assert (known.prompts, known.rollouts, known.updates_per_round) == (GROUPS, K - 1, 2)
    assert (known.advantage, known.loss, known.kl_coefficient) == ("group_zscore", "Clip, seq_mean_token_mean", 0.04)
    rows = run.curves[run.curves["source"] == "rewards/even/mean"]
    assert rows["round"].tolist() == [1, 2]
    assert np.allclose(rows["value"], [np.mean(rewards) for _, rewards in kept], atol=1e-6)
    (read,) = read_logs([tmp_path / "checkpoint-4"])
    assert read.design == known and np.array_equal(read.curves["value"], run.curves["value"])
    with pytest.raises(UserError, match="holds another run; allowed: another name"):
        trainer_of(tmp_path, "grpo", callbacks=[curve])[0].train()
    with pytest.raises(UserError, match=r"name = '\.\./x'"):
        KeepCurve("../x")


def test_alarms_are_printed_once_and_logged_to_trackers(tmp_path, capsys):
    """Against those of the finished log."""
    seen = []

    class Tracker(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **more):
            seen.append(dict(logs))

    trainer, _ = trainer_of(tmp_path, "dr_grpo", max_steps=3)
    trainer.add_callback(Tracker())
    watch = watch_alarms(trainer)
    trainer.train()
    assert [row["rftlab/alarms"] for row in seen if "completions/mean_length" in row] == [0, 0, 0]
    for step in range(4, 20):  # responses that lose nine tenths of their length
        trainer.state.global_step = step
        trainer.log({"completions/mean_length": 300.0 if step <= 12 else 0.1})
    text = capsys.readouterr().out
    assert text.count("rftlab: alarm: short responses") == 1 and "public runs: fired on" in text
    assert seen[-1]["rftlab/alarms"] == len(watch.told) >= 1
    rows = [metrics for row in seen if (metrics := watched_metrics(row))]
    assert {one.rule.kind for one in alarms_so_far(rows) if isinstance(one, FiredAlarm)} == watch.told


def test_alarms_see_updates_of_a_round_as_one_row(tmp_path):
    trainer, _ = trainer_of(tmp_path, "dr_grpo", num_iterations=2)
    watch = watch_alarms(trainer)
    for step, entropy in ((1, 1.0), (2, 3.0), (3, 5.0)):
        trainer.state.global_step = step
        trainer.log({"entropy": entropy})
    assert [(row["round"], row["entropy"]) for row in watch.rounds] == [(1, 2.0), (2, 5.0)]


@pytest.mark.parametrize(
    ("name", "said", "message"),
    [
        ("gspo", {"loss_type": "dr_grpo"}, "loss_type='dr_grpo'.: the estimator decides"),
        ("gspo", {"scale_rewards": "none"}, "scale_rewards='none'.: the estimator decides"),
        ("gspo", {"beta": 0.1}, "coefficient 0; allowed: beta=0.0"),
        ("grpo", {"beta": 0.1}, "coefficient 0.04; allowed: beta=0.0"),
        ("gspo", {"support": 4}, "support = 4 of num_generations = 4"),
        ("gspo", {"support": 1, "rows": 6}, "3 of each 4 go into 2 micro-batches"),
        ("gspo", {"support": -1}, "support = -1"),
        ("gspo", {"window": 3}, "window = 3; allowed: 0, or at least 4"),
        ("gspo", {"accumulate": 2}, "gradient_accumulation_steps = 2; the second must divide"),
        ("remax", {}, "no baseline of kind greedy"),
        ("ppo", {}, "no baseline of kind value"),
        ("kl_cov", {"rows": 6}, "KLCov compares the tokens of an optimiser batch, and 2 parts"),
        (7, {}, "estimator = 7; allowed: a name"),
        ("grop", {}, "grop"),
    ],
)
def test_what_contradicts_the_estimator(tmp_path, name, said, message):
    with pytest.raises(UserError, match=message):
        trainer_of(tmp_path, name, **said)
