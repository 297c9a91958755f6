"""Compute how many groups of a round teach anything, from the distribution of pass rates over questions.

A group of K responses to a question of pass rate p has zero variance where all are right or all are wrong, with
probability p^K + (1-p)^K. Its advantages are then 0. Over questions with p ~ Beta(a, b) that probability is

    E[p^K + q^K] = (B(a+K, b) + B(a, b+K)) / B(a, b)

From c right of m responses to a question, C(c, K)/C(m, K) + C(m-c, K)/C(m, K) has that expectation for K <= m, whatever
the distribution (a U-statistic, as in pass@k). No fit is needed there (studies/forecast/pilot/headroom.py).

Pass rates come from a pilot, a file with a question a row, imported runs with a response a row, or two numbers.
"""

import csv
import io
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom, nbinom

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import path_kind, read_json
from rftlab.studies.forecast.law.noise import read_law_run
from rftlab.studies.forecast.pilot.passrates import (
    BetaBinomial,
    Mixture,
    beta_binomial,
    binomials,
    goodness,
    nonparametric,
    zero_inflated,
)
from rftlab.studies.forecast.pilot.pilot import Gradient
from rftlab.studies.forecast.pilot.store import pilot_path, read_pilot, shipped_base
from rftlab.studies.forecast.signal.power import check_spread, selected
from rftlab.studies.integrations.noise import KIND
from rftlab.studies.readers.text import check_file, detect_encoding

Rates = BetaBinomial | Mixture
"""A distribution of pass rates over questions."""
LIKELY = 0.95
"""Chance with which dynamic sampling is to find all its groups."""
HOPELESS = 1e-6
"""Share of groups with signal below which the number of tries counts as infinite."""

ALIKE = 1e-7
"""Part of the largest possible spread below which all questions count as alike."""


def match_beta(mean: float, spread: float) -> Rates:
    """Return the Beta distribution with a mean and a standard deviation; all questions alike where the latter is 0.

    Raises UserError where there is none.
    """
    most = check_spread(mean, spread)
    if spread <= ALIKE * most:
        return exactly(np.array([mean]))
    size = (most / spread) ** 2 - 1
    return BetaBinomial(mean * size, (1 - mean) * size)


def exactly(rates: np.ndarray) -> Mixture:
    """Return the distribution of known pass rates (n,), each as likely as the others."""
    return Mixture(rates, np.full(len(rates), 1 / len(rates)))


def zero_variance_share(rates: Rates, rollouts: int) -> float:
    """Return E[p^K + q^K]: the expected share of groups of K responses that are all right or all wrong."""
    k = rollouts
    if isinstance(rates, Mixture):
        return float(rates.weights @ (rates.rates**k + (1 - rates.rates) ** k))
    inner = _rising(rates.a, rates.a + rates.b, k) + _rising(rates.b, rates.a + rates.b, k)
    return float(rates.zero + (1 - rates.zero) * min(1.0, inner))


def _rising(part: float, whole: float, k: int) -> float:
    """Return B(a + k, b) / B(a, b) as the product of (a + j) / (a + b + j), because differences of logarithms of B
    would lose all digits where a is large."""
    j = np.arange(k)
    return float(np.exp(np.log((part + j) / (whole + j)).sum()))


def expected_tries(batch_size: int, silent: float) -> tuple[float, float]:
    """Return the expected number of batches of B prompts until B groups have signal, and the number that suffices with
    chance LIKELY; inf where hardly any group has signal.

    Prompts are drawn independently, so the number of groups drawn before the B-th with signal is negative binomial.
    Another batch is drawn while groups are missing: E = sum_t P(Binomial(t B, 1 - silent) < B).
    """
    signal = 1 - silent
    if signal < HOPELESS:
        return inf, inf
    last = int(nbinom.isf(1e-12, batch_size, signal)) // batch_size + 2
    batches = np.arange(1, last + 1)
    missing = binom.cdf(batch_size - 1, batches * batch_size, signal)
    return float(1 + missing.sum()), float(batches[np.argmax(missing <= 1 - LIKELY)])


def posterior(rates: Rates, m: int, right: int) -> Rates:
    """Return the distribution of a question's pass rate after `right` of m responses were right (Bayes)."""
    if isinstance(rates, Mixture):
        weights = rates.weights * binomials(m, rates.rates)[right]
        return Mixture(rates.rates, weights / weights.sum())
    at_zero = rates.zero / zero_inflated(m, rates.a, rates.b, rates.zero)[0] if right == 0 else 0.0
    return BetaBinomial(rates.a + right, rates.b + m - right, float(at_zero))


