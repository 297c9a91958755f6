"""Tables of a pilot for the terminal, and a sentence on each of its numbers."""

import math
from collections.abc import Iterator

import numpy as np
from rich.console import Console

from rftlab.studies.analysis.public.credit import TASKS, ending_lines
from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.results.stats import Estimate
from rftlab.studies.forecast.pilot.headroom import Credit, Headroom, RateAt
from rftlab.studies.forecast.pilot.noise import ENOUGH, Gradient, RatioEstimate
from rftlab.studies.forecast.pilot.passrates import (
    EDGES,
    BetaBinomial,
    Mixture,
    beta_binomial,
    goodness,
    histogram,
    naive_histogram,
    nonparametric,
    rate_variances,
)
from rftlab.studies.forecast.pilot.pilot import CELLS, QUANTILES, Answers, PilotMeasurements

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 24
"""Characters of the longest bar."""
SURE = 2.0
"""Standard errors by which two numbers must differ to be called different."""


def show_pilot(console: Console, pilot: PilotMeasurements) -> None:
    """Print what was measured and what it cost."""
    base = pilot.base
    console.print(_rates(pilot))
    for split, answers in base.splits.items():
        fit = beta_binomial(answers.strict, answers.samples)
        mixture = nonparametric(answers.strict, answers.samples)
        console.print(_histogram(split, answers, fit, mixture))
        say(console, _fits(answers, fit, mixture), "dim")
    if base.headroom is not None and base.headroom.credit:
        console.print(_credit(base.headroom.credit))
    headroom = _headroom(pilot)
    if headroom.rows:
        console.print(headroom)
    for line in _sentences(pilot):
        say(console, line, "dim")
    if base.raw is not None or base.midway is not None:
        console.print(_noise(pilot))
    console.print(_lengths(pilot))
    if pilot.runs:
        console.print(_runs(pilot))
    console.print(_costs(pilot))
    if pilot.rounds:
        say(console, _evaluations(pilot), "dim")


def _rates(pilot: PilotMeasurements) -> Table:
    """Return the shares of right and of well-formed responses by split; a reward is for a right answer in the format.
    Errors are those of questions drawn at random."""
    columns = ("split", "questions", "responses", "right (reward)", "right answer", "format", "right if format")
    table = Table(*columns, title=f"{pilot.base.pair}, base model: shares of responses")
    for split, answers in pilot.base.splits.items():
        available = pilot.base.n_train if split == "train" else pilot.base.n_test
        n, m = len(answers.strict), answers.samples
        rates = (getattr(answers, name) / m for name in ("strict", "flexible", "well_formed"))
        shares = (f"{rate.mean():.3f} ± {rate.std(ddof=1) / math.sqrt(n):.3f}" for rate in rates)
        given = answers.strict.sum() / answers.well_formed.sum() if answers.well_formed.any() else math.nan
        table.add(split, f"{n} of {available}", str(m), *shares, f"{given:.3f}")
    return table


def _histogram(split: str, answers: Answers, fit: BetaBinomial, mixture: Mixture) -> Table:
    """Return shares of questions by pass rate: as counted, and two estimates without sampling noise."""
    counts, m = answers.strict, answers.samples
    shares = (naive_histogram(counts, m), histogram(mixture), histogram(fit))
    names = ("pass rate", "as counted", "without sampling noise", "beta-binomial")
    table = Table(*names, title=f"{split}: questions by pass rate", align="left", wrap="never")
    most = max(column.max() for column in shares)
    for i, row in enumerate(zip(*shares, strict=True)):
        if max(column[i:].max() for column in shares) >= 0.0005:  # no rows that are empty to the end
            table.add(f"{EDGES[i]:.2f} - {EDGES[i + 1]:.2f}", *(_bar(share, most) for share in row))
    return table


def _bar(share: float, most: float) -> str:
    eighths = round(8 * _BAR * share / most)
    return f"{share:5.3f} " + "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def _fits(answers: Answers, fit: BetaBinomial, mixture: Mixture) -> str:
    counts, m = answers.strict, answers.samples
    tested = goodness(fit, counts, m)
    spread, naive = (math.sqrt(max(0.0, variance)) for variance in rate_variances(counts, m))
    zero = f", {fit.zero:.2f} of questions at 0" if fit.zero else ""
    return (
        f"deviation of pass rates {spread:.3f}, {naive:.3f} with sampling noise; "
        f"beta-binomial a = {fit.a:.3g}, b = {fit.b:.3g}{zero} (fit: chi-square {tested.statistic:.1f} "
        f"on {tested.degrees}, p = {tested.p_value:.2f}); "
        f"log-likelihood {fit.log_likelihood:.1f}, without a form {mixture.log_likelihood:.1f}"
    )


