"""The Hugging Face engine: what it samples, with which log-probabilities, where it stops, and what it promises."""

import numpy as np
import pytest
import torch
from scipy import stats

from rftlab.llm.engines.rollouts import AHEAD, Draws, HFEngine, ignore, pick
from rftlab.llm.random import EVALUATION, ROLLOUT, philox, uniforms
from rftlab.llm.truncation import Truncation
from tests.support.trainer.tiny_models import random_responses, small_model, small_policy

PROMPTS = random_responses(11, groups=12).prompts
CONTEXTS = np.arange(100, 112)
DRAWS = Draws(5, ROLLOUT, 3)
ONES = 0xFFFFFFFF
KNOWN = [
    (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES << 32) | ONES, (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x299F31D0 << 32) | 0xA4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Vectors that its authors publish with Philox."""


def sample(policy, stops=(2,), counts=4, prompts=PROMPTS, contexts=CONTEXTS, temperature=1.0, limit=AHEAD + 5, **more):
    counts = np.full(len(prompts), counts) if np.isscalar(counts) else np.asarray(counts)
    draws, ended = more.get("draws", DRAWS), more.get("ended", ignore)
    return HFEngine(policy, stops).sample(prompts, contexts, counts, draws, temperature, limit, ended)


@pytest.mark.parametrize(("seed", "counter", "expected"), KNOWN)
def test_published_vectors_of_philox(seed, counter, expected):
    words = philox(seed, np.array([counter, counter]).T)
    assert [tuple(int(w) for w in words[:, i]) for i in range(2)] == [expected] * 2


def test_uniforms_are_uniform_and_every_key_counts():
    n = 3000
    key = (1, ROLLOUT, 0, np.arange(n), np.zeros(n, dtype=int), 0, 4)
    base = uniforms(*key)
    assert base.shape == (n, 4) and base.min() >= 0 and base.max() < 1
    assert stats.kstest(base.ravel(), "uniform").pvalue > 0.01 and abs(np.corrcoef(base.T) - np.eye(4)).max() < 0.06
    for place, value in enumerate((2, EVALUATION, 1, np.arange(n) + n, np.ones(n, dtype=int), 4)):
        other = uniforms(*key[:place], value, *key[place + 1 :])
        assert not (other == base).any() and abs(np.corrcoef(base.ravel(), other.ravel())[0, 1]) < 0.05
    np.testing.assert_array_equal(uniforms(*key[:5], 2, 2), base[:, 2:])


@pytest.mark.parametrize(("temperature", "attention"), [(1.0, "sdpa"), (0.6, "sdpa"), (1.0, "eager")])
def test_log_probs_are_the_trainers(temperature, attention):
    """Beside padding, with masks that the engine makes itself, and with those of transformers."""
    policies = [
        small_policy(temperature=at, model=small_model(3, attn_implementation=attention))
        for at in (temperature, temperature + 0.3)
    ]
    assert HFEngine(policies[0], (2,)).masks_itself == (attention == "sdpa") and len(set(map(len, PROMPTS))) > 3
    rollouts = sample(policies[0], temperature=temperature)
    assert len(set(rollouts.responses.lengths)) > 5 and 0 < rollouts.finished.mean() < 1
    right, wrong = (policy.all_log_probs(rollouts.responses) for policy in policies)
    np.testing.assert_allclose(rollouts.logp, right, atol=3e-6)
    assert np.abs(rollouts.logp - wrong).mean() > 0.01


def naive_truncation(logits, top_p, top_k, min_p):
    """Probabilities (V,) after min-p, top-k and top-p, one token after the other."""
    p = np.exp(logits - logits.max())
    p = np.where(p >= min_p * p.max(), p, 0.0)
    ranked = sorted(range(len(p)), key=lambda i: -p[i])
    p[ranked[top_k or len(p) :]] = 0.0
    p, reached = p / p.sum(), 0.0
    for i in ranked:
        if reached >= top_p - 1e-12:
            p[i] = 0.0
        reached += p[i]
    return p / p.sum()


@pytest.mark.parametrize(
    "spec", [(1.0, 0, 0.0), (0.6, 0, 0.0), (1.0, 3, 0.0), (1.0, 0, 0.3), (0.8, 5, 0.1), (1e-9, 0, 0)]
)
def test_a_part_of_the_tokens_is_sampled_with_its_own_probabilities(spec):
    rng = np.random.default_rng(0)
    logits = np.append(2.0 * rng.normal(size=11), -np.inf)
    expected = naive_truncation(logits / 0.8, *spec)
    n = 20_000
    uniform = torch.from_numpy(rng.random(n))
    token, logp = pick(torch.from_numpy(logits).expand(n, -1), 0.8, uniform, Truncation(*spec))
    share = np.bincount(token.numpy(), minlength=12) / n
    assert not share[expected == 0].any() and np.abs(share - expected).max() < 0.02
    np.testing.assert_allclose(logp.numpy(), np.log(expected[token.numpy()]), atol=1e-9)
    if 0.5 < spec[0] < 1:
        assert 1 < (expected > 0).sum() < 11
    whole = pick(torch.from_numpy(logits)[None], 0.0, None, Truncation(*spec))
    assert whole[0] == logits.argmax() and whole[1] == torch.log_softmax(torch.from_numpy(logits), -1).max()


@pytest.mark.parametrize("rows", [48, 7])
def test_responses_are_told_when_they_end(rows):
    steps = []
    policy = small_policy(3, sample_rows=rows)
    rollouts = sample(policy, ended=lambda ended: steps.append([(int(g), tuple(tokens)) for g, tokens in ended]))
    responses = rollouts.responses
    expected = [(int(g), tuple(responses.response(i).tolist())) for i, g in enumerate(responses.group)]
    assert sorted(one for step in steps for one in step) == sorted(expected) and 0 < rollouts.finished.mean() < 1
    assert sum(bool(step) for step in steps[:-1]) > 3, "all of them came in the end"
    assert all(len({len(tokens) for _, tokens in step}) <= 1 for step in steps)


@pytest.mark.parametrize("rows", [1, 3, 7, 48])
def test_a_split_changes_no_token(rows):
    whole, split = sample(small_policy(5)), sample(small_policy(5, sample_rows=rows))
    np.testing.assert_array_equal(whole.responses.tokens, split.responses.tokens)
    np.testing.assert_array_equal(whole.responses.starts, split.responses.starts)
    np.testing.assert_array_equal(whole.finished, split.finished)
    np.testing.assert_allclose(whole.logp, split.logp, atol=3e-6)


def test_draws_depend_on_the_prompts_number_and_rollout_alone():
    policy = small_policy(6)
    whole = sample(policy).responses
    backwards = sample(policy, prompts=PROMPTS[::-1], contexts=CONTEXTS[::-1]).responses
    fewer = sample(policy, counts=[2, 0, 1] * 4).responses
    for g in range(12):
        for j in range(4):
            assert whole.response(4 * g + j).tolist() == backwards.response(4 * (11 - g) + j).tolist()
    assert np.bincount(fewer.group, minlength=12).tolist() == [2, 0, 1] * 4
    assert fewer.response(2).tolist() == whole.response(8).tolist()
    assert sample(policy, draws=DRAWS._replace(round=4)).responses.tokens.tolist() != whole.tokens.tolist()


def test_every_stop_ends_a_response():
    policy = small_policy(8)
    stops = (2, 9, 13)
    rollouts = sample(policy, stops, counts=8)
    last = [rollouts.responses.response(i)[-1] for i in range(96)]
    assert set(np.array(last)[rollouts.finished]) == set(stops)
    for i in range(96):
        response = rollouts.responses.response(i)
        assert not set(response[:-1]) & set(stops)
        assert rollouts.finished[i] == (response[-1] in stops) and (rollouts.finished[i] or len(response) == AHEAD + 5)
    one = sample(policy, (2,), counts=8).responses
    for i in range(96):  # the same draws, read on behind the other stops
        assert one.response(i).tolist()[: rollouts.responses.lengths[i]] == rollouts.responses.response(i).tolist()


def test_a_token_of_probability_zero_is_never_picked():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]]).repeat(3, 1)
    token, logp = pick(logits, 1.0, torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64))
    assert token.tolist() == [1, 3, 3] and torch.isfinite(logp).all()
