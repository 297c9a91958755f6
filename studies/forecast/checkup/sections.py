"""What is said of the run as it is: its batch, what is unusual, its health, where it ends."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.diagnose.alarms import ALARM_CHECKS, describe_rates
from rftlab.studies.analysis.diagnose.checks import CHECKS, diagnose
from rftlab.studies.analysis.diagnose.rates import ANY
from rftlab.studies.analysis.public.settings import (
    RateAdvice,
    advise_rate,
    alike_settings,
    describe_advice,
    public_settings,
    rate_evidence,
    setting_lines,
)
from rftlab.studies.data.results.language import PLANNED
from rftlab.studies.forecast.advise.fleet import FleetPlan
from rftlab.studies.forecast.advise.models import NamedShape
from rftlab.studies.forecast.advise.show import COSTS
from rftlab.studies.forecast.checkup.subject import Sentence, Silence, Subject, measured_silence
from rftlab.studies.forecast.ending import LEVEL, RunEnding, chance_of_leader, run_ending
from rftlab.studies.forecast.law.limits import UPDATES
from rftlab.studies.forecast.record import ending_lines
from rftlab.studies.readers.run import FACTS
from rftlab.studies.readers.show import TERMS

NEAR = 1.5
"""Factor within which a learning rate counts as that of a public run."""


def counted(number: int, noun: str) -> str:
    """1 prompt, 2 prompts."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def opened(text: str) -> str:
    """The text with a capital at its start."""
    return text[:1].upper() + text[1:]


def describe_batch(subject: Subject, model: NamedShape | None, plan: FleetPlan | None) -> Iterator[Sentence]:
    """Prompts, rollouts, updates, tokens, memory and hours, in words that leave no other reading."""
    design = subject.design
    known = [f"{TERMS[name]}: {getattr(design, name)}" for name in FACTS if getattr(design, name) is not None]
    origin = (*known, *(f"taken: {text}" for text in design.assumed), *(f"note: {note}" for note in subject.notes))
    if not design.prompts or not design.rollouts or not subject.responses:
        parts = (("prompts", design.prompts), ("rollouts for each prompt", design.rollouts))
        said = [f"{value:,} {name}" if value else f"an unknown number of {name}" for name, value in parts]
        yield Sentence(f"Each step samples {' with '.join(said)}.", origin)
        return
    sizes = f"{counted(design.prompts, 'prompt')} with {counted(design.rollouts, 'rollout')} for each prompt"
    product = f"{design.prompts:,} x {design.rollouts:,} = {counted(subject.responses, 'response')}"
    yield Sentence(f"Each step samples {sizes}: {product} in all.", origin)
    updates = design.updates_per_round
    if updates:
        share = "all of them" if updates == 1 else "mini-batches of them, or several passes over them"
        yield Sentence(f"The optimizer takes {counted(updates, 'update')} a step, on {share}.", origin)
    assumed, lengths = subject.lengths()
    tokens = subject.responses * (assumed.prompt + assumed.response)
    each = f"{assumed.prompt:,} of a prompt and {assumed.response:,} of a response on average"
    yield Sentence(f"A step has about {tokens:,} tokens: {each}.", (lengths,))
    if plan is None or model is None:
        return
    seconds, memory = plan.duration.round_seconds, plan.memory
    phases = ", ".join(f"{PLANNED.get(name, name)} {cost.seconds:.1f} s" for name, cost in plan.duration.phases.items())
    steps = subject.planned or 100
    fits, room = "fits" if plan.fits else "does not fit", plan.fleet.device.memory / 1e9
    trained = f"adapters of rank {subject.rank}" if subject.rank else "all weights are trained"
    whose = f"{model.name}, {model.shape.parameters / 1e9:.2f} billion parameters {model.note}".strip()
    yield Sentence(
        f"On {plan.fleet.name} it {fits}: it needs {memory.peak / 1e9:.0f} of the {room:.0f} GB of a GPU. A step takes "
        f"about {seconds:.0f} s, and {steps:,} steps take {seconds * steps / 3600:.1f} hours.",
        (whose, trained, phases, *COSTS),
    )


