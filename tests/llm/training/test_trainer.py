"""The trainer's rounds, through its entry point: learning, metrics, and every choice of a design."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import rftlab.llm.training.trainer
from rftlab import KL, Advantage, Aggregation, Correction, Design, Length, Ratio, Sampling, TaskConfig, preset
from rftlab.llm.config import AdamW, Compute, Evaluation, LLMRun, LoRA, Model, Tiny, model_config
from rftlab.llm.engines.rollouts import Rollouts
from rftlab.llm.policy.packing import Responses
from rftlab.llm.train import TrainingCallbacks, train
from rftlab.llm.training.samples import Samples, baseline_sets, with_signal
from rftlab.shared.config.mask import ClipCov, Divergence, TopEntropy
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError
from tests.support.naive import estimators as naive
from tests.support.trainer.tiny_runs import one_cache, run_of, same, weights_of  # noqa: F401

LONG = Length(0.5, limit=10, buffer=8)
PENALTIES = Estimator(kl=KL("k1", 0.1, place="reward"), length=LONG)
SEQUENCES = Estimator(ratio=Ratio("sequence"), aggregation=Aggregation("seq_mean_token_mean"))
DESIGNS = {
    "raw": {"rollouts": 1, "estimator": Estimator(Advantage("none"), Reinforce())},
    "support": {"rollouts": 1, "support_rollouts": 3},
    "window": {"rollouts": 1, "replay_window": 3},
    "window and support": {"rollouts": 2, "replay_window": 4, "support_rollouts": 2},
    "updates": {"epochs": 2, "minibatches": 3},
    "moving average": {"estimator": Estimator(Advantage("moving_average"))},
    "greedy": {"estimator": Estimator(Advantage("greedy"))},
    "difficulty": {"sampling": Sampling(budget="difficulty")},
    "shortest": {"sampling": Sampling(keep=2)},
    "dynamic": {"sampling": Sampling(tries=3)},
    "entropy": {"estimator": Estimator(entropy=0.05)},
    "moving entropy": {"estimator": Estimator(entropy_target=5.0, entropy_step=0.02), "epochs": 2, "minibatches": 2},
    "sequence": {"estimator": SEQUENCES, "epochs": 2},
    "masks": {"estimator": Estimator(mask=ClipCov(0.1, -10, 10)), "minibatches": 2},
    "top entropy": {"estimator": Estimator(mask=TopEntropy(0.3), aggregation=Aggregation("prompt_mean")), "epochs": 2},
    "divergence": {"estimator": Estimator(mask=Divergence(high=0.01, low=0.01)), "epochs": 2},
    "truncate": {"estimator": Estimator(correction=Correction("truncate")), "minibatches": 2},
    "to the sampler": {"estimator": Estimator(correction=Correction("ratio"))},
    "kl in reward": {"rollouts": 2, "support_rollouts": 2, "estimator": PENALTIES, "minibatches": 2},
    "kl to old": {"estimator": Estimator(kl=KL("k3", 0.1, anchor="old")), "epochs": 2},
    "optimal token": {"estimator": Estimator(Advantage("optimal_token"), Reinforce())},
    "discount": {"estimator": Estimator(Advantage("none", gamma=0.9, whiten="tokens"))},
}


def listen(monkeypatch, look):
    """Look at every update once its gradient is there; `look` gets what `accumulate` returns and its arguments."""
    seen, real = [], rftlab.llm.training.trainer.accumulate

    def listening(*given):
        done = real(*given)
        seen.append(look(done, *given))
        return done

    monkeypatch.setattr(rftlab.llm.training.trainer, "accumulate", listening)
    return seen


@pytest.mark.parametrize("name", DESIGNS)
def test_every_choice_runs_and_is_counted(name, tmp_path):
    settings = {"rollouts": 4, "estimator": Estimator(kl=KL("k3", 0.05))} | DESIGNS[name]
    run = run_of(**settings, rounds=2, eval_every=2, micro_tokens=60, greedy=False)
    outcome = train(run, tmp_path)
    curve, design = outcome.curve, run.design
    assert outcome.diverged_at is None and curve.round.tolist() == [0, 2] and np.isfinite(curve.grad_norm[1])
    records = pd.read_parquet(tmp_path / "rollouts" / "000001-000002.parquet")
    trained = records[records.role == "trained"]
    assert curve.reward[1] == pytest.approx(trained.reward.mean())
    assert (np.isnan(curve.kl[1])) == (design.estimator.kl.kind == "none")
    roles = records.role.value_counts()
    assert len(records) == curve.rollouts[1]
    assert records.tokens.map(len).sum() == curve.tokens[1], "what was charged is on record"
    assert roles["trained"] == 12 * design.rollouts and roles.get("support", 0) == 12 * design.support_rollouts
    assert roles.get("greedy", 0) == (12 if name == "greedy" else 0) and ("dropped" in roles) == (name == "dynamic")
    assert (records.advantage.isna() == (records.role != "trained")).all()
    assert (records.reward.isna() == records.role.isin(["dropped", "greedy"])).all()
    assert trained.reward.std() > 0 and (name != "raw" or (trained.advantage == trained.reward).all())


def test_advantages_and_windows_are_those_of_the_records(tmp_path):
    """Advantages found again from the records alone, with windows over three epochs of five rounds."""
    run = run_of(rollouts=2, replay_window=3, support_rollouts=1, rounds=15, eval_every=15, greedy=False)
    train(run, tmp_path)
    records, seen = pd.read_parquet(tmp_path / "rollouts"), {}
    for _, batch in records.sort_values(["round", "prompt", "rollout"]).groupby(["round", "prompt"]):
        mine, support = batch[batch.role == "trained"], batch[batch.role == "support"]
        window = (seen.get(mine.prompt.iloc[0], []) + mine.strict.tolist())[-3:]
        seen[mine.prompt.iloc[0]] = window
        pool = np.array(window + support.strict.tolist())
        expected = (mine.strict - pool.mean()) / (pool.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(mine.advantage, expected, atol=1e-12)
    assert records.strict.std() > 0 and set(map(len, seen.values())) == {3}


def test_a_moving_average_precedes_the_rewards_of_its_visit(tmp_path):
    """Two epochs of five rounds; in the first the average is that of all prompts so far."""
    train(
        run_of(estimator=Estimator(Advantage("moving_average", decay=0.5)), rounds=10, eval_every=10, greedy=False),
        tmp_path,
    )
    records, seen = pd.read_parquet(tmp_path / "rollouts"), {}
    for index, batch in records.groupby("round"):
        before = dict(seen)
        for prompt, mine in batch.groupby("prompt", sort=False):
            if index == 1:
                assert (mine.advantage == mine.strict).all()
            elif index > 5:
                np.testing.assert_allclose(mine.advantage, mine.strict - before[prompt], atol=1e-12)
            seen[prompt] = mine.strict.mean()
    assert records.strict.std() > 0


def test_responses_that_are_not_kept_teach_nothing(tmp_path):
    train(run_of(sampling=Sampling(keep=2), rounds=5, eval_every=5, greedy=False), tmp_path)
    learned = 0
    for _, mine in pd.read_parquet(tmp_path / "rollouts").groupby(["round", "prompt"]):
        kept = mine.tokens.map(len).rank(method="first") <= 2
        pool = mine.strict[kept]
        expected = np.where(kept, (mine.strict - pool.mean()) / (pool.std(ddof=1) + 1e-6), 0.0)
        np.testing.assert_allclose(mine.advantage, expected, atol=1e-9)
        learned += (~kept & (mine.strict != pool.mean())).sum()
    assert learned > 0


@pytest.mark.parametrize("correction", ["none", "truncate"])
def test_right_responses_join_the_next_visits_of_their_prompt(correction, tmp_path, monkeypatch):
    """Groups, ratios and advantages by hand, from the records of three epochs of five rounds; new responses alone are
    counted and charged."""
    parts = listen(monkeypatch, lambda done, policy, estimator, batch, responses, *_: (batch, responses))
    estimator = Estimator(Advantage("group_mean"), correction=Correction(correction))
    run = run_of(rollouts=3, rounds=15, eval_every=15, estimator=estimator, sampling=Sampling(replayed=2), greedy=False)
    curve, records, held, seen = train(run, tmp_path).curve, pd.read_parquet(tmp_path / "rollouts"), {}, 0
    new = records[records.role == "trained"]
    assert len(new) == curve.rollouts[-1] and new.tokens.map(len).sum() == curve.tokens[-1]
    assert curve.reward[-1] == pytest.approx(new.reward.mean())
    for index, (batch, responses) in zip(sorted(records["round"].unique()), parts, strict=True):
        logp = iter(np.split(batch.old_logp, responses.starts[1:-1]))
        rows = records[records["round"] == index].sort_values(["prompt", "rollout"], kind="stable")
        for prompt in dict.fromkeys(records[records["round"] == index].prompt):
            mine = rows[rows.prompt == prompt]
            past = mine[mine.role == "replayed"]
            assert [list(ids) for ids in past.tokens] == [ids for ids, _ in held.get(prompt, [])]
            assert mine.role.tolist() == ["trained"] * 3 + ["replayed"] * len(past) and (past.reward == 1).all()
            np.testing.assert_allclose(mine.advantage, mine.strict - mine.strict.mean(), atol=1e-12)
            old = [next(logp) for _ in range(len(mine))]
            for found, (_, then) in zip(old[3:], held.get(prompt, []), strict=True):
                np.testing.assert_array_equal(found, then)
            right = [
                (list(row.tokens), old[i])
                for i, row in enumerate(mine.itertuples())
                if row.role == "trained" and row.strict == 1 and row.finished
            ]
            held[prompt], seen = (held.get(prompt, []) + right)[-2:], seen + len(past)
    assert seen > 10


def test_the_entropy_of_each_update_moves_the_bonus_of_the_next(tmp_path, monkeypatch):
    """Its coefficient by hand; the target is the median entropy of a run whose bonus never acts."""

    def look(done, policy, estimator, batch, responses, on_policy, bonus):
        assert done.entropy == pytest.approx(policy.all_entropies(responses).mean(), rel=1e-5)
        return bonus, done.entropy

    seen = listen(monkeypatch, look)
    settings = {"rounds": 6, "eval_every": 6, "minibatches": 2, "greedy": False, "micro_tokens": 60}
    train(run_of(estimator=Estimator(entropy_target=1e-9), **settings), tmp_path / "off")
    assert [bonus for bonus, _ in seen] == [0.0] * 12
    target = float(np.median([entropy for _, entropy in seen]))
    seen.clear()
    moving = Estimator(entropy=0.02, entropy_target=target, entropy_step=0.01)
    train(run_of(estimator=moving, **settings), tmp_path / "on")
    coefficient, expected = 0.02, [0.0]
    for _, entropy in seen:
        coefficient = max(0.0, coefficient + (0.01 if entropy <= target else -0.01))
        expected.append(coefficient if entropy <= target else 0.0)
    assert [bonus for bonus, _ in seen] == pytest.approx(expected[:-1]) and {*map(bool, expected)} == {True, False}


def test_the_optimal_token_baseline_is_that_of_the_whole_softmax(tmp_path, monkeypatch):
    """By hand from the logits of a plain pass, of rewards with their penalties and a discount."""

    def look(done, policy, estimator, batch, responses, *_):
        squares = []
        for row, g in enumerate(responses.group):
            prompt, ids = responses.prompts[g], responses.response(row)
            with torch.no_grad():
                logits = policy.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
            squares.append(torch.softmax(logits.double() / policy.temperature, -1).square().sum(-1).numpy())
        return batch, responses, np.concatenate(squares)

    seen = listen(monkeypatch, look)
    advantage, kl = Advantage("optimal_token", gamma=0.9), KL("k1", 0.1, place="reward")
    estimator = Estimator(advantage, Reinforce(), kl, length=LONG)
    settings = {"estimator": estimator, "micro_tokens": 60, "rounds": 1, "eval_every": 1}
    train(replace(run_of(**settings), temperature=0.8), tmp_path)
    (batch, responses, squares), records = seen[0], pd.read_parquet(tmp_path / "rollouts")
    starts, ends = responses.starts, np.zeros(len(responses.tokens))
    trained = records[records.role == "trained"]
    assert [len(tokens) for tokens in trained.tokens] == responses.lengths.tolist()
    ends[starts[1:] - 1] = trained.reward
    returns = naive.token_advantages(Advantage("none", gamma=0.9), ends, starts)
    columns = returns, batch.old_logp, squares, starts, responses.group
    expected = returns - np.array(naive.optimal_token_baseline(*columns, eps=0.0))
    np.testing.assert_allclose(batch.advantage, expected, atol=1e-7)
    for wrong in (squares[::-1], squares * 0):
        columns = returns, batch.old_logp, wrong, starts, responses.group
        other = returns - np.array(naive.optimal_token_baseline(*columns, eps=0.0))
        assert np.abs(other - batch.advantage).max() > 1e-5


@pytest.mark.parametrize("correction", ["none", "truncate", "ratio"])
def test_every_update_has_its_own_shares_and_the_rounds_advantages(correction, tmp_path, monkeypatch):
    parts = listen(monkeypatch, lambda done, policy, estimator, batch, responses, *_: (batch, responses))
    estimator = Estimator(kl=KL("k3", 0.05), aggregation=Aggregation("token_mean"), correction=Correction(correction))
    train(run_of(estimator=estimator, epochs=2, minibatches=3, rounds=1, eval_every=1), tmp_path)
    records = pd.read_parquet(tmp_path / "rollouts")
    assert [len(responses.group) for _, responses in parts] == [8] * 6
    for u, (batch, responses) in enumerate(parts):
        assert batch.share.sum() == pytest.approx(1, rel=1e-5) and batch.kl_share.sum() == pytest.approx(0.05)
        mine = records.iloc[8 * (u % 3) : 8 * (u % 3) + 8]
        assert responses.tokens.tolist() == [token for ids in mine.tokens for token in ids]
        np.testing.assert_array_equal(batch.advantage, np.repeat(mine.advantage.to_numpy(), mine.tokens.map(len)))
        same_as_sampler = batch.old_logp == np.concatenate(mine.logp.to_list())
        assert same_as_sampler.all() == (correction == "ratio")


def test_it_learns(tmp_path):
    """The reward of these tests, an even digit behind the marker, is within reach of 60 rounds."""
    run = run_of(rollouts=8, rounds=60, eval_every=60, learning_rate=3e-3, greedy=False, batch_size=10, task="mod97")
    outcome = train(run, tmp_path)
    assert outcome.curve.train_pass_at_1[-1] > outcome.curve.train_pass_at_1[0] + 0.05


@pytest.mark.parametrize(
    "change", [{"micro_tokens": 40}, {"sample_rows": 5}, {"logit_rows": 3}, {"gradient_checkpointing": True}]
)
def test_how_work_is_cut_changes_rounding_only(change, tmp_path):
    whole, cut = (train(run_of(rounds=2, eval_every=2, **how), tmp_path / str(how)) for how in ({}, change))
    for name in ("reward", "kl", "clip_fraction", "grad_norm", "test_pass_at_1", "tokens"):
        np.testing.assert_allclose(getattr(cut.curve, name), getattr(whole.curve, name), rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("anchor", ["base", "old"])
def test_on_policy_the_update_finds_the_old_log_probabilities(anchor, tmp_path, monkeypatch):
    """One pass less, and not a bit of difference."""
    run = run_of(estimator=Estimator(kl=KL("k3", 0.05, anchor=anchor)), micro_tokens=60)
    assert run.on_policy and not run_of(epochs=2).on_policy
    fused = train(run, tmp_path / "a")
    monkeypatch.setattr(LLMRun, "on_policy", False)
    assert same(fused, train(run, tmp_path / "b"))


def test_bf16_runs_beside_fp32_weights(tmp_path):
    outcome = train(run_of(rounds=2, eval_every=2, precision="bf16"), tmp_path)
    assert 1e-5 < outcome.metrics.mismatch[1] < 0.06


def test_equal_runs_are_equal_bit_by_bit_and_seeds_differ(tmp_path):
    a, b, c = (train(run_of(rounds=4, seed=seed), tmp_path / f"{i}") for i, seed in enumerate((0, 0, 1)))
    assert same(a, b) and not same(a, c)


@pytest.mark.parametrize("wrong", [{"weight_decay": 1e38, "learning_rate": 1e38}, {"max_grad_norm": float("inf")}])
def test_weights_that_are_not_finite_end_a_run_before_they_are_evaluated(wrong, tmp_path):
    """In the first round the gradient is finite, and what a step along it makes is not."""
    said = []
    run = run_of(**{"learning_rate": 1e30, "eval_every": 8} | wrong)
    outcome = train(run, tmp_path, TrainingCallbacks(remark=said.append))
    assert outcome.diverged_at is not None and outcome.curve.round.tolist() == [0]
    assert (outcome.diverged_at == 0) == ("weight_decay" in wrong)
    assert "weights or gradient are not finite" in said[-1] and not list(tmp_path.rglob("model.safetensors"))


def test_memory_and_time_by_phase(tmp_path):
    row = train(run_of(rounds=2, eval_every=2), tmp_path).metrics.iloc[-1]
    for phase in ("sample", "score", "log_probs", "update", "evaluate"):
        assert row[f"seconds_{phase}"] > 0 and row[f"peak_mb_{phase}"] > 10


VALUE, OPTIMAL = (Estimator(Advantage(baseline)) for baseline in ("value", "optimal"))
GPU_0 = "vLLM takes the first GPU that it sees; allowed: cpu, cuda; CUDA_VISIBLE_DEVICES"
TWICE = Design(6, 4, sampling=Sampling(tries=2, budget="difficulty"))
CONFIGURATIONS = [
    (lambda: run_of(estimator=VALUE), "advantage.baseline = 'value': no critic in training; allowed: all"),
    (lambda: run_of(estimator=OPTIMAL), "no exact expectations in training; allowed: all but value, optimal"),
    (lambda: run_of(checkpoint_every=3), "checkpoint_every = 3; allowed: 0, or a divisor of eval_every = 4"),
    (lambda: LLMRun(TaskConfig("words")), "model.source = 'tiny' knows arithmetic alone; task = 'words'"),
    (lambda: LLMRun(TaskConfig("mix97"), Model("folder")), "task = 'mix97' is for model.source = 'tiny'"),
    (lambda: Evaluation(samples=2, pass_at=(4,)), "evaluation.pass_at = 4; allowed: 1 to evaluation.samples = 2"),
    (lambda: Evaluation(split="dev"), "evaluation.split = 'dev' is unknown; allowed: test, validation"),
    (lambda: Compute(precision="fp8"), "compute.precision = 'fp8' is unknown; allowed: fp32, bf16"),
    (lambda: Compute(engine="sglang"), "compute.engine = 'sglang' is unknown; allowed: hf, vllm"),
    (lambda: Compute(cache_gb=0.0), "compute.cache_gb = 0.0; allowed: more than 0"),
    (lambda: Compute("cuda:1", engine="vllm"), f"compute.device = 'cuda:1': {GPU_0}"),
    (lambda: Compute("mps", engine="vllm"), f"compute.device = 'mps': {GPU_0}"),
    (lambda: Tiny(heads=3), "tiny.heads = 3; twice as many must divide tiny.width = 64"),
    (lambda: AdamW(max_grad_norm=0), "optimizer.max_grad_norm = 0; allowed: more than 0"),
    (lambda: replace(run_of(), temperature=0.0), "temperature = 0.0; allowed: more than 0"),
    (lambda: run_of(seed=2**63), "seed = 9223372036854775808; allowed: 0 to 2^63 - 1"),
    (lambda: replace(run_of(sampling=Sampling(tries=2)), design=TWICE), "sampling.tries = 2"),
    (lambda: LoRA(-1), "lora.rank = -1; allowed: 0 or more"),
    (lambda: LoRA(8, 0.0), "lora.alpha = 0.0; allowed: more than 0, finite"),
    (lambda: LoRA(8, float("nan")), "lora.alpha = nan; allowed: more than 0, finite"),
    (lambda: LoRA(targets=("q", "o")), "lora.targets = q, o with lora.rank = 0; allowed: none, or a lora.rank of 1"),
]


@pytest.mark.parametrize(("make", "message"), CONFIGURATIONS)
def test_configurations_are_checked(make, message):
    with pytest.raises(UserError, match=re.escape(message)):
        make()
    assert Compute("cuda:0", engine="vllm") and Compute("mps", engine="hf"), "what is allowed"


def test_the_configuration_says_everything_but_settings_that_are_off():
    """Runs from before a setting keep their identity."""
    config = model_config(run_of(estimator=Estimator(surrogate=Clip(), mask=Divergence())))
    assert config["kinds"] == {"surrogate": "Clip", "mask": "Divergence"}
    assert config["design"]["rollouts"] == 4 and config["level"] == "llm"
    off = {"rewards", "reward_timeout", "mask_truncated", "compute.compile", "task.own"}
    places = config.keys() | {f"{part}.{name}" for part in ("compute", "task") for name in config[part]}
    assert not off & places and "micro_batch" not in config["design"]["estimator"]["aggregation"]
    chosen = model_config(run_of(mask_truncated=True, compile=True, estimator=preset("paper_code")))
    assert chosen["mask_truncated"] and chosen["compute"]["compile"] is True
    assert chosen["design"]["estimator"]["aggregation"]["micro_batch"] == 4


def samples_of(rewards):
    """One-token responses with rewards, group by group."""
    flat = np.array([r for group in rewards for r in group], dtype=float)
    group, n = np.repeat(np.arange(len(rewards)), [len(g) for g in rewards]), len(flat)
    responses = Responses(tuple((g,) for g in range(len(rewards))), group, 10 + np.arange(n), np.arange(n + 1))
    rollouts = Rollouts(responses, -np.arange(n, dtype=float), np.ones(n, dtype=bool))
    contexts, texts = 50 + np.arange(len(rewards)), [str(i) for i in range(n)]
    return Samples(contexts, rollouts, texts, flat, flat, np.ones(n, dtype=bool))


def test_a_prompt_that_comes_again_within_a_round_gets_other_responses(tmp_path):
    """With as many prompts as a batch has, every try has the same ones."""
    run = run_of(rollouts=4, batch_size=30, rounds=2, eval_every=2, sampling=Sampling(tries=3), greedy=False)
    train(run, tmp_path)
    records = pd.read_parquet(tmp_path / "rollouts")
    for _, mine in records.groupby("round"):
        responses = [
            tuple(map(tuple, group.tokens)) for _, group in mine.groupby(["prompt", np.arange(len(mine)) // 4])
        ]
        assert len(responses) > 30 and len(set(responses)) > 0.9 * len(responses)


def test_dynamic_sampling_keeps_groups_with_a_signal():
    first, second = samples_of([[1, 1], [0, 1], [0, 0], [1, 0]]), samples_of([[0, 0], [1, 0], [1, 1], [0, 1]])
    found, dropped = with_signal(None, first, 4, False)
    assert found.contexts.tolist() == [51, 53] and found.strict.tolist() == [0, 1, 1, 0]
    assert found.texts == ["2", "3", "6", "7"]
    assert dropped.contexts.tolist() == [50, 52] and dropped.texts == ["0", "1", "4", "5"]
    full, _ = with_signal(found, second, 4, True)
    assert full.contexts.tolist() == [51, 53, 51, 53] and full.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert full.rollouts.responses.tokens.tolist() == [12, 13, 16, 17, 12, 13, 16, 17]
    assert full.rollouts.logp.tolist() == [-2, -3, -6, -7] * 2
    half = with_signal(None, samples_of([[0, 0], [1, 0]]), 3, False)[0]
    filled, _ = with_signal(half, samples_of([[1, 1], [0, 0], [1, 0]]), 3, True)
    assert filled.contexts.tolist() == [51, 50, 52]
    enough, many = with_signal(found, second, 3, False)
    assert enough.contexts.tolist() == [51, 53, 51] and many.contexts.tolist() == [50, 52, 53]
    none_left = with_signal(None, samples_of([[0, 1]]), 1, False)[1]
    assert none_left.contexts.tolist() == [] and none_left.texts == []


@pytest.mark.parametrize("minibatches", [1, 2])
def test_truncated_responses_teach_nothing_and_are_counted(minibatches, tmp_path, monkeypatch):
    """With a mean over responses of token sums a response that is left out is one whose advantage is 0."""
    base = run_of(rounds=3, eval_every=3, rollouts=4, minibatches=minibatches, estimator=preset("dr_grpo"))
    masked = train(replace(base, mask_truncated=True), tmp_path / "masked")
    plain = train(base, tmp_path / "whole")

    def without_truncated(design, samples, *more):
        pool, kept = baseline_sets(design, samples, *more)
        return pool, kept & samples.rollouts.finished[samples.trained]

    monkeypatch.setattr(rftlab.llm.training.trainer, "baseline_sets", without_truncated)
    train(base, tmp_path / "expected")
    whole, expected, without = (weights_of(tmp_path / name, 3) for name in ("whole", "expected", "masked"))
    assert 0 < plain.metrics["finished"].iloc[-1] < 1
    assert max(float((whole[name] - without[name]).abs().max()) for name in whole) > 1e-4
    assert max(float((expected[name] - without[name]).abs().max()) for name in whole) < 1e-5
    assert masked.metrics["finished"].notna().iloc[-1] and np.isfinite(masked.curve.reward[-1])


def test_a_round_in_which_every_response_is_cut_changes_nothing(tmp_path):
    run = run_of(rounds=2, eval_every=2, mask_truncated=True)
    run = replace(run, model=replace(run.model, max_response_length=1))
    outcome = train(run, tmp_path)
    assert outcome.diverged_at is None and outcome.metrics["finished"].iloc[-1] == 0
    assert outcome.curve.grad_norm[-1] == 0
