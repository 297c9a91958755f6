"""Advice as tables and sentences for the terminal."""

import json
from math import isnan
from textwrap import wrap

from rich.console import Console

from rftlab.llm.budget.plan import SLACK, TAIL, Assumed
from rftlab.studies.analysis.public.settings import advise_rate, describe_advice
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.results.language import PLANNED, memory_table
from rftlab.studies.forecast.advise.engines import Start, Told, list_changes
from rftlab.studies.forecast.advise.evidence import AdviceEvidence, DesignScore
from rftlab.studies.forecast.advise.fleet import FETCHED, FleetPlan
from rftlab.studies.forecast.advise.options import Option
from rftlab.studies.forecast.models import NamedShape

WIDTH = 100
"""Columns of a line that is not a table's."""


def cost_lines(plan: FleetPlan) -> tuple[str, ...]:
    """Return lines on the assumptions behind estimates of costs."""
    utilisation = plan.fleet.device.utilisation
    return (
        "Costs are estimates, not measured on several GPUs:",
        f" {utilisation:.0%} of the peak in passes; the longest response {TAIL} times the mean; {SLACK:.0%} of memory "
        "left free;",
        " weights, gradients and optimiser states in fp32 divided by the GPUs (fully sharded data parallel),",
        f" {FETCHED} blocks and the head whole in bf16; activations checkpointed, a GPU's own;",
        " a copy of vLLM's weights on each GPU or each tensor-parallel group;",
        " exchange not hidden behind computing, over NVLink or, past 8 GPUs, 400 Gbit/s each;",
        " scoring not counted.",
    )


def show_head(console: Console, model: NamedShape, plan: FleetPlan, assumed: Assumed) -> None:
    """Print the model, the fleet and the lengths."""
    say(console, f"{model.name}: {model.shape.parameters / 1e9:.2f} billion parameters, on {plan.fleet.name}")
    _indented(console, model.note, "")
    _indented(console, plan.fleet.device.note)
    design = plan.run.design
    say(
        console,
        f"prompts of {assumed.prompt} and responses of {assumed.response} tokens on average; {design.rounds} rounds",
    )


def show_evidence(console: Console, evidence: AdviceEvidence) -> None:
    """Print the evidence, or that there is none."""
    for line in evidence.origins or ("evidence: none",):
        say(console, line)
    if evidence.base is not None:
        base = evidence.base
        say(console, f"base model: Pass@1 {base.value:.3f} ({base.low:.3f} to {base.high:.3f})")


