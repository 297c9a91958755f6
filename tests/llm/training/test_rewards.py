"""A user's rewards: what they get, what is trained on, and what is said of those that misbehave."""

import itertools
import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rftlab import Advantage, Estimator, Length, Sampling, UserError
from rftlab.llm.rewards.call import OutOfTime, RewardBatch, RewardCaller, within
from rftlab.llm.rewards.load import NamedReward, asked_for, function_at, loaded
from rftlab.llm.train import TrainingCallbacks, train
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.custom.identity import source_sha256
from rftlab.shared.memory import difficulty_within, estimated_pass_rate
from rftlab.studies.cli.trained import parse_train
from tests.support.trainer import own_rewards as mine
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of, same  # noqa: F401


def records(folder):
    return pd.concat(pd.read_parquet(path) for path in sorted((folder / "rollouts").iterdir()))


def asked(texts=("1 2", "a", "33", "b"), prompts=("p", "q"), rows=({}, {}), truths=("5", "77")):
    group = np.repeat(np.arange(len(prompts)), len(texts) // len(prompts))
    return RewardBatch("round 3", (40, 41), prompts, truths, rows, group, texts, [[9] * len(text) for text in texts])


def called(function, batch=None, seconds=5.0, remark=lambda text: None, columns=()):
    caller = RewardCaller(loaded(function), columns, seconds, lambda token: str(token), remark)
    return caller(batch or asked())


def test_several_rewards_are_weighed_and_recorded(tmp_path):
    run = run_of(rounds=2, eval_every=2, support_rollouts=1)
    outcome = train(run, tmp_path, reward=[mine.digits, mine.short], reward_weights=[1.0, 0.1])
    table = records(tmp_path)
    assert table.reward_digits.tolist() == mine.digits(table.text)
    assert (table.reward_short == -table.text.str.len()).all()
    scored = table[table.role.isin(["trained", "support"])]
    np.testing.assert_allclose(scored.reward, scored.reward_digits + 0.1 * scored.reward_short, atol=1e-12)
    trained = table[table.role == "trained"]
    last = outcome.metrics.iloc[-1]
    assert outcome.curve.reward[1] == pytest.approx(trained.reward.mean())
    assert last.reward_digits == pytest.approx(trained.reward_digits.mean())
    assert {"train_reward", "test_reward_short", "test_greedy_reward", "test_strict"} <= set(outcome.metrics)
    assert trained.reward.nunique() > 5 and 0 <= outcome.curve.test_pass_at_1[1] <= 1, "Pass@1 is the verifier's"


def test_each_of_several_rewards_may_have_an_advantage(tmp_path):
    """GDPO: z-scores of each reward in its group, their weighted sum, whitened over the round's responses."""
    spec = Advantage("group_mean", "group_std", whiten="responses", combine="advantages")
    run, weights = run_of(rounds=2, eval_every=2, rollouts=4, estimator=Estimator(spec)), (1.0, 0.5)
    train(run, tmp_path, reward=[mine.digits, mine.short], reward_weights=weights)
    table = records(tmp_path)
    for _, own in table[table.role == "trained"].groupby("round"):
        total = np.zeros(len(own))
        for weight, name in zip(weights, ("reward_digits", "reward_short"), strict=True):
            group = own.groupby("prompt")[name]
            total += weight * ((own[name] - group.transform("mean")) / (group.transform("std") + 1e-6)).to_numpy()
        expected = (total - total.mean()) / (total.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(own.advantage, expected, atol=1e-9)
        assert np.abs(own.advantage).max() > 0.1


DESIGNS = {
    "dynamic": {"sampling": Sampling(tries=3)},
    "difficulty": {"sampling": Sampling(budget="difficulty")},
    "moving average": {"estimator": Estimator(Advantage("moving_average"))},
    "greedy": {"estimator": Estimator(Advantage("greedy"))},
    "window": {"replay_window": 3, "rollouts": 1},
}


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_rewards_of_any_size_and_sign_go_through_every_choice(design, tmp_path):
    outcome = train(run_of(**{"rounds": 4, "eval_every": 2} | design), tmp_path, reward=mine.near)
    table = records(tmp_path)
    trained = table[table.role == "trained"]
    assert outcome.diverged_at is None and trained.reward.min() < -1 and (trained.reward == trained.reward_near).all()
    assert np.isfinite(trained.advantage).all() and trained.advantage.abs().max() > 0
    for _, group in table[table.role == "dropped"].groupby(["round", "prompt"]):
        assert group.reward_near.nunique() == 1, "only groups of equal rewards are replaced"


def test_rewards_of_tokens_reach_the_advantages(tmp_path):
    """By tokens each has the sum of the rewards from it on; by responses the sum of all is the reward."""
    by_token = Estimator(Advantage("none", gamma=0.5), Reinforce())
    for name, estimator in (("by token", by_token), ("by response", Estimator(Advantage("group_mean")))):
        run, reward = run_of(rounds=1, eval_every=1, estimator=estimator), {"s": mine.steps, "d": mine.digits}
        train(run, tmp_path / name, reward=reward)
    table = records(tmp_path / "by response")
    np.testing.assert_allclose(table.reward, table.reward_s + table.reward_d)
    means = table.groupby(["round", "prompt"]).reward.transform("mean")
    np.testing.assert_allclose(table.advantage, table.reward - means, atol=1e-12)
    table = records(tmp_path / "by token")
    first = []
    for row in table.itertuples():
        own = np.array([float(3 <= token <= 12) - (token <= 2) for token in row.tokens])
        own[-1] += row.reward_d
        first.append((own * 0.5 ** np.arange(len(own))).sum())
    np.testing.assert_allclose(table.advantage, first)


def test_a_killed_run_goes_on_and_ends_as_one_that_was_not(tmp_path):
    run, reward = run_of(rounds=8, sampling=Sampling(budget="difficulty")), {"reward": mine.near}
    whole = train(run, tmp_path / "whole", **reward)
    killed_at(run, tmp_path / "cut", 6, **reward)
    assert same(train(run, tmp_path / "cut", **reward), whole)


def test_a_folder_never_gives_the_curve_of_another_reward(tmp_path):
    run = run_of(rounds=2, eval_every=2)
    train(run, tmp_path, reward=mine.digits)
    config = json.loads((tmp_path / "config.json").read_bytes())
    assert config["rewards"] == {"digits": {"sha256": source_sha256(mine.digits), "weight": 1.0}}
    for other in ({"reward": {"digits": mine.near}}, {"reward": mine.digits, "reward_weights": [2]}, {}):
        with pytest.raises(UserError, match=r"belongs to another configuration: rewards\.digits"):
            train(run, tmp_path, **other)
    with pytest.raises(UserError, match="the run has rewards and train got none"):
        train(run_of(rewards=(NamedReward("digits", "0"),)), tmp_path)
    with pytest.raises(UserError, match="run is a str; allowed: an LLMRun"):
        train("tiny-mix97", tmp_path)
    with pytest.raises(UserError, match="folder is a NoneType; allowed: a path"):
        train(run_of(), None)


def test_parameters_are_filled_by_name():
    got = {}

    def reward(responses, truths, completions, level, *, prompts, unused=7, **others):
        got.update(locals())
        return [1.0] * len(responses)

    chats = ([{"role": "user", "content": "p"}], "q")
    batch = asked(prompts=chats, rows=({"level": 1, "prompts": "x"}, {"level": [2]}))
    called(reward, batch, columns=("level", "prompts"))
    assert got["truths"] == ["5", "5", "77", "77"] and got["level"] == [1, 1, [2], [2]] and got["unused"] == 7
    assert got["completions"] == [[{"role": "assistant", "content": text}] for text in ("1 2", "a")] + ["33", "b"]
    assert got["prompts"] == [chats[0], chats[0], "q", "q"] and got["others"].keys() == {"completion_ids"}
    assert asked_for("steps", mine.steps, ()) == ("pieces",)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("reward", "reward = 'reward'; allowed: FILE.py:FUNCTION or MODULE:FUNCTION"),
        ("none.py:f", "reward = 'none.py' is no file"),
        ("no_such_module_at_all:f", "no_such_module_at_all does not load: ModuleNotFoundError"),
        ("tests.support.trainer.own_rewards:absent", "has no absent; allowed: digits, count, short"),
        ("{}/broken.py:f", r"broken.py does not load: ZeroDivisionError"),
        ("{}/exits.py:f", r"exits.py does not load: SystemExit: 4"),
        ("{}/stops.py:f", r"stops.py does not load: GeneratorExit: 5"),
    ],
)
def test_a_place_that_has_no_function_is_one_line(place, message, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "exits.py").write_text("raise SystemExit(4)")
    (tmp_path / "stops.py").write_text("import os\nos.chdir('/')\nraise GeneratorExit(5)")
    before = os.getcwd()
    with pytest.raises(UserError, match=message):
        function_at(place.format(tmp_path))
    assert os.getcwd() == before


