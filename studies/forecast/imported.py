"""Evidence from imported runs: test curves of known designs, and the base model's Pass@1 where it was measured.

A log has no Pass@1 on all training questions, so only the test curve is compared. Where the untrained model was
evaluated, that is a point of the curve like any other. Only for short responses does it fix the base policy (SHORT).
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError, check, few
from rftlab.studies.analysis.imported.groups import Group, group_runs, mean_curve
from rftlab.studies.analysis.public.settings import alike_settings, usual_edge
from rftlab.studies.analysis.source import free_source
from rftlab.studies.data.paper.pairs import SIZES
from rftlab.studies.forecast.evidence import (
    MANY_TOKENS,
    POINTS,
    Evidence,
    Observed,
    RepeatSpread,
    noise_text,
    sampling_variance,
)
from rftlab.studies.forecast.forecasters import reading_text, unevenness
from rftlab.studies.forecast.knobs import LONG, SHORT, Facts, paced
from rftlab.studies.forecast.law.limits import FALLEN
from rftlab.studies.forecast.models import shape_in
from rftlab.studies.readers.run import ImportedRun

ADVANTAGES = {
    "raw": Advantage("none"),
    "group_mean": Advantage("group_mean"),
    "group_zscore": Advantage("group_mean", "group_std"),
    "leave_one_out": Advantage("leave_one_out"),
}
"""Advantages that the simulator has, by their name in imported runs."""
SEQUENCE_MEANS = {
    "seq-mean-token-mean",
    "seq_mean_token_mean",
    "grpo",
    "mean over responses of per-response token mean",
}
"""Names of a mean over responses of token means in verl, rftlab, TRL (`loss_type`) and collections of logs."""
TEST = ("test", "pass_at_1")
MAX_RUNS = 8
"""Largest number of designs in one calibration, because every parameter set simulates each of them."""
MAX_ROLLOUTS = 20_000_000
"""Largest number of rollouts of all these designs in one simulation."""
EVALUATIONS = 12
"""Number of evaluations of a simulated run."""
TRAIN_QUESTIONS = 2000
"""Training questions of a task of unknown size."""
RESPONSES = 100
"""Responses that are taken to be behind an evaluation whose log does not say."""


def imported_evidence(name: str, root: Path, base: float | None = None, questions: int | None = None) -> Evidence:
    """Return evidence from `imported:NAME` or a part of it.

    base: test Pass@1 of the untrained model. questions: responses behind an evaluation. Both outrank the logs. Raises
    UserError, naming what is missing, where no run can be used.
    """
    source = free_source(name)
    runs = source.runs(root)
    groups = group_runs(runs, TEST, source.task)
    check(
        bool(groups),
        f"{name} has no test Pass@1 after round 0; allowed: logs with evaluations (import --columns pass_at_1=NAME)",
    )
    _check_alike(name, groups)
    reasons = {group.label: unusable(group) for group in groups}
    usable = [group for group in groups if not reasons[group.label]]
    if not usable:
        label, reason = next(iter(reasons.items()))
        raise UserError(f"{name}: {label}: {reason}")
    remarks = [f"left out: {label}: {reason}" for label, reason in reasons.items() if reason]
    usable, told = told_base(usable, base)
    return alike_evidence(runs, usable, remarks + told, questions)


def told_base(groups: list[Group], base: float | None) -> tuple[list[Group], list[str]]:
    """Return the groups with a told Pass@1 of the untrained model, if any, in place of measured ones, and remarks."""
    if base is None:
        return groups, []
    told = []
    for group in groups:  # with the told value in the place of any that was measured
        start = pd.DataFrame({"run": list(group.runs), "round": 0, "value": base})
        later = group.curves[group.curves["round"] > 0]
        told.append(group._replace(curves=pd.concat([start, later], ignore_index=True)))
    return told, [f"taken: the untrained model's test Pass@1 is {base:g}, as told (--base)"]


def _check_alike(name: str, groups: tuple[Group, ...]) -> None:
    """Raise UserError where runs are of several tasks or models."""
    for what, names in (("tasks", {g.task for g in groups}), ("models", {g.model for g in groups})):
        named = few(sorted(one or "unnamed" for one in names))
        check(
            len(names) == 1,
            f"{name} has several {what} ({named}); allowed: one, as imported:NAME/TASK or imported:NAME#RUN",
        )


def check_calibration(name: str, known: Evidence) -> None:
    """Raise UserError where runs are more than a calibration can simulate, or have several learning rates, which the
    simulator does not distinguish."""
    runs, rates = known.runs, known.rates
    named = few([f"{rate:g}" for rate in rates])
    check(len(rates) < 2, f"{name} has several learning rates ({named}); allowed: one (imported:NAME#RUN), or --quick")
    check(
        len(runs) <= MAX_RUNS,
        f"{name} has {len(runs)} designs; allowed: at most {MAX_RUNS} (imported:NAME#RUN), or --quick",
    )
    spent = sum(int(run.rounds.max()) * run.design.batch_size * run.design.rollouts for run in runs)
    check(
        spent <= MAX_ROLLOUTS,
        f"{name}: more than {MAX_ROLLOUTS:,} rollouts to simulate; allowed: fewer runs, as imported:NAME#RUN, "
        "or --quick",
    )


_PART = re.compile(r"(\w+) on (\d{1,6}) of (\d{1,6})")


def trained_part(group: Group) -> Group:
    """Return a group whose rule trains on M of N responses with M rollouts, however it selects; others as they are."""
    part = _PART.fullmatch(group.design.advantage or "")
    if part is None:
        return group
    return group._replace(design=replace(group.design, advantage=part[1], rollouts=int(part[2])))


def unusable(group: Group) -> str:
    """Return the reason why a group cannot be simulated; "" where there is none."""
    design = group.design
    if not design.prompts or not design.rollouts:
        sizes = (("--prompts", design.prompts), ("--rollouts", design.rollouts))
        missing = [flag for flag, value in sizes if not value]
        return f"B or K is not known; `rftlab import {' '.join(f'{flag} N' for flag in missing)}` tells"
    if design.rollouts > 1 and design.advantage is None:
        return "the advantage is not known; `rftlab import --advantage NAME` tells"
    if (design.rollouts > 1 and design.advantage not in ADVANTAGES) or design.advantage == "gae":
        return f"advantage = {design.advantage}, which is not simulated here; allowed: {', '.join(ADVANTAGES)}"
    return ""


def alike_evidence(
    runs: list[ImportedRun], groups: list[Group], remarks: list[str], questions: int | None = None
) -> Evidence:
    """Return evidence from groups of one task and model that can be simulated. questions: responses behind an
    evaluation; None for those of the logs."""
    rounds = max(group.last for group in groups)
    numbers = np.concatenate([group.curves["n"] for group in groups])
    known = np.isfinite(numbers)
    responses = questions or (int(np.nanmedian(numbers)) if known.any() else RESPONSES)
    if questions or not known.any():
        why = "as told (--questions)" if questions else "which the logs do not say; --questions N does"
        remarks += [f"taken: {responses} responses behind an evaluation, {why}"]
    task = groups[0].task
    widest = max(group.design.prompts or 0 for group in groups)
    n_train, n_test = SIZES.get(task, (max(TRAIN_QUESTIONS, widest), responses))
    remarks += [] if task in SIZES else [f"taken: {n_train} training and {n_test} test questions"]
    family, facts = _base(runs, groups)
    observed = tuple(_observed(group, responses, first=facts is None) for group in groups)
    for group in groups:
        remarks += [f"{group.label}: {text}" for text in (*group.design.assumed, _updates(group)[1]) if text]
        if len(group.runs) > 1:
            behind = sorted(set(mean_curve(group.curves)["runs"]))
            few_runs = f", {behind[0]} of them behind some points" if len(behind) > 1 else ""
            remarks.append(f"{group.label}: mean of {behind[-1]} runs{few_runs}")
    precisions = {group.design.precision for group in groups} & {"fp32", "bf16"}
    precision = precisions.pop() if len(precisions) == 1 else None
    evidence = Evidence(
        Facts(paced(family, rounds), n_train, n_test, *(facts or (None, None))),
        observed,
        precision=precision,
        edge=rate_edge(groups, precision),
        repeats=measured_repeats(groups),
        imported=True,
        questions=responses,
        rounds=rounds,
    )
    if np.isfinite(evidence.edge):
        remarks.append(
            f"public runs of models of like size usually fail from a learning rate of {evidence.edge:.2g} on: a design "
            "whose rate is below that and above the known ones gets the law's forecast"
        )
    if np.isnan(evidence.base()):
        evidence = evidence._replace(guessed_base=(guess := guessed_base(groups)))
        remarks.append(
            f"guessed: the untrained model's test Pass@1 is {guess[0]:.3f}, between {guess[1]:.3f} and {guess[2]:.3f}, "
            "from the first points after round 0; nobody measured it (--base P of predict and score tells)"
        )
    remarks += [noise_text(evidence.noise), reading_text(evidence)]
    return evidence._replace(remarks=tuple(remarks))


def rate_edge(groups: list[Group], precision: str | None, left_out: str | None = None) -> float:
    """Return the learning rate from which public runs of models alike usually fail; nan where the model tells no size
    or too few sources tell the rate. left_out: beginning of the names of sources that do not count."""
    shape, adapters = shape_in(groups[0].model), any(group.design.has_adapters for group in groups)
    if shape is None:
        return float("nan")
    table = alike_settings(shape.shape.parameters / 1e9, adapters, precision)
    return usual_edge(table if left_out is None else table[~table["source"].str.startswith(left_out)])


def guessed_base(groups: list[Group]) -> tuple[float, float, float]:
    """Guess the Pass@1 of the untrained model from the first points of the curves; return the guess and bounds.

    The line through the first two evaluations is followed back to round 0. Learning is fastest at first, so the lower
    bound is below that guess by twice the rise up to the first value, and 0.05 more; the upper bound is 0.02 above the
    first value. These bounds hold the base of 89% of 38 public curves on which it was measured, and of fewer where only
    later evaluations are there (71% from the second, 53% from the fourth).
    """
    guesses = []
    for group in groups:
        curve = mean_curve(group.curves[group.curves["round"] > 0]).head(2)
        rounds, values = curve["round"].to_numpy(), curve["mean"].to_numpy()
        slope = (values[1] - values[0]) / (rounds[1] - rounds[0]) if len(curve) > 1 else values[0] / rounds[0]
        guesses.append((float(np.clip(values[0] - slope * rounds[0], 0.0, values[0])), float(values[0])))
    middle, first = np.mean(guesses, axis=0)
    low = max(0.0, middle - 2 * (first - middle) - 0.05)
    return float(middle), float(low), float(min(1.0, first + 0.02))


def _base(runs: list[ImportedRun], groups: list[Group]):
    """Return the family of worlds and, where responses are short and the base model was measured, how often it is right
    and well formed; None otherwise."""
    lengths = [p.values.mean() for run in runs for p in run.pieces if p.metric == "response_length"]
    bases = [group.curves.loc[group.curves["round"] == 0, "value"] for group in groups]
    bases = np.concatenate(bases)
    if not lengths or np.mean(lengths) > MANY_TOKENS or not len(bases) or not 0 < bases.mean() < 1:
        return LONG, None
    formed = [
        p.values[0]
        for run in runs
        for p in run.pieces
        if (p.split, p.metric) == ("test", "format_rate") and p.rounds[0] == 0
    ]
    return SHORT, (float(bases.mean()), max(float(np.mean(formed)) if formed else 1.0, float(bases.mean())))


def _observed(group: Group, responses: int, first: bool) -> Observed:
    """Return up to POINTS points of the mean test curve after round 0, and with `first` the one at round 0."""
    curve = mean_curve(group.curves)
    later = curve[curve["round"] > 0]
    chosen = later.iloc[np.unique(np.linspace(len(later) / POINTS, len(later), POINTS).round().astype(int).clip(1) - 1)]
    if first:
        chosen = pd.concat([curve[curve["round"] == 0], chosen])
    values = np.column_stack([np.full(len(chosen), np.nan), chosen["mean"]])
    behind = chosen["runs"].to_numpy()
    return Observed(
        simulated_design(group, int(chosen["round"].max())),
        chosen["round"].to_numpy(),
        values,
        np.sqrt(sampling_variance(values, responses * behind[:, None])),
        group.design.learning_rate,
        int(behind[-1]),
        (curve["round"].to_numpy(), curve["mean"].to_numpy()),
        group.label,
    )


def last_values(group: Group) -> list[float]:
    """Return each run's value at the last round that all reached, interpolated between its evaluations around it."""
    runs = [run.sort_values("round") for _, run in group.curves.groupby("run", observed=True)]
    values = [np.interp(group.last, run["round"], run["value"], left=np.nan) for run in runs]
    return [float(value) for value in values if np.isfinite(value)]


