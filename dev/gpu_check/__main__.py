"""Run the checks and write their report: `python -m dev.gpu_check [--device cpu] [--out FILE] [--only N ...]`.

Checks that share a model or an engine share a process; a process that dies or hangs fails only its own checks. Each
check has parts with a value and a limit, and a control, a planted fault that must be detected. A part that cannot run
on a device is `not run`, with the reason, and a check with such a part did not pass. The status is 0 where every check
passed; with `--device cpu`, where none failed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from dev.gpu_check.bench import FAILED, NOT_RUN, PASSED, Bench, describe
from dev.gpu_check.command import as_json, check_training
from dev.gpu_check.sampler import check_draws, check_runner, check_sleep, check_speed, check_weights, make_sampler
from dev.gpu_check.trainer import MODELS, check_cards, check_kernels, check_machine, check_memory, check_model
from rftlab.llm.budget.devices import FORMAT, REPORT
from rftlab.shared.plumbing.files import write_file
from rftlab.studies.data.runs.about import commit
from tests.support.machine.install_vllm import old_driver

CHECKS = {
    1: "machine",
    2: "estimators",
    3: "log-probabilities",
    4: "attention kernels",
    5: "vLLM's runner",
    6: "weights after a sync",
    7: "sleep",
    8: "draws",
    9: "memory",
    10: "speed",
    11: "training",
}
GROUPS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("trainer", (1, 2, 3, 4)),
    ("sampler", (5, 6, 7, 8, 10)),
    *((f"memory:{name}", (9,)) for name in MODELS),
    ("command", (11,)),
)
"""Processes, with the checks in each."""
LIMIT = 900
"""Time limit of a process in seconds. The first start of vLLM imports gigabytes and compiles, which takes minutes where
files are remote."""
MARK = "gpu-check: "
"""Prefix of a child's lines that belong to the report; engines print other lines."""


def in_group(bench: Bench, group: str, scratch: Path) -> dict[int, Callable[[Bench], None]]:
    """Return the checks of a process by number, ready to run."""
    kind, _, model = group.partition(":")
    if kind == "trainer":
        return {1: check_machine, 2: check_cards, 3: check_model, 4: check_kernels}
    if kind == "memory":
        return {9: partial(check_memory, name=model)}
    if kind == "command":
        return {11: partial(check_training, scratch=scratch)}
    if kind != "sampler":
        raise ValueError(f"group {group!r}; allowed: {', '.join(name for name, _ in GROUPS)}")
    sampler = make_sampler(bench)
    checks = {5: check_runner, 6: check_weights, 7: check_sleep, 8: check_draws, 10: check_speed}
    return {number: partial(check, sampler=sampler) for number, check in checks.items()}


def run_child(device: str, group: str, wanted: list[int]) -> None:
    """Run the checks of a group in this process, and print each as it ends."""
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        bench, facts, constants = Bench(device), describe(device), {}  # type: tuple[Bench, dict, dict[str, float]]
        for number, check in in_group(bench, group, Path(scratch)).items():
            if number not in wanted:
                continue
            bench, began = Bench(device), time.perf_counter()
            bench.constants = constants
            try:
                check(bench)
            except Exception as error:
                bench.error(error)
            seconds = time.perf_counter() - began
            print(MARK + as_json(bench, number, CHECKS[number], seconds, facts), flush=True)
            constants = bench.constants
    sys.stdout.flush()
    os._exit(0)  # exit without waiting for threads and processes of an engine


def run_group(device: str, group: str, wanted: list[int]) -> list[dict[str, Any]]:
    """Return the reports of a group's checks, each a part of the whole report. A process that dies or hangs fails the
    checks that it did not finish."""
    command = [sys.executable, "-m", "dev.gpu_check", "--device", device, "--group", group, "--only", *map(str, wanted)]
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=out, stderr=log, start_new_session=True)
        try:
            why = f"status {process.wait(LIMIT)}"
        except subprocess.TimeoutExpired:
            why = f"no end after {LIMIT} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            process.wait()
        out.seek(0)
        log.seek(0)
        output, last = out.read(), " ".join(log.read().split())[-300:]
    said = [json.loads(line.removeprefix(MARK)) for line in output.splitlines() if line.startswith(MARK)]
    for number in sorted(set(wanted) - {check["number"] for check in said}):
        bench = Bench(device)
        bench.error(RuntimeError(f"the process of this check ended ({why}): {last}"))
        said.append(json.loads(as_json(bench, number, CHECKS[number], time.perf_counter() - began)))
    return said


