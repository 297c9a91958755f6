"""Where a round goes, beside the floor of each phase: `python -m benchmarks.llm.profile --source FOLDER`.

The floor is computed by the plan (`llm/budget/plan.py`) at this machine's full speed instead of an assumed share of it:
products at the rate of a large matrix product in torch, bytes at the rate of a large copy. Both rates are measured here
before and after the rounds, and the faster ones count. Times are processor seconds on one thread, so that other work on
the machine disturbs little.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import contextmanager

import torch

from benchmarks.llm.case import Case
from benchmarks.llm.ours import NEVER, SMALL, run_of
from rftlab.llm.budget.devices import UTILISATION, Device
from rftlab.llm.budget.plan import STREAMING, Assumed, estimate_duration
from rftlab.llm.budget.shapes import read_shape
from rftlab.llm.config import Compute
from rftlab.llm.engines.rollouts import HFEngine
from rftlab.llm.meter import Meter
from rftlab.llm.models.load import load_data, load_model
from rftlab.llm.policy.policy import Policy
from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.training.trainer import Round, Trainer

SIDE, COPIED = 2048, 64 << 20
"""Number of rows and columns in the matrix product, and of numbers in the copy."""
TRIES = 5


class ProcessorMeter(Meter):
    """Meter that also sums processor seconds."""

    def clear(self) -> None:
        """Set all measurements to 0."""
        super().clear()
        self.processor = dict.fromkeys(self.seconds, 0.0)

    @contextmanager
    def phase(self, name: str):
        """Count the block as `Meter.phase` does, with its processor seconds."""
        began = time.process_time()
        with super().phase(name):
            yield
        self.processor[name] += time.process_time() - began


def least(work: Callable[[], object]) -> float:
    """Return the processor seconds of the fastest of a few tries."""
    found = []
    for _ in range(TRIES):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def speeds() -> tuple[float, float]:
    """Return operations per second in a product of float32, and bytes per second, read and written, in a copy."""
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    source, target = torch.ones(COPIED), torch.empty(COPIED)
    return 2 * SIDE**3 / least(lambda: a @ b), 8 * COPIED / least(lambda: target.copy_(source))


def compile_passes(policy: Policy) -> None:
    """Compile the model's body by torch for the update and for old log-probabilities; sampling stays unchanged."""
    body, plain = policy.model.base_model, policy.log_probs
    eager, compiled = body.forward, torch.compile(body.forward, dynamic=True)

    def log_probs(*arguments, **more):
        body.forward = compiled
        try:
            return plain(*arguments, **more)
        finally:
            body.forward = eager

    policy.log_probs = log_probs


def rounds_of(case: Case, compute: Compute, compiled: bool) -> tuple[ProcessorMeter, Round, Trainer]:
    """Run rounds of a case, without counting the first; return the meter, the last round, and the trainer."""
    run = run_of(case, small=compute is SMALL)
    model, codec = load_model(run)
    policy = Policy(model, run.compute, run.temperature)
    if compiled:
        compile_passes(policy)
    with MathPool() as pool:
        trainer = Trainer(run, policy, HFEngine(policy, NEVER), codec, load_data(run, codec), pool)
        trainer.meter = ProcessorMeter(run.compute.device)
        began = time.process_time()
        trainer.round()
        print(f"the first round, not counted below: {time.process_time() - began:.0f} CPU s")
        trainer.meter.clear()
        for _ in range(case.rounds):
            done = trainer.round()
    return trainer.meter, done, trainer


def main() -> None:
    """Measure, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", required=True, help="a folder with SmolLM2 or another model that a plan knows")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--small", action="store_true", help="short passes and gradient checkpointing, as `ours small` of the benchmark"
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="torch.compile for the passes of update and log-probabilities; needs a C++ compiler on a CPU",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    before, case = speeds(), Case("profile", "words", arguments.source, 4, 4, 64, True, 1e-6, arguments.rounds, 1)
    meter, done, trainer = rounds_of(case, SMALL if arguments.small else Compute(), arguments.compile)
    flops, bandwidth = map(max, zip(before, speeds(), strict=True))
    prompts = done.samples.rollouts.responses.prompts
    assumed = Assumed(round(sum(map(len, prompts)) / len(prompts)), case.limit, 1, 1)
    device = Device("this machine", 0.0, flops / UTILISATION, flops / UTILISATION, bandwidth / STREAMING)
    floors = estimate_duration(trainer.run, read_shape(trainer.run.model), device, assumed).phases
    print(f"{flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s; prompts of {assumed.prompt} tokens on average")
    print(f"{'phase':<10} {'CPU s':>8} {'floor':>8} {'/ floor':>8} {'tokens':>8}")
    for name, seconds in meter.processor.items():
        mine = seconds / case.rounds
        floor = floors.get(name)
        print(
            f"{name:<10} {mine:>8.2f}"
            + (f" {floor.seconds:>8.2f} {mine / floor.seconds:>8.2f} {floor.tokens:>8}" if floor else "")
        )


if __name__ == "__main__":
    main()