RIGHT = ("right", "correct", "c", "num_correct", "successes")
TOTAL = ("responses", "n", "samples", "total", "num_samples")
RATE = ("pass_rate", "rate", "p", "pass_at_1", "accuracy", "solve_rate")
"""Names of columns for right responses, for all responses, and for pass rates."""
LARGEST, MAX_RESPONSES = 64 << 20, 100_000
"""Largest size of a file in bytes, and largest number of responses to a question."""
SURE = 0.05
"""Level of the test of fit: below this p-value the beta-binomial is not used."""
ALLOWED = (
    f"a CSV with a column {', '.join(RATE[:2])}, or columns {RIGHT[0]} and {TOTAL[0]}; or JSON: a list of rates, of "
    "[right, responses], or of objects with these names"
)


class MeasuredRates(NamedTuple):
    """Measured pass rates of questions."""

    counts: np.ndarray | None
    """Right responses to each question (n,); None where rates are given without the number of responses."""
    responses: int
    """Number of responses to each question; 0 where that is not known."""
    rates: np.ndarray
    """Pass rates (n,) as they were measured."""
    gradient: Gradient | None = None
    """Noise of gradients of the same base model, where a pilot measured it."""


class Fitted(NamedTuple):
    """Distribution of pass rates that is used, and the reason for it."""

    rates: Rates
    other: Rates | None
    """Fit that is not used, for comparison."""
    origin: str
    """Reason for the distribution that is used, in words."""


def fit_rates(measured: MeasuredRates) -> Fitted:
    """Return the distribution behind measured pass rates: beta-binomial where a test of fit does not reject it,
    otherwise without a form. Rates from an unknown number of responses are taken as exact."""
    n = len(measured.rates)
    if measured.counts is None:
        origin = f"{n} rates taken as exact: from few responses they are too wide, and too many groups have no variance"
        return Fitted(exactly(measured.rates), None, origin + " (--responses tells how many)")
    if measured.responses == 1 or n < 2:
        raise UserError(
            f"{n} questions with {measured.responses} response each; allowed: 2 or more questions, 2 or more responses"
        )
    beta, free = beta_binomial(measured.counts, measured.responses), nonparametric(measured.counts, measured.responses)
    tested = goodness(beta, measured.counts, measured.responses)
    bad = tested.p_value < SURE
    shown = f"beta-binomial a = {beta.a:.3g}, b = {beta.b:.3g}{f', {beta.zero:.0%} at 0' if beta.zero > 0 else ''}"
    odds = f"p = {tested.p_value:.2g}" if tested.degrees else "too few counts to test it"
    if bad:
        return Fitted(free, beta, f"distribution without a form, because {shown} does not fit ({odds})")
    return Fitted(beta, free, f"{shown} ({odds})")


def pilot_rates(root: Path, pair: str) -> MeasuredRates:
    """Return the measurements of a pilot on training questions, or on unseen ones where it asked no others: that of a
    results folder, else what comes with rftlab. Raises UserError where there is neither."""
    base = read_pilot(root, pair).base if path_kind(pilot_path(root, pair)) else shipped_base(pair)
    answers = base.train or base.test
    counts, m = answers.strict, answers.samples
    return MeasuredRates(counts, m, counts / m, base.centred)


def imported_rates(root: Path, name: str, rounds: tuple[int, int] | None = None) -> tuple[MeasuredRates, str]:
    """Return right responses of the groups of imported runs, NAME or NAME#RUN, and in words what was taken: groups of
    training where there are any. rounds: first and last; None for the last quarter of those that are there. Raises
    UserError where no log had a row a response."""
    runs, _ = selected(root, name)
    outcomes = [one for run in runs for one in run.outcomes]
    check(
        bool(outcomes),
        f"imported runs {name!r} have no right responses by question; allowed: runs from logs with a row a response "
        "(verl's rollout_data_dir, TRL's completions)",
    )
    split = "train" if any(one.split == "train" for one in outcomes) else "test"
    own = [one for one in outcomes if one.split == split]
    columns = [
        np.concatenate([np.array(part, dtype=np.int64) for part in parts])
        for parts in zip(*(one[1:] for one in own), strict=True)
    ]
    there = columns[0]
    first, last = rounds or (int(np.ceil(there.max() - (there.max() - there.min()) / 4)), int(there.max()))
    inside = (there >= first) & (there <= last)
    check(bool(inside.any()), f"rounds = {first} {last}; allowed: within {there.min()} to {there.max()}")
    _, k, right, groups = (column[inside] for column in columns)
    usual = int(max(np.unique(k), key=lambda size: groups[k == size].sum()))
    counts = np.repeat(right[k == usual], groups[k == usual])
    left = f"; {groups[k != usual].sum()} with other numbers left out" if (k != usual).any() else ""
    origin = f"{len(counts)} groups of {usual} responses ({split}, rounds {first} to {last}{left})"
    return MeasuredRates(counts, usual, counts / usual), origin


