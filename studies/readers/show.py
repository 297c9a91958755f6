"""Print imported runs as tables in the terminal. Texts of logs are printed as they are, never as markup."""

from collections.abc import Iterable

from rich.console import Console

from rftlab.shared.plumbing.errors import few
from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.readers.run import FACTS, ImportedRun, KnownDesign

TERMS = {
    "prompts": "prompts a round (B)",
    "rollouts": "rollouts a prompt (K)",
    "updates_per_round": "updates a round",
    "learning_rate": "learning rate",
    "advantage": "advantage",
    "loss": "loss",
    "kl_coefficient": "KL coefficient",
    "temperature": "temperature",
    "response_limit": "response limit (tokens)",
    "precision": "precision of weights",
    "adapter_rank": "rank of adapters (0: none)",
    "trained_share": "share of weights trained",
    "model": "model",
}
MAX_SHOWN = 12
"""Largest number of groups of alike runs whose design and repairs are printed; all are kept."""


def alike_runs(runs: Iterable[ImportedRun]) -> list[list[ImportedRun]]:
    """Return groups of runs that have equal known designs and equal notes."""
    alike: dict[tuple[KnownDesign, tuple[str, ...]], list[ImportedRun]] = {}
    for run in runs:
        alike.setdefault((run.design, run.notes), []).append(run)
    return list(alike.values())


def show_runs(console: Console, runs: list[ImportedRun]) -> None:
    """Print a table of runs, then the design and the repairs of each group of alike runs."""
    rounds, others = (Column(name, align="right") for name in ("rounds", "others"))
    table = Table("run", "format", rounds, "test", "train", others, title="runs", align="left")
    for run in runs:
        form = run.format if not run.tool or run.tool in run.format else f"{run.format} ({run.tool})"
        kept = str(len({piece.source for piece in run.pieces if piece.split == ""}))
        table.add(run.name, form, run.rounds, *(_metrics(run, one) for one in ("test", "train")), kept)
    console.print(table)
    alike = alike_runs(runs)
    for own in alike[:MAX_SHOWN]:
        show_design(console, own[0].design, few([run.name for run in own], 3))
        for note in own[0].notes:
            say(console, f"  note: {note}", "dim")
    if len(alike) > MAX_SHOWN:
        say(console, f"designs and notes of {len(alike) - MAX_SHOWN} more are kept, not printed", "dim")


def _metrics(run: ImportedRun, split: str) -> str:
    """Return the names of a split's metrics, with tasks where there are several."""
    metrics = sorted({(piece.metric, piece.task) for piece in run.pieces if piece.split == split})
    tasks = len({task for _, task in metrics}) > 1
    return ", ".join(f"{metric} {task}".strip() if tasks else metric for metric, task in metrics) or "none"


def show_design(console: Console, design: KnownDesign, title: str) -> None:
    """Print the known and the unknown fields of a design."""
    table = Table("", Column("", align="left"), show_header=False)
    say(console, f"design of {title}")
    for name in FACTS:
        value = getattr(design, name)
        if value is not None:
            table.add(TERMS[name], f"{value:g}" if isinstance(value, float) else str(value))
    if table.rows:
        console.print(table)
    for sentence in design.assumed:
        say(console, f"  taken: {sentence}", "dim")
    if design.unknown:
        say(console, f"  unknown: {', '.join(TERMS[name] for name in design.unknown)}", "dim")
