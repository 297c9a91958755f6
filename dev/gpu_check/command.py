"""Check 11: run the command itself, killed and resumed, with adapters, and with the model as its own sampler."""

import json
import os
import signal
import subprocess
import sys
import time
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from dev.gpu_check.bench import Bench
from rftlab.llm.tracking import read_rounds
from rftlab.llm.training.update import check_mismatch
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import cache_folder

ROUNDS, KILLED = 6, 3
LIMIT = 300
"""Seconds that a run may take, including the start of vLLM and its compilation."""
COMMON = ("--eval-every", "6", "--checkpoint-every", "1", "--seed", "0", "--quiet", "--estimator.kl.kind", "k3")
GPU = (
    *("--pair", "smollm2-largest", "--compute.device", "cuda", "--compute.precision", "bf16"),
    *("--compute.engine", "vllm", "--evaluation.train-subset", "32", "--evaluation.test-subset", "32"),
)
CPU = (
    *("--pair", "tiny-mix97", "--model.tiny.target", "0", "--model.tiny.width", "16", "--model.tiny.heads", "2"),
    *("--evaluation.train-subset", "32", "--evaluation.test-subset", "32", "--compute.threads", "1"),
)


def start(bench: Bench, folder: Path, *more: str) -> subprocess.Popen:
    """Start `rftlab train` in a process of its own, in a folder."""
    flags = [*(GPU if bench.gpu else CPU), *COMMON, *more, "--batch-size", "8", "--rollouts", "4"]
    command = [sys.executable, "-m", "rftlab.studies.cli.main", "train", "--folder", str(folder), *flags]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HF_HUB_OFFLINE": "1"}
    log = folder.with_suffix(".log").open("w")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def finish(bench: Bench, name: str, folder: Path, rounds: int, *more: str) -> list[dict[str, float]]:
    """Train to the end; return the measurements of the rounds."""
    process = start(bench, folder, "--rounds", str(rounds), *more)
    try:
        status = process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        status = -1
    said = folder.with_suffix(".log").read_text(errors="replace").strip().splitlines()[-1:]
    bench.holds(f"{name} ends well", status == 0, "" if status == 0 else f"status {status}: {said}")
    measured = read_rounds(folder)
    judge_rounds(bench, name, measured, rounds)
    return measured


def judge_rounds(bench: Bench, name: str, measured: list[dict[str, float]], rounds: int) -> None:
    """Record whether all rounds are there, finite, and sampled with the trained weights."""
    bench.holds(f"{name}: rounds 1 to {rounds}", [row["round"] for row in measured] == list(range(1, rounds + 1)))
    finite = all(isfinite(row.get(key, float("nan"))) for row in measured for key in ("reward", "grad_norm", "kl_ref"))
    bench.holds(f"{name}: reward, KL and gradient are finite", finite)
    bench.within(
        f"{name}: mismatch",
        max((row.get("mismatch", float("nan")) for row in measured), default=float("nan")),
        most=0.03,
    )


def check_training(bench: Bench, scratch: Path) -> None:
    """Run check 11: six rounds with a KL penalty, killed after the third and resumed; adapters; sampling by the model
    itself."""
    if bench.gpu and not (cache_folder("smollm2") / "config.json").is_file():
        return bench.skip(
            "training on SmolLM2", "needs the model in the cache: rftlab train --pair smollm2-largest fetches it"
        )
    before = bench.used() if bench.gpu else 0.0
    control = Bench(bench.device)
    judge_rounds(control, "control", [{"round": 1, "reward": float("nan"), "mismatch": 0.2}], 2)
    bench.holds(
        "control: a missing round, nan and a mismatch are seen", {p.status for p in control.parts} == {"failed"}
    )
    try:
        check_mismatch(torch.zeros(4).numpy(), torch.full((4,), -0.2).numpy(), 0.06, 0)
        bench.holds("control: the trainer stops at a mismatch of 0.2", False)
    except UserError:
        bench.holds("control: the trainer stops at a mismatch of 0.2", True)
    folder, kept = scratch / "killed", ("--rounds", str(ROUNDS))
    process, began = start(bench, folder, *kept), time.monotonic()
    while len(read_rounds(folder)) < KILLED and process.poll() is None and time.monotonic() - began < LIMIT:
        time.sleep(0.02)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = len(read_rounds(folder))
    if alive or there < ROUNDS:
        bench.within("rounds that a killed run keeps", there, KILLED, ROUNDS)
    finish(bench, "resumed run", folder, ROUNDS)
    finish(bench, "adapters", scratch / "lora", 1, "--lora.rank", "8", "--eval-every", "1")
    finish(bench, "the model as its own sampler", scratch / "hf", 1, "--compute.engine", "hf", "--eval-every", "1")
    if bench.gpu:
        torch.cuda.empty_cache()
        bench.within("bytes that are not back at the end", bench.used() - before, most=64e6)
    else:
        bench.skip("memory of the GPU is back at the end")


def as_json(bench: Bench, number: int, name: str, seconds: float, device: dict[str, Any] | None = None) -> str:
    """Return a check's line of the report, with the facts about the device where it was reached."""
    parts = [part._asdict() for part in bench.parts]
    facts = {"number": number, "name": name, "status": bench.status, "seconds": round(seconds, 1), "parts": parts}
    return json.dumps(facts | {"constants": bench.constants, "device": device})