def describe_signal(subject: Subject) -> Iterator[Sentence]:
    """How many responses of a step teach."""
    design, silence = subject.design, measured_silence(subject)
    k = design.rollouts
    if not k or k < 2 or not subject.responses:
        return
    if silence is None:
        shares = [f"solved in {p:.0%} of tries, {p**k + (1 - p) ** k:.0%}" for p in (0.05, 0.2, 0.5)]
        yield Sentence(
            f"Groups whose {k} rewards are equal teach nothing. That depends on the pass rates of your prompts: of "
            f"prompts {'; '.join(shares)} of the groups.",
            ("p^K + (1-p)^K of groups of K responses are all right or all wrong (docs/signal.md)",),
        )
        return
    teaching = (1 - silence.share) * subject.responses
    yield Sentence(
        f"{silence.share:.0%} of the groups have zero variance and teach nothing. Of {subject.responses:,} responses a "
        f"step about {teaching:.0f} teach.",
        (f"share of zero-variance groups: {silence.where}",),
    )


def compare_settings(subject: Subject, model: NamedShape | None) -> Iterator[Sentence]:
    """Learning rate, K, updates and KL against the public runs."""
    design, billions = subject.design, model.shape.parameters / 1e9 if model else None
    alike = alike_settings(billions, subject.rank > 0, design.precision)
    if design.learning_rate:
        yield _compare_rate(subject, billions, alike)
    every = public_settings()
    if design.rollouts and design.advantage not in ("gae", "raw"):
        groups = every[every["rollouts"] > 1]
        least, most = int(groups["rollouts"].min()), int(groups["rollouts"].max())
        usual = least <= design.rollouts <= most
        yield Sentence(
            f"K = {design.rollouts} is {'usual' if usual else 'unusual'}: public runs have {least} to {most} rollouts "
            "for each prompt.",
            tuple(f"K = {int(k)}: {rows['runs'].sum()} runs" for k, rows in groups.groupby("rollouts")),
        )
    if design.updates_per_round:
        yield _compare_updates(design.updates_per_round, every)
    if design.kl_coefficient is not None:
        used = sorted(every["kl"].dropna().unique())
        usual = design.kl_coefficient <= max(used)
        yield Sentence(
            f"A KL coefficient of {design.kl_coefficient:g} is {'usual' if usual else 'unusual'}: public runs have "
            f"{', '.join(f'{kl:g}' for kl in used)}. None of them varies it alone, so its effect is unknown.",
            tuple(f"KL {kl:g}: {rows['runs'].sum()} runs, {rows['failed'].sum()} failed" for kl, rows in
                  every.groupby("kl")),
        )  # fmt: skip


def _compare_rate(subject: Subject, billions: float | None, alike: pd.DataFrame) -> Sentence:
    rate = subject.design.learning_rate or 0.0
    advice = advise_rate(billions, subject.rank > 0, subject.design.precision, subject.responses)
    size = f"{billions:.2g}B" if billions else "any size"
    whose = f"{'adapters' if subject.rank else 'full weights'} of {size}"
    if subject.design.precision:
        whose += f" in {subject.design.precision}"
    if advice is None:
        held = alike[alike["failed"] * 2 < alike["runs"]]["rate"]
        used = f"runs like it held at {held.min():g} to {held.max():g}" if len(held) else "no run is like it"
        return Sentence(f"The learning rate {rate:g} cannot be judged for {whose}: {used}, and none varied it alone.",
                        tuple(setting_lines(alike)))  # fmt: skip
    near = alike[np.abs(np.log(alike["rate"] / rate)) < np.log(NEAR)]
    held = f" Of {near['runs'].sum()} public runs near {rate:g} {near['failed'].sum()} failed." if len(near) else ""
    return Sentence(
        f"The learning rate {rate:g} is {judge_rate(rate, advice)} for {whose}: {describe_advice(advice)}.{held}",
        (*rate_evidence(advice), *setting_lines(alike)),
    )


def judge_rate(rate: float, advice: RateAdvice) -> str:
    """usual, low, high, or dangerous: where a rate lies in the width of an advice."""
    if rate >= advice.edge and rate > advice.value:
        return "dangerous"
    return "low" if rate < advice.low else "high" if rate > advice.high else "usual"


def _compare_updates(updates: int, every: pd.DataFrame) -> Sentence:
    counts = every.groupby("updates")[["runs", "failed"]].sum()
    few, many = counts[counts.index <= UPDATES].sum(), counts[counts.index > UPDATES].sum()
    return Sentence(
        f"{counted(updates, 'update')} a step {'is' if updates == 1 else 'are'} "
        f"{'usual' if updates <= UPDATES else 'many'}: of public runs with more than {UPDATES} {many['failed']} of "
        f"{many['runs']} failed, with fewer {few['failed']} of {few['runs']}.",
        tuple(f"{int(count)} updates: {row['runs']} runs, {row['failed']} failed" for count, row in counts.iterrows()),
    )


