"""Plan designs as runs on a fleet, add what is known of them, rank them, and choose which to run first."""

import re
from dataclasses import replace
from math import log2
from typing import NamedTuple

from rftlab.llm.budget.plan import TAIL, Assumed
from rftlab.llm.config import Compute, Evaluation, LLMRun, Model
from rftlab.llm.tasks.config import TaskConfig
from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, check_count
from rftlab.studies.forecast.advise.evidence import AdviceEvidence, DesignScore, design_key
from rftlab.studies.forecast.advise.fleet import FleetPlan
from rftlab.studies.forecast.pilot.pilot import CELLS
from rftlab.studies.forecast.signal.signal import zero_variance_share

QUESTIONS = (500, 500)
"""Training and unseen questions of an evaluation; assumed."""
EVALUATIONS = 10
"""Number of evaluations in a run after the first one."""
MAX_RESPONSES = 1 << 20
"""Largest number of responses in a round."""
FIRST = 3
"""Largest number of runs that are proposed."""
FAR = 4
"""Largest distance, in doublings of B and K, between the first design and the one that it is compared with: four times
B, a quarter of K. Farther ones, as one prompt a round, are seldom wanted."""
LIKE = 1.5
"""Largest ratio of costs at which two designs cost alike."""
_SIZES = re.compile(r"([0-9]{1,7})x([0-9]{1,7})")


def designs_named(names: tuple[str, ...], rounds: int) -> dict[str, Design]:
    """Return designs by label. BxK is GRPO as in the paper, or the raw reward for K = 1; without names it is the grid.
    Raises UserError for a name that is no design, or is there twice."""
    check(len(set(names)) == len(names), f"designs: {', '.join(names)} names one twice")
    designs = {name: _design(name) for name in names} or CELLS
    every = max(d for d in range(1, rounds + 1) if rounds % d == 0 and (d * EVALUATIONS <= rounds or d == 1))
    return {name: replace(design, rounds=rounds, eval_every=every) for name, design in designs.items()}


def _design(name: str) -> Design:
    if name in CELLS:
        return CELLS[name]
    sizes = _SIZES.fullmatch(name)
    if sizes is None:
        raise UserError(f"design = {name!r}; allowed: BxK as 32x8, or {', '.join(CELLS)}")
    batch, rollouts = int(sizes[1]), int(sizes[2])
    check_count("B", batch)
    check_count("K", rollouts)
    check(batch * rollouts <= MAX_RESPONSES, f"design = {name}: allowed: at most {MAX_RESPONSES} responses a round")
    return Design(batch, rollouts, estimator=preset("paper_text" if rollouts > 1 else "minimalist"))


def advised_run(model: str, design: Design, assumed: Assumed) -> LLMRun:
    """Return the run of a design on several GPUs: bf16 passes, vLLM, checkpointed activations."""
    prompt, response = max(512, TAIL * assumed.prompt), max(1024, TAIL * assumed.response)
    return LLMRun(
        TaskConfig("gsm8k"),
        Model(model, max_prompt_length=prompt, max_response_length=response),
        design,
        evaluation=Evaluation(greedy=False, train_subset=QUESTIONS[0], test_subset=QUESTIONS[1]),
        compute=Compute(
            "cuda", precision="bf16", engine="vllm", micro_tokens=8192, logit_rows=512, gradient_checkpointing=True
        ),
    )


class Option(NamedTuple):
    """Design with its cost and what is known of it."""

    label: str
    design: Design
    plan: FleetPlan
    score: DesignScore | None
    """Measured Pass@1; None where nobody ran the design."""
    groups: float | None
    """Number of groups with signal in a round, expected of the base model; None without pass rates, and where baselines
    do not come from the group alone."""

    @property
    def rate(self) -> float | None:
        """Groups with signal for a GPU-hour."""
        rounds = self.plan.run.design.rounds
        return None if self.groups is None else self.groups * rounds / self.plan.gpu_hours

    @property
    def split(self) -> float:
        """Split of the responses between prompts and rollouts, log2 (B / K)."""
        return log2(self.design.batch_size / self.design.rollouts)

    def distance(self, other: "Option") -> float:
        """Return the distance in doublings of B and K; other support rollouts or another window count as one each."""
        first, second = self.design, other.design
        doublings = abs(log2(first.batch_size / second.batch_size)) + abs(log2(first.rollouts / second.rollouts))
        support = first.support_rollouts != second.support_rollouts
        return doublings + support + (first.replay_window != second.replay_window)


