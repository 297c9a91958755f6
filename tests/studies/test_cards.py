"""Estimator cards: what they say is what the estimators do, every knob is shown, and the page's worked example
works."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from copy import copy
from dataclasses import fields, is_dataclass, replace
from math import comb
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

from rftlab import KL, Aggregation, Estimator, Sampling, UserError, prepare
from rftlab.shared.advantage import advantages
from rftlab.shared.aggregation import shares
from rftlab.shared.cards import CARDS, PRESETS, SHIPPED, estimator_name, preset
from rftlab.shared.cards.card import all_knobs
from rftlab.shared.cards.libraries import AGG_MODES
from rftlab.shared.config import mask, surrogate
from rftlab.shared.config.advantage import Advantage, GivenBaseline
from rftlab.shared.config.surrogate import Clip, Dro, Reinforce
from rftlab.shared.objective import apply_mask, objective_and_weights
from rftlab.shared.plumbing.pool import make_pool
from rftlab.studies.estimators.show import advantage_text, run_command, show_cards
from rftlab.studies.theory import ALL_CHECKS
from tests.support.docs.pages import apply_diff, blocks_of
from tests.support.machine.here import printed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "estimators.md").read_text()


def shown(name: str | None, width: int = 150) -> str:
    """What the command prints, as one line of words."""
    return " ".join(printed(show_cards, name, width=width).split())


@pytest.mark.parametrize("card", SHIPPED.values(), ids=SHIPPED)
def test_a_card_is_complete(card):
    text = " ".join(value for field in fields(card) if isinstance(value := getattr(card, field.name), str))
    mentioned = set(re.findall(r"\b[TSD]\d+\b", text))
    assert all((card.title, card.family, card.source, card.formula)) and card.alias in ("", *PRESETS)
    assert set(card.checks) | mentioned <= {check.id for check in ALL_CHECKS}
    if card.estimator is None:
        assert len(card.note) > 60 and not card.checks and not card.bias
    else:
        assert card.bias and card.checks and mentioned <= set(card.checks)
    assert all(re.fullmatch(r"\d\d(0[1-9]|1[0-2])\.\d{4,5}", found) for found in re.findall(r"\d{4}\.\d{4,}", text))
    assert re.search(r"\d{4}\.\d{4,5}|Williams 1992|Greensmith|et al\. 2025", card.source)


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_knobs_say_the_whole_estimator(card):
    """The knobs that are printed, put onto the defaults, give the card's estimator and sampling; and all of them are
    printed."""
    design = {"estimator": Estimator(), "sampling": Sampling(), "replay_window": 0}
    kinds = {kind.__name__: kind for union in (surrogate.Surrogate, mask.Mask) for kind in get_args(union)}
    text = shown(card.name)
    for knob in all_knobs(card):
        value = kinds[knob.value]() if knob.path in ("estimator.surrogate", "estimator.mask") else knob.value
        design = with_value(design, knob.path.split("."), value)
        assert f"{knob.path} {knob.value} (default {knob.default})" in text
    known = {"sampling": card.sampling, "replay_window": card.replay_window}
    assert design == {"estimator": card.estimator or Estimator(), **known}


def with_value(whole, path: list[str], value):
    """`whole`, a dict or a dataclass, with the field at `path` replaced; half of the knobs may be no valid
    combination, so nothing is checked."""
    old = whole[path[0]] if isinstance(whole, dict) else getattr(whole, path[0])
    new = value if len(path) == 1 else with_value(old, path[1:], value)
    if isinstance(whole, dict):
        return whole | {path[0]: new}
    out = copy(whole)
    object.__setattr__(out, path[0], new)
    return out


def test_labels_tell_estimators_apart():
    assert [estimator_name(estimator) for estimator in PRESETS.values()] == list(PRESETS)
    changed = {replace(estimator, kl=KL("k2", coef)) for estimator in PRESETS.values() for coef in (0.7, 0.71)}
    labels = {estimator_name(estimator) for estimator in changed}
    assert len(labels) == len(changed) and not labels & set(PRESETS)
    assert all(estimator_name(one).startswith(one.advantage.baseline) for one in changed)
    assert all(re.fullmatch(r"[a-z_]+_custom_[0-9a-f]{8}", label) for label in labels)
    for length, weighted in ((77, True), (77.0, 1)):  # equal estimators have one label, which is fixed
        equal = Estimator(aggregation=Aggregation("token_sum", length=length), kl=KL(weighted=weighted))
        assert estimator_name(equal) == "group_mean_custom_b8d5bce1"


def test_a_name_counts_in_any_case_an_unknown_one_lists_the_known_ones_and_an_absent_method_says_why():
    assert preset("GRPO") == preset("grpo") and preset("Dr-GRPO") == preset("dr_grpo")
    assert shown("ReMax", width=80).startswith("remax: ")
    for asked, name, words in (
        (preset, "best", "'best' is unknown; allowed: minimalist, grpo, "),
        (preset, "grp0", "estimator = 'grp0' is unknown"),
        (shown, "best", r"'best' is unknown; allowed: minimalist, grpo, .*vapo"),
        (preset, "prime", r"cannot run here.*process reward model"),
    ):
        with pytest.raises(UserError, match=words):
            asked(name)


class Tokens:
    """Responses of unequal lengths in groups of four to six with 0/1 rewards: one with a single winner, no group all
    right or all wrong."""

    def __init__(self, seed: int, spread: float):
        rng = np.random.default_rng(seed)
        self.group = np.repeat(np.arange(4), (4, 5, 6, 4))
        self.rewards = rng.integers(0, 2, self.group.size).astype(np.float64)
        self.rewards[:4] = 0.0, 1.0, 0.0, 0.0
        self.rewards[[4, 5, 9, 10, 15, 16]] = 0.0, 1.0, 0.0, 1.0, 0.0, 1.0
        self.starts = np.concatenate([[0], np.cumsum(rng.integers(1, 6, self.group.size))])
        n = self.starts[-1]
        self.old, self.keys = -rng.exponential(1.5, n) - 0.01, rng.random(n)
        self.given = {name: rng.random(n if name == "value" else self.group.size) for name in get_args(GivenBaseline)}
        self.ref, self.sampler = self.old + 0.5 * rng.normal(size=n), self.old + 0.5 * rng.normal(size=n)
        self.logp = np.minimum(self.old + spread * rng.normal(size=n), -1e-3)

    def prepared(self, estimator: Estimator, sampler_logp=None):
        baseline = self.given.get(estimator.advantage.baseline)
        columns = self.rewards, self.group, self.starts, self.old, self.ref
        return prepare(estimator, *columns, baseline=baseline, sampler_logp=sampler_logp)

    def weights(self, estimator: Estimator) -> np.ndarray:
        """Weights off-policy, with a sampler that is not the trainer."""
        batch = apply_mask(estimator, self.prepared(estimator, self.sampler), self.logp, self.keys)
        return objective_and_weights(estimator, batch, self.logp).weight


@pytest.mark.parametrize("name", PRESETS)
def test_weights_are_finite_and_have_the_sign_of_the_advantage(name):
    """On-policy a positive advantage raises the log-probability; off-policy it never lowers it, but for DRO's pull.
    Penalties off."""
    estimator = replace(PRESETS[name], kl=replace(PRESETS[name].kl, coef=0.0))
    for tokens in (Tokens(seed, spread=0.8) for seed in range(5)):
        batch = tokens.prepared(estimator)
        assert np.isfinite(tokens.weights(PRESETS[name])).all() and np.any(batch.advantage)
        on_policy = objective_and_weights(estimator, batch, tokens.old).weight
        np.testing.assert_array_equal(np.sign(on_policy), np.sign(batch.advantage))
        masked = apply_mask(estimator, batch, tokens.logp, tokens.keys)
        off_policy = objective_and_weights(estimator, masked, tokens.logp).weight
        assert isinstance(estimator.surrogate, Dro) or (off_policy * batch.advantage >= 0).all()


def test_presets_differ_in_effect_or_say_of_what_they_are_an_alias():
    batches = [Tokens(seed, spread) for seed in range(3) for spread in (1e-4, 0.5, 2.0)]
    effects = {name: np.concatenate([tokens.weights(own) for tokens in batches]) for name, own in PRESETS.items()}
    for a, b in itertools.combinations(map(CARDS.get, PRESETS), 2):
        aliases = (a.alias or a.name) == (b.alias or b.name)
        one_round = (a.sampling, a.replay_window) == (b.sampling, b.replay_window)
        same = np.allclose(effects[a.name], effects[b.name], rtol=1e-6, atol=1e-9 if aliases else 0.0) and one_round
        assert same == aliases, f"{a.name} and {b.name}"


def slope_of(spec: Advantage, p: float, k: int) -> float:
    """W(p): mean gradient of a group of k over that of the pass rate, by the master formula E[a(1, 1+S') - a(0, S')]
    (T1)."""
    total, group = 0.0, np.zeros(k, dtype=np.int64)
    for s in range(k):
        for own in (1.0, 0.0):
            rewards = np.array([own] + [1.0] * s + [0.0] * (k - 1 - s))
            advantage = advantages(spec, rewards, group, make_pool(1, (rewards, group)))[0]
            total += comb(k - 1, s) * p**s * (1 - p) ** (k - 1 - s) * (2 * own - 1) * advantage
    return total


def grpo_slope(p: float, k: int) -> float:
    """W_K(p) of T3, ddof 1."""
    mean = sum(comb(k, s) * p**s * (1 - p) ** (k - s) * np.sqrt(s * (k - s)) for s in range(k + 1))
    return mean / (k * p * (1 - p)) * np.sqrt((k - 1) / k)


ONE = ["minimalist", "reinforce", "rloo", "james_stein", "positive_only", "negative_only", "topr"]
CENTRED = ["dr_grpo", "opo", "dro", "deepseek_v32", "dppo_tv", "replay", "grpo_open_instruct", "dr_grpo_oat"]
SCALED = ["grpo", "paper_text", "dapo", "gspo", "tis", "grpo_verl", "grpo_trl", "grpo_openrlhf"]
SLOPES = {
    **dict.fromkeys(ONE, lambda p, k: 1.0),
    **dict.fromkeys(CENTRED, lambda p, k: (k - 1) / k),
    **dict.fromkeys(SCALED, grpo_slope),
    "grpo_nano_aha": lambda p, k: np.sqrt(k / (k - 1)) * grpo_slope(p, k),
    "max_rl": lambda p, k: (1 - (1 - p) ** (k - 1)) / p,
    "group_mean_reward": lambda p, k: 1 / k,
    "best_minus_second": lambda p, k: (1 - p) ** (k - 1),
    "grpo_passk_verl": lambda p, k: np.sqrt(k) * (1 - p) ** (k - 1),
    "pkpo": lambda p, k: 4 * (1 - p) ** 3,
}


@pytest.mark.parametrize("name", SLOPES)
def test_bias_is_what_the_card_says(name):
    spec = PRESETS[name].advantage
    for p, k in ((p, k) for p in (0.1, 0.5, 0.8) for k in (4, 7)):
        near = 1e-12 + (5 * spec.eps if spec.scale == "group_std" else 0.0)
        assert slope_of(spec, p, k) == pytest.approx(SLOPES[name](p, k), rel=near)
    if name == "grpo":
        assert slope_of(spec, 1e-7, 8) == pytest.approx(7 / np.sqrt(8), rel=1e-5)  # the ceiling (K-1)/√K


PEERS = {
    "grpo_trl": ("group_std", 1, 1e-4, "error", "token_mean", ("none", 0.0), Clip(0.2, 0.2)),
    "grpo_verl": ("group_std", 1, 1e-6, "raw", "token_mean", ("none", 0.0), Clip(0.2, 0.2, 3.0)),
    "grpo_openrlhf": ("group_std", 1, 1e-9, "error", "token_mean", ("k1", 0.01), Clip(0.2, 0.2)),
    "dr_grpo_oat": ("none", 1, 1e-8, "zero", "seq_mean_token_sum", ("none", 0.0), Clip(0.2, 0.2)),
    "grpo_open_instruct": ("none", 0, 1e-8, "zero", "token_mean", ("k3", 0.05), Clip(0.2, 0.272)),
    "grpo_nano_aha": ("group_std", 0, 1e-4, "zero", "token_mean", ("k3", 1e-3), Reinforce()),
}


@pytest.mark.parametrize("name", PEERS)
def test_constants_of_libraries(name):
    e, (scale, ddof, eps, singleton, aggregation, kl, expected) = PRESETS[name], PEERS[name]
    assert e.advantage == Advantage("group_mean", scale, ddof=ddof, eps=eps, singleton=singleton)
    assert (e.aggregation.kind, e.surrogate) == (aggregation, expected)
    assert (e.kl.kind, e.kl.coef if e.kl.kind != "none" else 0.0) == kl
    assert e.kl.place == ("reward" if name == "grpo_openrlhf" else "loss")


def test_agg_modes_are_those_of_each_version():
    """Against the reference vectors: the mean loss of every case whose version has the mode."""
    columns = {version: version.replace("paper's ", "").replace(" ", "_") for version in AGG_MODES}
    compared = 0
    for case in json.loads((ROOT / "tests" / "golden" / "estimators" / "agg_modes.json").read_text())["cases"]:
        params, kept = case["params"], np.array(case["inputs"]["mask"]) != 0
        loss = np.array(case["inputs"]["loss_mat"], dtype=np.float64)[kept]
        starts = np.concatenate([[0], np.cumsum(kept.sum(1))])
        for version, column in columns.items():
            expected, spec = (case["outputs"].get(column) or {}).get("loss"), AGG_MODES[version].get(params["agg_mode"])
            if expected is not None:
                spec = replace(spec, length=spec.length and (params.get("loss_scale_factor") or kept.shape[1]))
                scale = 1 if spec.kind == "token_sum" and spec.length else params.get("dp_size") or 1
                total = loss @ shares(spec, starts, params.get("batch_num_tokens"), params.get("global_batch_size"))
                assert scale * total == pytest.approx(expected, rel=1e-9, abs=1e-9)
                compared += 1
    assert compared >= 20


def test_one_card_and_all_in_80_columns_without_a_broken_word_or_sentence():
    dapo = "(r - mean) / (std + 1e-06)|low 0.2, high 0.28|rftlab theory T3 T4 T5|2503.14476|--sampling.tries 10"
    told = {"dapo": dapo, "paper_code": "ddof 1|raw reward|3 A where A < 0|2601.22532|k3", "vapo": "cannot exist here"}
    for name, words in told.items():
        assert [word for word in words.split("|") if word not in shown(name)] == []
    everything = shown(None, width=400)
    assert all(f" {name} " in everything for name in CARDS) and "seq-mean-token-sum-norm" in everything
    words = shown(None, width=80).split()
    for name, card in CARDS.items():
        told = advantage_text(card.estimator.advantage).split() if card.estimator else ["cannot", "exist", "here"]
        assert {name, *told} <= {*words}
    # At 80 columns each surrogate and mask is there up to the end of its first paragraph.
    for name in PRESETS:
        text = shown(name, width=80)
        for part in (PRESETS[name].surrogate, PRESETS[name].mask):
            first = " ".join((type(part).__doc__ or "").partition("\n\n")[0].split())
            assert first in text or type(part).__name__ in ("Unmasked", "CustomSurrogate")


@pytest.mark.parametrize("name", ["grpo", "gfpo", "dapo", "replay"])
def test_the_run_command_a_card_is_one_that_exists(name):
    from rftlab.studies.cli.commands import parse

    design, card = parse(run_command(CARDS[name]).split()[1:]).design, CARDS[name]
    for field in ("estimator", "sampling", "replay_window", "rollouts"):
        assert getattr(design, field) == getattr(card, field)


def paths_of(value, prefix: str = ""):
    """Every knob's path, with the choices of its type."""
    for field in fields(value):
        own, hint = getattr(value, field.name), get_type_hints(type(value))[field.name]
        choices = [kind.__name__ for kind in get_args(hint) if is_dataclass(kind)]
        choices = choices or [word for word in get_args(hint) if isinstance(word, str)]
        if is_dataclass(own) and not choices:
            yield from paths_of(own, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", choices


def test_the_page_names_every_knob_and_choice():
    """A choice that has a card is named by that."""
    carded = [knob for card in CARDS.values() for knob in all_knobs(card)]
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for path, choices in [*paths_of(Estimator()), *paths_of(Sampling(), "sampling."), ("replay_window", [])]:
        row = next((row for row in rows if f"`{path}`" in row.split("|")[1]), "")
        named = {knob.value for knob in carded if knob.path.removeprefix("estimator.") == path}
        missing = [choice for choice in choices if f"`{choice}`" not in row and choice not in named]
        assert row and not missing, f"{path} or one of {missing} is not on the page"


BLOCKS = {name: [one.text for one in blocks_of(PAGE) if one.language == name] for name in ("python", "diff")}


def test_the_page_s_combination_runs():
    exec(compile(BLOCKS["python"][0], "docs/estimators.md", "exec"), {})


def test_the_worked_example_works(tmp_path):
    """Two files of `shared` and one card, as the page says: the page's check of the derivative passes and the
    command shows the card."""
    copy = shutil.copytree(ROOT / "rftlab", tmp_path / "rftlab", ignore=shutil.ignore_patterns("__pycache__"))
    files = ["shared/config/surrogate.py", "shared/surrogate.py", "shared/cards/ratios.py"]
    assert [apply_diff(diff, copy) for diff in BLOCKS["diff"]] == files
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("PYTHONPATH", None)

    def run(*arguments):
        options = {"capture_output": True, "text": True, "timeout": 300, "cwd": tmp_path, "env": environment}
        return subprocess.run([sys.executable, *arguments], **options)

    done = run("-c", "from rftlab import shared; print(shared.__file__)\n" + BLOCKS["python"][1])
    assert done.returncode == 0 and done.stdout.strip() == str(copy / "shared" / "__init__.py"), done.stderr
    text = " ".join(run("-m", "rftlab.studies.cli.main", "estimators", "tanh").stdout.split())
    told = ("tanh: Tanh gate", "estimator.surrogate Tanh (default Clip)", "tau 5", "rftlab run cell --preset tanh")
    assert all(words in text for words in told), text


def test_the_optimal_token_baseline_bends_the_gradient_as_its_card_says():
    """The expected gradient in each logit over that of the pass rate, by every group of 4 of three answers."""
    p, right = np.array([0.05, 0.9, 0.05]), np.array([1.0, 0.0, 0.0])
    estimator = CARDS["optimal_token_baseline"].estimator
    scores, starts, group = np.eye(3) - p, np.arange(5), np.zeros(4, dtype=np.int64)
    logp, squares, gradient = np.log(p), np.full(4, p @ p), np.zeros(3)
    for answers in itertools.product(range(3), repeat=4):
        drawn = np.array(answers)
        columns = right[drawn], group, starts, logp[drawn]
        advantage = prepare(estimator, *columns, squares=squares).advantage
        gradient += p[drawn].prod() * (advantage[:, None] * scores[drawn]).mean(axis=0)
    np.testing.assert_allclose(gradient / (p * (right - p @ right)), [0.219, 0.285, -0.969], atol=5e-4)
    assert all(text in CARDS["optimal_token_baseline"].bias for text in ("0.22, 0.28 and -0.97", "0.05 (right), 0.9"))
