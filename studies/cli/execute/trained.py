"""Runs of `rftlab train` as their folders show them, without reading a table or waiting for a lock.

running       a process holds the folder
done          the last checkpoint is that of the last round
interrupted   the rest; the same command goes on from the last checkpoint
"""

from pathlib import Path

from rich.console import Console

from rftlab.llm.lock import LOCK, held
from rftlab.llm.stored import CHECKPOINTS, stored_run, trained_in
from rftlab.shared.plumbing.errors import UserError, plain
from rftlab.shared.plumbing.folders import FILE, kind_of, numbered
from rftlab.studies.console.table import Column, Table


def show_trained(console: Console, root: Path) -> bool:
    """Print a table of the runs in a folder, or of the run that it is; whether there are any."""
    folders = trained_in(root)
    if not folders:
        return False
    rounds = (Column(name, align="right") for name in ("round", "of"))
    table = Table(
        "run", "state", *rounds, "model", "task", "rewards", title="runs of rftlab train", align="left", wrap="letters"
    )
    for folder in folders:
        table.add(*(plain(cell) for cell in _row(folder, root)))
    console.print(table)
    return True


def _row(folder: Path, root: Path) -> list[str]:
    name = folder.name if folder != root else str(folder)
    try:
        run = stored_run(folder)
        config, rewards = run.config, run.config.get("rewards")
        model, task = str(config["model"]["source"]), str(config["task"]["name"])
    except (UserError, KeyError, TypeError):
        return [name, "damaged", "", "", "", "", ""]
    checkpoints = numbered(folder / CHECKPOINTS)
    done = int(checkpoints[-1].name) if checkpoints else 0
    running = kind_of(folder / LOCK) == FILE and held(folder)
    state = "running" if running else "done" if done >= run.rounds else "interrupted"
    return [
        name,
        state,
        str(done),
        str(run.rounds),
        model,
        task,
        ", ".join(rewards) if isinstance(rewards, dict) else "",
    ]