def make_option(label: str, design: Design, plan: FleetPlan, evidence: AdviceEvidence) -> Option:
    """Return a planned design with what the evidence says of it."""
    alone = design.support_rollouts == 0 and design.replay_window == 0 and design.rollouts > 1
    rates = evidence.rates if alone else None
    groups = None if rates is None else design.batch_size * (1 - zero_variance_share(rates, design.rollouts))
    return Option(label, design, plan, evidence.scores.get(design_key(design)), groups)


def rank_options(options: list[Option]) -> list[Option]:
    """Return the options in their order: those that fit first, among them the measured ones by Pass@1, then the
    cheapest. The order of designs that nobody ran says nothing of their Pass@1, because a cost is no gain."""

    def place(option: Option) -> tuple:
        score = option.score
        return not option.plan.fits, score is None, -score.value if score else option.plan.gpu_hours

    return sorted(options, key=place)


def first_runs(options: list[Option], budget: float) -> list[tuple[Option, str]]:
    """Return up to FIRST runs that fit, each with a reason, whose GPU-hours together are at most the budget."""
    able = [option for option in options if option.plan.fits and option.plan.gpu_hours <= budget]
    measured = [option for option in able if option.score is not None]
    wanted = _after(able, measured) if measured else _blank(able, budget)
    kept, left = [], budget
    for option, why in wanted[:FIRST]:
        if option.plan.gpu_hours <= left:
            kept.append((option, why))
            left -= option.plan.gpu_hours
    return kept


def _blank(able: list[Option], budget: float) -> list[tuple[Option, str]]:
    """Propose runs where none was made: a middle design, another split of the same responses, the middle one again."""
    plain = [option for option in able if option.design.rollouts > 1 and not option.design.replay_window] or able
    middle_split = sorted(option.split for option in plain)[len(plain) // 2] if plain else 0.0
    for middle in sorted(plain, key=lambda option: (abs(option.split - middle_split), option.plan.gpu_hours)):
        hours = middle.plan.gpu_hours
        if 2 * hours > budget:
            continue
        runs = [(middle, "in the middle of what can be paid: what others are compared with")]
        others = [
            option
            for option in plain
            if max(option.plan.gpu_hours, hours) <= LIKE * min(option.plan.gpu_hours, hours)
            and 0 < option.distance(middle) <= FAR
            and option.plan.gpu_hours + 2 * hours <= budget
        ]
        if others:
            far = max(others, key=lambda option: (option.distance(middle), -option.plan.gpu_hours))
            runs.append((far, "the same cost, but another split of B and K: it shows which of them counts here"))
        return [*runs, (middle, "again with another seed: without the spread no difference means anything")]
    cheapest = sorted(able, key=lambda option: option.plan.gpu_hours)[:1]
    return [(option, "the only kind of run that can be paid") for option in cheapest]


def _after(able: list[Option], measured: list[Option]) -> list[tuple[Option, str]]:
    """Propose runs where some were made: the best design again, and of those that nobody ran the nearest to it and the
    farthest from all that was run."""
    best = max(measured, key=lambda option: option.score.value if option.score else 0.0)
    several = ": picked among several it looks better than it is" * (len(measured) > 1)
    runs = [(best, f"the best so far, again with another seed{several}")]
    fresh = [option for option in able if option.score is None and option.design.rollouts > 1]
    if fresh:
        near = min(fresh, key=lambda option: (option.distance(best), option.plan.gpu_hours))
        runs.append((near, "nearest to the best of those that nobody ran"))
        fresh.remove(near)
    if fresh:
        apart = [min(option.distance(one) for one in measured) for option in fresh]
        far = max(zip(apart, fresh, strict=True), key=lambda one: (one[0], -one[1].plan.gpu_hours))[1]
        runs.append((far, "farthest from all that was run: what else there may be"))
    return runs
