"""The trainer's gradient against independent implementations in autograd, and against the simulator's own update."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rftlab import KL, AdamW, Advantage, Aggregation, Design, objective_and_weights, prepare, preset
from rftlab.llm.policy.packing import Responses, micro_batches, packed, token_indices
from rftlab.llm.training.update import accumulate, add_gradient, batch_part, rate_at, step
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.sim.config import Optimizer, Simulation
from rftlab.sim.environments import tabular_world
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals
from tests.support.trainer.tiny_models import exact_norms, random_responses, small_model, small_policy  # noqa: F401


def batch_of(estimator, responses, seed=1, spread=0.4):
    """A frozen batch whose old and reference log-probabilities lie off the policy's."""
    rng = np.random.default_rng(seed)
    old = small_policy(0).all_log_probs(responses) + spread * rng.standard_normal(len(responses.tokens))
    reference = old + spread * rng.standard_normal(len(old))
    rewards = rng.integers(0, 2, len(responses.group)).astype(float)
    return prepare(estimator, rewards, responses.group, responses.starts, old, reference)


def autograd_objective(model, responses, batch):
    """PPO's clipped objective with dual clip, k3 penalty and entropy bonus, written down again: one sequence at a
    time, logits from the model's own forward. Advantages and shares have slow twins of their own."""
    total = 0.0
    for i, g in enumerate(responses.group):
        prompt, span = responses.prompts[g], slice(responses.starts[i], responses.starts[i + 1])
        ids = torch.tensor([[*prompt, *responses.response(i)]])
        pi = torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1], -1)
        logp = pi[torch.arange(len(pi)), torch.tensor(responses.tokens[span])]
        columns = (batch.advantage, batch.share, batch.kl_share, batch.old_logp, batch.ref_logp)
        advantage, share, kl_share, old, reference = (torch.tensor(column[span]).to(logp) for column in columns)
        ratio, d = torch.exp(logp - old), reference - logp
        j = torch.minimum(advantage * ratio, advantage * ratio.clamp(0.8, 1.28))
        j = torch.where(advantage < 0, torch.maximum(j, 3.0 * advantage), j) - 0.02 * (pi.exp() * pi).sum(-1)
        total = total + (share * j - kl_share * (d.exp() - d - 1)).sum()
    return total


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_sum", "prompt_mean"])
@pytest.mark.parametrize("budget", [1, 40, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_gradient_of_the_objective_is_autograds(aggregation, budget, dtype, exact_norms):
    """To 1e-6 of the gradient's norm in float32, for any split; and for each number against rounding in float64."""
    penalty, weighing = KL("k3", 0.05, bounded=False), Aggregation(aggregation)
    estimator = Estimator(surrogate=Clip(0.2, 0.28, dual=3.0), kl=penalty, aggregation=weighing, entropy=0.02)
    responses = random_responses(3)
    batch = batch_of(estimator, responses)
    policy, twin = small_policy(0, dtype=dtype, micro_tokens=budget), small_model(0).to(dtype)
    done = accumulate(policy, estimator, batch, responses)
    expected = autograd_objective(twin, responses, batch)
    (-expected).backward()
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    assert done.clipped > 0
    assert abs(done.objective - float(expected.detach())) < 3 * tolerance * abs(float(expected.detach()))
    mine, theirs = (torch.cat([p.grad.flatten() for _, p in model.named_parameters()]) for model in (policy, twin))
    assert float((mine - theirs).norm() / theirs.norm()) < tolerance
    if dtype == torch.float64:
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-14)


def test_a_flipped_sign_or_a_lost_micro_batch_would_be_seen():
    """Planted: what the comparison above must tell apart."""
    estimator = Estimator(kl=KL("k3", 0.05))
    responses = random_responses(3)
    batch = batch_of(estimator, responses)

    def gradient(batch):
        policy = small_policy(0, micro_tokens=40)
        accumulate(policy, estimator, batch, responses)
        return torch.cat([p.grad.flatten() for _, p in policy.named_parameters()])

    lost = batch.share.copy()
    lost[-5:] = 0
    right = gradient(batch)
    for wrong in ({"advantage": -batch.advantage}, {"kl_share": -batch.kl_share}, {"share": lost}):
        assert float((gradient(batch._replace(**wrong)) - right).norm() / right.norm()) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_weights_reach_autograd_in_any_number_type(dtype):
    rng = np.random.default_rng(5)
    leaves = [torch.zeros(7, dtype=dtype, requires_grad=True) for _ in range(2)]
    slopes = [rng.standard_normal(7) for _ in leaves]
    for _ in range(2):
        add_gradient([2 * leaf for leaf in leaves], slopes)
    for leaf, slope in zip(leaves, slopes, strict=True):
        assert torch.equal(leaf.grad, -4 * torch.tensor(slope).to(dtype))


@pytest.mark.parametrize("budget", [1, 20, 40, 10**6])
def test_the_split_for_memory_changes_no_bit_of_micro_batch_means(budget):
    """The estimator's micro-batches hold the responses 0 to 3, 4 to 7, 8; the split for memory takes them by length."""
    estimator = replace(preset("paper_code"), kl=KL("none"))
    responses = random_responses(5, groups=3, rollouts=3, longest=6)
    batch = batch_of(estimator, responses)
    logp, whole = small_policy(0).all_log_probs(responses), np.empty(len(responses.tokens))
    parts = micro_batches(responses, budget)
    assert len(parts) > 1 or budget == 10**6
    for rows in parts:
        tokens = token_indices(responses.starts, rows)
        whole[tokens] = objective_and_weights(estimator, batch_part(batch, tokens), logp[tokens]).weight
    np.testing.assert_array_equal(whole, objective_and_weights(estimator, batch, logp).weight)
    for low in range(0, 9, 4):
        span = slice(responses.starts[low], responses.starts[min(low + 4, 9)])
        assert batch.share[span].sum() == pytest.approx(1 / 3) and np.ptp(batch.share[span]) == 0


def test_warm_up_and_clipping():
    spec = AdamW(learning_rate=0.5, warmup_steps=4, max_grad_norm=0.01)
    assert [rate_at(spec, i) for i in range(6)] == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]
    assert rate_at(AdamW(learning_rate=0.5), 0) == 0.5
    policy = small_policy(0)
    weights = [p for _, p in policy.named_parameters()]
    before = torch.nn.utils.parameters_to_vector(weights).detach().clone()
    for p in weights:
        p.grad = torch.ones_like(p)
    norm = step(policy, torch.optim.SGD(weights, 1.0), spec, 3)
    assert norm == pytest.approx(math.sqrt(len(before)), rel=1e-5)
    moved = float((torch.nn.utils.parameters_to_vector(weights).detach() - before).norm())
    assert moved == pytest.approx(0.5 * 0.01, rel=1e-3)


