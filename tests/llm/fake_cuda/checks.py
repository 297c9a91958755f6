"""The checks on a fake GPU, in a process of their own: `python -m tests.llm.fake_cuda.checks LIBRARY`, which is
`device.cpp` compiled. Prints one JSON object."""

import ctypes
import gc
import json
import os
import sys

if __name__ == "__main__":
    ctypes.CDLL(sys.argv[1])  # before torch looks for a device

import warnings
from dataclasses import replace

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import rftlab as rl
from rftlab import KL, prepare, start_at
from rftlab.llm.budget.footprint import memory_use
from rftlab.llm.budget.shapes import KNOWN
from rftlab.llm.losses import weights as frozen
from rftlab.llm.losses.inputs import reads_entropy
from rftlab.llm.policy import policy as policies
from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.policy.policy import Policy
from rftlab.llm.training import update
from rftlab.shared.cards import PRESETS
from rftlab.shared.config.advantage import PER_TOKEN
from tests.llm.fake_cuda.watch import fake_gpu
from tests.support.trainer.families import KINDS, config_of

ROWS, WIDTH = 16, 1  # what comes to the CPU is 1 throughout: so long are responses then
BATCH, ROLLOUTS = 1, 10  # of the longest responses five make a full pass
MODELS = [name for name in KNOWN if "/" in name]
SMALL = MODELS[0]
DEVICE_PARTS = ("weights", "reference", "optimiser", "gradients", "activations", "bf16 copies", "logits")
"""What tensors of the trainer hold; the rest of a plan is vLLM's and the libraries'."""


def loss(name, padded, dtype, given=False):
    """Waits of the objective and gradient of a card, all arguments on the device; given: advantages, too."""
    estimator, shape = PRESETS[name], (ROWS, WIDTH) if padded else (ROWS * WIDTH,)
    spec = estimator.advantage

    def column(*shape, dtype=dtype, **more):
        return torch.empty(shape, device="cuda", dtype=dtype, **more)

    with fake_gpu() as watch:
        logp, wide = column(*shape, requires_grad=True), torch.float32
        named = (
            {"mask": column(*shape, dtype=torch.bool)} if padded else {"starts": column(ROWS + 1, dtype=torch.int64)}
        )
        if estimator.kl.kind != "none" and estimator.kl.anchor == "base":
            named["ref_logp"] = column(*shape)
        if estimator.correction.kind != "none":
            named["sampler_logp"] = column(*shape)
        if reads_entropy(estimator):
            named["entropy"] = column(*shape, requires_grad=True)
        if estimator.entropy_target:
            named["bonus"] = 0.01
        if given:
            named["advantages"] = column(ROWS, dtype=wide)
            if estimator.aggregation.kind == "prompt_mean":
                named["group"] = column(ROWS, dtype=torch.int64)
        else:
            named |= {"rewards": column(ROWS, dtype=wide), "group": column(ROWS, dtype=torch.int64)}
            if spec.given:
                named["baseline"] = column(*(shape if spec.baseline in PER_TOKEN else (ROWS,)), dtype=wide)
        value = rl.losses.objective(logp, column(*shape), estimator=name, **named)
        (-value).backward()
        assert value.device.type == logp.grad.device.type == "cuda" and logp.grad.dtype == dtype
    return watch.seen["waits"]


