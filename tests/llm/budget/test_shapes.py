"""What a plan knows of a model: its shapes against real models, and bytes against what autograd keeps."""

import json

import numpy as np
import pytest
import torch

import rftlab.llm.budget.shapes
from rftlab import Compute, Design, LLMRun, LoRA, Model, TaskConfig, UserError
from rftlab.llm.budget.footprint import Pass, cache_bytes, pass_memory, responses_in_sequence, saved_bytes
from rftlab.llm.budget.shapes import KNOWN, Shape, adapted, read_shape, shape_from
from rftlab.llm.models.tiny import build_tiny
from rftlab.llm.policy.packing import PAIRS, Responses, Sharing, packed, sequences
from rftlab.llm.policy.policy import autocast, blinders, compute_again
from rftlab.llm.policy.tensors import with_adapters
from tests.support.trainer.families import FAMILY, KINDS, config_of
from tests.support.trainer.tiny_models import small_model

SMALL = Shape(50, 64, 2, 4, 2, 16, 160, tied=False)
SMALL_OF = {"llama": SMALL, "qwen2": SMALL._replace(biases=128), "olmo2": SMALL._replace(kv_heads=4, after=True)}


def model_of(kind, shape, device="cpu"):
    with torch.device(device):
        return FAMILY[kind][1](config_of(kind, shape))


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_of_known_models_are_those_of_the_real_ones(name):
    model = model_of(KINDS[name], KNOWN[name], "meta")
    assert KNOWN[name].parameters == count(model)
    assert KNOWN[name].block_products == sum(
        p.numel() for n, p in model.base_model.layers[0].named_parameters() if n.endswith("proj.weight")
    )
    assert shape_from(name, config_of(KINDS[name], KNOWN[name]).to_dict()) == KNOWN[name]
    assert read_shape(Model(name)) == KNOWN[name]


def test_the_tiny_model_and_a_folder(tmp_path):
    assert read_shape(Model()).parameters == count(build_tiny(Model().tiny))
    biased = small_model(attention_bias=True, mlp_bias=True)
    biased.config.save_pretrained(tmp_path)
    assert read_shape(Model(str(tmp_path))).parameters == count(biased)


def test_what_cannot_be_read_is_named(tmp_path, monkeypatch):
    def unreachable(name):
        raise OSError("no connection")

    monkeypatch.setattr(rftlab.llm.budget.shapes, "_from_hub", unreachable)
    said = "its shape cannot be read: no connection; allowed: tiny, smollm2-135m, Qwen/.*a folder"
    with pytest.raises(UserError, match=f"'who/knows': {said}"):
        read_shape(Model("who/knows"))
    with pytest.raises(UserError, match="its shape cannot be read"):
        read_shape(Model(str(tmp_path)))
    for config, message in (
        ({"model_type": "gpt2"}, "'gpt2'; a plan knows: llama, mistral, qwen2, olmo2"),
        ({"model_type": "llama"}, "has no 'hidden_size'"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(UserError, match=message):
            read_shape(Model(str(tmp_path)))


def kept_by_autograd(model, compute, sequences, length, shared):
    """Bytes of everything but weights that lives after the body's forward pass: what autograd saves, the mask, the
    arguments of blocks that run again."""
    storages, weights = {}, {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes(), tensor  # held, so that no other takes its place
        return tensor

    def note_arguments(block, arguments, more):
        for tensor in (*arguments, *more["position_embeddings"]):
            note(tensor)

    narrow = torch.bfloat16 if compute.precision == "bf16" else torch.float32
    ids, positions = torch.full((sequences, length), 3), torch.arange(length).repeat(sequences, 1)
    arguments = {}
    if shared:
        mask = note(blinders((positions > 4).long() * (1 + positions % 2), narrow))
        arguments = {"position_ids": positions, "attention_mask": mask}
    for block in model.base_model.layers if model.training else ():
        block.register_forward_pre_hook(note_arguments, with_kwargs=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), autocast(compute):
        model.base_model(input_ids=ids, use_cache=False, **arguments)
    return sum(size for size, _ in storages.values())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", FAMILY)
def test_kept_bytes_are_those_that_autograd_keeps(kind, precision, shared, checkpointing):
    shape, compute = SMALL_OF[kind], Compute(precision=precision)
    model = model_of(kind, shape).train(checkpointing)
    if checkpointing:
        compute_again(model)
    narrow = 2 if precision == "bf16" else 4
    copies = 2 * shape.body_products if narrow == 2 and not checkpointing else 0
    predicted = saved_bytes(shape, Pass(3 * 40, 40, shared), narrow, checkpointing) + copies
    assert predicted == pytest.approx(kept_by_autograd(model, compute, 3, 40, shared), rel=0.01)


@pytest.mark.parametrize("targets", [(), ("q_proj", "v_proj"), ("up_proj", "down_proj", "o_proj")])
@pytest.mark.parametrize(("precision", "checkpointing"), [("fp32", False), ("bf16", False), ("fp32", True)])
@pytest.mark.parametrize("kind", FAMILY)
def test_kept_bytes_beside_frozen_weights_are_those_that_autograd_keeps(kind, precision, checkpointing, targets):
    """Ten blocks, because the first one's keeps less: nothing before it is trained."""
    pytest.importorskip("peft")
    plain, lora, narrow = SMALL_OF[kind]._replace(layers=10), LoRA(4, targets=targets), 2 if precision == "bf16" else 4
    model, shape = with_adapters(model_of(kind, plain), lora, 0).train(checkpointing), adapted(plain, lora)
    assert shape.adapters == sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if checkpointing:
        compute_again(model)
    copies = 2 * (shape.body_products + shape.adapters) if narrow == 2 else 0
    predicted = saved_bytes(shape, Pass(3 * 40, 40, False), narrow, checkpointing) + copies
    assert predicted == pytest.approx(kept_by_autograd(model, Compute(precision=precision), 3, 40, False), rel=0.05)


@pytest.mark.parametrize(("precision", "least"), [("fp32", 1.0), ("bf16", 0.5)])
def test_cache_bytes_are_the_most_that_the_models_cache_takes(precision, least):
    """In which precision it keeps values under autocast is the library's own affair."""
    model, compute = model_of("llama", SMALL), Compute(precision=precision)
    with torch.inference_mode(), autocast(compute):
        out = model(torch.full((3, 7), 3), use_cache=True)
        cache = out["cache" if "cache" in out else "past_key_values"]
    held = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert least * cache_bytes(SMALL, 3 * 7) <= held <= cache_bytes(SMALL, 3 * 7)


@pytest.mark.parametrize(
    ("prompt", "response", "rollouts", "room"),
    [(120, 200, 64, 16384), (7, 3, 5, 40), (2, 90, 4, 400), (512, 1024, 8, 16384)],
)
def test_sequences_are_those_of_packing(prompt, response, rollouts, room):
    run = LLMRun(TaskConfig("words"), Model("x"), Design(3, rollouts), compute=Compute(micro_tokens=room))
    tokens, starts = packed([[i] * response for i in range(rollouts)])
    responses = Responses(((1,) * prompt,), np.zeros(rollouts, dtype=np.int64), tokens, starts)
    parts = sequences(responses, np.arange(rollouts), Sharing(room, PAIRS * SMALL.hidden))
    assert responses_in_sequence(run, SMALL, prompt, response) == len(parts[0])
    read = pass_memory(run, SMALL, prompt, response)
    assert read.length == prompt + len(parts[0]) * response and read.shared == (len(parts[0]) > 1)
    assert read.tokens == min(max(room, read.length), 3 * len(parts) * read.length)