TWINS = {
    "raw": ({"estimator": Estimator(Advantage("none"), Reinforce()), "rollouts": 1}, "sgd"),
    "grpo": ({"estimator": Estimator(kl=KL("k3", 0.3))}, "adam"),
    "token mean": ({"estimator": Estimator(Advantage("leave_one_out"), aggregation=Aggregation("token_mean"))}, "adam"),
    "updates": (
        {"estimator": Estimator(surrogate=Clip(0.05, 0.1, 1.5), kl=KL("k1", 0.2)), "epochs": 2, "minibatches": 2},
        "adam",
    ),
}


class Table(torch.nn.Module):
    """A softmax per context, as a policy: the ids of prompts are contexts, a response is one arm."""

    def __init__(self, base):
        super().__init__()
        self.base, self.shift = torch.tensor(base), torch.nn.Parameter(torch.zeros(base.shape, dtype=torch.float64))

    def micro_batches(self, responses):
        return micro_batches(responses, 6)

    def log_probs(self, responses, rows, with_entropy=False):
        contexts = [responses.prompts[responses.group[row]][0] for row in rows]
        pi = torch.log_softmax(self.base[contexts] + self.shift[contexts], -1)
        return pi[torch.arange(len(rows)), torch.tensor(responses.tokens[rows])], None


@pytest.mark.parametrize("name", TWINS)
def test_a_step_lands_where_the_simulators_does(name):
    """The same arrays through `accumulate` and a torch optimiser, and through the simulator's compiled round: equal
    to 1e-12.

    Adam's eps keeps gradients that are 0 but for rounding from acting by their sign.
    """
    settings, kind = TWINS[name]
    design = Design(**{"batch_size": 6, "rollouts": 4} | settings)
    rng = np.random.default_rng(8)
    base, correct = rng.standard_normal((6, 5)), rng.random((6, 5)) < 0.4
    world = tabular_world(base, correct)
    rule = Optimizer(kind, learning_rate=0.05, eps=1e-3)
    run = Simulation(design=replace(design, rounds=1, eval_every=1), optimizer=rule, seed=2)
    plan, state, work = make_plan(run, world), start_state(run, world), make_work(run, world)
    contexts = np.arange(6)[None]
    train_rounds(world.train, plan, as_rule(design.estimator), state, work, contexts, 0, no_totals())
    n, k = design.batch_size, design.rollouts
    arms, rewards, group = work.arm[: n * k], work.reward[: n * k], np.repeat(np.arange(n), k)
    logp = work.old_logp[: n * k]
    table = Table(base)
    kinds = {"adam": lambda weights: torch.optim.Adam(weights, 0.05, eps=1e-3)}
    optimizer = kinds.get(kind, lambda weights: torch.optim.SGD(weights, 0.05))(table.parameters())
    tokens, starts = packed([[arm] for arm in arms])
    everything = Responses(tuple((i,) for i in range(n)), group, tokens, starts)
    frozen = prepare(design.estimator, rewards, group, starts, logp, work.ref_logp[: n * k])
    for u in range(design.epochs * design.minibatches):
        rows = np.arange(n * k).reshape(design.minibatches, -1)[u % design.minibatches]
        part = batch_part(frozen, rows)
        if design.minibatches > 1:
            part = part._replace(share=part.share * design.minibatches, kl_share=part.kl_share * design.minibatches)
        accumulate(table, design.estimator, part, everything.take(rows))
        step(table, optimizer, AdamW(learning_rate=0.05, max_grad_norm=math.inf), u)
    expected = state.theta[:-1].reshape(6, 5)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(table.shift.detach().numpy(), expected, rtol=0, atol=1e-12)
