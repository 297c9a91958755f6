"""Losses in tinker by its own code, where it is installed (`make test-trl`); in prime-rl and slime by stand-ins with
the fields of their sources, because pip installs neither."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

if not find_spec("torch"):
    pytest.skip("needs the extra llm: make test-llm", allow_module_level=True)

import torch

from rftlab import UserError, losses, preset
from rftlab.studies.integrations import prime_rl, slime, tinker

LENGTHS = (3, 5, 1, 4)
REWARDS = [[1.0, 0.0], [0.0, 0.5]]
OVER_TOKENS = replace(preset("dapo"), length=replace(preset("dapo").length, coef=0.0))


def tokens(seed=0):
    """Log-probabilities, old ones, masks with a prompt in front, and a base policy's, for four responses."""
    rng = np.random.default_rng(seed)
    old = [torch.tensor(-rng.exponential(size=n + 2)) for n in LENGTHS]
    logps = [(part + torch.tensor(rng.normal(size=len(part)) * 0.3)).requires_grad_() for part in old]
    masks = [torch.tensor([0.0, 0.0] + [1.0] * n) for n in LENGTHS]
    return logps, old, masks, [part - 0.1 for part in old]


def expected(estimator, advantages):
    """Objective and gradients of all of them at once, padded."""
    logps, old, masks, ref = tokens()
    logp, before, mask, base = (torch.nn.utils.rnn.pad_sequence(part, True) for part in (logps, old, masks, ref))
    given = {"ref_logp": base, "estimator": estimator, "advantages": advantages}
    value = losses.objective(logp, before, mask=mask, **given)
    value.backward()
    return float(value.detach()), torch.cat([part.grad for part in logps])


needs_tinker = pytest.mark.skipif(not find_spec("tinker"), reason="needs tinker: make test-trl")


def through_tinker(estimator, leave_out=()):
    """Loss, metrics and the gradient that tinker's client would send to its server."""
    import tinker as theirs
    from tinker.lib.public_interfaces.training_client import TrainingClient

    logps, old, masks, ref = tokens()
    given = torch.cat(tinker.advantages(REWARDS, estimator))
    data = []
    for row, (o, m, r) in enumerate(zip(old, masks, ref, strict=True)):
        columns = {"logprobs": o, "advantages": given[row] * m, "mask": m, "ref_logprobs": r}
        columns |= {"target_tokens": torch.ones(len(o), dtype=torch.int64)}
        kept = {n: theirs.TensorData.from_torch(c) for n, c in columns.items() if n not in leave_out}
        data.append(theirs.Datum(model_input=theirs.ModelInput.from_ints([1] * len(o)), loss_fn_inputs=kept))
    outputs = [{"logprobs": theirs.TensorData.from_torch(logp.detach())} for logp in logps]
    found = theirs.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=outputs)
    made = TrainingClient._compute_custom_loss(data, tinker.loss(estimator), found)
    return made.loss_sum, made.metrics, torch.cat([datum.loss_fn_inputs["weights"].to_torch() for datum in made.data])


@needs_tinker
@pytest.mark.parametrize("name", ["grpo", "gspo", "dr_grpo", "cispo"])
def test_tinkers_client_sends_our_weights(name):
    value, metrics, weights = through_tinker(name)
    given = torch.cat(tinker.advantages(REWARDS, name))
    objective, gradient = expected(preset(name), given)
    assert value == pytest.approx(-objective, abs=1e-5) and abs(objective) > 1e-6
    assert gradient.abs().max() > 1e-4 and (weights - gradient).abs().max() < 1e-5
    assert set(metrics) == {"clip_fraction", "kl"} and (metrics["kl"] > 0) == (name == "grpo")
    other = expected(preset("rloo"), given)[1]
    assert (weights - other).abs().max() > 1e-3


@needs_tinker
def test_a_datum_without_its_fields_is_named():
    with pytest.raises(UserError, match="a datum has no advantages, mask in its loss_fn_inputs"):
        through_tinker("dr_grpo", ("advantages", "mask"))
    with pytest.raises(UserError, match="needs ref_logp"):
        through_tinker("grpo", ("ref_logprobs",))


def test_advantages_of_groups_of_any_size():
    found = tinker.advantages([[1, 0, 0, 1], [0.5, 0.0]], "dr_grpo")
    assert [part.tolist() for part in found] == [[0.5, -0.5, -0.5, 0.5], [0.25, -0.25]]


@pytest.fixture
def prime(monkeypatch):
    """A module of prime-rl's name."""
    stand_in(monkeypatch, "prime_rl.trainer.rl.loss", LossOutputs=SimpleNamespace)


def stand_in(monkeypatch, name, **held):
    """A module, and the packages that it lies in."""
    parts = name.split(".")
    for n in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:n]), ModuleType(".".join(parts[:n])))
    for key, value in held.items():
        setattr(sys.modules[name], key, value)