@pytest.mark.parametrize(
    ("given", "weights", "message"),
    [
        ([mine.digits], [1, 2], "2 reward weights for 1 rewards"),
        ([], None, "reward names no function"),
        ([mine.digits, mine.digits], None, "two rewards are called digits"),
        (lambda responses: [0], None, "reward name '<lambda>'; allowed: up to 40 letters"),
        ({"strict": mine.digits}, None, "reward name 'strict'"),
        ({"a": 3}, None, "reward a: int; allowed: a function"),
        ([mine.digits], [float("nan")], "weight of the reward digits = nan"),
    ],
)
def test_what_is_handed_over_is_checked(given, weights, message):
    with pytest.raises(UserError, match=message):
        loaded(given, weights)


WRONG = {
    "nan": (lambda truths: [np.nan if truth == "77" else 0.0 for truth in truths], "prompt 41: it returned float nan"),
    "words": (lambda responses: ["good" for _ in responses], "prompt 40: it returned str 'good'"),
    "too_few": (lambda responses: [1.0], "prompts 40, 41: it returned 1 values for 4 responses"),
    "nothing": (lambda responses: None, "prompts 40, 41: it returned NoneType"),
    "no_number": (lambda responses: [None] * len(responses), "prompt 40: it returned NoneType"),
    "raises": (
        lambda responses: [1 / (response != responses[0]) for response in responses],
        "prompt 40: ZeroDivisionError: division by zero",
    ),
    "leaves": (lambda responses: sys.exit(3), "prompt 40: SystemExit: 3"),
    "cancelled": (mine.cancelled, "prompt 40: CancelledError: gone"),
    "sleeps": (mine.sleeps, "prompts 40, 41; allowed: less"),
    "spins": (lambda responses: [bool(re.fullmatch(r"(a|a?)+b", "a" * 60))], "prompts 40, 41; allowed: less"),
    "changes": (
        lambda truths: truths.__setitem__(-1, "42") or [0.0] * len(truths),
        "prompt 41: it changed its input truths",
    ),
    "mixed": (lambda truths: [0.0, [1.0], *[0.0] * (len(truths) - 2)], "prompt 40: it returned list beside numbers"),
    "wrong_tokens": (
        lambda completion_ids: [[0.0] * (len(ids) + (i == 3)) for i, ids in enumerate(completion_ids)],
        "prompt 41: it returned 2 numbers for a response of 1 tokens",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_reward_that_misbehaves_is_named_with_round_and_group(name):
    function, message = WRONG[name]
    late = r": no answer after 0\.2 s for the 4 responses of the groups of "
    with pytest.raises(UserError, match=rf"^reward {name}, round 3(, the groups? of |{late}){re.escape(message)}"):
        called({name: function}, seconds=0.2 if name in ("sleeps", "spins") else 60)


def test_a_column_that_is_not_there_is_named_before_training(tmp_path):
    with pytest.raises(UserError, match="reward wants_more asks for difficulty; allowed: responses, truths, prompts"):
        train(run_of(), tmp_path, reward={"wants_more": lambda responses, difficulty: [0.0]})


def test_what_a_reward_sets_for_itself_does_not_reach_the_run(tmp_path, monkeypatch):
    """A run in a folder that is named from here is written here, and learns."""
    monkeypatch.chdir(tmp_path)
    run = run_of(rounds=2, eval_every=2)
    found = [train(run, Path(name), reward={"digits": getattr(mine, name)}) for name in ("digits", "moves")]
    assert Path.cwd() == tmp_path and torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
    assert same(*found) and (tmp_path / "moves" / "curve.parquet").is_file()
    with torch.no_grad():  # as a file that turns gradients off when it is read
        assert same(train(run, Path("again"), reward=mine.digits), found[0])


def test_a_reward_that_catches_every_interrupt_is_given_up(monkeypatch):
    said, heard = [], threading.Event()

    def stubborn():
        while not heard.is_set():
            try:
                heard.wait(5)
            except BaseException:
                continue
        return 3

    monkeypatch.setattr("rftlab.llm.rewards.call.AGAIN", 0.01)
    monkeypatch.setattr("rftlab.llm.rewards.call.STUBBORN", 3)
    monkeypatch.setattr("rftlab.shared.custom.slow._do", lambda line: [said.append(line), heard.set()])
    with pytest.raises(OutOfTime):
        within(0.05, stubborn, "reward stubborn")
    assert said == ["reward stubborn: no answer after 0.05 s, and it catches every interrupt"]


def test_a_run_stops_resumable(tmp_path):
    run, broken = run_of(rounds=8, greedy=False), []

    def sometimes(responses):
        if broken and len(responses) == 24:
            raise ValueError("service\x1b[2J down")
        return mine.digits(responses)

    def broke(done):
        if done == 6 and not broken:
            broken.append(1)

    reward = {"reward": {"digits": sometimes}}
    with pytest.raises(
        UserError, match=r"^reward digits, round 7, the groups? of prompts? .*ValueError: service\\x1b\[2J"
    ):
        train(run, tmp_path / "run", TrainingCallbacks(rounds=broke), **reward)
    broken[:] = []
    assert same(train(run, tmp_path / "run", **reward), train(run, tmp_path / "whole", **reward))


def test_a_reward_that_depends_on_the_time_is_named_once(tmp_path):
    said, ticks = [], itertools.count()
    drifts = {"drifts": lambda responses: [float(next(ticks)) for _ in responses]}
    train(run_of(rounds=4, eval_every=2), tmp_path, TrainingCallbacks(remark=said.append), reward=drifts)
    assert len(said) == 1 and said[0].startswith("reward drifts: asked twice about a response in the group of prompt ")
    assert "of the evaluation after round 0" in said[0] and "time, on randomness or on earlier calls" in said[0]
    said.clear()
    slow = iter([0.0] * 4 + [1.0] * 2)
    caller = RewardCaller(
        loaded({"later": lambda responses: [next(slow)] * len(responses)}), (), 5.0, lambda token: "", said.append
    )
    caller(asked())
    assert said == []
    caller.repeat()
    caller.repeat()
    assert len(said) == 1 and "it says 0 and 1" in said[0], "what changes between evaluations is found at the next"


def test_a_limit_holds_in_a_thread_and_leaves_no_alarm():
    def late_and_in_time():
        with pytest.raises(OutOfTime):
            within(0.05, threading.Event().wait)
        return within(5, lambda: 3)

    with ThreadPoolExecutor(1) as threads:
        assert late_and_in_time() == threads.submit(late_and_in_time).result() == 3
    with pytest.raises(KeyError):
        within(0.05, lambda: {}["x"])
    assert not threading.Event().wait(0.7), "no alarm rings afterwards"


def test_difficulty_of_rewards_in_any_range():
    sums = np.array([[3.0, 4.0], [-2.0, 4.0], [0.0, 0.0]])
    assert difficulty_within(sums, 0, 0.0, 1.0) == estimated_pass_rate(sums, 0) == 4 / 6
    assert difficulty_within(sums, 1, -1.0, 1.0) == (1 + 1) / 6 and difficulty_within(sums, 2, -5.0, 9.0) == 0.5
    moved = sums * [[10.0, 1.0]] - 7.0 * sums[:, 1:] * [[1.0, 0.0]]
    for i in range(3):
        assert difficulty_within(moved, i, -7.0, 3.0) == pytest.approx(estimated_pass_rate(sums, i))


def test_a_length_penalty_that_cannot_act_says_so(tmp_path):
    def of(limit, coef=0.5):
        penalty = Estimator(length=Length(coef, limit=limit, buffer=8))
        return run_of(estimator=penalty, rounds=1, eval_every=1)

    said = []
    train(of(20), tmp_path, TrainingCallbacks(remark=said.append))
    assert any(text.startswith("the length penalty never acts: it begins beyond 12 tokens") for text in said)
    assert not of(19).idle_penalty and not of(20, 0.0).idle_penalty


def test_the_command_takes_functions_by_place(tmp_path):
    command = parse_train(["--reward", "a.py:f", "b:g", "--reward-weights", "1", "0.5", "--reward-timeout", "3"])
    assert command.reward == ("a.py:f", "b:g") and command.run.reward_timeout == 3
    command = parse_train(["--reward", "tests.support.trainer.own_rewards:digits"])
    assert command.given() == {"reward": [mine.digits], "reward_weights": [1.0]} and parse_train([]).given() == {}
    with pytest.raises(UserError, match="--reward-weights without --reward"):
        parse_train(["--reward-weights", "1"]).given()
