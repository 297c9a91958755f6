"""Pre-train the `tiny` model: a small Llama that learns its base policy from the corpus of an arithmetic task, stopped
at a low Pass@1.

It is trained once per configuration and kept in a cache, `$XDG_CACHE_HOME/rftlab/tiny`; on one machine equal
configurations give equal weights. Beside a model's folder, `<model>.reading` holds the lock of its training, and its
last checkpoint until the model is finished.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from rftlab.llm.config import Compute, Tiny
from rftlab.llm.engines.rollouts import Draws, HFEngine
from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.policy.policy import Policy
from rftlab.llm.policy.tensors import MOMENTS, WEIGHTS, moment_files, restore_moments
from rftlab.llm.random import EVALUATION, batch_rows
from rftlab.llm.rewards.verify import score
from rftlab.llm.stored import locked
from rftlab.llm.tasks.arithmetic import END, KINDS, PAD, START, SYMBOLS, corpus, encode_symbols
from rftlab.llm.tasks.codec import SymbolCodec
from rftlab.llm.tasks.config import TaskConfig, task_facts
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Split
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import remove_partial, reported, verify_folder, write_folder
from rftlab.shared.plumbing.folders import cache_folder, path_kind, read_json, remove

VERSION = 1
"""Version of the pre-training. It is raised when a change makes equal configurations give other weights."""
LAST, STATE = "last", "state.json"
"""Names of a training's checkpoint, and of the file with its state."""
KEPT = "the last checkpoint stays, run the same command again to go on from it"
LONGEST = 64
"""Largest number of tokens of a response while the target is checked."""
LOOKS = 4
"""Number of responses to each problem in a validation."""


def pretrained(
    task: TaskConfig, tiny: Tiny, progress: Callable[[int, float], None] = noop, remark: Callable[[str], None] = noop
) -> LlamaForCausalLM:
    """Return the base model of a task, from the cache or trained now; a killed training continues from its last
    checkpoint.

    progress: called with steps and Pass@1; remark: called with messages for the user.
    """
    folder = cache_folder("tiny") / _identity(task, tiny)
    if not _whole(folder):
        reading = folder.with_name(f"{folder.name}.reading")
        with locked(
            reading, remark, waiting=f"{folder}: another process trains this base model; waiting until it is there"
        ):
            if not _whole(folder):  # another process may have made it while this one waited
                remove_partial(reading)
                model = read_corpus(task, tiny, progress, reading / LAST, remark)
                config = json.dumps({"task": task_facts(task), "tiny": asdict(tiny)}, indent=1).encode()
                with reported(folder, also=SafetensorError):
                    weights = partial(save_file, model.state_dict())
                    write_folder(folder, {"config.json": config, WEIGHTS: weights})
                remove(reading / LAST)
    model = build_tiny(tiny)
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model


def _whole(folder: Path) -> bool:
    """Whether a folder exists and is undamaged."""
    try:
        verify_folder(folder, (WEIGHTS,))
    except ValueError:
        return False
    return True


def _identity(task: TaskConfig, tiny: Tiny) -> str:
    """Return the name of a model's folder, with a hash of everything that the weights depend on."""
    facts = {
        "version": VERSION,
        "task": task_facts(task),
        "tiny": asdict(tiny),
        "symbols": SYMBOLS,
        "corpus": KINDS[task.name].styles,
    }
    return f"{task.name}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]}"


def build_tiny(tiny: Tiny) -> LlamaForCausalLM:
    """Return the untrained model."""
    config = LlamaConfig(
        vocab_size=len(SYMBOLS),
        hidden_size=tiny.width,
        intermediate_size=tiny.hidden,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.heads,
        bos_token_id=START,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    with torch.random.fork_rng():
        torch.manual_seed(tiny.seed)
        return LlamaForCausalLM(config)


def read_corpus(
    task: TaskConfig, tiny: Tiny, progress: Callable[[int, float], None], last: Path, remark: Callable[[str], None]
) -> LlamaForCausalLM:
    """Train on the response tokens of the corpus until the target is reached, and write the checkpoint `last` after
    every validation that does not end the training.

    Raises UserError where the target is not reached.
    """
    problems, model = load_task(task), build_tiny(tiny)
    everything = _read(corpus(problems["pretrain"], KINDS[task.name].styles, tiny.seed))
    policy, n = Policy(model, Compute()), len(everything.prompts)
    optimizer = torch.optim.AdamW(model.parameters(), tiny.learning_rate, (0.9, 0.99), weight_decay=0.0, fused=True)
    done, reached = _resume(last, model, optimizer, remark)
    for step in range(done + 1, tiny.max_steps + 1):
        logp, _ = policy.log_probs(everything, batch_rows(n, min(tiny.batch, n), tiny.seed, step - 1))
        (-logp.mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % tiny.check_every == 0 or step == tiny.max_steps:
            reached = validation_pass_at_1(policy, problems["validation"], step)
            progress(step, reached)
            if reached >= tiny.target:
                return model
            facts = json.dumps({"step": step, "reached": reached}).encode()
            with reported(
                last, "the last checkpoint stays, run the same command again to go on from it", SafetensorError
            ):
                write_folder(last, {STATE: facts, **moment_files(model.named_parameters(), optimizer)})
    raise UserError(
        f"tiny.target = {tiny.target}: Pass@1 is {reached:.3f} after tiny.max_steps = {tiny.max_steps} steps; "
        "allowed: a target that is reached"
    )


def _read(pairs: list[tuple[str, str]]) -> Responses:
    """Return prompts with one response each as token ids."""
    tokens, starts = packed([[*encode_symbols(response), END] for _, response in pairs])
    return Responses(
        tuple(map(tuple, SymbolCodec().encode([prompt for prompt, _ in pairs]))), np.arange(len(pairs)), tokens, starts
    )


def _resume(
    last: Path, model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, remark: Callable[[str], None]
) -> tuple[int, float]:
    """Return the steps done and the Pass@1 reached of a checkpoint, after restoring it; a damaged one is not used."""
    if not path_kind(last):
        return 0, 0.0
    try:
        verify_folder(last, (STATE, WEIGHTS, MOMENTS))
    except ValueError as damage:
        remark(f"damaged, the base model is trained from the beginning: {damage}")
        return 0, 0.0
    restore_moments(last, model.named_parameters(), optimizer)
    facts = read_json(last / STATE)
    return facts["step"], facts["reached"]


def validation_pass_at_1(policy: Policy, split: Split, step: int) -> float:
    """Return strict Pass@1 on a split, from sampled responses."""
    codec, n = SymbolCodec(), len(split)
    prompts = tuple(map(tuple, codec.encode(split.prompts)))
    rollouts = HFEngine(policy, codec.stops).sample(
        prompts, np.arange(n), np.full(n, LOOKS), Draws(0, EVALUATION, step), 1.0, LONGEST
    )
    responses = rollouts.responses
    texts = [codec.decode(responses.response(i)) for i in range(len(responses.group))]
    return float(score("arithmetic", texts, [split.answers[g] for g in responses.group], None).strict.mean())
