"""Log-probabilities from hidden states: against plain autograd on all logits at once, finite differences, and the
promise of never holding many."""

import pytest
import torch
from torch.nn import functional

from rftlab.llm.policy.head import token_log_probs

TOKENS, WIDTH, VOCABULARY = 23, 8, 50


def case(dtype=torch.float64, bias=True):
    """A head, hidden states and targets."""
    torch.manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=dtype)
    return head, torch.randn(TOKENS, WIDTH, dtype=dtype, requires_grad=True), torch.randint(0, VOCABULARY, (TOKENS,))


def plain(head, hidden, targets, temperature):
    """The same from all logits at once, which autograd differentiates."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    logp = torch.log_softmax(head(hidden).to(wide) / temperature, -1)
    return logp.gather(-1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def gradients(head, hidden, logp, entropy):
    """Those of a sum with a weight for each token."""
    weights = torch.linspace(-1, 2, TOKENS, dtype=logp.dtype)
    total = (weights * logp).sum() if entropy is None else (weights * logp).sum() + (weights.flip(0) * entropy).sum()
    wanted = [value for value in (hidden, head.weight, head.bias) if value is not None and value.requires_grad]
    return torch.autograd.grad(total, wanted)


@pytest.mark.parametrize("rows", [1, 5, 23, 1000])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_plain_autograd(rows, entropy, bias):
    head, hidden, targets = case(bias=bias)
    logp, found = token_log_probs(head, hidden, targets, 0.7, rows, entropy)
    wanted, wanted_entropy = plain(head, hidden, targets, 0.7)
    torch.testing.assert_close(logp, wanted, rtol=1e-12, atol=1e-13)
    assert (found is not None) == entropy
    if entropy:
        torch.testing.assert_close(found, wanted_entropy, rtol=1e-12, atol=1e-13)
    expected = gradients(head, hidden, wanted, wanted_entropy if entropy else None)
    for a, b in zip(gradients(head, hidden, logp, found), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("rows", [5, 1000])
def test_sums_of_squares_come_without_a_gradient(rows):
    head, hidden, targets = case()
    logp, squares = token_log_probs(head, hidden, targets, 0.7, rows, squares=True)
    wanted = torch.softmax(head(hidden) / 0.7, -1).square().sum(-1)
    torch.testing.assert_close(squares, wanted, rtol=1e-12, atol=1e-13)
    assert logp.requires_grad and not squares.requires_grad
    expected = gradients(head, hidden, plain(head, hidden, targets, 0.7)[0], None)
    for a, b in zip(gradients(head, hidden, logp, None), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


def test_finite_differences_agree():
    head, hidden, targets = case()

    def columns(states, weight, bias):
        return torch.stack(token_log_probs(_Head(weight, bias), states, targets, 0.7, 5, True))

    assert torch.autograd.gradcheck(columns, (hidden, head.weight, head.bias))


class _Head:
    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias


def test_a_frozen_head_gets_no_gradient_and_its_input_does():
    head, hidden, targets = case()
    head.requires_grad_(False)
    logp, _ = token_log_probs(head, hidden, targets, 0.7, 5)
    wanted, _ = plain(head, hidden, targets, 0.7)
    mine, expected = (gradients(head, hidden, column, None)[0] for column in (logp, wanted))
    torch.testing.assert_close(mine, expected, rtol=1e-11, atol=1e-13)


def test_under_autocast_products_are_narrow_and_sums_are_not():
    head, hidden, targets = case(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logp, _ = token_log_probs(head, hidden, targets, 0.7, 5)
        wanted, _ = plain(head, hidden, targets, 0.7)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp, wanted, rtol=1e-5, atol=1e-5)
    for a, b in zip(gradients(head, hidden, logp, None), gradients(head, hidden, wanted, None), strict=True):
        assert a.dtype == torch.float32 and float((a - b).norm() / b.norm()) < 0.02


def test_never_more_logits_than_a_chunk(monkeypatch):
    seen, linear = [], functional.linear
    monkeypatch.setattr(functional, "linear", lambda states, *rest: seen.append(len(states)) or linear(states, *rest))
    head, hidden, targets = case()
    logp, _ = token_log_probs(head, hidden, targets, 1.0, 5)
    logp.sum().backward()
    assert max(seen) == 5 and sum(seen) == 2 * TOKENS
