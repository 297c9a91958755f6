"""Prompts that responses share: the same log-probabilities and gradients, fewer tokens, within the budget."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

import rftlab.llm.policy.policy
from rftlab.llm.config import Compute
from rftlab.llm.policy.packing import ALONE, Responses, Sharing, micro_batches, packed, pays, read, sequences
from rftlab.llm.policy.policy import Policy, takes_masks
from tests.support.trainer.tiny_models import VOCABULARY, exact_norms, small_model, small_policy  # noqa: F401


def uneven(seed=0, groups=4, longest=7):
    """Groups of 1 .. 6 responses of 1 .. 7 tokens to prompts of 1 .. 9; some responses equal, one of them of one
    token."""
    rng = np.random.default_rng(seed)
    prompts = tuple(tuple(rng.integers(3, VOCABULARY, rng.integers(1, 10)).tolist()) for _ in range(groups))
    group = np.repeat(np.arange(groups), rng.integers(1, 7, groups))
    found = [rng.integers(2, VOCABULARY, rng.integers(1, longest + 1)).tolist() for _ in group]
    found += [found[0], found[0], [5], [6]]
    tokens, starts = packed(found)
    return Responses(prompts, np.append(group, [0, 0, groups - 1, groups - 1]), tokens, starts)


def gpt2():
    """A random GPT-2: learned positions instead of rotations."""
    torch.manual_seed(0)
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.1}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2, **shape))


MODELS = {
    "tied": lambda: small_model(1, tie_word_embeddings=True, num_key_value_heads=1),
    "untied": lambda: small_model(2),
    "eager": lambda: small_model(3, attn_implementation="eager"),
    "gpt2": gpt2,
}


def measured(policy, responses, parts=None):
    """Log-probabilities, entropies and the gradient of a random sum of them, micro-batch by micro-batch."""
    weights = torch.tensor(np.random.default_rng(1).standard_normal(len(responses.tokens)))
    logp, entropy = torch.zeros_like(weights), torch.zeros_like(weights)
    for rows in parts or policy.micro_batches(responses):
        tokens = np.concatenate([np.arange(responses.starts[row], responses.starts[row + 1]) for row in rows])
        here = policy.log_probs(responses, rows, with_entropy=True)
        ((here[0] + 0.5 * here[1]) * weights[tokens]).sum().backward()
        logp[tokens], entropy[tokens] = (column.detach() for column in here)
    return logp, entropy, torch.cat([p.grad.flatten() for _, p in policy.named_parameters()])


def both(build, responses, budget=10**6):
    """Shapes that a policy reads which shares prompts, and the largest relative distance of what it measures from what
    one measures that reads each response alone."""
    sharing, alone = (Policy(build().double(), Compute(micro_tokens=budget)) for _ in range(2))
    alone.sharing, shapes = ALONE, []
    sharing.model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    shared = measured(sharing, responses)
    apart = measured(alone, responses, [np.array([row]) for row in range(len(responses.group))])
    return shapes, max(float((x - y).norm() / y.norm()) for x, y in zip(shared, apart, strict=True))


@pytest.mark.parametrize("budget", [10**6, 40, 15, 1])
@pytest.mark.parametrize("name", MODELS)
def test_a_shared_prompt_changes_nothing_but_rounding(name, budget, exact_norms):
    """Groups, responses of one token and equal responses mixed, in one micro-batch or cut into many."""
    for seed in range(3):
        shapes, off = both(MODELS[name], uneven(seed), budget)
        assert off < (1e-6 if name == "eager" else 1e-12)  # its softmax is float32
        if budget == 10**6:
            assert shapes[0][0] == 4, "each group is one sequence"


def leaking(segment, dtype):
    """Planted: responses see those before them."""
    sees = torch.ones(segment.shape[0], segment.shape[1], segment.shape[1], dtype=torch.bool).tril()
    return torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, -torch.inf)[:, None]


def test_masks_positions_and_places_that_are_wrong_are_seen(monkeypatch):
    """Planted: responses that see each other; positions that go on; a first token predicted by the response before
    it."""
    right, responses = rftlab.llm.policy.policy.read, uneven()
    assert both(MODELS["untied"], responses)[1] < 1e-6

    def running(*arguments):
        reading = right(*arguments)
        return reading._replace(positions=np.broadcast_to(np.arange(reading.ids.shape[1]), reading.ids.shape).copy())

    def shifted(*arguments):
        reading = right(*arguments)
        begins = np.diff(reading.places, prepend=-2) != 1
        return reading._replace(places=np.where(begins, np.roll(reading.places, 1), reading.places))

    for name, wrong in (("blinders", leaking), ("read", running), ("read", shifted)):
        with monkeypatch.context() as patch:
            patch.setattr(rftlab.llm.policy.policy, name, wrong)
            assert both(MODELS["untied"], responses)[1] > 1e-3, wrong.__name__


def test_what_the_model_reads():
    """A prompt of two tokens, three responses, one of them twice; and a group of one."""
    tokens, starts = packed([[7, 8], [9], [7, 8], [4, 5, 6], [3]])
    responses = Responses(((10, 11), (12,)), np.array([0, 0, 0, 0, 1]), tokens, starts)
    reading = read(responses, np.arange(5), Sharing(100, 10**6))
    np.testing.assert_array_equal(reading.ids, [[10, 11, 9, 7, 8, 4, 5, 6], [12, 3, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(reading.positions, [[0, 1, 2, 2, 3, 2, 3, 4], [0, 1, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(reading.segment, [[0, 0, 1, 2, 2, 3, 3, 3], [0, 1, -1, -1, -1, -1, -1, -1]])
    np.testing.assert_array_equal(reading.places, [1, 3, 1, 1, 5, 6, 8])
    np.testing.assert_array_equal(reading.targets, [7, 8, 9, 4, 5, 6, 3])
    np.testing.assert_array_equal(reading.targets[reading.spread], tokens)
    assert reading.shared and not read(responses, np.array([0, 2, 4]), Sharing(100, 10**6)).shared


@pytest.mark.parametrize("sharing", [ALONE, Sharing(60, 10), Sharing(60, 200), Sharing(25, 10**6), Sharing(60, 10**6)])
def test_micro_batches_are_read_as_they_were_planned(sharing):
    """Within the budget, but for a response that is too long alone; and the parts of a group are the same when each
    part is read by itself."""
    for seed in range(30):
        responses, budget = uneven(seed, groups=6), sharing.room or 40
        parts = micro_batches(responses, budget, sharing)
        assert sorted(np.concatenate(parts)) == list(range(len(responses.group)))
        heads = np.unique([head_of(responses, row) for row in range(len(responses.group))])
        readings = [read(responses, rows, sharing) for rows in parts]
        assert sum(len(reading.ids) for reading in readings) == len(sequences(responses, heads, sharing))
        assert all(reading.ids.size <= budget or (len(reading.ids) == 1 and not reading.shared) for reading in readings)
        widths = [reading.ids.shape[1] for reading in readings]
        assert widths == sorted(widths, reverse=True)


def head_of(responses, row):
    """The first response that is equal to one."""
    same = [other for other in range(row + 1) if responses.group[other] == responses.group[row]]
    return next(other for other in same if responses.response(other).tolist() == responses.response(row).tolist())


def test_sharing_follows_the_cost():
    """A response joins exactly where the tokens and pairs of one longer sequence cost less than those of two."""

    def cost(total, pairs):
        return total + total**2 / pairs

    rng = np.random.default_rng(0)
    for prompt, responses, length, pairs in rng.integers(1, 400, (300, 4)):
        total = prompt + responses
        expected = cost(total + length, pairs) - cost(total, pairs) < cost(prompt + length, pairs)
        assert pays(prompt, total, length, pairs) == expected
    assert pays(150, 150 + 7 * 16, 16, 4 * 576), "long prompts and short responses"
    assert not pays(20, 20 + 300, 300, 4 * 576), "short prompts and long responses"


def mistral(**more):
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return MistralForCausalLM(MistralConfig(vocab_size=VOCABULARY, **shape, **heads, **more))


def test_models_that_attend_otherwise_read_each_response_alone():
    """Sliding windows and unknown kernels: the mask that we give would not be theirs. Their log-probabilities stay
    right."""
    assert takes_masks(small_model()) and takes_masks(gpt2()) and takes_masks(mistral(sliding_window=None))
    windowed = mistral(sliding_window=3)
    assert not takes_masks(windowed)
    stateful, flash = small_model(), small_model()
    stateful._is_stateful, flash.config._attn_implementation_internal = True, "flash_attention_2"
    mixed = small_model()
    mixed.config.layer_types = ["full_attention", "sliding_attention"]
    assert not any(takes_masks(model) for model in (stateful, flash, mixed))
    policy, responses = Policy(windowed, Compute()), uneven()
    alone = [policy.log_probs(responses, np.array([row]))[0].detach().numpy() for row in range(len(responses.group))]
    np.testing.assert_allclose(policy.all_log_probs(responses), np.concatenate(alone), atol=1e-5)
    policy.sharing = Sharing(10**6, 10**6)
    assert np.abs(policy.all_log_probs(responses) - np.concatenate(alone)).max() > 1e-3