def _credit(credit: tuple[Credit, ...]) -> Table:
    """Return a row for each way to count, and what it gives more than the harness on the same questions."""
    table = Table("way to count", "Pass@1", "95%", "gain", "n", title="Pass@1 of the base model, without training")
    table.layout["caption"] = "gain: more than the first row, on the same questions"
    for one in credit:
        more = ""
        if one.gain is not None:
            value, low, high = one.gain.spread()
            more = f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"
        table.add(one.name, *_interval(one.rate.interval()), more, _counts(one.rate))
    return table


def _interval(estimate: Estimate | RatioEstimate) -> tuple[str, str]:
    low, high = estimate.low, estimate.high
    return f"{estimate.value:.3f}", f"{low:.3f} to {high:.3f}" if math.isfinite(low + high) else ""


def _counts(rate: RateAt) -> str:
    return f"{rate.questions} x {rate.responses}"


def _headroom(pilot: PilotMeasurements) -> Table:
    """Return a row for each number of what the base model could already do; no rows where nothing was measured."""
    base, title = pilot.base, "what it could already do"
    table = Table("measure", "value", "95%", "n", title=title)
    for ratios, where in ((base.ratios, ""), (base.midway and base.midway.ratios, ", midway")):
        if ratios is not None:
            for name, one in (("r of the effective batch", ratios.between), ("phi of a baseline", ratios.gain)):
                table.add(name + where, *_interval(one), f"{ratios.questions} x {ratios.responses}")

    def add(name: str, rate: RateAt) -> None:
        table.add(name, *_interval(rate.interval()), _counts(rate))

    headroom = base.headroom
    if headroom is not None:
        for rate in headroom.temperatures:
            add(f"Pass@1 at temperature {rate.at:g}", rate)
        for rate in headroom.majority:
            add(f"maj@{rate.at:g}: most of {rate.at:g} votes right", rate)
        for rate in headroom.tries:
            if rate.at > 1:
                add(f"pass@{rate.at:g}: right once in {rate.at:g}", rate)
        for silent in headroom.silences or ((headroom.silent,) if headroom.silent else ()):
            add(f"zero-variance groups of {silent.at:g}, base model", silent)
        entropy = headroom.entropy
        if entropy is not None:
            name = f"entropy of a token, nats, temperature {entropy.at:g}"
            table.add(name, *_interval(entropy.spread()), _counts(entropy))
    return table


def claim_lines(headroom: Headroom, task: str, reported: float | None, kind: str) -> list[str]:
    """Return sentences on how much of what training may bring needs no training, and on what may be claimed. reported:
    the score that the makers report, None where nobody told it; kind: as `ending_lines` takes it."""
    covered = task in TASKS
    if not headroom.credit:
        return [] if reported is None else ending_lines(reported, kind)
    base, lenient = headroom.credit[:2]
    best = max(headroom.credit, key=lambda one: one.rate.value)
    more = best.rate.value - lenient.rate.value
    said = [f"Format: a lenient parser gives {lenient.rate.value - base.rate.value:+.2f}."]
    if more > 0:
        said = [f"{said[0]} Prompt, temperature and votes: {more:+.2f} more ({best.name})."]
    if reported is not None and covered:
        said += ending_lines(reported, kind)
    if reported is None or best.rate.value > reported or not covered:
        said.append(
            f"Up to about {max(best.rate.value, reported or 0.0):.2f} nothing need be learned: the base model gives "
            f"{best.rate.value:.2f} in this harness ({best.name}; the best of {len(headroom.credit)} ways, so a little "
            "high). Claim only what is above it."
        )
    if not covered:
        said.append(
            "Where public runs end is known for GSM8K and MATH alone. Off-task sets, tasks that nobody trained the "
            f"model for and failing rates are not covered, so there is no forecast of where runs on {task} end."
        )
    elif reported is None:
        said.append("With the score that the makers report, --reported also says where runs like this end.")
    return said


def _sentences(pilot: PilotMeasurements) -> Iterator[str]:
    """Yield the meaning of r where it was measured, and what was not measured."""
    base = pilot.base
    ratios = base.midway.ratios if base.midway else base.ratios
    if ratios is not None:
        said = "r is not told from 0: as far as this pilot knows, another rollout is as good as another prompt."
        if ratios.between.low > 0:
            k = f"K = 1/r = {1 / ratios.between.value:.0f}"
            said = f"r: up to about {k} rollouts of a prompt do much against noise; beyond that more prompts do."
        counted = f"{ratios.questions} questions x {ratios.responses} responses"
        few = f" From {counted}, fewer than the {ENOUGH[0]} x {ENOUGH[1]} that r needs."
        yield said + few * ratios.few
    if base.midway:
        yield (
            f"midway: after {base.midway.round} rounds of the baseline. The law takes r and phi from there, because "
            "training soon leaves the base policy."
        )
    if base.headroom is None:
        yield "Votes and temperatures were not measured: run `rftlab pilot` again for them."


