"""Predicted and measured memory, part by part: `python -m benchmarks.llm.memory --source FOLDER`.

Every case is a fresh process that takes a model through the phases of a round with the trainer's own code. A part is
measured as the growth of memory when it appears. On a CPU this is resident memory of the process, where malloc returns
freed arrays at once (MALLOC below; otherwise freed memory stays resident and hides later growth). On an accelerator it
is allocated memory. Gradients of adapters are measured as the bytes of their tensors. It needs torch and transformers.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import rftlab.llm.engines.rollouts
from rftlab.llm.budget.footprint import memory_use
from rftlab.llm.budget.shapes import read_shape
from rftlab.llm.config import Compute, LLMRun, LoRA, Model
from rftlab.llm.engines.rollouts import Draws, HFEngine
from rftlab.llm.meter import peak_megabytes, reset_peak
from rftlab.llm.models.load import load_model
from rftlab.llm.policy.policy import Frozen, Policy
from rftlab.llm.policy.tensors import with_adapters
from rftlab.llm.random import ROLLOUT
from rftlab.llm.tasks.config import TaskConfig
from rftlab.llm.training.update import accumulate, make_optimizer, step
from rftlab.shared.config.kl import KL
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.prepare import prepare

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}
CASES = ("kept", "checkpointing", "adapters", "adapters checkpointing")
"""Names of cases: all weights or adapters are trained, and blocks are kept or computed again."""
LORA_RANK = 8
NEVER = (-1,)
"""Stop ids that are no token, so that every response has the largest length."""


class Memory:
    """Memory in MB, allocated on the accelerator or resident."""

    def __init__(self, device: str):
        self.device = torch.device(device)

    def now(self) -> float:
        """Return the MB in use."""
        if self.device.type == "cuda":
            return torch.cuda.memory_allocated(self.device) / 1e6
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024 / 1e6

    def peak(self, work) -> float:
        """Return the largest MB during `work`."""
        reset_peak(self.device)
        work()
        return peak_megabytes(self.device)


class Row(NamedTuple):
    """Predicted and measured memory of a part of a phase."""

    phase: str
    part: str
    predicted: float
    measured: float


def run_of(arguments) -> LLMRun:
    """Return a run with a reference, and passes for two updates."""
    estimator = Estimator(kl=KL("k3", 0.001))
    compute = Compute(
        arguments.device,
        precision=arguments.precision,
        sample_rows=arguments.batch * arguments.rollouts,
        micro_tokens=arguments.micro_tokens,
        logit_rows=arguments.logit_rows,
        gradient_checkpointing=arguments.checkpointing,
    )
    model = Model(arguments.source, max_prompt_length=arguments.prompt, max_response_length=arguments.response)
    lora = LoRA(LORA_RANK if arguments.adapters else 0)
    return LLMRun(
        TaskConfig("words"),
        model,
        Design(arguments.batch, arguments.rollouts, estimator=estimator),
        compute=compute,
        lora=lora,
    )


def measure(run: LLMRun) -> list[Row]:
    """Return every part, in the order in which it appears."""
    memory, plan = Memory(run.compute.device), memory_use(run, read_shape(run.model))
    on_cpu = memory.device.type == "cpu"
    _warm_up(run)
    rows, before = [], memory.now()

    def row(phase: str, parts: tuple[str, ...], measured: float) -> None:
        rows.append(
            Row(phase, " + ".join(parts), sum(plan.phases[phase].get(part, 0.0) for part in parts) / 1e6, measured)
        )

    if on_cpu:
        row("update", ("libraries",), before)
    model, _ = load_model(run)
    policy = Policy(model, run.compute)
    _read_all(model)
    row("update", ("weights",), memory.now() - before)

    before, reference = memory.now(), policy.reference()
    frozen = isinstance(reference, Frozen)
    if frozen:
        _read_all(reference.model)
        row("log_probs", ("reference",), memory.now() - before)
        reference.rest()

    before, peak, found = memory.now(), 0.0, []
    cache = _watch_cache(memory)
    peak = memory.peak(lambda: found.append(_sample(run, policy)))
    logits = 4 * run.compute.sample_rows * read_shape(run.model).vocabulary / 1e6
    row("sample", ("cache",), max(cache) - before - logits)
    row("sample", ("cache", "activations", "bf16 copies", "logits"), peak - before)

    rollouts, logp = found[0], []
    if frozen:
        _read_all(reference.model)
    before = memory.now()
    peak = memory.peak(
        lambda: logp.extend([policy.all_log_probs(rollouts.responses), reference.all_log_probs(rollouts.responses)])
    )
    row("log_probs", ("activations", "bf16 copies", "logits"), peak - before)

    reference.rest()
    batch = _batch(run, rollouts, *logp)
    optimizer, before = make_optimizer(policy, run.optimizer), memory.now()
    accumulate(policy, run.design.estimator, batch, rollouts.responses)
    row("update", ("gradients",), _gradients(policy) if run.lora.rank else memory.now() - before)
    step(policy, optimizer, run.optimizer, 0)
    row("update", ("optimiser",), memory.now() - before)

    grown = _watch_forward(memory, policy)
    steady = memory.now()
    peak = memory.peak(lambda: accumulate(policy, run.design.estimator, batch, rollouts.responses))
    row("update", ("activations", "bf16 copies"), max(grown))
    row("update", ("gradients", "activations", "bf16 copies", "logits"), peak - steady)
    if on_cpu:
        rows.append(Row("update", "peak of the process", plan.total("update") / 1e6, peak))
    return rows


def _warm_up(run: LLMRun) -> None:
    """Take a small model of two blocks through a round, so that libraries are loaded and compiled before measuring."""
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
    )
    policy = Policy(with_adapters(LlamaForCausalLM(config).to(run.compute.device), run.lora, 0), run.compute)
    rollouts, optimizer = _sample(run, policy), make_optimizer(policy, run.optimizer)
    logp = policy.all_log_probs(rollouts.responses)
    accumulate(policy, run.design.estimator, _batch(run, rollouts, logp, logp), rollouts.responses)
    step(policy, optimizer, run.optimizer, 0)


def _gradients(policy: Policy) -> float:
    """Return the MB of gradients, from their tensors. Gradients of adapters may fit into memory that was freed before,
    so that the process hardly grows."""
    return sum(parameter.grad.nbytes for parameter in policy.model.parameters() if parameter.grad is not None) / 1e6


def _read_all(model: torch.nn.Module) -> None:
    """Read all weights, because those of a mapped file are resident only once they were read."""
    for parameter in model.parameters():
        parameter.detach().sum()


def _batch(run: LLMRun, rollouts, old: np.ndarray, anchor: np.ndarray):
    rewards = np.random.default_rng(0).integers(0, 2, len(rollouts.responses.group)).astype(float)
    return prepare(run.design.estimator, rewards, rollouts.responses.group, rollouts.responses.starts, old, anchor)


def _sample(run: LLMRun, policy: Policy):
    """Sample responses of full length to random prompts of two lengths, so that there is padding."""
    rng = np.random.default_rng(0)
    prompts = [
        tuple(rng.integers(3, 1000, run.model.max_prompt_length - i % 2).tolist()) for i in range(run.design.batch_size)
    ]
    contexts, counts = np.arange(len(prompts)), np.full(len(prompts), run.design.rollouts)
    return HFEngine(policy, NEVER).sample(
        prompts, contexts, counts, Draws(0, ROLLOUT, 0), 1.0, run.model.max_response_length
    )


def _watch_cache(memory: Memory) -> list[float]:
    """Return a list that gets the MB in use whenever a token is about to be picked."""
    seen, pick = [], rftlab.llm.engines.rollouts.pick

    def watched(*arguments):
        seen.append(memory.now())
        return pick(*arguments)

    rftlab.llm.engines.rollouts.pick = watched
    return seen


def _watch_forward(memory: Memory, policy: Policy) -> list[float]:
    """Return a list that gets the MB by which each forward pass of an update increases memory."""
    grown, log_probs = [], policy.log_probs

    def watched(*arguments, **more):
        before = memory.now()
        columns = log_probs(*arguments, **more)
        grown.append(memory.now() - before)
        return columns

    policy.log_probs = watched
    return grown


def show(name: str, rows: list[Row]) -> None:
    """Print predicted and measured memory."""
    print(f"\n{name}\n{'phase':<10} {'part':<52} {'predicted MB':>12} {'measured MB':>12} {'ratio':>6}")
    for row in rows:
        print(
            f"{row.phase:<10} {row.part:<52} {row.predicted:>12.0f} {row.measured:>12.0f} "
            f"{row.predicted / row.measured:>6.2f}",
            flush=True,
        )


def main() -> None:
    """Parse the command line, and start a process for each case, or run one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", default="smollm2-135m", help="a folder with a model, or smollm2-135m")
    for name, value in {
        "batch": 2,
        "rollouts": 6,
        "prompt": 64,
        "response": 64,
        "micro-tokens": 448,
        "logit-rows": 256,
        "threads": 1,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument(
        "--cases",
        nargs="*",
        default=CASES,
        choices=CASES,
        help="what is trained, and whether blocks are kept or run again",
    )
    parser.add_argument("--plain-malloc", action="store_true", help="malloc as it comes")
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        arguments.checkpointing, arguments.adapters = "checkpointing" in arguments.case, "adapters" in arguments.case
        torch.set_num_threads(arguments.threads)
        print(json.dumps(measure(run_of(arguments))))
        return
    for case in arguments.cases:
        environment = (
            os.environ
            | {"OMP_NUM_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1"}
            | ({} if arguments.plain_malloc else MALLOC)
        )
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.llm.memory", *sys.argv[1:], "--case", case],
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(done.stderr[-4000:])
        show(f"{arguments.precision}, {case}", [Row(*row) for row in json.loads(done.stdout.splitlines()[-1])])


if __name__ == "__main__":
    main()