def through_prime_rl(estimator, advantages, weights=None, **more):
    """Sum of the losses of single responses over the tokens of the batch, as prime-rl does it; and gradients."""
    logps, old, masks, ref = tokens()
    total = 0.0
    for row, (logp, o, m, r) in enumerate(zip(logps, old, masks, ref, strict=True)):
        names = ("trainer_logprobs", "inference_logprobs", "ref_logprobs", "advantages", "loss_mask", "loss_weights")
        columns = (logp, o, r, advantages[row] * m, m.bool(), weights and weights * m)
        made = prime_rl.loss(SimpleNamespace(**dict(zip(names, columns, strict=True))), estimator, **more)
        total = total + made.loss
        assert set(made.metrics) == {"clip_fraction", "dual_clip_fraction"}
    (total / sum(LENGTHS)).backward()
    return float(total.detach()) / sum(LENGTHS), torch.cat([part.grad for part in logps])


def test_prime_rl_adds_up_to_the_batch(prime):
    given = torch.tensor([1.0, -0.5, 0.3, -2.0])
    objective, gradient = expected(OVER_TOKENS, given)
    value, found = through_prime_rl(OVER_TOKENS, given)
    assert value == pytest.approx(-objective) and (found + gradient).abs().max() < 1e-9
    assert gradient.abs().max() > 1e-3
    assert through_prime_rl(OVER_TOKENS, given, 0.5)[0] == pytest.approx(-objective / 2)
    assert through_prime_rl("gspo", given, over_tokens=True)[0] != value


def settings(name="gspo", per_token=False):
    """slime's arguments."""
    return SimpleNamespace(rftlab_estimator=name, calculate_per_token_loss=per_token, context_parallel_size=1)


@pytest.mark.parametrize(("name", "divisor"), [("gspo", len(LENGTHS)), ("cispo", sum(LENGTHS))])
def test_slime_adds_up_to_the_batch(monkeypatch, name, divisor):
    """Two micro-batches, as slime divides them."""
    logps, old, masks, _ = tokens()
    stand_in(monkeypatch, "slime.backends.megatron_utils.loss", get_log_probs_and_entropy=as_slime_does)
    args, given = settings(name, divisor == sum(LENGTHS)), torch.tensor([1.0, -0.5, 0.3, -2.0])
    total = 0.0
    for rows in (slice(0, 2), slice(2, 4)):
        batch = dict.fromkeys(("unconcat_tokens", "total_lengths")) | {
            "log_probs": old[rows],
            "loss_masks": masks[rows],
        }
        batch["response_lengths"] = [n + 2 for n in LENGTHS[rows]]
        batch["advantages"] = [a * m for a, m in zip(given[rows], masks[rows], strict=True)]
        value, log = slime.loss(args, batch, logps[rows], None)
        assert float(log["loss"]) == float(value.detach())
        total = total + value / divisor
    total.backward()
    objective, gradient = expected(preset(name), given)
    assert float(total.detach()) == pytest.approx(-objective)
    assert (torch.cat([part.grad for part in logps]) + gradient).abs().max() < 1e-9 < gradient.abs().max()


def as_slime_does(logits, *, args, unconcat_tokens, total_lengths, response_lengths, with_entropy):
    """Its signature; the log-probabilities are those that were handed over."""
    return None, {"log_probs": logits, "entropy": logits}


def test_slime_gets_advantages_in_the_place_of_rewards():
    samples = [
        SimpleNamespace(get_reward_value=lambda args, r=r: r, loss_mask=None, response_length=n, group_index=g)
        for r, n, g in zip([1.0, 0.0, 0.0, 0.5], LENGTHS, [0, 0, 1, 1], strict=True)
    ]
    raw, found = slime.rewards(settings("dr_grpo"), samples)
    assert raw == [1.0, 0.0, 0.0, 0.5] and found == [0.5, -0.5, -0.25, 0.25]


def in_prime_rl(name):
    return through_prime_rl(name, torch.ones(4))


def in_slime(*given):
    return slime.named_estimator(settings(*given))


@pytest.mark.parametrize(
    ("use", "given", "message"),
    [
        (tinker.loss, ["gfpo"], "entropy bonus"),
        (tinker.loss, ["tis"], "correction truncate"),
        (in_prime_rl, ["gspo"], "aggregation seq_mean_token_mean: prime-rl averages over the tokens"),
        (in_prime_rl, ["tis"], "correction truncate"),
        (in_prime_rl, ["kl_cov"], "mask KLCov"),
        (in_slime, [None, False], "rftlab_estimator = None"),
        (
            in_slime,
            ["gspo", True],
            "aggregation seq_mean_token_mean; allowed: token_mean with --calculate-per-token-loss on",
        ),
        (in_slime, ["dapo", False], "allowed: seq_mean_... with --calculate-per-token-loss off"),
        (in_slime, ["reinforce_pp", True], "KL in the reward"),
    ],
)
def test_what_a_loop_does_not_hand_over_is_named(prime, use, given, message):
    with pytest.raises(UserError, match=message):
        use(*given)
