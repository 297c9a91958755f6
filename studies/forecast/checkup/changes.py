"""Name changes of a run that are worth trying, within the range of measurements, and measurements that are missing."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.diagnose import diagnose
from rftlab.studies.analysis.diagnose.observed import REWARD, Finding, observe
from rftlab.studies.analysis.diagnose.stability import COLLAPSE, STEP
from rftlab.studies.analysis.imported.groups import group_runs
from rftlab.studies.analysis.public.settings import describe_shuffled, judge_rate, public_settings, rate_evidence
from rftlab.studies.data.results.stats import Estimate
from rftlab.studies.forecast.checkup.subject import Sentence, Subject, counted
from rftlab.studies.forecast.forecasters import curve
from rftlab.studies.forecast.imported import TEST, alike_evidence, unusable
from rftlab.studies.forecast.law.limits import UPDATES, beyond
from rftlab.studies.forecast.record import design_lines
from rftlab.studies.forecast.signal.signal import expected_tries, match_beta, zero_variance_share
from rftlab.studies.integrations.noise import QUESTIONS

MOST = 3
"""Largest number of changes that are named."""
SILENT = 0.4
"""Share of zero-variance groups from which dynamic sampling is named."""
MEASURE = {
    "trl": "trainer.add_callback(MeasureNoise(trainer, 'mine'))",
    "verl": "+algorithm.rftlab.measure=mine",
}


def name_changes(subject: Subject) -> Iterator[Sentence]:
    """Yield at most MOST changes, the most urgent first, and whether to double K."""
    findings = [finding for run in subject.runs for finding in diagnose(run, subject.asked.questions).findings]
    changes = [*_from_health(findings), *_from_settings(subject, {finding.kind for finding in findings})]
    nothing = "no finding to stop or change, a rate and updates that public runs held"
    yield from changes[:MOST] or [Sentence("Nothing that was measured speaks for a change.", (nothing,))]
    yield from _doubled(subject)


def _from_health(findings: list[Finding]) -> Iterator[Sentence]:
    for finding in findings:
        if finding.severity != "note":
            trust = "docs/lab/diagnose.md counts hits and false alarms of most checks"
            advice = f"{finding.advice[:1].upper()}{finding.advice[1:]}"
            text = f"{advice}. Expected effect: against '{finding.kind}', of unknown size. Trust: {trust}."
            yield Sentence(text, (*finding.evidence, f"threshold: {finding.threshold}"))


def _from_settings(subject: Subject, kinds: set[str]) -> Iterator[Sentence]:
    """Yield changes that public runs support. kinds: those of findings of health; after a collapse or too large steps
    no higher learning rate is named."""
    design, advice, rate = subject.design, subject.rate_advice(), subject.design.learning_rate
    judged = judge_rate(rate, advice) if advice and rate else "usual"
    if advice and rate and judged != "usual" and not (judged == "low" and kinds & {COLLAPSE, STEP}):
        ratios = np.array([one.end_at(rate) / one.end_at(advice.value) for one in advice.axes])
        known = ratios[np.isfinite(ratios)]
        effect = f"no public run like it had {rate:.3g}"
        if len(known):
            shares = f"{known.min():.2f}" + (f" to {known.max():.2f}" if len(known) > 1 else "")
            tried = [one.rates for one, ratio in zip(advice.axes, ratios, strict=True) if np.isfinite(ratio)]
            read = "" if all({rate, advice.value} <= {*rates} for rates in tried) else ", read between their rates"
            effect = (f"after as many steps runs at {rate:.3g} had {shares} of the test Pass@1 of runs at "
                      f"{advice.value:g}, in {len(known)} of {len(ratios)} public sources{read}")  # fmt: skip
        apart = max(one.good.max() for one in advice.axes) / advice.value
        yield Sentence(
            f"Learning rate {rate:.3g} -> {advice.value:g}. Expected effect: {effect}. Trust: low, the best rates of "
            f"sources differ {apart:.0f} times.{' Long runs with a low rate get there too.' * (judged == 'low')}",
            tuple(rate_evidence(advice)),
        )
    if (design.updates_per_round or 1) > UPDATES:
        many = public_settings().query("updates > @UPDATES")
        yield Sentence(
            f"Updates a step {design.updates_per_round} -> {UPDATES}. Expected effect: unknown, "
            f"{many['failed'].sum()} of {many['runs'].sum()} public runs with more than {UPDATES} failed. Trust: low, "
            f"{many['source'].nunique()} sources, {describe_shuffled(UPDATES)}.",
            tuple(f"{row.source}: {row.updates:g} updates, B = {row.prompts:g}: {row.failed} of {row.runs} failed"
                  for row in many.itertuples()),
        )  # fmt: skip
    silence, prompts = subject.silence, design.prompts
    if silence and prompts and SILENT <= silence < 1:
        tries, _ = expected_tries(prompts, silence)
        yield Sentence(
            "Sample again where a group has zero variance (dynamic sampling). Expected effect: "
            f"{prompts} groups teach instead of {(1 - silence) * prompts:.0f}, at {tries:.1f} times the sampling. "
            "Trust: the gain of Pass@1 is unknown.",
            ("rftlab signal prints the same for any B and K, from pass rates",),
        )


def doubled_gain(subject: Subject) -> Estimate | None:
    """Return what the first run's end gains by twice its K at equal responses, read from its known curve at equal time.
    A curve is not extrapolated, so a gain above 0 is noise. None where the log does not allow it."""
    runs = [*subject.runs[:1]]
    groups = [group for group in group_runs(runs, TEST) if not unusable(group)][:1]
    try:
        known = alike_evidence(runs, groups, []) if groups else None
    except UserError:
        known = None
    if known is None:
        return None
    own = replace(known.runs[0].design, rounds=groups[0].last, eval_every=groups[0].last)
    other = replace(own, batch_size=max(1, own.batch_size // 2), rollouts=2 * own.rollouts, minibatches=1)
    if other.batch_size == 1 or beyond(other, None, known.tried()):
        return None
    made = curve(known, (own, other))
    gain, reach = made.values[1] - made.values[0], (made.high - made.low)[1] / 2
    return Estimate(gain, gain - reach, gain + reach)


def _doubled(subject: Subject) -> Iterator[Sentence]:
    """Yield a sentence on whether to double K at equal responses."""
    b, k = subject.design.prompts or 0, subject.design.rollouts or 0
    if b < 2 or k < 2:
        return
    share, gain = teaching_share(subject, k, 2 * k), doubled_gain(subject)
    signal = f"{(1 - (subject.silence or 0)) * b:.0f} -> {share * b / 2:.0f} groups teach" if share is not None else ""
    shown = f"{gain.value:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}] test Pass@1" if gain else ""
    said, nothing = ", ".join(filter(None, (signal, shown))), " brings nothing that can be seen" * bool(gain)
    cost = f"{(b - 1) / b:.0%} of the cost" if b % 2 else "the same cost"
    yield Sentence(
        f"Doubling K at {cost} ({counted(b // 2, 'prompt')} x {2 * k} rollouts){nothing}: "
        f"{said or 'unknown without pass rates and test evaluations in a log'}.",
        ("groups: a Beta distribution of pass rates with the measured mean and zero-variance share",
         *design_lines(other_rate=False)),
    )  # fmt: skip


def teaching_share(subject: Subject, rollouts: int, other: int) -> float | None:
    """Return the share of groups of `other` responses that would have a signal, by the Beta distribution of pass rates
    with the measured mean and zero-variance share of groups of `rollouts`; None where there is no such distribution."""
    line = observe(subject.runs[0]).first(*REWARD) if subject.runs else None
    mean, silence = line.end() if line else 0.0, subject.silence
    if silence is None or not 0 < mean < 1:
        return None
    spreads = np.linspace(0.0, 0.999, 400) * np.sqrt(mean * (1 - mean))
    shares = [zero_variance_share(match_beta(mean, float(spread)), rollouts) for spread in spreads]
    if not shares[0] <= silence <= shares[-1]:
        return None
    return 1 - zero_variance_share(match_beta(mean, float(np.interp(silence, shares, spreads))), other)


def name_unknowns(subject: Subject) -> Iterator[Sentence]:
    """Yield the missing measurements, how to make them, and how long that takes."""
    prompts, plan = subject.design.prompts, subject.plan()
    if subject.doubts:
        more = f"; {len(subject.doubts) - 3} more" if len(subject.doubts) > 3 else ""
        yield Sentence(f"Of your configuration: {'; '.join(subject.doubts[:3])}{more}.", subject.doubts)
    if subject.shape() is None:
        yield Sentence("The model's size, and with it memory, hours and which rate is usual: --model NAME tells.",
                       ("a name, a folder, or a number of parameters such as 1.7B",))  # fmt: skip
    if not prompts:
        stated = subject.tool == "trl" and (subject.config or any("--processes" in note for note in subject.notes))
        how = "--processes N tells, the number of processes that train" if stated else "its configuration tells"
        allowed = "rftlab check CONFIG LOG takes both; rftlab import LOG --prompts B --rollouts K keeps what you know"
        yield Sentence(f"Prompts a step: {how}.", (*subject.notes, allowed))
    steps, callback = -(-QUESTIONS // (prompts or QUESTIONS)), MEASURE.get(subject.tool)
    minutes = f", about {counted(max(1, round(steps * plan.duration.round_seconds / 60)), 'minute')}" if plan else ""
    when = f"in the first {counted(steps, 'step')} of a run" if callback and prompts else f"on {QUESTIONS} prompts"
    yield Sentence(
        "Pass rates of your prompts and the noise of your gradients, which decide between B and K. "
        f"{callback or 'rftlab pilot --model MODEL --task gsm8k'} measures them {when}{minutes}.",
        ("docs/engines.md, docs/pilot.md; then rftlab signal results/pilot/mine/run.json, and",
         "rftlab predict --pair imported:mine --designs 32x8 128x2 --quick --pilot results/pilot/mine/run.json"),
    )  # fmt: skip
    if subject.runs and not any((piece.split, piece.metric) == TEST for run in subject.runs for piece in run.pieces):
        yield Sentence("Test Pass@1: the log has none. Evaluate on unseen questions every tenth of the run.",
                       ("a reward of training tells neither where a run ends nor whether it overfits",))  # fmt: skip
    if len(subject.runs) == 1:
        yield Sentence(
            "The spread over seeds, which one run does not show. On public runs two single runs that differ by less "
            "than 0.12 may be equal; rftlab power says how many seeds a difference needs.",
            (
                "repeats differ by 0.045 at Pass@1 0.5 (docs/forecast.md); 1.96 x sqrt(2) x 0.045 = 0.12",
                "six runs with four responses an update differed by up to 0.32 (docs/lab/log.md)",
            ),
        )