def describe_health(subject: Subject) -> Iterator[Sentence]:
    """Whether a run is healthy, the findings of `rftlab diagnose`, and what its alarms say with their tested rates."""
    for run in subject.runs:
        said, name = diagnose(run, subject.asked.questions), f"{run.name}: " if len(subject.runs) > 1 else ""
        grave = [found.kind for found in said.findings if found.severity != "note"]
        judged = f"{len(said.clear) + len(said.findings)} of {len(CHECKS)} checks could be made"
        verdict = f"not healthy ({', '.join(grave)})" if grave else "healthy as far as the log shows"
        clear = [f"checked and not there: {kind}" for kind in said.clear]
        yield Sentence(
            opened(f"{name}{verdict}; {judged}."),
            (*clear, *(f"not judged: {one.kind} needs {one.needs}" for one in said.unjudged)),
        )
        for found in said.findings:
            evidence = (*found.evidence, f"threshold: {found.threshold}", f"try: {found.advice}")
            rates = f" Of {describe_rates(found.kind).replace(': ', ' it ', 1)}." if found.kind in ALARM_CHECKS else ""
            yield Sentence(opened(f"{name}{found.severity}: {found.kind}: {found.what}.{rates}"), evidence)
        quiet = [kind for kind in said.clear if kind in ALARM_CHECKS]
        if quiet:
            kinds = ", ".join(kind.removeprefix("alarm: ") for kind in quiet)
            yield Sentence(
                opened(f"{name}no alarm of {kinds}. Of {describe_rates(ANY).replace(': ', ' alarms ', 1)}."),
                tuple(f"{kind}: {describe_rates(kind)}" for kind in quiet),
            )


def forecast_ends(subject: Subject) -> list[RunEnding]:
    """Where the runs end, those that have test evaluations and are not over."""
    ends = []
    for run in subject.runs:
        try:
            ends.append(run_ending(run, subject.planned or 2 * run.rounds))
        except UserError:
            continue
    return ends


def describe_ends(subject: Subject) -> Iterator[Sentence]:
    """The forecasts, and of two runs which one ends higher."""
    ends = forecast_ends(subject)
    for one in ends:
        planned = subject.planned or 2 * next(run.rounds for run in subject.runs if run.name == one.run)
        told = "" if subject.planned else ", twice its length so far"
        yield Sentence(
            f"{one.run} ends at test Pass@1 {one.end.value:.2f} [{one.end.low:.2f}, {one.end.high:.2f}] "
            f"({LEVEL:.0%} interval) after {planned:,} steps{told}. At step {one.known:,} it has {one.last:.2f}.",
            (f"rftlab predict LOG --rounds {planned}", *ending_lines(one.known / planned)),
        )
    if len(ends) == 2:
        first, second = sorted(ends, key=lambda one: -one.last)
        chance = chance_of_leader(first.last - second.last)
        alike = first.known == second.known and first.task == second.task
        yield Sentence(
            f"{first.run} is ahead of {second.run} by {first.last - second.last:.2f} and ends higher with probability "
            f"{chance:.2f}{'' if alike else ', a guess: they are evaluated at other rounds or on other tasks'}.",
            ("rftlab power --a .. --b .. tells whether finished runs differ", *ending_lines(0.3)),
        )
    for run in subject.runs:
        if run.name not in {one.run for one in ends}:
            over = any((piece.split, piece.metric) == ("test", "pass_at_1") for piece in run.pieces)
            why = f"It has {run.rounds:,} steps, as many as planned." if over else "Its log has no test Pass@1."
            yield Sentence(f"{run.name}: no forecast. {why}", ("a forecast needs test evaluations and steps to come",))


def teaching_share(silence: Silence, rollouts: int, other: int) -> float | None:
    """The share of groups of another size that would have a signal: from the Beta distribution of pass rates that has
    the measured mean and share; None where there is none."""
    from rftlab.studies.forecast.signal.signal import match_beta, zero_variance_share

    mean, share = silence.mean, silence.share
    if mean is None or not 0 < mean < 1:
        return None
    spreads = np.linspace(0.0, 0.999, 400) * np.sqrt(mean * (1 - mean))
    shares = np.array([zero_variance_share(match_beta(mean, float(spread)), rollouts) for spread in spreads])
    if not shares[0] <= share <= shares[-1]:
        return None
    spread = float(np.interp(share, shares, spreads))
    return 1 - zero_variance_share(match_beta(mean, spread), other)