def measured_repeats(groups: list[Group]) -> RepeatSpread:
    """Return how far the ends of repeats differ. Groups in which one run ends below half of another are left out,
    because some runs failed there, which is no noise."""
    squares, freedom = 0.0, 0
    for group in groups:
        ends = np.array(last_values(group))
        if len(ends) > 1 and ends.min() >= FALLEN * ends.max():
            squares += float((((ends - ends.mean()) / unevenness(ends.mean())) ** 2).sum())
            freedom += len(ends) - 1
    return RepeatSpread(squares, freedom)


def simulated_design(group: Group, rounds: int) -> Design:
    """Return the design that simulates a group for at least `rounds` rounds. The group must not be `unusable`."""
    every, (updates, _) = -(-rounds // EVALUATIONS), _updates(group)
    prompts, rollouts = group.design.prompts or 0, group.design.rollouts or 0
    known = group.design.advantage if rollouts > 1 else None
    advantage = ADVANTAGES.get(known or "raw", ADVANTAGES["raw"])
    parts = set((group.design.loss or "").split(", "))
    aggregation = Aggregation("seq_mean_token_mean") if parts & SEQUENCE_MEANS else Aggregation()
    return Design(
        batch_size=prompts,
        rollouts=rollouts,
        estimator=Estimator(advantage=advantage, aggregation=aggregation),
        rounds=every * -(-rounds // every),
        eval_every=every,
        **updates,
    )


def _updates(group: Group) -> tuple[dict[str, Any], str]:
    """Return the updates of a round as arguments of Design, and a remark on what was assumed. They are mini-batches
    where their number divides the prompts, else passes."""
    count = group.design.updates_per_round
    if count is None:
        return {}, "updates a round are not known, taken as 1"
    if count == 1:
        return {}, ""
    if (group.design.prompts or 0) % count == 0:
        return {"minibatches": count}, f"{count} updates a round are taken as mini-batches of one pass"
    return {"epochs": count}, f"{count} updates a round are taken as passes over all of it"
