"""Seeds and questions that a difference needs, and measured differences: against simulation and scipy."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from scipy import stats

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.results.stats import power, seeds_needed
from rftlab.studies.forecast.signal import power as signal_power
from rftlab.studies.forecast.signal.power import compare_runs, final_score, find_repeats, questions_needed
from rftlab.studies.readers.run import ImportedRun, KnownDesign
from rftlab.studies.readers.store import write_collection
from tests.support.logs.planted import piece_of
from tests.support.machine.here import refused, shown

A, B = np.array([0.41, 0.43, 0.40]), np.array([0.44, 0.46, 0.45])


@pytest.mark.parametrize("sigma", [0.004, 0.01, 0.03, 0.08])
@pytest.mark.parametrize("paired", [False, True])
def test_bisection_finds_the_seeds_that_counting_finds(sigma, paired):
    counted = next(seeds for seeds in count(2) if power(seeds, 0.02 / sigma, paired) >= 0.8)
    assert seeds_needed(sigma, 0.02, paired) == counted
    with pytest.raises(UserError, match="seeds show"):
        seeds_needed(1.0, 1e-9, paired)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("seeds", [2, 3, 6, 7, 8])
def test_a_larger_difference_is_found_more_often(seeds, paired):
    result = np.array([power(seeds, effect, paired) for effect in np.linspace(0.1, 40, 120)])
    assert np.isfinite(result).all() and np.all(np.diff(result) > -1e-9)


@pytest.mark.parametrize("paired", [False, True])
def test_the_smallest_difference_needs_as_many_seeds_as_it_has(paired):
    for seeds in (2, 5, 12):
        difference = signal_power.smallest_difference(0.015, seeds, paired)
        assert seeds_needed(0.015, difference * 1.001, paired) == seeds
        assert seeds_needed(0.015, difference * 0.97, paired) > seeds


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("responses", [1, 4])
def test_the_questions_find_the_difference_as_often_as_they_should(same, responses):
    rng, difference = np.random.default_rng(2), 0.06
    known = signal_power.checked_questions(0.45, 0.2, responses)
    n = questions_needed(known, difference, same)
    size = 0.45 * 0.55 / 0.2**2 - 1
    result, error = [], (known.variance(same) / n) ** 0.5
    for _ in range(3000):
        first = rng.beta(0.45 * size, 0.55 * size, n)
        second = first if same else rng.beta(0.45 * size, 0.55 * size, n)
        better = np.clip(second + difference, 0, 1)
        a, b = (rng.binomial(responses, rates) / responses for rates in (first, better))
        result.append(abs(b.mean() - a.mean()) > 1.96 * error)
    assert np.mean(result) == pytest.approx(0.8, abs=0.05)
    alike = signal_power.checked_questions(0.4, 0.0, 1)  # without a spread the same questions gain nothing
    assert questions_needed(alike, 0.02, True) == questions_needed(alike, 0.02, False)


def test_the_welch_test_is_that_of_scipy():
    for paired, theirs in ((False, stats.ttest_ind(B, A, equal_var=False)), (True, stats.ttest_rel(B, A))):
        difference, interval = compare_runs(A, B, paired), theirs.confidence_interval()
        assert difference.p_value == pytest.approx(theirs.pvalue)
        assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))
    assert compare_runs(B, A, False).seen and compare_runs(B, A, False).high < 0 < compare_runs(A, B, False).low


def test_the_permutation_test_is_that_of_scipy():
    a, b = np.array([0.1, 0.25, 0.2, 0.3]), np.array([0.3, 0.35, 0.28])
    theirs = stats.permutation_test(
        (b, a), lambda x, y: abs(np.mean(x) - np.mean(y)), n_resamples=np.inf, alternative="greater"
    )
    assert compare_runs(a, b, False).permutation == pytest.approx(theirs.pvalue)
    apart = compare_runs(A, B, False)
    assert (apart.permutation, apart.least) == pytest.approx((0.1, 0.1))


def test_one_run_a_side_says_nothing_unless_sigma_is_known_and_pairs_have_their_own():
    assert np.isnan(compare_runs(A[:1], B[:1], False).p_value)
    seen = [compare_runs(A[:1], B[:1], False, **known).seen for known in ({}, {"sigma": 0.005}, {"sigma": 0.05})]
    assert seen == [False, True, False]
    # Three differences above 0: of 8 choices of signs two are as far from 0. sigma is that of a difference.
    pairs = compare_runs(A, B, True, sigma=0.01)
    assert (pairs.permutation, pairs.least) == (2 / 8, 2 / 8)
    assert pairs.high - pairs.value == pytest.approx(1.959964 * 0.01 / np.sqrt(3))
    apart = compare_runs(A, B, False, sigma=0.01)
    assert apart.high - apart.value == pytest.approx(1.959964 * 0.01 * np.sqrt(2 / 3))


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("other", [0.3, 0.5])
def test_runs_that_are_all_equal_say_nothing_of_the_noise(other, paired):
    result = compare_runs(np.full(3, 0.3), np.full(3, other), paired)
    assert not result.seen and np.isnan(result.p_value) and result.value == pytest.approx(other - 0.3)
    text = shown("power", "--a", "0.3", "0.3", "--b", other, other)
    assert "it is unknown whether it is real" in text and "a difference:" not in text


def imported(name: str, value: float, prompts: int | None = 32, rate: float = 1e-6, repeats: str = "") -> ImportedRun:
    curve = piece_of("test", "pass_at_1", (0, 50), (0.1, value), 1.0)
    known = KnownDesign(prompts=prompts, rollouts=8, learning_rate=rate, assumed=(f"said by {name}",))
    return ImportedRun(name, "table", "", (("a.csv", "0"),), known, (curve,), repeats=repeats)


RUNS = [
    *(imported(f"a-{i}", value, repeats="a") for i, value in enumerate(A)),
    *(imported(f"b-{i}", value, 64, repeats="b") for i, value in enumerate(B)),
    imported("c", 0.9, 64, 1e-5),
    imported("d", 0.2, None),
    imported("e", 0.3, None),
]


def test_repeats_are_runs_of_one_known_design_and_no_name_tells():
    groups = find_repeats(RUNS)
    assert [(name, len(scores)) for name, _, scores in groups] == [("a", 3), ("b", 3)]
    sigma = signal_power.pooled_sigma([scores for *_, scores in groups]).value
    assert sigma == pytest.approx(((A.var(ddof=1) + B.var(ddof=1)) / 2) ** 0.5)
    assert final_score(RUNS[0]) == 0.41
    # A difference that no field of a design holds, such as which responses are trained on, may be in a name only.
    both = [(kind, i, value) for kind, values in (("x", A), ("y", B)) for i, value in enumerate(values)]
    runs = [imported(f"{kind}/r{i}", value, repeats=kind) for kind, i, value in both]
    assert find_repeats([imported(f"{kind}/r{i}", value) for kind, i, value in both]) == []
    assert [(name, len(scores)) for name, _, scores in find_repeats(runs)] == [("x", 3), ("y", 3)]


def test_two_repeats_are_repeats_and_a_score_is_the_mean_over_tasks():
    pair = [imported(f"p-{i}", value, repeats="p") for i, value in enumerate(A[:2])]
    assert [(name, scores.tolist()) for name, _, scores in find_repeats(pair)] == [("p", [0.41, 0.43])]
    halves = [replace(pair[0], design=replace(run.design, rollouts=None)) for run in pair]
    assert find_repeats([halves[0], replace(halves[1], name="q")]) == []
    (piece,) = pair[0].pieces
    tasks = (piece._replace(task="s"), piece._replace(task="t", values=piece.values + 0.2))
    both = replace(pair[0], pieces=tasks)
    assert final_score(both) == pytest.approx(0.51) and final_score(both, "t") == pytest.approx(0.61)


def test_runs_of_a_collection_are_compared_by_name(tmp_path):
    write_collection(tmp_path, "sweep", RUNS)
    ask, numbers = ("power", "--results", tmp_path, "--imported", "sweep"), shown("power", "--a", *A, "--b", *B)
    assert shown(*ask, "--a", "a-0", "a-1", "a-2", "--b", "b-0", "b-1", "b-2") == numbers and "+0.0367" in numbers
    assert shown(*ask, "--a", "a-*", "a-1", "--b", "b-[0-9]") == numbers
    text, sigma = shown(*ask, "--difference", 0.02), signal_power.pooled_sigma([A, B]).value
    assert (
        f"sigma = {sigma:.4f}" in text
        and "(4 degrees of freedom)" in text
        and f" {seeds_needed(sigma, 0.02)} seeds an arm unpaired" in text
    )
    assert "a-0, a-1" in refused(*ask, "--a", "a-0", "--b", "nobody")
    assert "a-1 on both sides" in refused(*ask, "--a", "a-*", "--b", "a-1", "b-0")
    assert "pairs: a-0 with b-0, a-2 with b-1\n" in shown(*ask, "--a", "a-0", "a-2", "--b", "b-[01]", "--paired")
    write_collection(tmp_path, "one", RUNS[:1])
    assert "repeat" in refused("power", "--results", tmp_path, "--imported", "one")
    assert "difference = 1e-200; allowed: 1e-6 to 1" in refused("power", "--p", 0.4, "--difference", 1e-200)


SIDES = ("--a", "*-n64-m16/*", "--b", "*-n16-m16/*", "--imported")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--a", 0.40, 0.46, "--b", 0.41, 0.47), ("no difference seen",)),
        (("--a", 0.1, 0.2, 0.3, "--b", 0.3, 0.1, 0.2), ("0.0000, 95% interval", "no difference seen")),
        (("--a", *A, "--b", *B, "--paired"), ("counted over all signs of the pairs",)),
        (("--a", *("0.40", "0.41") * 5, "--b", *("0.50", "0.51") * 5), ("p < 0.001",)),
        (("--sigma", 0.015, "--difference", 0.02, "--correlation", 0.8), ("5 paired (correlation 0.8)",)),
        ((*SIDES, "public:pods"), ("mean over amc23, gsm8k, math500",)),
    ],
)
def test_what_is_known_of_a_difference_is_told_with_what_so_few_runs_cannot_say(flags, words):
    text = shown("power", *flags)
    assert [one for one in words if one not in text] == []


def test_of_one_test_set_no_mean_over_several_is_said():
    assert "mean over amc23" not in shown("power", *SIDES, "public:pods/gsm8k")
