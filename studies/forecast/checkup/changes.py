"""What is worth trying, within what was measured, and what has to be measured first."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.diagnose.checks import diagnose
from rftlab.studies.analysis.imported.groups import group_runs
from rftlab.studies.analysis.public.settings import advise_rate, public_settings, rate_evidence
from rftlab.studies.forecast.advise.fleet import FleetPlan
from rftlab.studies.forecast.advise.models import NamedShape
from rftlab.studies.forecast.checkup.sections import counted, judge_rate, opened, teaching_share
from rftlab.studies.forecast.checkup.subject import Sentence, Subject, measured_silence
from rftlab.studies.forecast.imported import TEST, alike_evidence, unusable
from rftlab.studies.forecast.law.limits import UPDATES, beyond
from rftlab.studies.forecast.reading import curve
from rftlab.studies.forecast.record import design_lines
from rftlab.studies.forecast.signal.signal import expected_tries
from rftlab.studies.integrations.noise import QUESTIONS

MOST = 3
"""Changes that are named."""
SILENT = 0.4
"""Share of zero-variance groups from which sampling again is named."""
VISIBLE = 0.01
"""Smallest expected gain of Pass@1 that is worth a change of B and K."""


class SplitGain(NamedTuple):
    """The run's responses of a step, split otherwise between B and K, with the forecast difference of Pass@1."""

    prompts: int
    rollouts: int
    gain: float
    low: float
    high: float


def name_changes(subject: Subject, model: NamedShape | None) -> Iterator[Sentence]:
    """At most MOST changes, the most urgent first, and whether to double K."""
    splits = forecast_splits(subject)
    named = 0
    for sentence in (*_from_health(subject), *_from_settings(subject, model), *_from_splits(subject, splits)):
        named += 1
        if named <= MOST:
            yield sentence
    if not named:
        yield Sentence("Nothing that was measured speaks for a change.", ("no finding to stop or change, a learning "
                       "rate and updates that public runs held, no visible gain of another B x K",))  # fmt: skip
    yield from _doubled(subject, splits)


def _from_health(subject: Subject) -> Iterator[Sentence]:
    for run in subject.runs:
        for found in diagnose(run, subject.asked.questions).findings:
            if found.severity != "note":
                trust = "hits and false alarms of this check: docs/diagnose.md, How far to trust it"
                text = f"{opened(found.advice)}. Expected effect: it removes '{found.kind}'."
                yield Sentence(text, (*found.evidence, f"threshold: {found.threshold}", trust))


def _from_settings(subject: Subject, model: NamedShape | None) -> Iterator[Sentence]:
    design = subject.design
    billions = model.shape.parameters / 1e9 if model else None
    advice = advise_rate(billions, subject.rank > 0, design.precision, subject.responses)
    rate = design.learning_rate
    if advice and rate and (judged := judge_rate(rate, advice)) != "usual":
        ratios = [one.end_at(rate) / one.end_at(advice.value) for one in advice.axes]
        known = [ratio for ratio in ratios if np.isfinite(ratio)]
        if known:
            shares = f"{min(known):.2f}" + (f" to {max(known):.2f}" if len(known) > 1 else "")
            effect = (f"after as many steps runs at {rate:g} had {shares} of the test Pass@1 of runs at "
                      f"{advice.value:g}, in {len(known)} of {len(ratios)} public sources")  # fmt: skip
        else:
            effect = f"no public run like it had {rate:g}"
        patient = " Long runs with a low rate get there too." if judged == "low" else ""
        yield Sentence(
            f"Learning rate {rate:g} -> {advice.value:g}. Expected effect: {effect}. Trust: low, sources differ by "
            f"{max(one.good.max() for one in advice.axes) / advice.value:.0f} times.{patient}",
            tuple(rate_evidence(advice)),
        )
    updates = design.updates_per_round
    if updates and updates > UPDATES:
        table = public_settings()
        many = table[table["updates"] > UPDATES]
        yield Sentence(
            f"Updates a step {updates} -> {UPDATES}. Expected effect: fewer failures, {many['failed'].sum()} of "
            f"{many['runs'].sum()} public runs with more than {UPDATES} failed. Trust: low, two sources.",
            tuple(f"{row.source}: {int(row.updates)} updates at B = {row.prompts:g}, {row.failed} of {row.runs} failed"
                  for row in many.itertuples()),
        )  # fmt: skip
    silence = measured_silence(subject)
    if silence and design.prompts and SILENT <= silence.share < 1:
        tries, _ = expected_tries(design.prompts, silence.share)
        teaching = (1 - silence.share) * design.prompts
        yield Sentence(
            "Sample again where a group has zero variance (dynamic sampling). Expected effect: "
            f"{design.prompts} groups teach instead of {teaching:.0f}, at {tries:.1f} times the sampling. Trust: the "
            "gain of Pass@1 is unknown.",
            (f"zero-variance share {silence.share:.2f}, {silence.where}", "rftlab signal: the same for any B and K"),
        )


