"""Forecast where a run ends from its beginning, and which of two runs ends higher.

The model is that test Pass@1 rises from the untrained model's by a share of what is missing and drifts a little. It
rises along 1 - exp(-(t / tau)^p), with t the part of the planned rounds. The share, tau, p and the drift have weakly
informative priors, and draws from them are weighted by how well they pass through the known values. Where the curve
stands still or fell, the forecast is pulled towards the last value, because public runs that are flat mostly stay flat,
and no draw falls. Which of two runs ends higher is forecast from the lead alone, which was right more often than a
comparison of two forecasts. Noise from few questions widens the interval and makes a lead count for less.

Without evaluations Pass@1 of training is forecast in the same way, averaged over windows. Priors, widths and `LEAD`
were chosen on test Pass@1 of public runs; `rftlab dev score --what public` scores them on those that come with rftlab,
`--what imported:NAME` on others.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.stats import norm, qmc

from rftlab.shared.plumbing.errors import check
from rftlab.studies.analysis.imported.ends import roughness
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.results.stats import Estimate, binomial_error, weighted_quantiles
from rftlab.studies.forecast.law.curve import LEVEL, fit_saturating
from rftlab.studies.forecast.record import ending_lines, errors, plan_line
from rftlab.studies.readers.run import ImportedRun

DRAWS = 2**13
"""Number of draws from the prior. They are points of a Sobol sequence, so it is a power of two."""
SHARE, TIME, POWER, DRIFT = (-0.5, 1.2), (-1.2, 1.0), (0.0, 0.4), (0.0, 0.03)
"""Prior mean and standard deviation of the logit of the share, log tau, log p, and the drift over a whole run."""
BASE_ERROR = 0.15
"""Scale of the half-normal drop from the first value to the untrained model's Pass@1, where that was not evaluated."""
NOISE = 0.03
"""Standard deviation about the curve of an evaluation with many questions."""
COUNTED = 8
"""Number of values beyond which more do not add evidence, because they lie near each other."""
STILL = 0.06
"""Change of Pass@1 over the second half of the known part at which a curve counts as moving, or as fallen."""
WIDER = 1.25
"""Factor on the spread of the draws, so that intervals hold the share LEVEL of the ends of public runs."""
LEAST = 0.05
"""Half-width of the narrowest interval, for the difference between repeats of a run and the error of an evaluation."""
EARLIEST = 0.15
"""Known part of a run below which the narrowest interval is twice as wide, because intervals held too few ends."""
LEAD = 0.1
"""Standard deviation in Pass@1 of true leads between two runs, and of how a lead changes until the end."""
LEADS = (0.0, 0.02, 0.05, 0.1, 1.0)
"""Bounds of the ranges of leads in the table of scores."""
MEASURES = {"test": "test Pass@1", "train": "Pass@1 of training"}
"""Splits whose Pass@1 is forecast, in order of preference, each with the name of its measure."""
TRAINING = "training"
"""Name in the place of a task for Pass@1 of training."""
LAST = 0.1
"""Last part of a run whose mean Pass@1 of training is the run's end."""
PARTS = (0.1, 0.2, 0.3, 0.5)
"""Parts of finished runs from which their ends are forecast to score the forecasts."""
FEWEST = 5
"""Fewest values of a curve that is scored."""
COLUMNS = ["source", "run", "split", "task", "part", "known", "last", "noise", "sigmoid", "forecast", "low", "high",
           "truth"]  # fmt: skip


class RunEnding(NamedTuple):
    """Forecast of a run's end."""

    run: str
    split: str
    task: str
    known: int
    """Last round whose Pass@1 is known."""
    last: float
    """Pass@1 at that round; for training, the mean of the last window."""
    noise: float
    """Standard deviation of `last` due to its questions, as `evaluation_noise` estimates it."""
    end: Estimate
    """Pass@1 after the planned rounds, with an interval of level LEVEL."""