def tried(check, *arguments):
    """What a check returns, or the name of what it raised."""
    try:
        return check(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"


def cards():
    """Waits, or errors, of every card, layout and number type, from rewards and from advantages."""
    return {
        f"{name} {layout} {dtype} {given}": tried(loss, name, layout == "padded", dtype, given == "advantages")
        for name in PRESETS
        for layout in ("padded", "packed")
        for dtype in (torch.float32, torch.bfloat16)
        for given in ("rewards", "advantages")
    }


def planted(place, name, change, check, *arguments):
    """What a check says with a function changed."""
    plain = getattr(place, name)
    setattr(place, name, change(plain))
    try:
        return tried(check, *arguments)
    finally:
        setattr(place, name, plain)


def on_the_cpu(function):
    return lambda *arguments, **named: torch.zeros(function(*arguments, **named).shape)


def asked(function):
    def asks(*arguments, **named):
        out = function(*arguments, **named)
        out.sum().item()
        return out

    return asks


def paper_run(name):
    """A run of the paper on that model, with the KL penalty, two micro-batches of the longest texts."""
    pair = {"qwen2": "qwen-gsm8k", "llama": "llama-gsm8k", "olmo2": "olmo-gsm8k"}[KINDS[name]]
    run = start_at(pair, "llm")
    estimator = replace(run.design.estimator, kl=KL("k3", 0.001))
    return replace(run, design=replace(run.design, batch_size=BATCH, rollouts=ROLLOUTS, estimator=estimator))


def longest(run):
    """Responses that fill the limits, all different."""
    rng, n = np.random.default_rng(0), run.design.batch_size * run.design.rollouts
    tokens, starts = packed(rng.integers(0, 1000, (n, run.model.max_response_length)).tolist())
    prompts = tuple(tuple(range(g, g + run.model.max_prompt_length)) for g in range(run.design.batch_size))
    return Responses(prompts, np.repeat(np.arange(len(prompts)), run.design.rollouts), tokens, starts)


def trainer(name, layers=None):
    """Counts of a round's parts, and peaks beside those of the plan; layers: fewer than the model has."""
    run, shape = paper_run(name), KNOWN[name]._replace(**({"layers": layers} if layers else {}))
    assert run.compute.device == "cuda" and run.compute.precision == "bf16" and run.compute.gradient_checkpointing
    responses, estimator = longest(run), run.design.estimator
    with fake_gpu() as watch:
        with torch.device("cuda"):
            config = config_of(KINDS[name], shape)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
        policy = Policy(model, run.compute)
        reference, optimizer = policy.reference(), update.make_optimizer(policy, run.optimizer)
        old, rewards = np.full(len(responses.tokens), 1.0), np.arange(len(responses.group)) % 2.0
        batch = prepare(estimator, rewards, responses.group, responses.starts, old, old)
        for _, weight in policy.named_parameters():
            weight.grad = torch.empty_like(weight)
        update.step(policy, optimizer, run.optimizer, 0)  # from here on the moments are there
        phases = {phase: {} for phase in ("log_probs", "update", "step")}
        with watch.phase(phases["log_probs"]):
            reference.all_log_probs(responses)
        with watch.phase(phases["update"]):
            update.accumulate(policy, estimator, batch, responses, on_policy=True)
        with watch.phase(phases["step"]):
            update.step(policy, optimizer, run.optimizer, 1)
        parts = len(policy.micro_batches(responses))
    for kept in (True, False):
        compute = replace(run.compute, gradient_checkpointing=kept)
        plan = memory_use(replace(run, compute=compute), shape).phases
        for phase in ("log_probs", "update"):
            planned = sum(plan[phase].get(part, 0.0) for part in DEVICE_PARTS)
            phases[phase]["of plan" if kept else "of another plan"] = phases[phase]["peak"] / planned
    return {"micro-batches": parts, **phases}


def asked_by_number(function):
    def asks(*arguments, **named):
        out = function(*arguments, **named)
        float(out[0].detach().sum())
        return out

    return asks


def kept_back(function):
    return lambda arrays, device, dtype=None: function(arrays, "cpu", dtype)


def without_pages(function):
    return lambda arrays, device, dtype=None: [
        torch.from_numpy(array).to(device, dtype or torch.int64) for array in arrays
    ]


def main():
    """Run all checks."""
    gc.disable()  # torch 2.13 crashes where fake storages that are watched are collected, also at the end of a process
    warnings.filterwarnings("ignore")
    small, case = (SMALL, 1), (next(iter(PRESETS)), True, torch.float32)
    said = {
        "cards": cards(),
        "cards, an item() planted": planted(frozen, "token_shares", asked, loss, *case),
        "cards, a CPU tensor planted": planted(frozen, "token_shares", on_the_cpu, loss, *case),
        "trainer": {name: trainer(name) for name in MODELS},
        "trainer, a number planted": planted(Policy, "log_probs", asked_by_number, trainer, *small),
        "trainer, a copy planted": planted(policies, "send", without_pages, trainer, *small),
        "trainer, a CPU tensor planted": planted(policies, "send", kept_back, trainer, *small),
    }
    print(json.dumps(said), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
