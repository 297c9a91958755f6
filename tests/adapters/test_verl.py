"""The plug-in inside verl's own functions, found through verl's entry-point group: `make test-verl`."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

if not find_spec("verl"):
    pytest.skip("needs verl, in an environment of its own: make test-verl", allow_module_level=True)

import torch
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, agg_loss
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.workers.config import ActorConfig
from verl.workers.config.actor import PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from rftlab import CARDS, UserError, preset
from rftlab.studies.forecast.law.noise import read_law_run
from tests.support.estimators.vectors import ROOT

RUNNABLE = [name for name, card in CARDS.items() if card.estimator is not None]
GIVEN = [name for name in RUNNABLE if preset(name).advantage.given]
SEVERAL = [name for name in RUNNABLE if preset(name).advantage.combine == "advantages"]


def test_verl_finds_the_plug_in_by_itself():
    """In a process that never names it; and not where plug-ins are turned off."""
    program = (
        "import verl; from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as a, POLICY_LOSS_REGISTRY as p; "
        "print(*(sum(name.startswith('rftlab_') for name in registry) for registry in (a, p)))"
    )
    for policy, count in (("auto", len(RUNNABLE)), ("none", 0)):
        environment = {"VERL_USE_EXTERNAL_PLUGINS": policy, "PATH": "/usr/bin:/bin"}
        printed = subprocess.check_output([sys.executable, "-c", program], text=True, env=environment)
        assert printed.split()[-2:] == [str(count), str(count)]


OWN_TESTS = ROOT / ".venv-verl" / "tests" / "tests" / "trainer" / "ppo"


@pytest.mark.skipif(not OWN_TESTS.is_dir(), reason="needs verl's own tests: make .venv-verl/tests")
def test_verl_s_own_tests_pass_beside_the_plug_in_and_with_its_advantages():
    """And they see an advantage that is not what its name says."""
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(OWN_TESTS)]
    command += ["--import-mode=importlib", "-p", "no:cacheprovider"]
    ours, algorithms = ["-p", "tests.support.adapters.in_verl"], str(OWN_TESTS / "test_core_algos_on_cpu.py")
    planted = {**os.environ, "RFTLAB_PLANTED": "1"}
    beside = subprocess.run([*command, str(OWN_TESTS)], cwd=ROOT, capture_output=True, text=True)
    assert beside.returncode == 0, beside.stdout[-2000:]
    inside = subprocess.run([*command, *ours, algorithms], cwd=ROOT, capture_output=True, text=True)
    assert inside.returncode == 0, inside.stdout[-2000:]
    wrong = subprocess.run([*command, *ours, algorithms], cwd=ROOT, capture_output=True, text=True, env=planted)
    assert wrong.returncode == 1 and "test_rloo_and_vectorized_equivalence" in wrong.stdout


def rollouts(seed: int, n_groups: int = 4, k: int = 4, longest: int = 9):
    """Shuffled groups with rewards on their last tokens, among them groups of one outcome, and texts for labels."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n_groups * k)
    lengths = rng.integers(1, longest + 1, n_groups * k)
    mask = torch.tensor(np.arange(longest) < lengths[:, None]).long()
    rewards = torch.zeros(n_groups * k, longest, dtype=torch.float64)
    values = rng.integers(0, 2, n_groups * k) if seed % 2 else rng.normal(size=n_groups * k)
    values[order < k] = 1.0
    rewards[torch.arange(n_groups * k), torch.tensor(lengths - 1)] = torch.tensor(values, dtype=torch.float64)
    uid = np.array([f"prompt {label}" for label in order // k], dtype=object)
    return rewards, mask, uid


def advantages_in_verl(name: str, rewards, mask, uid, config=None, gamma=1.0, by_std=True, **more):
    """What verl's trainer writes into its batch."""
    columns = {"token_level_rewards": rewards, "response_mask": mask, **more}
    data = DataProto(batch=TensorDict(columns, batch_size=len(rewards)), non_tensor_batch={"uid": uid})
    said = config or SimpleConfig(gamma=gamma, norm_adv_by_std_in_grpo=by_std)
    return compute_advantage(data, name, gamma=gamma, norm_adv_by_std_in_grpo=by_std, config=said).batch["advantages"]


class SimpleConfig(dict):
    """A configuration whose entries are attributes too, as OmegaConf's are."""

    __getattr__ = dict.get


PAIRS = {
    "grpo_verl": ("grpo", {}),
    "grpo_open_instruct": ("grpo", {"by_std": False}),
    "dr_grpo": ("grpo", {"by_std": False}),
    "rloo": ("rloo", {}),
    "opo": ("opo", {}),
    "gpg": ("gpg", {"f_norm": 1.0}),
    "reinforce_pp": ("reinforce_plus_plus", {}),
    "reinforce_pp_baseline": ("reinforce_plus_plus_baseline", {}),
    "grpo_passk_verl": ("grpo_passk", {}),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("seed", range(4))
def test_advantages_equal_those_of_verl(name, seed):
    theirs, said = PAIRS[name]
    rewards, mask, uid = rollouts(seed)
    config = SimpleConfig(gamma=1.0, norm_adv_by_std_in_grpo=said.get("by_std", True), f_norm=said.get("f_norm", 1.0))
    more = {"config": config, "by_std": said.get("by_std", True)}
    ours, expected = (advantages_in_verl(n, rewards, mask, uid, **more) for n in (f"rftlab_{name}", theirs))
    assert ours.abs().max() > 0.1
    assert (ours * mask - expected * mask).abs().max() < 1e-6


def test_remax_takes_the_baselines_that_verl_hands_over():
    rewards, mask, uid = rollouts(0)
    baselines = torch.arange(16, dtype=torch.float64) / 16
    ours, theirs = (
        advantages_in_verl(name, rewards, mask, uid, reward_baselines=baselines) for name in ("rftlab_remax", "remax")
    )
    assert (ours - theirs * mask).abs().max() < 1e-6 and ours.abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "said"),
    [(name, "hands no baseline of kind") for name in GIVEN]
    + [(name, "hands a plug-in the sum of rewards; allowed: its own") for name in SEVERAL],
)
def test_what_verl_does_not_hand_over_is_said(name, said):
    with pytest.raises(UserError, match=f"rftlab_{name}: verl {said}"):
        advantages_in_verl(f"rftlab_{name}", *rollouts(0))


@pytest.mark.parametrize("name", [name for name in RUNNABLE if name not in (*GIVEN, *SEVERAL)])
def test_every_card_gives_finite_advantages_in_verl(name):
    rewards, mask, uid = rollouts(1)
    found = advantages_in_verl(f"rftlab_{name}", rewards.float(), mask, uid)
    assert found.shape == mask.shape and found.dtype == torch.float32
    assert found.isfinite().all() and (found[mask == 0] == 0).all()


def test_support_is_in_the_baseline_alone():
    rewards, mask, uid = rollouts(3)
    found = advantages_in_verl("rftlab_dr_grpo", rewards, mask, uid, SimpleConfig(rftlab={"support": 1}))
    whole = advantages_in_verl("rftlab_dr_grpo", rewards, mask, uid)
    last = [i for i, label in enumerate(uid) if label not in uid[i + 1 :]]
    trained = [i for i in range(len(uid)) if i not in last]
    assert len(last) == 4 and (found[last] == 0).all()
    assert torch.allclose(found[trained], whole[trained] * 16 / 12)


def test_support_makes_up_for_verls_counts():
    """verl divides by all responses or tokens; the objective is that of the trained ones."""
    rewards, mask, uid = rollouts(3)
    rng = np.random.default_rng(5)
    logp = torch.tensor(-rng.exponential(size=mask.shape))
    last = torch.tensor([label not in uid[i + 1 :] for i, label in enumerate(uid)])
    for name, mode in (("dr_grpo", "seq-mean-token-sum"), ("dapo", "token-mean")):
        bare = replace(preset(name), length=replace(preset(name).length, coef=0.0))
        assert bare.aggregation.kind in mode.replace("-", "_")
        found = advantages_in_verl(f"rftlab_{name}", rewards, mask, uid, SimpleConfig(rftlab={"support": 1}))
        whole = advantages_in_verl(f"rftlab_{name}", rewards, mask, uid)
        ours = agg_loss(logp * found, mask, mode)
        expected = agg_loss((logp * whole)[~last], mask[~last], mode)
        assert abs(float(ours - expected)) < 1e-12


@pytest.mark.parametrize(
    ("name", "support", "message"),
    [
        ("dr_grpo", 4, "support = 4 of 4 responses; allowed: fewer"),
        ("dr_grpo", -1, "support = -1; allowed: 0 or more"),
        ("dr_grpo", "2", "support = '2'; allowed: 0 or more"),
        ("dro", 1, "Dro is not in proportion"),
    ],
)
def test_support_that_cannot_be(name, support, message):
    with pytest.raises(UserError, match=message):
        advantages_in_verl(f"rftlab_{name}", *rollouts(3), SimpleConfig(rftlab={"support": support}))


LOSSES = {
    "grpo_verl": ("vanilla", "token-mean", {}),
    "dapo": ("vanilla", "token-mean", {"clip_ratio_high": 0.28, "clip_ratio_c": 1e9}),
    "two_sided": ("vanilla", "token-mean", {"clip_ratio_c": 4.0}),
    "grpo": ("vanilla", "seq-mean-token-mean", {"clip_ratio_c": 1e9}),
    "gspo_token": ("gspo", "seq-mean-token-mean", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
    "gspo_verl": ("gspo", "seq-mean-token-mean", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
    "sapo": ("sapo", "seq-mean-token-mean", {}),
    "gpg": ("gpg", "token-mean", {}),
    "cispo": ("cispo", "token-mean", {"clip_ratio_low": 1.0, "clip_ratio_high": 4.0}),
    "dppo_tv": ("dppo_tv", "seq-mean-token-sum-norm", {"clip_ratio": 0.15, "clip_ratio_c": 20.0}),
    "dppo_kl": ("dppo_kl", "seq-mean-token-sum-norm", {"clip_ratio": 0.05, "clip_ratio_c": 20.0}),
    "dro": ("dro", "seq-mean-token-sum", {"policy_loss": {"dro_beta": 0.1}}),
    "gmpo": ("geo_mean", "token-mean", {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}),
    "kl_cov": ("kl_cov", "token-mean", {"policy_loss": {"ppo_kl_coef": 1.0, "kl_cov_ratio": 2e-4}}),
}
NORM = 1024


def actor(mode: str, said: dict, **batch) -> ActorConfig:
    """verl's configuration of an actor."""
    said = dict(said)
    clip = said.get("clip_ratio", 0.2)
    said = {"clip_ratio_low": clip, "clip_ratio_high": clip} | said
    policy = PolicyLossConfig(**said.pop("policy_loss", {}))
    config = ActorConfig(
        strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1, loss_agg_mode=mode, policy_loss=policy, **said
    )
    config.global_batch_info.update(batch)
    return config


def tokens(seed: int, mask):
    """Old and present log-probabilities, some of them equal, and advantages of both signs."""
    rng = np.random.default_rng(seed)
    old = torch.tensor(-rng.exponential(size=mask.shape))
    step = torch.tensor(rng.normal(size=mask.shape) * 0.4 * rng.integers(0, 2, mask.shape))
    advantage = torch.tensor(rng.normal(size=(len(mask), 1))).expand(mask.shape).clone()
    return old, torch.minimum(old + step, torch.tensor(-1e-3)), advantage


def loss_and_gradient(name: str, old, logp, advantage, mask, config, weights=None):
    at = logp.clone().requires_grad_(True)
    given = {"old_log_prob": old, "log_prob": at, "advantages": advantage, "response_mask": mask}
    said = {"loss_agg_mode": config.loss_agg_mode, "config": config, "rollout_is_weights": weights}
    loss, metrics = POLICY_LOSS_REGISTRY[name](**given, **said)
    (gradient,) = torch.autograd.grad(loss, at)
    return float(loss.detach()), gradient, metrics


def equal_losses(name, mask, seed, config, weights=None):
    """Our loss, gradient and metrics beside verl's, which they equal."""
    old, logp, advantage = tokens(seed, mask)
    ours, expected = (
        loss_and_gradient(n, old, logp, advantage, mask, config, weights) for n in (f"rftlab_{name}", LOSSES[name][0])
    )
    assert abs(ours[0] - expected[0]) < 1e-6 and (ours[1] - expected[1]).abs().max() < 1e-6
    return ours, expected


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("part", ["whole", "micro"])
def test_losses_equal_those_of_verl(name, seed, part):
    """Loss and gradient; of a whole batch, and of a micro-batch of one of two data-parallel ranks."""
    _, mode, said = LOSSES[name]
    batch = {} if part == "whole" else {"dp_size": 2, "batch_num_tokens": 311, "global_batch_size": 48}
    if part == "micro" and name == "gmpo":
        pytest.skip("verl's geo_mean takes the mean over the micro-batch, whatever the batch is")
    config = actor(mode, said, **batch, **({"loss_scale_factor": NORM} if "norm" in mode else {}))
    ours, expected = equal_losses(name, rollouts(seed)[1], seed, config)
    assert expected[1].abs().max() > 1e-5
    if name not in ("gpg", "kl_cov"):  # one says none, the other the mean of |log ratio|
        assert ours[2]["actor/ppo_kl"] == pytest.approx(expected[2]["actor/ppo_kl"], abs=1e-6)


@pytest.mark.parametrize("name", ["gmpo", "grpo", "grpo_verl"])
def test_responses_without_tokens_count_as_verl_counts_them(name):
    mask = rollouts(1)[1]
    mask[::5] = 0
    equal_losses(name, mask, 1, actor(*LOSSES[name][1:]))


@pytest.mark.parametrize("name", ["grpo_verl", "cispo", "gpg"])
def test_importance_weights_of_the_sampler_are_taken(name):
    mask = rollouts(2)[1]
    weights = torch.rand(mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    equal_losses(name, mask, 2, actor(*LOSSES[name][1:]), weights)


@pytest.mark.parametrize("name", RUNNABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_card_is_a_loss_in_verl(name, dtype):
    """But those that ask for what verl hands no loss: they say so."""
    _, mask, _ = rollouts(1)
    old, logp, advantage = tokens(1, mask)
    config = actor("token-mean", {}, dp_size=1, batch_num_tokens=int(mask.sum()), global_batch_size=len(mask))
    given = (f"rftlab_{name}", old.to(dtype), logp.to(dtype), advantage.to(dtype), mask, config)
    refused = {
        "scale_rl": "verl hands a loss no prompts",
        "top_entropy": "verl hands a loss no entropies",
        "adaptive_entropy": "verl's entropy bonus has a fixed coefficient",
    }.get(name)
    if refused:
        with pytest.raises(UserError, match=f"rftlab_{name}: {refused}"):
            loss_and_gradient(*given)
        return
    loss, gradient, metrics = loss_and_gradient(*given)
    assert np.isfinite(loss) and gradient.isfinite().all() and (gradient[mask == 0] == 0).all()
    names = {"actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower"}
    assert gradient.abs().max() > 0 and set(metrics) == names


def test_through_the_loss_that_verls_workers_call():
    """`ppo_loss` unpacks the model's output, hands over its counts, and adds a KL penalty of its own."""
    rng = np.random.default_rng(3)
    lengths = torch.tensor(rng.integers(2, 6, 8))
    mask = torch.arange(5)[None] < lengths[:, None]
    old, logp, advantage = tokens(3, mask)
    prompts = torch.ones(8, 2, dtype=torch.int64)
    ends = torch.zeros(1)
    packed = torch.cat([torch.cat([ends, row[:n], ends]) for row, n in zip(logp, lengths, strict=True)])
    found = []
    for name in ("rftlab_grpo_verl", "vanilla"):
        data = TensorDict(
            {
                "prompts": prompts,
                "responses": torch.ones(8, 5, dtype=torch.int64),
                "attention_mask": torch.cat([torch.ones(8, 2, dtype=torch.bool), mask], 1),
                "response_mask": mask,
                "old_log_probs": old,
                "advantages": advantage,
                "ref_log_prob": old - 0.1,
            },
            batch_size=8,
        )
        for key, value in (("dp_size", 2), ("batch_num_tokens", 100), ("global_batch_size", 16)):
            data.set_non_tensor(key, value)
        config = actor("token-mean", {"policy_loss": {"loss_mode": name}, "use_kl_loss": True})
        loss, metrics = ppo_loss(config, {"log_probs": packed}, Padded(data))
        found.append((float(loss), float(metrics["kl_loss"].value if hasattr(metrics["kl_loss"], "value") else 0)))
    assert found[0] == pytest.approx(found[1], abs=1e-6) and found[0][0] != 0


class Padded(SimpleNamespace):
    """A batch whose tensors are padded already."""

    def __init__(self, data):
        super().__init__(data=data)

    def __getitem__(self, key):
        return self.data[key]

    def __contains__(self, key):
        return key in set(self.data.keys())

    def __getattr__(self, name):
        return getattr(self.data, name)

    def select(self, *keys):
        return Padded(self.data.select(*keys))

    def to_padded_tensor(self):
        return self


def test_rewards_and_lengths_of_the_first_prompts_are_kept(tmp_path):
    """Where the flag asks for it; the advantages are the same."""
    config = SimpleConfig(gamma=1.0, rftlab=SimpleConfig(measure="mine", results=str(tmp_path / "results")))
    rewards, mask, uid = rollouts(1)
    plain = advantages_in_verl("rftlab_dr_grpo", rewards, mask, uid)
    kept = [advantages_in_verl("rftlab_dr_grpo", rewards, mask, uid, config) for _ in range(64)]
    assert torch.equal(kept[0], plain) and torch.equal(kept[-1], plain)
    run = read_law_run(tmp_path / "results" / "pilot" / "mine" / "run.json")
    assert run.rewards.shape == (256, 4) and run.rounds == (1, 64) and run.ratios is None
    first = uid == uid[0]
    assert run.rewards[0].tolist() == rewards.sum(-1)[first].tolist()
    assert run.lengths[0].tolist() == mask.sum(-1)[first].tolist()


def test_alarms_go_to_the_trackers_of_a_run_that_asks_for_them(capsys):
    from verl.utils.tracking import Tracking

    tracking = Tracking("project", "run", "console", {"algorithm": {"rftlab": {"alarms": True}}})
    kept = []
    tracking.logger = {"kept": SimpleNamespace(log=lambda data, step: kept.append(data))}
    for step in range(1, 20):
        tracking.log({"response_length/mean": 300.0 if step < 12 else 30.0}, step)
    assert capsys.readouterr().out.count("alarm: short responses") == 1
    assert (kept[0]["rftlab/alarms"], kept[-1]["rftlab/alarms"]) == (0, 1)