def _noise(pilot: PilotMeasurements) -> Table:
    noise = ("signal |G|^2", "variance between contexts", "variance within, of a rollout")
    title = "gradients of the base model, and half way through the baseline's run"
    table = Table("reward", *noise, "noise scale, K = 1", "K = 8", title=title)
    base, midway = pilot.base, pilot.base.midway
    gradients = {"raw": base.raw, "centred": base.centred}
    gradients |= {"raw, midway": midway.raw, "centred, midway": midway.centred} if midway else {}
    for name, gradient in gradients.items():
        if gradient is None:
            continue
        parts = zip(gradient[2:5], gradient[5:], strict=True)
        scales = ("" if name.startswith("centred") else _scale(gradient, 1), _scale(gradient, 8))
        table.add(name, *(f"{_short(value)} ± {_short(error)}" for value, error in parts), *scales)
    table.layout["caption"] = (
        "noise scale: contexts of a batch, with K rollouts each, whose noise is as large as the signal (1812.06162)"
    )
    return table


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _scale(gradient: Gradient, rollouts: int) -> str:
    """Return a noise scale; only a bound where the signal is within two errors of 0."""
    if gradient.signal > SURE * gradient.signal_error:
        return f"{gradient.noise_scale(rollouts):,.0f}"
    return f"> {gradient.variance(rollouts) / (max(gradient.signal, 0.0) + SURE * gradient.signal_error):,.0f}"


def _lengths(pilot: PilotMeasurements) -> Table:
    quantiles = (f"{q:.0%}" for q in QUANTILES)
    numbers = (Column(name, ".1f") for name in ("mean", "deviation", *quantiles, "right", "wrong"))
    table = Table("split", *numbers, Column("cut off", ".1%"), title="tokens of a response")
    for split, answers in pilot.base.splits.items():
        lengths = answers.lengths
        right, wrong = (f"{value:.1f}" for value in (lengths.right, lengths.wrong))  # nan is shown
        table.add(split, lengths.mean, lengths.deviation, *lengths.quantiles, right, wrong, lengths.cut)
    return table


def _runs(pilot: PilotMeasurements) -> Table:
    rates = (Column(name, ".3f") for name in ("test Pass@1, first", "last", "last, any format"))
    table = Table("design", "rounds", *rates, Column("", align="left"), "noise of a Pass@1", title="runs")
    for run in pilot.runs:
        strict, trials = run.curve.test_pass_at_1, run.test_questions * run.responses
        noise = math.sqrt(max(strict[-1] * (1 - strict[-1]), 1e-12) / trials)
        rounds = f"{run.curve.round[-1]} of {run.planned_rounds}" + (", diverged" if run.diverged else "")
        flexible = run.curve.test_flexible[-1]
        table.add(run.cell, rounds, strict[0], strict[-1], f"{flexible:.3f}", spark(strict), f"± {noise:.3f}")
    return table


def spark(values: np.ndarray) -> str:
    """Return values from 0 to 1 as a line of blocks, of full height where they are largest."""
    top = max(float(np.max(values)), 1e-12)
    return "".join(_BLOCKS[max(1, round(8 * float(value) / top))] for value in values)


def _costs(pilot: PilotMeasurements) -> Table:
    numbers = [Column(name, text) for name, text in (("rollouts", ","), ("tokens", ","), ("seconds", ".1f"))]
    numbers += [Column("of the grid's rollouts", ".2%")] if pilot.rounds else []
    table = Table("part", *numbers, title="cost")
    for part, spent in (pilot.spent | {"all": pilot.total}).items():
        share = spent.rollouts / pilot.grid_rollouts if spent.rollouts and pilot.rounds else None
        table.add(part, *spent, share, style="bold" if part == "all" else "")
    return table


def _evaluations(pilot: PilotMeasurements) -> str:
    """Say what evaluations cost, which the rollouts leave out."""
    grid = f"The grid: {len(CELLS)} designs of {pilot.rounds} rounds, one seed, {pilot.grid_rollouts:,} rollouts."
    if not pilot.runs:
        return grid
    evaluation, run = start_at(pilot.base.pair, "llm").evaluation, pilot.runs[0]
    times = pilot.rounds // pilot.eval_every + 1
    each = times * (run.train_questions + run.test_questions) * (evaluation.samples + evaluation.greedy)
    evaluated = sum(run.evaluated for run in pilot.runs)
    whole = (pilot.total.rollouts + evaluated) / (pilot.grid_rollouts + len(CELLS) * each)
    return (
        f"{grid} Evaluations are not in it: {evaluated:,} responses here, {len(CELLS) * each:,} in the "
        f"grid; with them the share is {whole:.2%}."
    )
