"""The summary that a pilot keeps of the responses and gradients of a probe."""

from typing import TYPE_CHECKING

import numpy as np

from rftlab.studies.forecast.pilot.headroom import (
    GROUPS,
    TRIES,
    VOTES,
    Headroom,
    mean_rate,
    measure_credit,
    measure_entropy,
    measure_silence,
    measure_tries,
    measure_votes,
)
from rftlab.studies.forecast.pilot.noise import analyse, measure_ratios
from rftlab.studies.forecast.pilot.pilot import QUANTILES, Answers, Base, Lengths, Spent

if TYPE_CHECKING:
    from rftlab.llm.probe import Probed, SplitAnswers


def base_from(pair: str, probed: "Probed", temperature: float = 1.0) -> Base:
    """Return the summary that a pilot keeps of a probe at a temperature of training."""
    headroom, train, raw, centred = probed.headroom, probed.train, probed.raw, probed.centred
    asked = {"train": train, "test": probed.test}
    spent = {name: _spent(answers) for name, answers in asked.items() if answers is not None}
    spent["temperatures, tries"] = Spent(headroom.rollouts, headroom.tokens, headroom.seconds)
    if raw is not None:
        spent["gradients"] = Spent(0, 0, probed.seconds)
    return Base(
        pair,
        0 if train is None else train.available,
        probed.test.available,
        None if train is None else count_answers(train),
        count_answers(probed.test),
        None if raw is None else analyse(raw),
        None if centred is None else analyse(centred),
        spent,
        None if raw is None or centred is None else measure_ratios(raw, centred),
        summarize_headroom(probed, temperature),
    )


def summarize_headroom(probed: "Probed", temperature: float = 1.0) -> Headroom:
    """Return the abilities of the base model, from all of its responses: k tries and votes from all test questions
    where they have k responses, else from the few that have many. Zero-variance groups are those of the training
    questions where these were asked."""
    train, test, headroom = probed.train or probed.test, probed.test, probed.headroom
    counts, m = train.strict.sum(axis=1), train.strict.shape[1]
    few, many = test.strict.shape[1], headroom.many.shape[1]
    tries, votes = measure_tries(test.strict.sum(axis=1), few), measure_votes(test.answers, test.strict)
    if many:
        tries += measure_tries(headroom.many.sum(axis=1), many, tuple(k for k in TRIES if k > few))
        votes += measure_votes(headroom.many_answers, headroom.many, tuple(k for k in VOTES if k > few))
    return Headroom(
        tuple(mean_rate(at, right.mean(axis=1), right.shape[1]) for at, right in headroom.right.items()),
        votes,
        tries,
        measure_silence(counts, m),
        tuple(silent for k in GROUPS if (silent := measure_silence(counts, m, k))),
        measure_credit(test, headroom, temperature),
        measure_entropy(test.surprise, test.lengths, temperature),
    )


def _spent(answers: "SplitAnswers") -> Spent:
    return Spent(answers.lengths.size, int(answers.lengths.sum()), answers.seconds)


def count_answers(answers: "SplitAnswers") -> Answers:
    """Counts and lengths of the responses to a split."""
    strict, flexible, well_formed = (
        np.asarray(column).sum(axis=1).astype(np.int64)
        for column in (answers.strict, answers.flexible, answers.well_formed)
    )
    lengths, is_right = answers.lengths.astype(np.float64), answers.strict == 1
    right, wrong = (float(lengths[part].mean()) if part.any() else float("nan") for part in (is_right, ~is_right))
    quantiles, cut = np.quantile(lengths, QUANTILES), float(1 - answers.finished.mean())
    spread = Lengths(float(lengths.mean()), float(lengths.std()), quantiles, right, wrong, cut)
    return Answers(lengths.shape[1], strict, flexible, well_formed, spread)