class PassCurve(NamedTuple):
    """Pass@1 of a run: on a test set, or of the batches that it trained on."""

    split: str
    task: str
    rounds: np.ndarray
    values: np.ndarray
    questions: float
    """Responses behind a value; nan where their number is not known."""

    def until(self, last: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Return rounds and values up to the round `last`, and the last of these rounds, 0 for none.

        Values of training are means of COUNTED windows, because a batch has few questions. There are none where a
        window would have fewer than two rounds.
        """
        known = self.rounds <= last
        rounds, values = self.rounds[known], self.values[known]
        reached = float(rounds[-1]) if len(rounds) else 0.0
        if self.split == "test":
            return rounds, values, reached
        if len(rounds) < 2 * COUNTED:
            return rounds[:0], values[:0], 0.0
        windows = np.array_split(np.arange(len(rounds)), COUNTED)
        return np.array([rounds[w].mean() for w in windows]), np.array([values[w].mean() for w in windows]), reached

    def end(self) -> float:
        """Return the value at the end: the last one, or for training the mean over the last tenth of the rounds."""
        late = self.rounds > (1 - LAST) * self.rounds[-1]
        return float(self.values[-1] if self.split == "test" else self.values[late].mean())


def evaluation_noise(values: np.ndarray, questions: float) -> float:
    """Return the standard deviation of the last value due to its questions: binomial where their number is known, else
    from the curve's roughness; 0 where there are too few values for that."""
    if np.isfinite(questions):
        return binomial_error(float(values[-1]), questions)
    return float(np.nan_to_num(roughness([values])))


def forecast_end(rounds: np.ndarray, values: np.ndarray, planned: float, noise: float = 0.0) -> Estimate:
    """Return test Pass@1 after `planned` rounds, with the interval of LEVEL.

    rounds (n,) increasing, 0 for the untrained model; values (n,) between 0 and 1; noise: standard deviation of an
    evaluation. Raises UserError without a value, or where nothing is left to forecast.
    """
    check(len(rounds) > 0, "a forecast of the end needs test evaluations; allowed: a log with one and more")
    check(rounds[-1] > 0, "only the untrained model is evaluated; allowed: a log with an evaluation after round 0")
    check(rounds[-1] < planned, f"rounds = {planned:g}; allowed: above {rounds[-1]:g}, the last round evaluated")
    at, last = rounds / planned, float(values[-1])
    weights, ends = _weigh(at, values, float(np.hypot(NOISE, noise)))
    low, middle, high = np.clip(weighted_quantiles(weights, ends, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2]), 0.0, 1.0)
    rise = (last - float(np.interp(at[-1] / 2, at, values))) / STILL
    moving = min(abs(rise), 1.0)
    growing = moving * min(max(1 + rise, 0.0), 1.0)  # no draw is like a curve that fell by STILL or more
    value = last + growing * (middle - last)
    least = LEAST * (2 if at[-1] < EARLIEST else 1)
    spread = moving if len(values) > 1 else 1.0  # one value does not tell whether the curve moves
    both = norm.ppf((1 + LEVEL) / 2) * np.sqrt(2) * noise  # the last value errs, and so does the end as it is measured
    reach = float(np.linalg.norm([spread * WIDER * (high - low) / 2, least, both]))
    return Estimate(float(value), max(value - reach, 0.0), min(value + reach, 1.0))


@cache
def _prior() -> np.ndarray:
    """Return prior draws (5, DRAWS): share of what is missing, tau, p, drift, a standard normal for the untrained
    model."""
    normals = norm.ppf(qmc.Sobol(5, scramble=False).random(DRAWS) + 0.5 / DRAWS).T
    share, time, power, drift = (
        mean + deviation * row for (mean, deviation), row in zip((SHARE, TIME, POWER, DRIFT), normals[:4], strict=True)
    )
    return np.array([1 / (1 + np.exp(-share)), np.exp(time), np.exp(power), drift, normals[4]])