def joined(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the checks in the order of their numbers, with the parts of a check from several processes joined."""
    whole: dict[int, dict[str, Any]] = {}
    for check in sorted(checks, key=lambda check: check["number"]):
        first = whole.get(check["number"], {"status": PASSED, "seconds": 0.0, "parts": []})
        status = next(status for status in (FAILED, NOT_RUN, PASSED) if status in (first["status"], check["status"]))
        seconds = round(first["seconds"] + check["seconds"], 1)
        together = {"status": status, "seconds": seconds, "parts": [*first["parts"], *check["parts"]]}
        whole[check["number"]] = check | together
    return list(whole.values())


def make_report(device: str, checks: list[dict[str, Any]], seconds: float, complete: bool) -> dict[str, Any]:
    """Return the whole report, in the format that llm/budget/devices.py reads."""
    constants = {name: value for check in checks for name, value in check.get("constants", {}).items()}
    # reported by a child, because asking here would hold memory of the GPU, and all of a GPU in exclusive mode
    devices = [check["device"] for check in checks if check.get("device")]
    left_out = ("constants", "device")
    return {
        "format": FORMAT,
        "complete": complete,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": devices[0] if devices else {"name": device, "memory": 0.0, "like": None},
        "seconds": round(seconds, 1),
        "constants": constants,
        "checks": [{key: value for key, value in check.items() if key not in left_out} for check in joined(checks)],
    }


def show(check: dict[str, Any]) -> None:
    """Print a check: its status, then the parts that failed or did not run."""
    print(f"{check['number']:>2} {check['name']:<22} {check['status']:<8} {check['seconds']:6.1f} s", flush=True)
    for part in check["parts"]:
        if part["status"] != PASSED:
            value = "" if part["value"] is None else f" {part['value']}"
            limit = f", allowed {part['limit']}" if part["limit"] else ""
            why = f" ({part['note']})" if part["note"] else ""
            print(f"     {part['status']}: {part['name']}{value}{limit}{why}")


def main(arguments: list[str] | None = None) -> int:
    """Run the checks that the command line asks for."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m dev.gpu_check", description="Check a GPU before training on it.")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda", help="cpu: what can be checked without a GPU"
    )
    parser.add_argument("--out", type=Path, default=REPORT, help="the report")
    parser.add_argument("--only", type=int, nargs="+", choices=CHECKS, default=list(CHECKS), help="numbers of checks")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        why = old_driver() or "torch sees none; allowed: a machine with an NVIDIA GPU"
        print(f"no GPU: {why}, or --device cpu (make gpu-check CPU=yes)")
        return 2
    if asked.group:
        run_child(asked.device, asked.group, asked.only)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children end with this process
    began, checks = time.perf_counter(), []  # type: tuple[float, list[dict[str, Any]]]
    for group, numbers in GROUPS:
        wanted = [number for number in numbers if number in asked.only]
        if wanted:
            new = run_group(asked.device, group, wanted)
            checks += new
            for check in new:
                show(check)
            write(asked.out, make_report(asked.device, checks, time.perf_counter() - began, complete=False))
    report = make_report(asked.device, checks, time.perf_counter() - began, complete=True)
    write(asked.out, report)
    counts = [[check["status"] for check in report["checks"]].count(status) for status in (PASSED, FAILED, NOT_RUN)]
    print(f"{counts[0]} passed, {counts[1]} failed, {counts[2]} not run, {report['seconds']:.0f} s: {asked.out}")
    return int(counts[1] > 0 or (asked.device == "cuda" and counts[2] > 0))


def write(path: Path, report: dict[str, Any]) -> None:
    """Write the report atomically to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (json.dumps(report, indent=1) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
