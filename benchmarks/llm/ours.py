"""Run our trainer on a case, in a process of its own: `python -m benchmarks.llm.ours CASE [small | own]`.

By default a pass has 2,048 tokens. `small`: 512, the logits of 128 at a time and gradient checkpointing, which saves
memory. `own`: the default with a custom Python function for the advantage, which gives the same numbers.
"""

import sys
from dataclasses import replace

import torch

import rftlab as rl
import rftlab.llm.meter
from benchmarks.llm.case import BETA, Case, Clock, given, report
from rftlab.llm.config import AdamW, Compute, LLMRun, Model
from rftlab.llm.engines.rollouts import HFEngine
from rftlab.llm.models.load import load_data, load_model
from rftlab.llm.policy.policy import Policy
from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.tasks.config import TaskConfig
from rftlab.llm.training.trainer import Trainer
from rftlab.shared.cards import preset
from rftlab.shared.config.kl import KL
from rftlab.shared.design import Design

SMALL = Compute(micro_tokens=512, logit_rows=128, gradient_checkpointing=True)
"""Settings of `small`; a pass then holds a group of SmolLM2."""
NEVER = (-1,)
"""Stop ids that are no token, so that every response has the largest length."""


def own(rewards):
    """Return the advantage of TRL's defaults, as a user would write it."""
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)


def run_of(case: Case, how: str) -> LLMRun:
    """Return a run with TRL's defaults in our terms; the model of `tiny` is the one from which its folder was made."""
    estimator = replace(preset("grpo_trl"), kl=KL("k3", BETA, bounded=False))
    if how == "own":
        rl.advantage("bench_own")(own)
        estimator = replace(estimator, advantage=rl.preset("bench_own").advantage)
    design = Design(
        case.prompts, case.rollouts, rounds=case.rounds + 1, eval_every=case.rounds + 1, estimator=estimator
    )
    source = "tiny" if case.task == "mix97" else case.folder
    compute = replace(SMALL if how == "small" else Compute(), device=case.device, precision=case.precision)
    return LLMRun(
        TaskConfig(case.task), Model(source, max_response_length=case.limit), design, AdamW(case.rate), compute=compute
    )


def main() -> None:
    """Run the rounds of a case."""
    case = given(sys.argv[1])
    torch.set_num_threads(case.threads)
    rftlab.llm.meter.reset_peak = lambda device: None  # so that the peak is that of the whole process
    run = run_of(case, "".join(sys.argv[2:]))
    model, codec = load_model(run)
    policy = Policy(model, run.compute, run.temperature)
    engine = HFEngine(policy, NEVER if case.full else codec.stops)
    rewards, lengths = [], []
    with MathPool() as pool:
        trainer = Trainer(run, policy, engine, codec, load_data(run, codec), pool)
        clock = Clock()
        for _ in range(case.rounds + 1):
            done = trainer.round()
            clock.lap()
            rewards.append(float(done.rewards.mean()))
            lengths.append(float(done.samples.rollouts.responses.lengths.mean()))
    print({name: round(value, 2) for name, value in trainer.meter.seconds.items()}, file=sys.stderr)
    report(case, clock, rewards, lengths)


if __name__ == "__main__":
    main()