def show_options(console: Console, options: list[Option], budget: float) -> None:
    """Print the designs in their order, with costs and measured Pass@1."""
    signal = any(option.groups is not None for option in options)
    costs = (Column("GB\na GPU", ".1f"), Column("GPU-\nhours", ".1f"), "runs\npaid")
    measured = Column("Pass@1\nmeasured", wrap="words")  # an interval takes two lines where the terminal is narrow
    more = (Column("groups with\nsignal", ".1f"), Column("for a\nGPU-hour", ",.0f")) if signal else ()
    table = Table("design", *costs, measured, *more, wrap="never")
    for option in options:
        plan = option.plan
        paid = str(int(budget // plan.gpu_hours)) if plan.fits else "no room"
        score = _shown(option.score) if option.score else "unknown"
        row = (plan.memory.peak / 1e9, plan.gpu_hours, paid, score, option.groups, option.rate)
        table.add(option.label, *row[: 6 if signal else 4])
    known = any(option.score for option in options)
    order = "measured ones first, the others by cost" if known else "by cost alone"
    put(console, f"designs, {order}", table)


def _shown(score: DesignScore) -> str:
    if isnan(score.low):
        return f"{score.value:.3f} (1 run)"
    return f"{score.value:.3f} ({score.low:.3f} to {score.high:.3f}, {score.runs} runs)"


def show_memory(console: Console, option: Option) -> None:
    """Print the memory of a GPU by phase and part, and the seconds of a round."""
    plan = option.plan
    put(console, f"{option.label}: GB of each of {plan.fleet.name}", memory_table(plan.memory, wrap="never"))
    seconds = ", ".join(f"{PLANNED.get(name, name)} {cost.seconds:.1f}" for name, cost in plan.duration.phases.items())
    say(console, f"seconds of a round: {seconds}")
    say(console, f"seconds of an evaluation: {plan.duration.evaluation.seconds:.0f}")


def show_unfit(console: Console, gpus: int | None, name: str) -> None:
    """Print on how many GPUs the smallest design fits, where none fits on the fleet."""
    where = f"{gpus}x{name}" if gpus else f"no number of {name}"
    say(console, f"no design fits; the smallest fits on {where}", "red")


def show_first_runs(console: Console, runs: list[tuple[Option, str]], budget: float, cheapest: Option) -> None:
    """Print the runs to make first, each with its reason."""
    if not runs:
        rounds = int(cheapest.plan.run.design.rounds * budget / cheapest.plan.gpu_hours)
        text = f"the cheapest, {cheapest.label}, takes {cheapest.plan.gpu_hours:.1f} GPU-hours"
        say(console, f"no run that fits can be paid: {text}; {budget:g} pay {rounds} rounds of it (--rounds)", "red")
        return
    total = sum(option.plan.gpu_hours for option, _ in runs)
    say(console, f"first runs, {total:.1f} of {budget:g} GPU-hours", "italic")
    for number, (option, why) in enumerate(runs, start=1):
        plan = option.plan
        hours = f"{plan.gpu_hours:.1f} GPU-hours, {plan.duration.seconds / 3600:.1f} hours"
        say(console, f" {number}. {option.label} ({hours})")
        say(console, f"    {why}")


def show_engine(console: Console, name: str, label: str, told: Told) -> None:
    """Print the settings of the first design for an engine; `rftlab import --config` reads the lines back."""
    flags, notes = told
    say(console, f"{label} in {name}'s words", "italic")
    for flag, value in flags.items():
        say(console, f"  {_flag(name, flag, value)}".rstrip())
    for note in notes:
        _indented(console, note)


def show_start(console: Console, start: Start) -> None:
    """Print the configuration that advice starts from."""
    known = start.known
    sizes = f"B = {known.prompts or 'unknown'}, K = {known.rollouts or 'unknown'}"
    updates = known.updates_per_round or "unknown"
    say(console, f"your configuration ({start.tool}): {sizes}, {updates} updates a round; designs keep its estimator")
    for note in start.notes:
        _indented(console, note)


def show_changes(console: Console, label: str, start: Start, told: Told) -> None:
    """Print the changes that the first design makes to the configuration, a line each."""
    flags, notes = told
    changes = list_changes(start, flags)
    say(console, f"{label}: what changes in your configuration; all else stays", "italic")
    for name, old, new in changes:
        say(console, f"  {name}: {old} -> {new}")
    if not changes:
        say(console, "  nothing")
    for note in notes:
        _indented(console, note)


def _indented(console: Console, text: str, before: str = "note: ") -> None:
    """Print a remark, wrapped and indented; nothing where it is empty."""
    for i, line in enumerate(wrap(f"{before}{text}" if text else "", WIDTH - 4)):
        say(console, f"  {'  ' * (i > 0)}{line}", "dim")


def _flag(engine: str, flag: str, value: str | int | float) -> str:
    """Return a setting as a line: of a command for verl and slime, of Python or YAML for TRL, of TOML for prime-rl."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if engine == "prime-rl":
        return f"{flag} = {json.dumps(value) if isinstance(value, str) else text}"
    return f"{flag} {text}" if engine == "slime" else f"{flag}={text}"


def show_rate(console: Console, plan: FleetPlan, model: NamedShape, precision: str | None) -> None:
    """Print the learning rate that public runs of like size support, with its width."""
    advice = advise_rate(model.shape.parameters / 1e9, False, precision, plan.run.design.round_rollouts)
    text = describe_advice(advice) if advice else "unknown, no public run of like size varied it"
    _indented(console, f"{text}.", "learning rate: ")


def show_trust(console: Console, evidence: AdviceEvidence, plan: FleetPlan) -> None:
    """Print how far to trust the advice."""
    text: tuple[str, ...]
    if not evidence.scores and evidence.rates is None:
        text = ("Nothing was measured on this model: this ranks costs. Which design learns more it does not know.",)
    elif not evidence.scores:
        text = (
            "Pass rates tell how many groups teach something at the start.",
            "How much a design learns from them nobody measured.",
        )
    else:
        text = (
            "Pass@1 of designs that were run is measured, of all others unknown.",
            "A single run has no interval: another seed may end elsewhere.",
            "Designs whose intervals overlap have no significant difference (rftlab power).",
        )
    for line in text:
        say(console, line, "bold")
    for line in cost_lines(plan):
        say(console, line, "dim")
