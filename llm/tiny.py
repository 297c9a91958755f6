"""The `tiny` model: a small Llama that learns its base policy from the corpus of an arithmetic task, stopped where it knows a little.

Trained once per configuration and kept in a cache, `$XDG_CACHE_HOME/rftlab/tiny`; on one machine equal configurations give equal weights.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from llm.codec import SymbolCodec
from llm.config import Compute, Tiny
from llm.lock import locked
from llm.policy import Policy
from llm.random import EVALUATION, batch_rows
from llm.responses import Responses, packed
from llm.rollouts import Draws, HFEngine
from llm.tasks import symbols
from llm.tasks.arithmetic import KINDS, corpus
from llm.tasks.config import TaskConfig
from llm.tasks.load import load
from llm.tasks.task import Split
from llm.verify import score
from llm.writing import reported, verify_folder, write_folder
from shared.errors import UserError

VERSION = 1
"""Raised when a change makes equal configurations give other weights."""
LONGEST = 64
"""Tokens that a response may have while the target is looked at."""
LOOKS = 4
"""Responses to each validation problem in a look at Pass@1."""


def pretrained(task: TaskConfig, tiny: Tiny, progress: Callable[[int, float], None] = lambda step, rate: None) -> LlamaForCausalLM:
    """The base model of a task, from the cache or trained now; `progress` is told steps and Pass@1."""
    folder = _cache() / _identity(task, tiny)
    with locked(_cache(), lambda text: None, wait=True):
        try:
            verify_folder(folder, ("model.safetensors",))
        except ValueError:  # absent or damaged
            _read_into(folder, task, tiny, progress)
        model = build(tiny)
        model.load_state_dict(load_file(folder / "model.safetensors"))
    return model


def _read_into(folder: Path, task: TaskConfig, tiny: Tiny, progress: Callable[[int, float], None]) -> None:
    model = read_corpus(task, tiny, progress)
    config = json.dumps({"task": asdict(task), "tiny": asdict(tiny)}, indent=1).encode()
    with reported(folder, also=SafetensorError):
        write_folder(folder, {"config.json": config, "model.safetensors": lambda path: save_file(model.state_dict(), path)})


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rftlab" / "tiny"


def _identity(task: TaskConfig, tiny: Tiny) -> str:
    """Everything that the weights depend on."""
    facts = {"version": VERSION, "task": asdict(task), "tiny": asdict(tiny), "symbols": symbols.SYMBOLS, "corpus": KINDS[task.name].styles.__dict__}
    return f"{task.name}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]}"


def build(tiny: Tiny) -> LlamaForCausalLM:
    """The untrained model."""
    config = LlamaConfig(
        vocab_size=len(symbols.SYMBOLS),
        hidden_size=tiny.width,
        intermediate_size=tiny.hidden,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.heads,
        bos_token_id=symbols.START,
        eos_token_id=symbols.END,
        pad_token_id=symbols.PAD,
    )
    with torch.random.fork_rng():
        torch.manual_seed(tiny.seed)
        return LlamaForCausalLM(config)


def read_corpus(task: TaskConfig, tiny: Tiny, progress: Callable[[int, float], None]) -> LlamaForCausalLM:
    """Train on the corpus, response tokens alone, until the target is reached. Raises UserError where it stays out of reach."""
    problems, codec, model = load(task), SymbolCodec(), build(tiny)
    pairs = corpus(problems["pretrain"], KINDS[task.name].styles, tiny.seed)
    prompts = tuple(tuple(codec.encode(prompt)) for prompt, _ in pairs)
    tokens, starts = packed([[*symbols.encode(response), symbols.END] for _, response in pairs])
    everything = Responses(prompts, np.arange(len(pairs)), tokens, starts)
    policy = Policy(model, Compute())
    optimizer = torch.optim.AdamW(model.parameters(), tiny.rate, (0.9, 0.99), weight_decay=0.0, fused=True)
    for step in range(1, tiny.most_steps + 1):
        rows = batch_rows(len(pairs), min(tiny.batch, len(pairs)), tiny.seed, step - 1)
        logp, _ = policy.log_probs(everything, rows)
        (-logp.mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % tiny.check_every == 0:
            reached = look(policy, problems["validation"], step)
            progress(step, reached)
            if reached >= tiny.target:
                return model
    raise UserError(f"tiny.target = {tiny.target}: Pass@1 is {reached:.3f} after tiny.most_steps = {tiny.most_steps} steps; allowed: a target that is reached")


def look(policy: Policy, split: Split, step: int) -> float:
    """Strict Pass@1 on a split, sampled."""
    codec, n = SymbolCodec(), len(split)
    prompts = tuple(tuple(codec.encode(prompt)) for prompt in split.prompts)
    rollouts = HFEngine(policy, codec.stops).sample(prompts, np.arange(n), np.full(n, LOOKS), Draws(0, EVALUATION, step), 1.0, LONGEST)
    responses = rollouts.responses
    texts = [codec.decode(responses.response(i)) for i in range(len(responses.group))]
    return float(score("arithmetic", texts, [split.answers[g] for g in responses.group], None).strict.mean())
