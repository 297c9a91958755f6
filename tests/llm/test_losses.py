"""The estimators on tensors: every check of the compiled ones, reference vectors included, packed and padded; and the
public functions against the compiled path, in every number type."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import rftlab as rl
from rftlab import Clip, Length
from rftlab.llm.losses.inputs import reads_entropy
from rftlab.llm.losses.layout import on_cpu
from rftlab.shared.advantage import advantages
from rftlab.shared.cards import PRESETS
from rftlab.shared.combine import combined_advantages
from rftlab.shared.config.mask import OF_BATCH, Drift, TopEntropy, Unmasked
from rftlab.shared.plumbing.pool import make_pool
from rftlab.shared.prepare import shaped_rewards
from tests.support.checks import naive, naive_objective
from tests.support.docs.pages import run_page
from tests.support.estimators.random_batches import binary, random_batch, random_estimator, random_kl
from tests.support.estimators.tensors import compiled, laid_out, needed, rounded, tensor_api
from tests.support.estimators.vectors import ROOT, SUBSET, cases_of, close, seeds
from tests.support.golden.families import ADAPTERS, FAMILIES

CHECKS = naive.CHECKS | naive_objective.CHECKS
UNTOUCHED = ("check_optimal_baseline", "check_windows", "check_averages", "check_sampling")
APIS = {"packed": tensor_api(padded=False), "padded": tensor_api(padded=True)}


@pytest.mark.parametrize("layout", APIS)
@pytest.mark.parametrize("name", [name for name in CHECKS if name not in UNTOUCHED])
def test_twin(name, layout):
    CHECKS[name](APIS[layout])


def test_a_wrong_tensor_is_refused():
    """The checks can fail: with the clip at the other end."""
    right = APIS["padded"].objective_and_weights

    def clipped(estimator, *rest):
        wrong = replace(estimator, surrogate=Clip(0.3, 0.1)) if type(estimator.surrogate) is Clip else estimator
        return right(wrong, *rest)

    with pytest.raises(AssertionError, match=r"objective|weights|clipped"):
        CHECKS["check_pipeline"](replace(APIS["padded"], objective_and_weights=clipped))


@pytest.mark.parametrize("layout", APIS)
@pytest.mark.parametrize("family", FAMILIES)
def test_reference_vectors(family, layout):
    cases = cases_of(SUBSET, family)
    assert sum(ADAPTERS[family](APIS[layout], case) for case in cases) >= len(cases) > 0


TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1e-5}


def check_objective(estimator, batch, rng, padded, dtype, name=None):
    """J and its gradient by autograd, against the compiled path at the same numbers."""
    spec = estimator.advantage
    batch = binary(batch, rng) if spec.credit == "pass_at_k" else batch
    batch, given = rounded(batch, needed(estimator, batch, rng), dtype)
    if spec.baseline == "optimal" and batch.logp.size == batch.group.size:
        return  # of tokens or of responses: nobody can tell
    expected = compiled(estimator, batch, batch.logp, given)
    place, arguments = laid_out(batch, given, padded, dtype)
    if estimator.has_bonus:
        arguments["entropy"] = torch.zeros(place.shape, dtype=dtype)
    if estimator.entropy_target:
        arguments["bonus"] = 0.01
    if isinstance(estimator.mask, TopEntropy):
        arguments["entropy"] = arguments["keys"]
    found = rl.losses.objective(**arguments, estimator=name or estimator)
    (3.0 * found).backward()
    gradient, scale = arguments["logp"].grad, 1.0 + float(np.abs(expected.weight).sum()) + abs(expected.kl)
    assert gradient.dtype == dtype and found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert not (padded and (gradient[~place.layout.shown] != 0).any())
    what, tolerance = f"{name or estimator}, {dtype}", TOLERANCE[dtype] * scale
    close(float(found.detach()), expected.objective, f"objective of {what}", tolerance * (1 + abs(expected.objective)))
    resolution = 2.0**-7 if dtype == torch.bfloat16 else 0.0
    own, wanted = place.numbers(gradient), 3.0 * expected.weight
    assert (np.abs(own - wanted) <= 3 * tolerance + resolution * np.abs(wanted)).all(), f"weights of {what}"


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_objectives_of_any_estimator(dtype, padded):
    """In float64 everything is random; below it log-ratios are moderate, and nothing is masked, because rounding would
    decide what is."""
    fixed = {} if dtype == torch.float64 else {"mask": lambda rng: Unmasked(), "kl": random_kl}
    for rng in seeds(7000, 60):
        estimator = random_estimator(rng, **fixed)
        spreads = (0.05, 0.5, 2.0) if dtype == torch.float64 else (0.05, 0.5)
        batch = random_batch(rng, fewest=max(2, estimator.advantage.k), shortest=1, longest=6, spreads=spreads)
        if type(estimator.mask).__name__ == "KLCov":
            continue  # ties: `check_objectives` has it
        if type(estimator.mask).__name__ == "Divergence":
            batch = batch._replace(logp=np.minimum(batch.logp, 0.0))
        check_objective(estimator, batch, rng, padded, dtype)


@pytest.mark.parametrize("name", PRESETS)
def test_every_card(name):
    for rng in seeds(8000, 3):
        batch = random_batch(rng, fewest=max(4, PRESETS[name].advantage.k), shortest=1, longest=6, spreads=(0.5,))
        batch = batch._replace(logp=np.minimum(batch.logp, 0.0))
        for padded in (False, True):
            check_objective(PRESETS[name], batch, rng, padded, torch.float64, name)


def arguments_of(rng, dtype=torch.float64):
    """Arguments of `objective` for 3 groups of 4 padded responses."""
    logp = -torch.from_numpy(rng.exponential(1.0, (12, 7))).to(dtype)
    old = logp + 0.2 * torch.from_numpy(rng.normal(size=(12, 7))).to(dtype)
    mask = torch.arange(7) < torch.from_numpy(rng.integers(1, 8, (12, 1)))
    rewards = torch.from_numpy(rng.integers(0, 2, 12).astype(np.float64))
    return [logp.requires_grad_(), old, rewards, mask, torch.arange(12) // 4]


@pytest.mark.parametrize("combine", ["rewards", "advantages"])
def test_several_rewards_are_those_of_the_compiled_path(combine):
    rng = np.random.default_rng(3)
    rewards, weights, group = rng.normal(size=(12, 3)), np.array([1.0, 0.5, 2.0]), np.arange(12) // 4
    spec = rl.Advantage("group_mean", "group_std", whiten="responses", combine=combine)
    found = rl.losses.advantages(torch.tensor(rewards), group, estimator=rl.Estimator(spec), weights=weights)
    np.testing.assert_allclose(found, combined_advantages(spec, rewards.T, weights, group), atol=1e-12)
    one = rl.losses.advantages(torch.tensor(rewards[:, 0]), group, estimator=rl.Estimator(spec))
    np.testing.assert_allclose(one, combined_advantages(spec, rewards[:, :1].T, np.ones(1), group), atol=1e-12)


@pytest.mark.parametrize(
    ("rewards", "more", "message"),
    [
        (torch.ones(4, 2), {"weights": [1.0]}, "weights"),
        (torch.ones(4), {"weights": [1.0]}, r"weights; allowed: with rewards \(responses, rewards\)"),
        (torch.ones(4, 2), {"pool": ([1.0], [0])}, "pool with several rewards; allowed: neither"),
        (torch.full((4, 2), torch.nan), {}, "rewards and weights; allowed: finite ones"),
        (torch.ones(4, 2, 1), {}, r"rewards \(4, 2, 1\); allowed: \(responses,\), \(responses, rewards\)"),
    ],
)
def test_several_rewards_that_cannot_be_are_one_line(rewards, more, message):
    with pytest.raises(rl.UserError, match=message):
        rl.losses.advantages(rewards, [0, 0, 1, 1], estimator="gdpo", mask=torch.ones(4, 3), **more)


def test_micro_batches_add_up():
    logp, old, rewards, mask, group = arguments_of(np.random.default_rng(1))
    for name in ("gspo", "dapo", "rloo"):
        whole = rl.losses.objective(logp, old, rewards, mask, group, estimator=name)
        found = rl.losses.advantages(rewards, group, mask, estimator=name)
        counts = {"n_tokens": int(mask.sum()), "n_rows": 12}
        parts = [
            rl.losses.objective(logp[i], old[i], mask=mask[i], advantages=found[i], estimator=name, **counts)
            for i in (slice(0, 5), slice(5, 12))
        ]
        assert torch.allclose(sum(parts), whole, rtol=0, atol=1e-12)


def test_metrics_are_those_of_the_compiled_path():
    clipped = 0
    for rng in seeds(3, 5):
        logp, old, rewards, mask, group = arguments_of(rng)
        found = rl.losses.objective_and_metrics(logp, old, rewards, mask, group, ref_logp=old, estimator="grpo")
        lengths, shown = mask.sum(1).numpy(), mask.numpy()
        starts, packed = np.concatenate([[0], lengths.cumsum()]), logp.detach().numpy()[shown]
        batch = rl.prepare(rl.preset("grpo"), rewards, group, starts, old.numpy()[shown], old.numpy()[shown])
        same = rl.objective_and_weights(rl.preset("grpo"), batch, packed)
        assert float(found.clip_fraction) == pytest.approx(same.clipped / len(packed), abs=1e-12)
        assert float(found.kl) == pytest.approx(same.kl / len(packed), rel=1e-12)
        clipped += same.clipped
        assert float(found.objective.detach()) == pytest.approx(same.objective, rel=1e-9)
    assert clipped > 0


def test_labels_may_be_texts_and_support_feeds_the_sets_alone():
    logp, old, rewards, mask, group = arguments_of(np.random.default_rng(5))
    names = [f"prompt {int(g)}" for g in group]
    by_number, by_name = (
        rl.losses.objective(logp, old, rewards, mask, labels, estimator="dr_grpo") for labels in (group + 7, names)
    )
    assert float(by_number.detach()) == float(by_name.detach())
    more = rl.losses.advantages(rewards, names, support=([1.0], ["prompt 1"]), estimator="dr_grpo")
    expected = np.array([*rewards[4:8], 1.0]).mean()
    assert more[4:8].numpy() == pytest.approx(rewards[4:8].numpy() - expected)
    pool = (torch.cat([rewards, torch.ones(1)]), torch.cat([group, torch.ones(1, dtype=torch.int64)]))
    assert torch.equal(more, rl.losses.advantages(rewards, group, pool=pool, estimator="dr_grpo"))


LONG = {
    "opo": rl.preset("opo"),
    "token whitening": rl.Estimator(rl.Advantage("group_mean", whiten="tokens")),
    "length penalty": replace(rl.preset("dapo"), length=Length(0.5, 5, 3)),
}


@pytest.mark.parametrize("name", LONG)
def test_lengths_count_the_tokens_that_a_mask_shows(name):
    """Padded, packed with the same holes, and packed without what is hidden: one estimator, which looks at lengths."""
    for rng in seeds(9, 5):
        _, _, rewards, mask, group = arguments_of(rng)
        mask = mask & (torch.from_numpy(rng.random((12, 7))) < 0.7)
        kept = {"group": group, "estimator": LONG[name]}
        lengths = mask.sum(1).numpy()
        starts, logp = np.concatenate([[0], lengths.cumsum()]), np.zeros(lengths.sum())
        shaped = shaped_rewards(LONG[name], rewards.numpy(), starts, logp)
        pool = make_pool(3, (shaped, group.numpy()))
        expected = advantages(LONG[name].advantage, shaped, group.numpy(), pool, starts=starts)
        holes = {"mask": mask.flatten(), "starts": torch.arange(0, 85, 7)}
        for where in ({"mask": mask}, holes, {"starts": torch.from_numpy(starts)}):
            found = rl.losses.advantages(rewards, **kept, **where)
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("starts", [[0.0, 2.0], [[0, 2]], [], "x", [False, True]], ids=str)
def test_offsets_that_are_none_are_refused(starts):
    given = {"starts": starts, "estimator": "rloo"}
    with pytest.raises(rl.UserError, match=r"^starts "):
        rl.losses.objective(torch.zeros(2), rewards=[1.0], group=[0], **given)
    with pytest.raises(rl.UserError, match=r"^starts "):
        rl.losses.advantages([1.0], [0], **given)


@pytest.mark.parametrize("name", ["dr_grpo", "rloo", "dapo", "gspo", "grpo"])
def test_a_batch_in_which_no_token_counts_teaches_nothing(name):
    """Every response cut off, as a mask for truncated ones makes it: 0 and no gradient, with counts of 0 too."""
    logp, old, rewards, mask, group = arguments_of(np.random.default_rng(6))
    for counts in ({}, {"n_tokens": 0, "n_rows": 0}, {"n_tokens": torch.tensor(0), "n_rows": torch.tensor(0)}):
        leaf = logp.detach().clone().requires_grad_()
        found = rl.losses.objective(leaf, old, rewards, mask & False, group, ref_logp=old, estimator=name, **counts)
        found.backward()
        assert float(found.detach()) == 0.0 and not leaf.grad.any()


ALONE = {"rewards": None, "group": None, "advantages": torch.full((12,), torch.nan)}


@pytest.mark.parametrize(
    ("estimator", "changed", "message"),
    [
        ("grpo", {}, "this estimator needs ref_logp"),
        ("grop", {}, "estimator = 'grop' is unknown"),
        ("remax", {}, "this estimator needs baseline"),
        ("tis", {}, "this estimator needs sampler_logp"),
        ("gfpo", {"ref_logp": torch.zeros(12, 7)}, "this estimator needs entropy"),
        ("rloo", {"group": None}, "this estimator needs group"),
        ("rloo", {"rewards": None}, "this estimator needs rewards"),
        ("rloo", {"mask": None}, "mask is missing"),
        ("rloo", {"mask": torch.ones(12, 6)}, r"mask \(12, 6\) must have the shape"),
        ("rloo", {"rewards": torch.ones(11)}, r"rewards \(11,\) must have one entry per response"),
        ("rloo", {"group": torch.zeros(3, dtype=torch.int64)}, r"group \(3,\) must have one entry"),
        ("rloo", {"group": torch.zeros(12)}, "group of type torch.float32; allowed: whole numbers or texts"),
        ("rloo", {"old_logp": torch.ones(12)}, r"old_logp \(12,\) must have one entry"),
        ("rloo", {"starts": torch.arange(3)}, "starts are needed where they are packed"),
        ("rloo", {"logp": torch.zeros(12, 7, dtype=torch.int64)}, "logp of type torch.int64; allowed: floating point"),
        ("rloo", {"advantages": torch.ones(12)}, "advantages are given; allowed: without rewards"),
        ("pkpo", {"rewards": torch.full((12,), 0.5)}, "needs rewards that are 0 or 1"),
        ("rloo", {"pool": (torch.ones(1), torch.zeros(1, dtype=torch.int64))}, "group 1 has an empty baseline set"),
        (3, {}, "estimator 3; allowed: an Estimator"),
        ("rloo", {"rewards": ["good"] * 12}, "rewards is a list of something else; allowed: numbers, a tensor"),
        ("rloo", {"rewards": torch.full((12,), torch.nan)}, "rewards has numbers that are not finite"),
        ("rloo", {"rewards": torch.ones(12, dtype=torch.complex64)}, "rewards of type torch.complex64; allowed: real"),
        ("rloo", {"old_logp": "x"}, "old_logp is a str of something else"),
        ("rloo", {"mask": torch.full((12, 7), 0.5)}, "mask has other numbers than 0 and 1"),
        ("rloo", {"group": [None] * 12}, "group has the label None; allowed: whole numbers or texts"),
        ("rloo", {"group": [torch.tensor(0)] * 12}, r"group has the label tensor\(0\); allowed"),
        ("rloo", {"pool": 5}, r"pool or support is no pair; allowed: \(rewards, labels\)"),
        ("rloo", {"support": ([torch.inf], [0])}, "pool or support has numbers that are not finite"),
        ("remax", {"baseline": torch.full((12,), torch.nan)}, "baseline has numbers that are not finite"),
        ("rloo", {"n_rows": -1}, "n_rows = -1; allowed: 0 or more, finite"),
        ("rloo", {"n_tokens": float("nan")}, "n_tokens = nan; allowed: 0 or more"),
        ("rloo", {"n_tokens": torch.ones(2)}, r"n_tokens \(2,\); allowed: one number"),
        ("gfpo", {"ref_logp": torch.zeros(12, 7), "entropy": [0.0]}, "entropy is a list; allowed: a tensor"),
        ("adaptive_entropy", {"entropy": torch.zeros(12, 7)}, "needs bonus .the coefficient of its entropy bonus"),
        ("adaptive_entropy", {"entropy": torch.zeros(12, 7), "bonus": -1.0}, "bonus = -1.0; allowed: 0 or more"),
        ("adaptive_entropy", {"entropy": torch.zeros(12, 7), "bonus": "x"}, "bonus is a str; allowed: a real number"),
        ("rloo", {"bonus": 0.1}, "bonus: allowed with an estimator that has an entropy_target"),
        ("rloo", ALONE, "advantages has numbers that are not finite"),
    ],
)
def test_bad_input_is_one_line(estimator, changed, message):
    names = ("logp", "old_logp", "rewards", "mask", "group")
    arguments = dict(zip(names, arguments_of(np.random.default_rng(0)), strict=True)) | changed
    with pytest.raises(rl.UserError, match=message):
        rl.losses.objective(**arguments, estimator=estimator)


@pytest.mark.parametrize("name", PRESETS)
def test_a_gpu_is_not_asked_where_rewards_lie_on_the_cpu(name):
    """On the meta device, where every question about a number is an error. An estimator that looks at lengths, at
    tokens or at a KL penalty in the reward asks, because only the device knows them; tests/llm/fake_cuda counts how
    often."""
    estimator, at = PRESETS[name], {"device": "meta"}
    tokens, spec = [torch.randn(8, 5, **at).requires_grad_(i == 0) for i in range(5)], estimator.advantage
    rest = {"ref_logp": tokens[2]} if estimator.kl.kind != "none" else {}
    rest |= {"sampler_logp": tokens[3]} if estimator.correction.kind != "none" else {}
    rest |= {"entropy": tokens[4]} if reads_entropy(estimator) else {}
    rest |= {"bonus": 0.01} if estimator.entropy_target else {}
    rest |= {"baseline": tokens[2] if spec.by_token else torch.rand(8)} if spec.given else {}
    asks = spec.of_lengths or spec.by_token or estimator.length.coef > 0 or estimator.kl.place == "reward"
    arguments = (*tokens[:2], torch.arange(8) % 2, tokens[4] > 0, torch.zeros(8, dtype=torch.int64))
    if asks or isinstance(estimator.mask, (Drift, *OF_BATCH)):
        with pytest.raises(NotImplementedError, match="meta tensor"):
            rl.losses.objective(*arguments, **rest, estimator=name)
    else:
        found = rl.losses.objective(*arguments, **rest, estimator=name)
        found.backward()
        assert found.device.type == "meta" and tokens[0].grad.shape == (8, 5)


def test_one_copy_brings_columns_of_any_type():
    """Bytes of several columns behind one another, as a device sends them."""
    columns = [torch.tensor([1.5, -2.0]), torch.tensor([2**60 + 1]), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)]

    class Away(torch.Tensor):
        device = torch.device("cuda")

    found = on_cpu([part.as_subclass(Away) for part in columns])
    for part, values in zip(columns, found, strict=True):
        assert values.dtype in (np.float64, np.int64) and part.numpy().tolist() == values.tolist()


PAGE = (ROOT / "docs" / "engines.md").read_text()


def test_the_page_runs(tmp_path):
    assert run_page(PAGE, tmp_path) == 2


def test_a_page_with_another_objective_is_found(tmp_path):
    with pytest.raises(AssertionError):
        run_page(PAGE.replace("n_tokens=mask.sum()", "n_tokens=7"), tmp_path)
