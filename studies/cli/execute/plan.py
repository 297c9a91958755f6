"""Plans as tables: `rftlab train --dry-run`, `rftlab reproduce --level llm --dry-run`."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rftlab.llm.budget.devices import device_at_hand, named_device
from rftlab.llm.budget.plan import (
    FILL,
    LENGTHS,
    MIN,
    SUMS,
    TAIL,
    Assumed,
    CostPlan,
    cost_plan,
    fastest_settings,
    filled,
    smallest_change,
    where_it_fits,
)
from rftlab.llm.budget.shapes import GATED
from rftlab.llm.config import TINY, LLMRun
from rftlab.llm.stored import is_run, stored_run
from rftlab.llm.tasks.config import OWN
from rftlab.shared.plumbing.errors import check
from rftlab.studies.cli.common import PlanFlags
from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.paper.questions import count_questions, evaluated_on
from rftlab.studies.data.results.language import PLANNED, memory_table
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.study import Study

CHOSEN = FILL.keys() | MIN.keys()
"""Fields of `compute` that `--fill` may set."""


def assume_lengths(run: LLMRun, flags: PlanFlags) -> Assumed:
    """Return the mean lengths and numbers of questions that the plan of a run assumes."""
    text = run.task.name == OWN and run.model.source != TINY
    prompt, response = LENGTHS["gsm8k"] if text else LENGTHS.get(run.task.name, SUMS)
    there = (split.there for split in count_questions(run).values())
    prompt = min(flags.prompt_tokens or prompt, run.model.max_prompt_length)
    return Assumed(prompt, min(flags.response_tokens or response, run.model.max_response_length), *there)


def planned(run: LLMRun, flags: PlanFlags) -> CostPlan:
    """Return the plan of a run on the device that the flags and the run name."""
    device = run.compute.device
    check(flags.gpu is None or device != "cpu", f"gpu = {flags.gpu}, but compute.device = cpu; allowed: a run on cuda")
    return cost_plan(run, named_device(device, flags.gpu, run.compute.threads), assume_lengths(run, flags))


def fill_memory(console: Console, run: LLMRun, fixed: Collection[str], flags: PlanFlags, folder: Path) -> LLMRun:
    """Return a run with the settings of `compute` that fill the GPU, and print them; fixed ones stay. Raises UserError
    without a GPU, and where nothing makes the run fit.

    A folder that has the run keeps its settings, so that the same command goes on where less memory is free.
    """
    if is_run(folder):
        kept = stored_run(folder).config["compute"]
        return replace(run, compute=replace(run.compute, **{name: kept[name] for name in kept if name in CHOSEN}))
    device = run.compute.device
    check(device != "cpu", "fill with compute.device = cpu; allowed: --compute.device cuda")
    there = flags.gpu is not None or device_at_hand(device) is not None
    check(there, "fill: no GPU is at hand; allowed: a machine with one, or --dry-run with --gpu NAME")
    plan = planned(run, flags)
    full = filled(plan, fixed)
    values = {name: getattr(full.compute, name) for name in sorted(CHOSEN)}
    change = {name: value for name, value in values.items() if value != getattr(run.compute, name)}
    say(console, f"fill: {_flags(change) or 'nothing to change'} {_beside(plan, full)}")
    return full


def _beside(plan: CostPlan, run: LLMRun) -> str:
    """Say what time and memory the same run takes with other settings."""
    other = cost_plan(run, plan.device, plan.assumed, plan.shape)
    share = other.duration.seconds / plan.duration.seconds
    return f"({share:.2f} of the time, peak {other.memory.peak / 1e9:.2f} GB)"


def show_run(console: Console, run: LLMRun, flags: PlanFlags) -> bool:
    """Print the plan of a run, and return whether it fits."""
    plan = planned(run, flags)
    _head(console, plan)
    console.print(memory_table(plan.memory, title="peak memory in GB"))
    _verdict(console, plan)
    console.print(_time_table(plan))
    _notes(console, plan)
    return plan.fits


def show_study(console: Console, study: Study, root: Path, flags: PlanFlags) -> bool:
    """Print the plan of a study of language models without finished runs in `root`, and return whether all of it
    fits."""
    check(study.level == "llm", f"dry_run with level {study.level}: a plan is of language models; allowed: --level llm")
    total, fitting = 0.0, True
    points = study.points()
    for name in study.pairs:
        mine = [point for point in points if point.pair == name]
        plans = {point.cell: planned(point.llm_run, flags) for point in mine if point.run.seed == 0}
        largest = max(plans.values(), key=lambda plan: plan.memory.peak)
        _head(console, largest)
        console.print(memory_table(largest.memory, title="peak memory in GB, the cell that needs most"))
        _verdict(console, largest)
        left = Counter(point.cell for point in mine if not _finished(root, point))
        console.print(_cells_table(plans, left, study.seeds))
        _notes(console, largest)
        hours = sum(count * plans[cell].duration.seconds / 3600 for cell, count in left.items())
        console.print(
            f"{name}: {left.total()} of {len(mine)} runs to do, {hours:.1f} hours of the device", markup=False
        )
        total, fitting = total + hours, fitting and largest.fits
    runs = f"all experiments, {len(study.pairs)} pair{'s' * (len(study.pairs) > 1)}, seeds 0 to {study.seeds - 1}"
    console.print(f"whole study ({runs}): {total:.1f} hours, one run at a time", style="bold", markup=False)
    return fitting


def _finished(root: Path, point: RunSpec) -> bool:
    try:
        return store.read(root, point) is not None
    except store.DamagedPoint:
        return False


def _head(console: Console, plan: CostPlan) -> None:
    note = f" ({plan.device.note})" if plan.device.note else ""
    source, millions, shape = plan.run.model.source, plan.shape.parameters / 1e6, plan.shape
    adapters = f" and {shape.adapters / 1e6:.2f} million of adapters, which alone are trained" if shape.rank else ""
    say(console, f"{source}, {millions:.1f} million parameters{adapters}, on {plan.device.name}{note}")


def _verdict(console: Console, plan: CostPlan) -> None:
    """Print whether a run fits, and what would make it fit where it does not."""
    memory, other = plan.memory, not plan.run.compute.gradient_checkpointing
    held, held_other = (
        memory_plan.phases["update"]["activations"] / 1e9
        for memory_plan in (memory, plan.memory_with(gradient_checkpointing=other))
    )
    say(console, f"activations of the update: {held:.2f} GB; with gradient_checkpointing={other} {held_other:.2f} GB")
    peak = (
        f"peak {memory.peak / 1e9:.2f} GB, in the phase {PLANNED[memory.peak_phase]}; the device has "
        f"{plan.device.memory / 1e9:.1f} GB"
    )
    if plan.fits:
        say(console, f"fits: {peak}", "green")
        fastest: dict[str, Any] = fastest_settings(plan) if plan.run.compute.device != "cpu" else {}
        if fastest:
            say(console, f"fastest settings that fit: {_flags(fastest)} {_beside(plan, filled(plan))}")
        return
    say(console, f"does not fit: {peak}, of which {plan.room / 1e9:.1f} may be used", "red")
    change = smallest_change(plan)
    if change:
        changed = plan.memory_with(**change).peak / 1e9
        say(console, f"smallest change that makes it fit: {_flags(change)} (peak {changed:.2f} GB)", "yellow")
    else:
        say(console, "no smaller cache, pass, chunk or sample and no checkpointing makes it fit", "yellow")
    say(console, f"fits as it is on: {', '.join(where_it_fits(plan)) or 'none of the GPUs that are known'}")


def _flags(change: dict[str, Any]) -> str:
    """Return a change of `compute` as flags of a command line."""
    texts = {True: "", False: "no-"}
    return " ".join(
        f"--compute.{texts[value]}{name.replace('_', '-')}"
        if isinstance(value, bool)
        else f"--compute.{name.replace('_', '-')} {value:g}"
        for name, value in change.items()
    )


def _time_table(plan: CostPlan) -> Table:
    duration, table = plan.duration, Table("", "tokens", "seconds", title="tokens and time")
    for phase, cost in duration.phases.items():
        table.add(PLANNED[phase], f"{cost.tokens:,}", f"{cost.seconds:.2f}")
    table.add("round", "", f"{duration.round_seconds:.2f}")
    table.add("evaluation", f"{duration.evaluation.tokens:,}", f"{duration.evaluation.seconds:.2f}")
    whole = (
        duration.rounds * sum(cost.tokens for cost in duration.phases.values())
        + duration.evaluations * duration.evaluation.tokens
    )
    table.add(
        f"{duration.rounds} rounds, {duration.evaluations} evaluations",
        f"{whole:,}",
        f"{duration.seconds:.0f} ({duration.seconds / 3600:.2f} h)",
    )
    return table


def _cells_table(plans: dict[str, CostPlan], left: Counter, seeds: int) -> Table:
    whole, hours = (Column(name, ",") for name in ("rollouts", "tokens")), Column("hours", ".2f")
    table = Table("cell", "rounds", *whole, hours, "to do", title="runs, each with its evaluations")
    for cell, plan in plans.items():
        duration = plan.duration
        numbers = duration.rounds * duration.rollouts, duration.sampled, duration.seconds / 3600
        table.add(cell, duration.rounds, *numbers, f"{left[cell]} of {seeds}")
    return table


def _notes(console: Console, plan: CostPlan) -> None:
    """Print the assumptions behind the numbers."""
    assumed = plan.assumed
    lengths = (
        f"prompts of {assumed.prompt} and responses of {assumed.response} tokens (--prompt-tokens, "
        f"--response-tokens), the longest {TAIL} times the mean"
    )
    speed = f"{plan.device.utilisation:.0%} of the device's peak in passes"
    say(console, f"{evaluated_on(plan.run)}.")
    if plan.run.idle_penalty:
        say(console, plan.run.idle_penalty, "yellow")
    disk = (
        f"Checkpoints take up to {plan.disk / 1e9:.1f} GB of disk while a run trains; a study keeps no "
        "weights of a finished one."
    )
    say(console, disk)
    compute, source = plan.run.compute, plan.run.model.source
    if source.startswith(GATED):
        say(console, f"{source} is gated: accept the terms at https://huggingface.co/{source}, then hf auth login.")
    if compute.engine == "vllm" and compute.device != "cpu":
        say(
            console,
            "vLLM 0.32 from PyPI is built for CUDA 13: driver 580 or newer (nvidia-smi). It needs a C compiler and "
            "Python's headers.",
        )
    text = (
        f"Assumed: {lengths}; {speed}; scoring not counted. Times are estimates. Memory is that of the "
        "longest prompts and responses allowed."
    )
    say(console, text, "dim")
