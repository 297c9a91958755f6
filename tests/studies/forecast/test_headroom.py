"""Gradient noise from products, what a base model could already do, and r with its interval: against known truths, and
against wrong ways that must be told apart."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rftlab import Linear, Optimizer, Simulation, simulate
from rftlab.sim.environments import build
from rftlab.studies.forecast.knobs import as_right
from rftlab.studies.forecast.law.noise import combine_gradients
from rftlab.studies.forecast.pilot import headroom
from rftlab.studies.forecast.pilot.headroom import majority, mean_rate, measure_silence, measure_tries, measure_votes
from rftlab.studies.forecast.pilot.noise import analyse, estimate_parts, measure_ratios
from rftlab.studies.forecast.pilot.pilot import CELLS, Gradient


def made_products(halves, n, blocks=8):
    means, block = halves.mean(axis=1), np.arange(len(halves)) * blocks // len(halves)
    sums = np.array([means[block == b].sum(axis=0) for b in range(blocks)])
    parts = {"squares": means, "differences": halves[:, 0] - halves[:, 1]}
    lengths = {name: (part**2).sum(axis=1) for name, part in parts.items()}
    return SimpleNamespace(group=n, block=block, gram=sums @ sums.T, **lengths)


def planted(rng, contexts, n, size=40, signal=0.3, between=1.0, within=2.0):
    """Gradients (G, 2, size) of halves of n rollouts, and the truth (|G|^2, tr B, tr W_1)."""
    scale = np.linspace(0.5, 1.5, size)
    mean = signal * np.ones(size) / math.sqrt(size)
    own = mean + math.sqrt(between) * scale * rng.standard_normal((contexts, size))
    halves = own[:, None] + math.sqrt(within / n) * scale[::-1] * rng.standard_normal((contexts, 2, size))
    return halves, np.array([signal**2, between * (scale**2).sum(), within * (scale**2).sum()])


@pytest.mark.parametrize(("n", "signal"), [(2, 0.3), (8, 0.3), (8, 12.0)])
def test_parts_of_gradient_noise_are_unbiased_and_their_errors_not_too_small(n, signal):
    rng = np.random.default_rng(n)
    parts, errors = [], []
    for _ in range(800):
        halves, truth = planted(rng, 48, n, signal=signal)
        known = analyse(made_products(halves, n))
        parts.append((known.signal, known.between, known.within))
        errors.append((known.signal_error, known.between_error, known.within_error))
    parts = np.array(parts)
    z = (parts.mean(axis=0) - truth) / parts.std(axis=0) * math.sqrt(len(parts))
    assert np.abs(z).max() < 4
    ratio = np.sqrt((np.array(errors) ** 2).mean(axis=0)) / parts.std(axis=0)
    assert ratio.min() > 0.9 and ratio.max() < (1.15 if signal > 10 else 1.5) and ratio[1:].max() < 1.15


def test_parts_are_those_of_the_textbook_and_a_noise_scale_is_noise_over_signal():
    halves, _ = planted(np.random.default_rng(0), 31, 4)
    means = halves.mean(axis=1)
    within = ((halves - means[:, None]) ** 2).sum() / 31
    spread = means.var(axis=0, ddof=1).sum()
    expected = ((means.mean(axis=0) ** 2).sum() - spread / 31, spread - within / 2, 4 * within)
    np.testing.assert_allclose(estimate_parts(made_products(halves, 4), np.arange(8)), expected, rtol=1e-10)
    gradient = Gradient(512, 8, 0.5, 3.0, 16.0, 0.1, 0.1, 0.1)
    assert gradient.variance(1) == 19 and gradient.variance(8) == 5 and gradient.noise_scale(8) == 10
    assert gradient._replace(signal=-0.1).noise_scale(1) == math.inf


def draw_gradients(rng, questions, n, signal, share=0.3, size=40):
    """Gradients of two groups of n responses, raw and centred, of questions of which a share alone has any, with sizes
    that vary by factors; r is 1/12, phi 0.73."""
    scale, within = np.linspace(0.5, 1.5, size), 12.0
    reach = np.sqrt(np.exp(rng.normal(-0.18, 0.6, questions)) / share) * (rng.random(questions) < share)
    own = signal / math.sqrt(size) + scale * rng.standard_normal((questions, size)) * reach[:, None]
    noise, more = math.sqrt(within / n) * rng.standard_normal((2, questions, 2, size)) * reach[:, None, None]
    raw = own[:, None] + noise * scale[::-1]
    price = math.sqrt(n / (n - 1))
    return raw, own[:, None] + price * (0.8 * noise + 0.3 * more) * scale[::-1]


@pytest.mark.parametrize(("questions", "n", "signal"), [(256, 4, 0.5), (192, 4, 8.0), (48, 2, 0.5)])
def test_intervals_of_r_and_phi_cover_the_truth(questions, n, signal):
    """And those that take raw and centred rewards for different responses do not."""
    rng, covered, values, propagated = np.random.default_rng(questions), [], [], []
    for _ in range(200):
        raw, centred = (made_products(halves, n) for halves in draw_gradients(rng, questions, n, signal))
        ratios = measure_ratios(raw, centred)
        old = combine_gradients(analyse(raw), analyse(centred))
        assert (old.between, old.gain) == pytest.approx((ratios.between.value, ratios.gain.value), rel=1e-9)
        truths = ((ratios.between, 1 / 12), (ratios.gain, 0.73))
        covered.append([one.low <= truth <= one.high for one, truth in truths])
        off = (old.between - 1 / 12) / old.between_error, (old.gain - 0.73) / old.gain_error
        propagated.append(np.abs(off) < 2)
        values.append([ratios.between.value, ratios.gain.value, ratios.between.error])
    rates, values = np.mean(covered, axis=0), np.array(values)
    assert rates.min() > 0.89 and rates.max() < 0.99
    middle = (values[:, :2].mean(axis=0) - [1 / 12, 0.73]) / values[:, :2].std(axis=0)
    assert np.abs(middle).max() < 0.15
    assert math.sqrt((values[:, 2] ** 2).mean()) == pytest.approx(values[:, 0].std(), rel=0.15)
    wrong = np.mean(propagated, axis=0)
    assert wrong[0] < rates[0] - 0.04 and wrong[1] > 0.99  # too narrow for r, far too wide for phi


def test_ratios_say_how_few_questions_they_come_from_and_nothing_is_said_without_noise():
    for questions in (256, 255):
        gradients = draw_gradients(np.random.default_rng(0), questions, 4, 0.5)
        ratios = measure_ratios(*(made_products(halves, 4) for halves in gradients))
        assert (ratios.few, ratios.responses) == (questions == 255, 8)
    assert measure_ratios(*[made_products(np.ones((16, 2, 3)), 4)] * 2) is None


def test_a_vote_goes_to_what_most_responses_say_and_one_of_one_is_pass_at_1():
    answers = np.array([[0, 1, 1, -1], [0, 0, 1, 1], [-1, -1, -1, 0], [-1, -1, -1, -1], [0, 1, 2, 2]])
    right = np.array([[0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose(majority(answers, right, 4), [1, 0.5, 1, 0, 0])
    np.testing.assert_allclose(majority(answers, right, 2), [0.75, 0.5, 0.5, 0, 0.25])
    np.testing.assert_allclose(majority(answers, right, 1), right.mean(axis=1))
    np.testing.assert_allclose(majority(answers, right, 3)[:1], [1])  # one group of three; the fourth is left out
    right = np.random.default_rng(0).integers(0, 2, (9, 8))
    assert measure_votes(1 - right, right, (1,))[0].value == pytest.approx(right.mean())
    assert [rate.at for rate in measure_votes(1 - right, right)] == [4]
    assert [rate.at for rate in measure_tries(right.sum(axis=1), 8)] == [1, 2, 4, 8]
    assert measure_silence(right.sum(axis=1), 8, 9) is None


def beta_counts(rng, n, m, a=0.6, b=1.4):
    return rng.binomial(m, rng.beta(a, b, n))


@pytest.mark.parametrize("m", [8, 16])
def test_tries_and_silence_are_unbiased_and_their_errors_hold(m):
    """For p ~ Beta(0.6, 1.4): pass@4 and silence by quadrature."""
    rng = np.random.default_rng(m)
    p = np.random.default_rng(0).beta(0.6, 1.4, 2_000_000)
    truth = np.array([1 - ((1 - p) ** 4).mean(), (p**8 + (1 - p) ** 8).mean()])
    measured = []
    for _ in range(300):
        counts = beta_counts(rng, 80, m)
        one = (measure_tries(counts, m, (4,))[0], measure_silence(counts, m))
        measured.append([(each.value, each.error) for each in one])
    values, errors = np.array(measured).transpose(2, 0, 1)
    assert np.abs((values.mean(axis=0) - truth) / values.std(axis=0)).max() < 0.25
    assert np.abs(errors.mean(axis=0) / values.std(axis=0) - 1).max() < 0.12


SMALL = Linear(n_train=256, n_test=256, n_answers=8, n_styles=1, answer_tokens=2, surprise=1.0, margin=0.1,
               nuisance=0.3, base_format=30.0, n_features=32, rho=0.9, world_seed=1)  # fmt: skip


def base_vote(environment, k=16):
    """maj@k of a simulated base policy on its unseen contexts."""
    contexts, tokens = build(environment).test, environment.answer_tokens
    n, arms = len(contexts.correct), environment.n_arms
    logits = contexts.base_logits[:, :arms].astype(np.float64).reshape(n, tokens, -1)
    gumbel = np.random.default_rng(0).gumbel(size=(k, *logits.shape))
    said = (logits + gumbel).argmax(axis=3).transpose(1, 0, 2)
    bits = ((contexts.correct[:, None] >> np.arange(arms, dtype=np.uint32)) & 1).reshape(logits.shape)
    right = np.take_along_axis(bits[:, None].repeat(k, axis=1), said[..., None], axis=3)[..., 0].all(axis=2)
    return majority(said @ (8 ** np.arange(tokens)), right.astype(float), k).mean()


def after(environment, rounds=20):
    """Test Pass@1 after some rounds of (32, 8)."""
    design = replace(CELLS["32x8-paper_text"], rounds=rounds, eval_every=rounds)
    curve = simulate(Simulation(environment, design, Optimizer(learning_rate=0.1)), build(environment)).curve
    return float(curve.test_pass_at_1[-1])


def test_what_sharpening_gains_goes_with_the_vote_and_what_correctness_gains_does_not():
    """Base policies right in 0.145 of their responses, blunt and aligned or sharp and less so."""
    blunt, sharp = (as_right(replace(SMALL, kappa=kappa), 0.145) for kappa in (1.2, 3.0))
    votes = [base_vote(environment) for environment in (blunt, sharp)]
    assert votes[0] > votes[1] + 0.08
    gains = {}
    for name, more in {"sharpening": {"sharpening": 1.64}, "correctness": {"correctness": 0.28}}.items():
        gains[name] = [after(replace(one, **more)) - after(one) for one in (blunt, sharp)]
    assert gains["sharpening"][0] > 0.12 > 0.08 > gains["sharpening"][1]
    assert min(gains["correctness"]) > 0.1
    assert after(replace(sharp, correctness=0.28)) > votes[1] + 0.08


@pytest.mark.parametrize(("a", "b", "m"), [(0.1, 4.0, 4), (0.05, 20.0, 8), (2.0, 2.0, 4)])
def test_intervals_of_rates_cover_the_truth_where_a_plain_one_does_not(a, b, m):
    """Questions with p ~ Beta(a, b), also where hardly any is ever right."""
    rng, truth, covered = np.random.default_rng(0), a / (a + b), []
    for _ in range(800):
        rate = mean_rate(1.0, beta_counts(rng, 64, m, a, b) / m, m)
        interval = rate.interval()
        assert 0 <= interval.low <= rate.value <= interval.high <= 1
        covered.append((interval.low <= truth <= interval.high, abs(rate.value - truth) <= 2 * rate.error))
    wilson, plain = np.mean(covered, axis=0)
    assert wilson > 0.9 and (truth > 0.1 or plain < wilson - 0.03)
    rate = mean_rate(0.5, np.array([0.0, 0.5, 1.0, 0.5]), 2)
    assert (rate.value, rate.questions, rate.responses) == (0.5, 4, 2)
    assert rate.error == pytest.approx(math.sqrt(1 / 6) / 2) and math.isnan(mean_rate(1, np.ones(1), 1).error)


def test_a_gain_is_paired_by_question():
    """A lenient parser that finds one more right response of every fourth question."""
    strict = np.random.default_rng(0).integers(0, 2, (32, 4)).astype(float)
    strict[::4] = [0, 1, 0, 1]
    flexible = strict.copy()
    flexible[::4, 0] = 1
    test = SimpleNamespace(strict=strict, flexible=flexible, answers=1 - strict.astype(int))
    greedy = np.array([[1.0, 1], [1, 1], [0, 1]])
    further = SimpleNamespace(questions=np.array([0, 4, 9]), greedy=greedy, few_shot=np.empty((0, 2)), shots=0)
    rows = {row.name: row for row in headroom.measure_credit(test, further, 1.0)}
    assert list(rows) == ["strict, temperature 1", "lenient parser", "greedy", "greedy, lenient parser", "vote of 4"]
    gains = (flexible - strict).mean(axis=1)
    own = np.array([1, 1, 0]) - strict[[0, 4, 9]].mean(axis=1)
    for name, expected in (("lenient parser", gains), ("greedy", own)):
        known = (expected.mean(), expected.std(ddof=1) / math.sqrt(len(expected)))
        assert (rows[name].gain.value, rows[name].gain.error) == pytest.approx(known)
    assert gains.mean() == 1 / 16
    assert rows["strict, temperature 1"].gain is None
    low, high = rows["lenient parser"].gain._replace(value=0.0, error=0.0).spread()[1:]
    assert low < 0 < high  # where no question differs
