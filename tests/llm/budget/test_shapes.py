"""What a plan knows of a model and of a measured device: shapes against real models, bytes against what autograd keeps,
reports of `make gpu-check`, and the script that measures rounds."""

import json
import sys

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks.llm import measure
from rftlab import Compute, Design, LLMRun, LoRA, Model, TaskConfig, UserError, start_at
from rftlab.llm.budget.devices import FORMAT, GPUS, known_gpu, named_device
from rftlab.llm.budget.footprint import Pass, cache_bytes, memory_use, pass_memory, responses_in_sequence, saved_bytes
from rftlab.llm.budget.plan import Assumed, cost_plan
from rftlab.llm.budget.shapes import KNOWN, Shape, adapted, read_shape, shape_from
from rftlab.llm.models.tiny import build_tiny
from rftlab.llm.policy.packing import PAIRS, Responses, Sharing, packed, sequences
from rftlab.llm.policy.policy import autocast, blinders, compute_again
from rftlab.llm.policy.tensors import with_adapters
from tests.support.machine.here import rftlab
from tests.support.trainer.families import FAMILY, KINDS, config_of
from tests.support.trainer.tiny_models import small_model
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401

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

    monkeypatch.setattr("rftlab.llm.budget.shapes._from_hub", unreachable)
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


CONSTANTS = {"utilisation": 0.41, "step": 3e-3, "row": 1e-5, "sleep": 1.2}
WHOLE = {
    "format": FORMAT,
    "complete": True,
    "device": {"name": "NVIDIA H100 80GB HBM3", "memory": 84e9, "like": "H100"},
    "constants": CONSTANTS,
}


def test_a_report_gives_its_constants_to_plans(tmp_path):
    path = tmp_path / "gpu-check.json"
    path.write_text(json.dumps(WHOLE))
    device = known_gpu(f"measured:{path}")
    assert {name: getattr(device, name) for name in CONSTANTS} == CONSTANTS
    assert (device.memory, device.bandwidth, device.link) == (84e9, GPUS["H100"].bandwidth, GPUS["H100"].link)


WRONG = [{"format": "another"}, {"complete": False}, {"constants": {}}]
CONSTANT = [("sleep", "\x1b[31m\n" * 9), ("utilisation", float("nan")), ("row", 1e300), ("step", [1])]
WRONG += [{"constants": CONSTANTS | {name: value}} for name, value in CONSTANT]
WRONG += [{"device": WHOLE["device"] | more} for more in ({"like": ["H100"]}, {"like": "T4"}, {"memory": 10**400})]
TEXTS = ["", json.dumps(WHOLE)[:150], "[" * 100_000, "[]", "null", *(json.dumps(WHOLE | wrong) for wrong in WRONG)]


@pytest.mark.parametrize("text", TEXTS)
def test_a_hostile_or_half_written_report_is_refused_in_a_line(tmp_path, text):
    path = tmp_path / "gpu-check.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"allowed: the report that `make gpu-check` writes") as told:
        known_gpu(f"measured:{path}")
    assert len(str(told.value)) < 500 and str(told.value).isprintable()


def test_advise_and_dry_runs_take_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    advise = ("advise", "--model", "7B", "--designs", "32x8", "--gpu")
    status, text = rftlab(*advise, "8xmeasured")
    assert status == 2 and "results/gpu-check.json" in text and len(text.splitlines()) == 1
    (tmp_path / "results").mkdir()
    (tmp_path / "results/gpu-check.json").write_text(json.dumps(WHOLE))
    status, text = rftlab(*advise, "8xmeasured")
    assert status == 0 and "8xNVIDIA H100 80GB HBM3" in text and "41% of the peak" in text
    status, text = rftlab("train", "--pair", "qwen-gsm8k", "--dry-run", "--gpu", "measured")
    assert status == 0 and "constants measured" in text and "41% of the device's peak" in text


def test_what_an_update_needs_is_six_operations_for_each_weight_and_token():
    run = start_at("qwen-gsm8k", "llm")
    shape = read_shape(run.model)
    tokens = run.design.batch_size * run.design.rollouts * (300 + 200)
    operations = measure.needed(run, shape, Assumed(300, 200, 1, 1))
    assert operations == pytest.approx(6 * shape.parameters * tokens, rel=0.25)
    assert run.compute.gradient_checkpointing, "what it computes again is no need of the model"


def test_rounds_are_measured_by_phase_and_stand_beside_their_plan():
    run = run_of(batch_size=6, rollouts=4)
    measured, shape, console = measure.measure(run, 2), read_shape(run.model), Console(record=True, width=80)
    assert measured.seconds >= sum(measured.meter.seconds.values()) / 2 > 0
    assert 0 < measured.response <= measured.longest[1] <= 12 and measured.sampled == pytest.approx(
        measured.response * 24
    )
    short = measure.as_long(run, measured)
    assert (short.model.max_prompt_length, short.model.max_response_length) == measured.longest
    assert short.compute.sample_rows == 24
    assumed = Assumed(round(measured.prompt), round(measured.response), 1, 1)
    plan = cost_plan(run, named_device("cpu", None, 1), assumed, shape)
    measure.show(console, plan._replace(memory=memory_use(short, shape)), measured, 2)
    printed = console.export_text()
    assert all(word in printed for word in ("sample ", "update ", "round ", "tokens a second", "a utilisation of"))


def test_a_flag_that_is_wrong_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["measure", "--pair", "gpt-5"])
    with pytest.raises(measure.UserError, match="pair = 'gpt-5' is unknown"):
        measure.main()