def read_rates(path: Path, column: str | None, responses: int | None) -> MeasuredRates:
    """Return pass rates from a file. column: that of the rates, where its name is not understood. responses: to each
    question, where the file does not say it. Raises UserError for anything that is not understood."""
    check_file(path, ALLOWED)
    if path.name == f"{KIND}.json":
        return _run_rates(path)
    check(path.stat().st_size <= LARGEST, f"{path} has {path.stat().st_size} bytes; allowed: at most {LARGEST}")
    rows = _json_rows(path) if path.suffix.lower() == ".json" else _table_rows(path)
    check(bool(rows), f"{path} holds no question; allowed: {ALLOWED}")
    names = {name for row in rows for name in row}
    rate = column or next((name for name in RATE if name in names), None)
    right, total = (next((name for name in known if name in names), None) for known in (RIGHT, TOTAL))
    check(column is None or column in names, f"{path} has no column {column!r}; it has: {', '.join(sorted(names))}")
    known = _column(path, rows, total) if total else np.full(len(rows), float(responses or 0))
    if right and column is None:
        return _counted(path, _column(path, rows, right), known)
    if rate is None:
        raise UserError(f"{path} has columns {', '.join(sorted(names))[:200]}; allowed: {ALLOWED}")
    rates = _column(path, rows, rate)
    outside = np.flatnonzero((rates < 0) | (rates > 1))
    check(not len(outside), f"{path}: {rate} = {rates[outside[:1]].sum():g} of a question; allowed: 0 to 1")
    if total is None and responses is None:
        return MeasuredRates(None, 0, rates)
    return _counted(path, rates * known, known)


def _run_rates(path: Path) -> MeasuredRates:
    """Return the right responses that a run measured on its own prompts."""
    counts, responses = (run := read_law_run(path)).counts, run.rewards.shape[1]
    if counts is None:
        raise UserError(f"{path} has rewards other than 0 and 1; allowed: those of right and wrong responses")
    return MeasuredRates(counts, responses, counts / responses)


def _counted(path: Path, counts: np.ndarray, known: np.ndarray) -> MeasuredRates:
    check(
        len(np.unique(known)) == 1,
        f"{path} has from {known.min():g} to {known.max():g} responses to a question; allowed: as many to each",
    )
    m = int(known[0]) if 1 <= known[0] <= MAX_RESPONSES and known[0] == int(known[0]) else 0
    check(m > 0, f"{path}: {known[0]:g} responses to a question; allowed: 1 to {MAX_RESPONSES}; --responses N tells it")
    whole = np.rint(counts).astype(np.int64)
    wrong = np.flatnonzero((np.abs(counts - whole) > 0.02 * np.maximum(1, counts)) | (whole < 0) | (whole > m))
    check(not len(wrong), f"{path}: {counts[wrong[:1]].sum():g} right of {m}; allowed: a whole number from 0 to {m}")
    return MeasuredRates(whole, m, whole / m)


def _column(path: Path, rows: list[dict[str, Any]], name: str) -> np.ndarray:
    """Return the numbers of a column. Raises UserError where one is missing."""
    numbers = np.empty(len(rows))
    for i, row in enumerate(rows):
        value: Any = row.get(name)
        try:
            numbers[i] = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError, OverflowError):
            numbers[i] = float("nan")
        check(bool(np.isfinite(numbers[i])), f"{path}: question {i + 1} has {name} = {value!r:.40}; allowed: a number")
    return numbers


def _json_rows(path: Path) -> list[dict[str, Any]]:
    try:
        content = read_json(path.resolve())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no JSON that can be read: {str(error)[:200]}; allowed: {ALLOWED}") from None
    check(isinstance(content, list), f"{path} holds no list; allowed: {ALLOWED}")
    return [_json_row(path, value) for value in content]


def _json_row(path: Path, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and len(value) == 2:
        return {RIGHT[0]: value[0], TOTAL[0]: value[1]}
    check(isinstance(value, int | float), f"{path} holds {str(value)[:40]!r}; allowed: {ALLOWED}")
    return {RATE[0]: value}


def _table_rows(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    encoding = detect_encoding(data[: 1 << 16])
    check(bool(encoding), f"{path} is no text; allowed: {ALLOWED}")
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode(encoding, "replace").lstrip("\ufeff"))))
        wrong = next((i for i, row in enumerate(rows) if None in row or None in row.values()), None)
        check(
            wrong is None,
            f"{path}: question {(wrong or 0) + 1} has not as many cells as the header; allowed: {ALLOWED}",
        )
        return rows
    except csv.Error as error:
        raise UserError(f"{path} is no table: {error}; allowed: {ALLOWED}") from None