def forecast_splits(subject: Subject) -> list[SplitGain]:
    """The first run's end with twice and half of its K at equal responses, less its own: its known curve at equal time.
    Empty where the log does not allow it."""
    groups = [group for group in group_runs([*subject.runs[:1]], TEST) if not unusable(group)]
    if not groups:
        return []
    group = groups[0]
    try:
        known = alike_evidence("run", "run", [*subject.runs[:1]], [group], [])
    except UserError:
        return []
    own = replace(known.evidence.runs[0].design, rounds=group.last, eval_every=group.last)
    cells = [replace(own, batch_size=own.batch_size // 2, rollouts=2 * own.rollouts, minibatches=1),
             replace(own, batch_size=2 * own.batch_size, rollouts=own.rollouts // 2, minibatches=1)]  # fmt: skip
    tried = known.evidence.tried()
    cells = [one for one in cells if min(one.batch_size, one.rollouts) > 1 and not beyond(one, None, tried)]
    if not cells:
        return []
    made = curve(known.evidence, (own, *cells))
    gains = made.values[1:] - made.values[0]
    half = (made.high - made.low)[1:] / 2
    return [SplitGain(one.batch_size, one.rollouts, float(gain), float(gain - reach), float(gain + reach))
            for one, gain, reach in zip(cells, gains, half, strict=True)]  # fmt: skip


def _from_splits(subject: Subject, splits: list[SplitGain]) -> Iterator[Sentence]:
    for one in splits:
        if one.gain >= VISIBLE:
            yield Sentence(
                f"{one.prompts} prompts x {one.rollouts} rollouts at the same cost. Expected effect: {one.gain:+.2f} "
                f"[{one.low:+.2f}, {one.high:+.2f}] test Pass@1. Trust: low, no better than no change on public runs.",
                tuple(design_lines(other_rate=False)),
            )


def _doubled(subject: Subject, splits: list[SplitGain]) -> Iterator[Sentence]:
    """Whether to double K at equal responses."""
    design, silence = subject.design, measured_silence(subject)
    if not design.rollouts or not design.prompts or design.rollouts < 2 or design.prompts < 2:
        return
    k, half = 2 * design.rollouts, design.prompts // 2
    shares = [teaching_share(silence, design.rollouts, one) for one in (design.rollouts, k)] if silence else []
    groups = [share * size for share, size in zip(shares, (design.prompts, half), strict=False) if share is not None]
    signal = f"{groups[0]:.0f} -> {groups[1]:.0f} groups that teach" if len(groups) == 2 else ""
    change = next((one for one in splits if one.rollouts == k), None)
    gain = f"{change.gain:+.2f} [{change.low:+.2f}, {change.high:+.2f}] test Pass@1" if change else ""
    said = ", ".join(filter(None, (signal, gain))) or "unknown without pass rates and test evaluations in a log"
    verdict = "" if not change else " is worth a try" if change.gain >= VISIBLE else " brings nothing that can be seen"
    yield Sentence(
        f"Doubling K at the same cost ({half} prompts x {k} rollouts){verdict}: {said}.",
        ("groups: a Beta distribution of pass rates with the measured mean and zero-variance share",
         *design_lines(other_rate=False)),
    )  # fmt: skip


def name_unknowns(subject: Subject, model: NamedShape | None, plan: FleetPlan | None) -> Iterator[Sentence]:
    """What nobody measured, how to measure it, and how long that takes."""
    design = subject.design
    if model is None:
        yield Sentence("Memory, hours and what is usual for this size: the model is not known. --model NAME tells.",
                       ("a name, a folder, or a number of parameters such as 1.7B",))  # fmt: skip
    if not design.prompts:
        yield Sentence("Prompts a step: --processes N tells, the number of GPUs that train.", subject.notes)
    steps = -(-QUESTIONS // design.prompts) if design.prompts else 0
    minutes = steps * plan.duration.round_seconds / 60 if plan else 0.0
    took = f", about {counted(max(1, round(minutes)), 'minute')}" if minutes else ""
    when = f"in the first {counted(steps, 'step')}{took}" if steps else f"with the first {QUESTIONS} prompts"
    how = {
        "trl": "trainer.add_callback(MeasureNoise(trainer, 'mine'))",
        "verl": "+algorithm.rftlab.measure=mine",
    }.get(subject.tool, "rftlab pilot --model MODEL --task gsm8k")
    yield Sentence(
        f"Pass rates of your prompts and the noise of your gradients, which decide between B and K. {how} measures "
        f"them {when}.",
        ("docs/trl.md, docs/verl.md and docs/pilot.md; then: rftlab signal results/pilot/mine/run.json, and",
         "rftlab predict --pair imported:mine --designs 32x8 128x2 --quick --pilot results/pilot/mine/run.json"),
    )  # fmt: skip
    if subject.runs and not any((piece.split, piece.metric) == TEST for run in subject.runs for piece in run.pieces):
        yield Sentence("Test Pass@1: the log has none. Evaluate on unseen questions every tenth of the run.",
                       ("a reward of training tells neither where a run ends nor whether it overfits",))  # fmt: skip
    if len(subject.runs) == 1 and steps:
        yield Sentence(
            "The spread over seeds: one run cannot tell it. On public runs two single runs that differ by less than "
            "0.12 may be equal; rftlab power says how many seeds a difference needs.",
            ("repeats differ by 0.045 at Pass@1 0.5 (docs/forecast.md); 1.96 x sqrt(2) x 0.045 = 0.12",),
        )
