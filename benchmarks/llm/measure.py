"""Rounds of a pair on the device at hand, beside its plan: `python -m benchmarks.llm.measure --pair qwen-gsm8k`.

It takes the flags of `rftlab train` and runs the trainer itself: data, engine, scores, updates. For each phase it
prints tokens, seconds and peak memory, measured and planned with the lengths that were seen; tokens a second of the
sampler; the model FLOPs utilisation of the update (what the model needs, without what checkpointing computes again,
over the peak of the device's data sheet). On one GPU of any kind; without vLLM: --compute.engine hf.
"""

import argparse
import math
import sys
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console

from rftlab.llm.budget.devices import UTILISATION, Device, named_device
from rftlab.llm.budget.footprint import memory_use
from rftlab.llm.budget.plan import Assumed, CostPlan, cost_plan, estimate_duration
from rftlab.llm.budget.shapes import Shape, read_shape
from rftlab.llm.config import LLMRun
from rftlab.llm.meter import Meter
from rftlab.llm.models.load import load_data, load_model
from rftlab.llm.policy.policy import Policy
from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.train import engine_for, torch_threads
from rftlab.llm.training.trainer import Trainer
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.cli.trained import parse_train
from rftlab.studies.console.table import Table


class DeviceMeter(Meter):
    """Meter that also records the GPU memory in use when a phase begins, because torch does not count vLLM's."""

    def clear(self) -> None:
        """Set all measurements to 0."""
        super().clear()
        self.in_use = dict.fromkeys(self.seconds, 0.0)

    def phase(self, name: str):
        """Count the time and memory of the block, as `Meter.phase` does."""
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            self.in_use[name] = max(self.in_use[name], (total - free) / 1e6)
        return super().phase(name)


class Measured(NamedTuple):
    """Means over the measured rounds."""

    meter: DeviceMeter
    seconds: float
    """Seconds of a round, including work outside of the phases."""
    prompt: float
    """Tokens of a prompt."""
    response: float
    sampled: float
    """Tokens of responses in a round."""
    longest: tuple[int, int]
    """Tokens of the longest prompt and of the longest response."""


def measure(run: LLMRun, rounds: int) -> Measured:
    """Measure rounds after one that warms up."""
    model, codec = load_model(run)
    policy = Policy(model, run.compute, run.temperature)
    data, total, lengths, prompts = load_data(run, codec), 0.0, [], []
    with MathPool() as pool, torch_threads(run):
        trainer = Trainer(run, policy, engine_for(run, policy, codec), codec, data, pool)
        trainer.meter = DeviceMeter(run.compute.device)
        trainer.round()
        trainer.meter.clear()
        for _ in range(rounds):
            began = time.perf_counter()
            responses = trainer.round().samples.rollouts.responses
            total += time.perf_counter() - began
            lengths.append(responses.lengths)
            prompts += [len(prompt) for prompt in responses.prompts]
    everything = np.concatenate(lengths)
    means = sum(prompts) / len(prompts), float(everything.mean()), float(everything.sum()) / rounds
    return Measured(trainer.meter, total / rounds, *means, (max(prompts), int(everything.max())))


def as_long(run: LLMRun, found: Measured) -> LLMRun:
    """Return the run with limits no longer than the texts that it met, and no more rows than it sampled, because its
    memory was measured with these."""
    rows = run.design.batch_size * (run.design.rollouts + run.design.support_rollouts)
    model = replace(run.model, max_prompt_length=found.longest[0], max_response_length=found.longest[1])
    return replace(run, model=model, compute=replace(run.compute, sample_rows=min(run.compute.sample_rows, rows)))


def needed(run: LLMRun, shape: Shape, assumed: Assumed) -> float:
    """Return the multiplications and additions that the update of a round needs, as the seconds on a device that does
    one per second and copies in no time."""
    unit = Device("", 0.0, 1 / UTILISATION, 1 / UTILISATION, math.inf)
    plain = replace(run, compute=replace(run.compute, gradient_checkpointing=False))
    return estimate_duration(plain, shape, unit, assumed).phases["update"].seconds


def show(console: Console, plan: CostPlan, found: Measured, rounds: int) -> None:
    """Print measured and planned numbers."""
    run, meter, phases = plan.run, found.meter, plan.duration.phases
    console.print(
        f"{run.model.source} on {plan.device.name}, {run.compute.engine}, {run.compute.precision}: "
        f"{run.design.batch_size} prompts x {run.design.rollouts}, "
        f"{rounds} rounds; prompts of {found.prompt:.0f} and responses of {found.response:.0f} tokens",
        soft_wrap=True,
    )
    table = Table("phase", "s", "planned s", "peak GB", "planned GB", "in use GB")
    for name, seconds in meter.seconds.items():
        if name == "evaluate":
            continue
        time_planned = f"{phases[name].seconds:.2f}" if name in phases else ""
        memory_planned = f"{plan.memory.total(name) / 1e9:.2f}" if name in plan.memory.phases else ""
        in_use = f"{meter.in_use[name] / 1e3:.2f}" if meter.in_use[name] else ""
        measured = f"{meter.peak[name] / 1e3:.2f}"
        table.add(name, f"{seconds / rounds:.2f}", time_planned, measured, memory_planned, in_use)
    rest = found.seconds - sum(meter.seconds.values()) / rounds
    table.add("rest", f"{rest:.2f}")
    table.add("round", f"{found.seconds:.2f}", f"{plan.duration.round_seconds:.2f}")
    console.print(table)
    console.print(
        "rest: weights to the engine, its sleep and waking, bookkeeping; in use: of the GPU, by whomever, when "
        "the phase began",
        style="dim",
    )
    peak = plan.device.bf16 if run.compute.precision == "bf16" else plan.device.fp32
    rate = needed(run, plan.shape, plan.assumed) * rounds / meter.seconds["update"]
    console.print(f"sampler: {found.sampled * rounds / meter.seconds['sample']:,.0f} tokens a second", highlight=False)
    console.print(
        f"update: {rate / 1e12:.3g} TFLOP/s of {peak / 1e12:.3g}, a utilisation of {rate / peak:.1%}", highlight=False
    )


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="Other flags are those of `rftlab train`, --pair and --compute.* among them.",
    )
    parser.add_argument("--rounds", type=int, default=3, help="measured, after one that warms up")
    arguments, flags = parser.parse_known_args()
    run = parse_train(flags).run
    found, shape = measure(run, arguments.rounds), read_shape(run.model)
    assumed = Assumed(round(found.prompt), round(found.response), 1, 1)
    plan = cost_plan(run, named_device(run.compute.device, None, run.compute.threads), assumed, shape)
    show(
        Console(),
        plan._replace(memory=memory_use(as_long(run, found), shape, assumed[:2])),
        found,
        arguments.rounds,
    )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(f"measure: {error}", file=sys.stderr)
        sys.exit(2)