def _weigh(at: np.ndarray, values: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the draws' weights (DRAWS,) and values at the end of the run. error: standard deviation of a value."""
    share, time, power, drift, normal = _prior()
    below = error * normal if at[0] == 0 else -BASE_ERROR * np.abs(normal)
    base = np.clip(values[0] + below, 0.0, 1.0)

    def curve(t: np.ndarray) -> np.ndarray:
        return base + (1 - base) * share * -np.expm1(-((t[:, None] / time) ** power)) + drift * t[:, None]

    logs = -0.5 * np.square((curve(at) - values[:, None]) / error).sum(axis=0) * min(1.0, COUNTED / len(at))
    weights = np.exp(logs - logs.max())
    return weights / weights.sum(), curve(np.ones(1))[0]


def saturating_end(rounds: np.ndarray, values: np.ndarray, planned: float) -> float:
    """Return Pass@1 at `planned` by a saturating curve from the first value, a plain forecast to compare `forecast_end`
    with. It is the last value where there are fewer than three later ones."""
    later = rounds > rounds[0]
    if later.sum() < 3:
        return float(values[-1])
    at = np.log(rounds[later])
    bounds = (-8, -3, at[0] - 3), (8, 3, np.log(planned) + 3)
    curve = fit_saturating(values[0], at, values[later], (at[0], at[-1]), bounds)
    return float(curve(np.log(planned)))


def chance_of_leader(lead: float, noise: float = 0.0) -> float:
    """Return the probability that the run ahead by `lead` of test Pass@1 ends higher.

    noise: standard deviation of the lead due to its questions. A true lead is normal with standard deviation LEAD, so
    that noise shrinks the measured one.
    """
    trusted = LEAD**2 / (LEAD**2 + noise**2)
    return float(norm.cdf(trusted * abs(lead) / np.sqrt(LEAD**2 + trusted * noise**2)))


def leader_text(first: RunEnding, second: RunEnding) -> str:
    """Return the probability of `chance_of_leader` as text. No record is long enough for one above 0.98."""
    chance = chance_of_leader(first.last - second.last, float(np.hypot(first.noise, second.noise)))
    return f"{chance:.2f}" if chance < 0.985 else "above 0.98"


def _curves(run: ImportedRun) -> list[PassCurve]:
    """Return the curves of Pass@1 of a run: those of each task that is evaluated, then that of training."""
    curves = []
    for piece in run.pieces:
        values = np.asarray(piece.values, dtype=float)
        if piece.split in MEASURES and piece.metric == "pass_at_1" and np.isfinite(values).any():
            rounds = np.asarray(piece.rounds, dtype=float)[np.isfinite(values)]
            values = np.clip(values[np.isfinite(values)], 0.0, 1.0)
            train = piece.split == "train"  # where n counts updates or batches
            known = np.empty(0) if piece.n is None or train else piece.n[np.isfinite(piece.n)]
            questions = float(np.median(known)) if len(known) else np.nan
            curves.append(PassCurve(piece.split, TRAINING if train else piece.task, rounds, values, questions))
    return sorted(curves, key=lambda curve: [*MEASURES].index(curve.split))


def run_ending(run: ImportedRun, planned: int, questions: int | None = None) -> RunEnding:
    """Forecast the end of a run from its test evaluations, of several tasks the first, else from Pass@1 of training.

    questions: those behind each evaluation, where the log does not say. Raises UserError where there are neither test
    evaluations nor enough rounds of training, or where nothing is left to forecast.
    """
    curves = [(curve, *curve.until(np.inf)) for curve in _curves(run)]
    usable = [one for one in curves if one[-1] > 0] or [one for one in curves if one[0].split == "test"]
    allowed = f"a log with evaluations on a test set, or with {2 * COUNTED} rounds of training Pass@1"
    check(bool(usable), f"{run.name} has no test pass_at_1; allowed: {allowed}")
    curve, rounds, values, known = usable[0]
    check(known < planned, f"rounds = {planned}; allowed: above {known:g}, the last round that is known")
    asked = questions if questions and curve.split == "test" else np.nan
    noise = evaluation_noise(values, curve.questions if np.isfinite(curve.questions) else asked)
    end = forecast_end(rounds, values, planned, noise)
    return RunEnding(run.name, curve.split, curve.task, int(known), float(values[-1]), noise, end)


def show_endings(console: Console, endings: list[RunEnding], planned: int) -> None:
    """Print the forecast end of each run and, for two runs, which one is likely to end higher."""
    splits = {one.split for one in endings}
    measure = MEASURES[endings[0].split] if len(splits) == 1 else "Pass@1"
    heads = ("known until", measure, f"at {planned}", f"{LEVEL:.0%} interval")
    table = Table("run", Column("task", align="left"), *heads)
    for one in endings:
        interval = f"{one.end.low:.3f} to {one.end.high:.3f}"
        table.add(one.run, one.task, str(one.known), f"{one.last:.3f}", f"{one.end.value:.3f}", interval)
    put(console, f"{measure} after {planned} rounds, from the beginning of the run", table)
    for split in sorted(splits):
        for line in ending_lines(max(one.known for one in endings if one.split == split) / planned, split):
            say(console, line, "dim")
    if len(endings) != 2:
        return
    first, second = endings
    ahead, behind = (first, second) if first.last >= second.last else (second, first)
    lead, part = ahead.last - behind.last, max(one.known for one in endings) / planned
    say(
        console,
        f"{ahead.run} is ahead by {lead:.3f} and ends higher with probability {leader_text(first, second)}. Going on "
        f"with it alone saves {(1 - part) / 2:.0%} of the rounds of both.",
    )
    say(console, plan_line())
    if first.task != second.task or first.known != second.known:
        say(console, "These runs are evaluated on different tasks or until different rounds: the chance is a guess.")
    elif splits == {"train"}:
        say(console, "Pairs of runs were scored by test Pass@1: by that of training the chance is a guess.")


def ending_scores(runs: list[tuple[str, ImportedRun]]) -> pd.DataFrame:
    """Forecast the ends of finished runs from PARTS of them. runs: each with the name of its source.

    Columns: source, run, split, task, part, known (last round), last, noise, sigmoid, forecast, low, high, truth.
    Curves with fewer than FEWEST values, and parts without one after round 0, are left out.
    """
    rows = []
    for source, run in runs:
        for curve in _curves(run):
            for part in PARTS if len(curve.values) >= FEWEST else ():
                rounds, values, known = curve.until(part * curve.rounds[-1])
                if known > 0:
                    seen = rounds, values, float(curve.rounds[-1])
                    noise = evaluation_noise(values, curve.questions)
                    plain = float(values[-1]), noise, saturating_end(*seen)
                    row = source, run.name, curve.split, curve.task, part, int(known), *plain
                    rows.append((*row, *forecast_end(*seen, noise), curve.end()))
    return pd.DataFrame(rows, columns=COLUMNS)


def leader_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a row for every two runs of a source and task that are known until the same round, at 20% or 30% of
    theirs.

    scores: as `ending_scores` returns them. Columns: source, task, part, lead, gap (by how much the leader ends
    higher), noise, chance (that it ends higher), held (whether it does), lost (by keeping it). Ties are left out.
    """
    tables = [pd.DataFrame({"source": [], "task": [], "part": [], "lead": [], "gap": [], "noise": []})]
    tested = scores[scores["part"].isin(PARTS[1:3]) & (scores["split"] == "test")]
    for key, group in tested.groupby(["source", "task", "part", "known"]):
        last, end, noise = (group[name].to_numpy() for name in ("last", "truth", "noise"))
        first, second = np.triu_indices(len(group), 1)
        lead, gap = last[first] - last[second], end[first] - end[second]
        both = np.hypot(noise[first], noise[second])
        table = pd.DataFrame({"lead": np.abs(lead), "gap": np.sign(lead) * gap, "noise": both})
        table[["source", "task", "part"]] = key[:3]
        tables.append(table[(lead != 0) & (gap != 0)])
    rows = pd.concat(tables, ignore_index=True)
    chances = [chance_of_leader(lead, noise) for lead, noise in zip(rows["lead"], rows["noise"], strict=True)]
    return rows.assign(chance=chances, held=rows["gap"] > 0, lost=np.maximum(-rows["gap"], 0.0))


def show_ending_scores(console: Console, scores: pd.DataFrame) -> None:
    """Print mean errors of forecasts of ends and the share of ends that intervals hold, and how often the leader of two
    runs ended higher. Every source counts alike, and every task within a source."""
    for split, rows in scores.groupby("split", sort=False):
        _show_errors(console, rows, MEASURES[str(split)])
    leaders = leader_scores(scores)
    if not len(leaders):
        return
    columns = (Column("probability", ".2f"), Column("ended higher", ".2f"), Column("lost by keeping it", ".3f"))
    table = Table("lead", "pairs of runs", *columns)
    for bounds, group in leaders.groupby(pd.cut(leaders["lead"], LEADS), observed=True):
        table.add(f"{bounds.left:g} to {bounds.right:g}", f"{len(group):,}", *group[["chance", "held", "lost"]].mean())
    put(console, "the run that leads after 20 or 30% of the rounds", table)


def _show_errors(console: Console, scores: pd.DataFrame, measure: str) -> None:
    """Print the mean errors of forecasts of one split, by the part of the run that was known."""
    names = ("last", "sigmoid", "forecast")
    numbers = scores[["source", "task", "part"]].assign(**{name: errors(scores, name) for name in names})
    numbers["held"] = scores["truth"].between(scores["low"], scores["high"])
    means = numbers.groupby(["part", "source", "task"]).mean().groupby(["part", "source"]).mean().groupby("part").mean()
    counts = numbers.groupby("part").size()
    heads = [Column(name, ".3f") for name in ("last value", "saturating curve", "forecast")]
    table = Table("known part", "curves", *heads, "80% interval holds")
    for part, row in means.iterrows():
        table.add(f"{part:.0%}", str(counts[part]), *row[[*names]], f"{row['held']:.0%}")
    put(console, f"ends of runs, from their beginnings: mean error of {measure}", table)
