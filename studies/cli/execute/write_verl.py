"""Write a study's cells as folders for verl, and plan what they need: `rftlab reproduce --level llm --backend verl`."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from rftlab.llm.budget.devices import known_gpu
from rftlab.llm.config import Compute, LLMRun
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.cli.common import PlanFlags
from rftlab.studies.cli.execute.plan import assume_lengths
from rftlab.studies.console.table import Table, put, say
from rftlab.studies.data.paper.questions import count_questions
from rftlab.studies.data.results.language import memory_table
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.data.runs.study import Study
from rftlab.studies.forecast.advise.fleet import Fleet, FleetPlan, planned_on
from rftlab.studies.forecast.models import shape_named
from rftlab.studies.integrations.cluster import Cluster
from rftlab.studies.integrations.verl_study.files import find_left_out, reasons, write_pair
from rftlab.studies.integrations.verl_study.settings import MAX_TOKENS

USUAL_GPU = "H100"


def points_on(study: Study, pair: str, cluster: Cluster) -> list[RunSpec]:
    """Return the runs of a pair with the cluster's model and data."""
    return [
        replace(point, run=cluster.changed(point.llm_run))
        for point in study.points()
        if point.pair == pair
    ]  # fmt: skip


def write_study_for(console: Console, study: Study, root: Path, cluster: Cluster) -> None:
    """Write the folders of every pair, and say where they are and what is left out."""
    open_store(root)
    for pair in study.pairs:
        points = points_on(study, pair, cluster)
        folder, left_out = write_pair(root, points, cluster)
        cells = len({point.cell for point in points} - left_out.keys())
        seeds = f"seed{'s' * (study.seeds > 1)} 0{f' to {study.seeds - 1}' * (study.seeds > 1)}"
        say(console, f"{folder}: {cells} cells, {seeds}: verl.yaml, run.sh, design.json of each")
        for line in reasons(left_out):
            say(console, f"left out: {line}")
        say(console, f"{folder / 'README.md'} has the commands for the cluster")


def show_fleet(console: Console, study: Study, cluster: Cluster, flags: PlanFlags) -> bool:
    """Print memory and GPU-hours of every cell on the cluster's GPUs; return whether all of them fit. Raises UserError
    where a model's shape is unknown."""
    fleet, fitting = Fleet(cluster.gpus, known_gpu(flags.gpu or USUAL_GPU)), True
    for pair in study.pairs:
        points = [point for point in points_on(study, pair, cluster) if point.run.seed == 0]
        plans, left_out = _plans(points, fleet, cluster, flags)
        if plans:
            _show(console, f"{pair}: {points[0].llm_run.model.source} on {fleet.name}", plans)
        for line in reasons(left_out):
            say(console, f"left out: {line}")
        hours = study.seeds * sum(plan.gpu_hours for plan in plans.values())
        many = f"{study.seeds} seed{'s' * (study.seeds > 1)}"
        say(console, f"{pair}: {hours:.0f} GPU-hours with {many}; estimates, not measured on several GPUs")
        fitting = fitting and all(plan.fits for plan in plans.values())
    return fitting


def _plans(
    points: list[RunSpec], fleet: Fleet, cluster: Cluster, flags: PlanFlags
) -> tuple[dict[str, FleetPlan], dict[str, str]]:
    """Return the plans of the cells that verl can run, and the reasons why it cannot run the others."""
    run = points[0].llm_run
    try:
        shape = shape_named(run.model.source).shape
    except UserError as error:
        raise UserError(f"{error}; or rftlab advise --model 7B --gpus {fleet.name}, for a model of that size") from None
    assumed, left_out = assume_lengths(run, flags), find_left_out(points, cluster, count_questions(run)["train"].there)
    cells = {point.cell: point.llm_run for point in points if point.cell not in left_out}
    return {cell: planned_on(_as_in_verl(one), shape, fleet, assumed) for cell, one in cells.items()}, left_out


def _as_in_verl(run: LLMRun) -> LLMRun:
    """Return the run as verl computes it: bf16 passes over micro-batches of verl's size with all their logits at
    once."""
    checkpointing = run.compute.gradient_checkpointing
    compute = Compute(
        "cuda",
        precision="bf16",
        engine="vllm",
        micro_tokens=MAX_TOKENS,
        logit_rows=MAX_TOKENS,
        gradient_checkpointing=checkpointing,
    )
    return replace(run, compute=compute)


def _show(console: Console, title: str, plans: dict[str, FleetPlan]) -> None:
    """Print the cells with their memory and hours, then the parts of the one that needs most."""
    table = Table("cell", "GB of a GPU", "fits", "tensor parallel", "GPU-hours", wrap="never")
    for cell, plan in plans.items():
        numbers = f"{plan.memory.peak / 1e9:.1f}", "yes" if plan.fits else "no", str(plan.tensor_parallel)
        table.add(cell, *numbers, f"{plan.gpu_hours:.1f}")
    put(console, title, table)
    cell, largest = max(plans.items(), key=lambda item: item[1].memory.peak)
    put(console, f"{cell}, which needs most: GB of each GPU", memory_table(largest.memory, total=False, wrap="never"))
