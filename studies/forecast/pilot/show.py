"""A pilot as tables for the terminal."""

import math

import numpy as np
from rich.console import Console

from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.forecast.pilot.grid import CELLS
from rftlab.studies.forecast.pilot.passrates import (
    EDGES,
    BetaBinomial,
    Mixture,
    beta_binomial,
    goodness,
    histogram,
    moments,
    naive_histogram,
    nonparametric,
)
from rftlab.studies.forecast.pilot.pilot import QUANTILES, Answers, Gradient, PilotMeasurements, Spent
from rftlab.studies.forecast.pilot.show_headroom import headroom_table, sentences

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 24
"""Characters of the longest bar."""


def show(console: Console, pilot: PilotMeasurements) -> None:
    """Print what was measured and what it cost."""
    base = pilot.base
    console.print(_rates(pilot))
    for split, answers in (("train", base.train), ("test", base.test)):
        fit = beta_binomial(answers.strict, answers.samples)
        mixture = nonparametric(answers.strict, answers.samples)
        console.print(_histogram(split, answers, fit, mixture))
        say(console, _fits(answers, fit, mixture), "dim")
    headroom = headroom_table(base, pilot.runs)
    if headroom is not None:
        console.print(headroom)
    for line in sentences(base, pilot.runs):
        say(console, line, "dim")
    console.print(_noise(pilot))
    console.print(_lengths(pilot))
    if pilot.runs:
        console.print(_runs(pilot))
    console.print(_costs(pilot))
    say(console, _evaluations(pilot), "dim")


def _rates(pilot: PilotMeasurements) -> Table:
    """Format and answers apart: reward = right answer in the format."""
    table = Table(
        "split",
        "questions",
        "responses",
        "right (reward)",
        "right answer",
        "format",
        "right if format",
        title=f"{pilot.base.pair}, base model: shares of responses",
    )
    for split, available in (("train", pilot.base.n_train), ("test", pilot.base.n_test)):
        answers: Answers = getattr(pilot.base, split)
        shares = (
            f"{answers.rate(name):.3f} ± {_error(getattr(answers, name), answers.samples):.3f}"
            for name in ("strict", "flexible", "well_formed")
        )
        given = answers.strict.sum() / answers.well_formed.sum() if answers.well_formed.any() else math.nan
        table.add(split, f"{len(answers.strict)} of {available}", str(answers.samples), *shares, f"{given:.3f}")
    return table


def _error(counts: np.ndarray, m: int) -> float:
    """Standard error of a rate, questions drawn at random."""
    return float((counts / m).std(ddof=1) / math.sqrt(len(counts)))


def _histogram(split: str, answers: Answers, fit: BetaBinomial, mixture: Mixture) -> Table:
    """Shares of questions by pass rate: as counted, and two estimates without sampling noise."""
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
    known, tested = moments(counts, m), goodness(fit, counts, m)
    noise = (
        f"deviation of pass rates {_root(known.variance):.3f}, {_root(known.naive_variance):.3f} with sampling noise"
    )
    zero = f", {fit.zero:.2f} of questions at 0" if fit.zero else ""
    explained = (
        f"beta-binomial a = {fit.a:.3g}, b = {fit.b:.3g}{zero} (fit: chi-square {tested.statistic:.1f} "
        f"on {tested.degrees}, p = {tested.p_value:.2f})"
    )
    return f"{noise}; {explained}; log-likelihood {fit.log_likelihood:.1f}, without a form {mixture.log_likelihood:.1f}"


def _root(variance: float) -> float:
    return math.sqrt(max(0.0, variance))


def _noise(pilot: PilotMeasurements) -> Table:
    table = Table(
        "reward",
        "signal |G|^2",
        "variance between contexts",
        "variance within, of a rollout",
        "noise scale, K = 1",
        "K = 8",
        title="gradients of the base model, and half way through the baseline's run",
    )
    base, midway = pilot.base, pilot.base.midway
    gradients = {"raw": base.raw, "centred": base.centred}
    gradients |= {"raw, midway": midway.raw, "centred, midway": midway.centred} if midway else {}
    for name, found in gradients.items():
        pairs = (
            (found.signal, found.signal_error),
            (found.between, found.between_error),
            (found.within, found.within_error),
        )
        scales = ("" if name.startswith("centred") else _scale(found, 1), _scale(found, 8))
        table.add(name, *(f"{_short(value)} ± {_short(error)}" for value, error in pairs), *scales)
    table.layout["caption"] = (
        "noise scale: contexts of a batch, with K rollouts each, whose noise is as large as the signal (1812.06162)"
    )
    return table


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _scale(found: Gradient, rollouts: int) -> str:
    """A noise scale; only a bound where the signal is within two errors of 0."""
    if found.signal > 2 * found.signal_error:
        return f"{found.noise_scale(rollouts):,.0f}"
    return f"> {found.variance(rollouts) / (max(found.signal, 0.0) + 2 * found.signal_error):,.0f}"


def _lengths(pilot: PilotMeasurements) -> Table:
    table = Table(
        "split",
        "mean",
        "deviation",
        *(f"{q:.0%}" for q in QUANTILES),
        "right",
        "wrong",
        "cut off",
        title="tokens of a response",
    )
    for split in ("train", "test"):
        found = getattr(pilot.base, split).lengths
        numbers = (found.mean, found.deviation, *found.quantiles, found.right, found.wrong)
        table.add(split, *(f"{value:.1f}" for value in numbers), f"{found.cut:.1%}")
    return table


def _runs(pilot: PilotMeasurements) -> Table:
    table = Table(
        "design",
        "rounds",
        "test Pass@1, first",
        "last",
        "last, any format",
        Column("", align="left"),
        "noise of a Pass@1",
        title="runs",
    )
    for run in pilot.runs:
        strict, trials = run.curve.test_pass_at_1, run.test_questions * run.responses
        noise = math.sqrt(max(strict[-1] * (1 - strict[-1]), 1e-12) / trials)
        rounds = f"{run.curve.round[-1]} of {run.planned_rounds}" + (", diverged" if run.diverged else "")
        table.add(
            run.cell,
            rounds,
            f"{strict[0]:.3f}",
            f"{strict[-1]:.3f}",
            f"{run.curve.test_flexible[-1]:.3f}",
            spark(strict),
            f"± {noise:.3f}",
        )
    return table


def spark(values: np.ndarray) -> str:
    """Values from 0 to 1 as a line of blocks, of full height where they are largest."""
    top = max(float(np.max(values)), 1e-12)
    return "".join(_BLOCKS[max(1, round(8 * float(value) / top))] for value in values)


def _costs(pilot: PilotMeasurements) -> Table:
    table = Table("part", "rollouts", "tokens", "seconds", "of the grid's rollouts", title="cost")
    for part, spent in (pilot.spent | {"all": pilot.total}).items():
        _cost_row(table, part, spent, pilot.grid_rollouts)
    return table


def _cost_row(table: Table, part: str, spent: Spent, grid: int) -> None:
    share = f"{spent.rollouts / grid:.2%}" if spent.rollouts else ""
    table.add(
        part,
        f"{spent.rollouts:,}",
        f"{spent.tokens:,}",
        f"{spent.seconds:.1f}",
        share,
        style="bold" if part == "all" else "",
    )


def _evaluations(pilot: PilotMeasurements) -> str:
    """What the rollouts leave out."""
    grid = f"The grid: {len(CELLS)} designs of {pilot.rounds} rounds, one seed, {pilot.grid_rollouts:,} rollouts."
    if not pilot.runs:
        return grid
    evaluated, each = sum(run.evaluated for run in pilot.runs), _evaluated_by_a_cell(pilot)
    whole = (pilot.total.rollouts + evaluated) / (pilot.grid_rollouts + len(CELLS) * each)
    return (
        f"{grid} Evaluations are not in it: {evaluated:,} responses here, {len(CELLS) * each:,} in the "
        f"grid; with them the share is {whole:.2%}."
    )


def _evaluated_by_a_cell(pilot: PilotMeasurements) -> int:
    """Responses of the evaluations of one run of the grid."""
    evaluation, run = start_at(pilot.base.pair, "llm").evaluation, pilot.runs[0]
    times = pilot.rounds // pilot.eval_every + 1
    return times * (run.train_questions + run.test_questions) * (evaluation.samples + evaluation.greedy)
