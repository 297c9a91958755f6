"""r and phi measured inside a run of TRL, against a pilot's exact gradients of the same responses."""

from importlib.util import find_spec

import numpy as np
import pytest

if not find_spec("trl"):
    pytest.skip("needs trl: make test-trl", allow_module_level=True)

import torch

from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.probe import CENTRED, RAW, products
from rftlab.llm.probe_run import SIZE, half_weights, sketched
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.forecast.evidence import noise_text
from rftlab.studies.forecast.forecast import forecast_designs, request_from_runs, with_noise
from rftlab.studies.forecast.law.noise import MeasuredNoise, file_noise, read_law_run
from rftlab.studies.forecast.pilot.noise import measure_ratios
from rftlab.studies.forecast.signal.signal import read_rates
from rftlab.studies.integrations.noise import keep_rewards
from tests.support.trainer.tiny_models import small_model, small_policy
from tests.support.trainer.tiny_trl import GROUPS, K, MeasureNoise, trainer_of

pytestmark = pytest.mark.filterwarnings("default")


def exact_products(state, batches):
    """Those of a pilot at weights `state`, of batches of TRL."""
    model = small_model()
    model.load_state_dict(state)
    prompts, tokens = [], []
    for output in batches:
        for row in range(len(output["completion_ids"])):
            ids, mask = output["prompt_ids"][row], output["prompt_mask"][row].bool()
            prompts += [tuple(ids[mask].tolist())] if row % K == 0 else []
            tokens.append(output["completion_ids"][row][output["completion_mask"][row].bool()].tolist())
    rewards = np.concatenate([output["seen"] for output in batches])
    packs, starts = packed(tokens)
    responses = Responses(tuple(prompts), np.repeat(np.arange(len(prompts)), K), packs, starts)
    policy = small_policy(model=model)
    return [products(policy, one, responses, rewards) for one in (RAW, CENTRED)]


ROUNDS = 6


def test_ratios_of_a_run_are_those_of_a_pilot_on_the_same_responses(tmp_path):
    """In six rounds with a learning rate of 0, so that the weights do not move."""
    trainer, _ = trainer_of(tmp_path, "dr_grpo", max_steps=ROUNDS, learning_rate=0.0)
    callback = MeasureNoise(trainer, "mine", tmp_path / "results", questions=ROUNDS * GROUPS)
    trainer.add_callback(callback)
    kept, measure = [], callback._measure
    state = {name: value.clone() for name, value in trainer.model.state_dict().items()}

    def watched(output):
        kept.append({**output, "seen": callback.scores.nansum(1).double().numpy()})
        measure(output)

    callback._measure = watched
    trainer.train()
    assert len(kept) == ROUNDS
    exact = measure_ratios(*exact_products(state, kept))
    noise, said = file_noise(tmp_path / "results" / "pilot" / "mine" / "run.json")
    assert noise.between == pytest.approx(exact.between.value, abs=0.1 * exact.between.error)
    assert noise.gain == pytest.approx(exact.gain.value, abs=0.1 * exact.gain.error)
    assert noise.between_error == pytest.approx(exact.between.error, rel=0.1)
    rewards = np.concatenate([output["seen"] for output in kept])
    assert f"rounds 1 to {ROUNDS} of the run, {ROUNDS * GROUPS} prompts x {K} responses" in said[0]
    assert f"mean reward {rewards.mean():.3f}" in said[0]
    silent = np.mean([len(set(group)) == 1 for group in rewards.reshape(-1, K)])
    assert f"{silent:.0%} of {K}" in said[1]


def test_a_run_is_the_same_with_and_without(tmp_path):
    """Gradients of every update and weights, bit for bit, in two micro-batches; and the methods come back."""
    settings = {"rows": K * GROUPS // 3, "max_steps": 3, "learning_rate": 3e-3}
    plain, before = trainer_of(tmp_path / "plain", "dr_grpo", **settings)
    plain.train()
    trainer, after = trainer_of(tmp_path / "measured", "dr_grpo", **settings)
    trainer.add_callback(MeasureNoise(trainer, "mine", tmp_path / "results", questions=16))
    with pytest.warns(UserWarning, match="9 prompts were measured; allowed: 16 or more"):
        trainer.train()
    assert "_calculate_rewards" not in vars(trainer)
    for one, two in zip(before.updates, after.updates, strict=True):
        assert one.gradient.abs().max() > 0 and torch.equal(one.gradient, two.gradient)
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), trainer.model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("more", "said", "message"),
    [
        ({"support": 1}, {}, "support rollouts"),
        ({"rows": 6}, {"per_device_train_batch_size": 3, "steps_per_generation": 2}, "6 responses, groups of 4"),
        ({}, {"num_generations": 3}, "num_generations = 3"),
        ({}, {"is_fsdp_enabled": True}, "weights in shards"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, more, said, message):
    trainer, _ = trainer_of(tmp_path, "dr_grpo", **more)
    for name, value in said.items():
        setattr(trainer if hasattr(trainer, name) else trainer.args, name, value)
    with pytest.raises(UserError, match=message):
        MeasureNoise(trainer, "mine", tmp_path / "results")


def test_products_of_sketches_are_those_of_gradients():
    """Of parameters larger than a sketch, in parts; without signs they are biased."""
    rng = torch.Generator().manual_seed(0)
    common = [torch.randn(shape, generator=rng) for shape in ((300, 200), (50_000,), (7,))]
    ratios, unsigned = [], []
    for _ in range(12):
        a, b = ([0.3 * part + torch.randn(part.shape, generator=rng) for part in common] for _ in range(2))
        exact = sum(float((x * y).sum()) for x, y in zip(a, b, strict=True))
        norms = np.prod([sum(float((x**2).sum()) for x in one) ** 0.5 for one in (a, b)])
        ratios.append((sketched(a) @ sketched(b) - exact) / norms)
        wrong = [torch.nn.functional.pad(torch.cat([abs(x.flatten()) for x in one]), (0, 5)) for one in (a, b)]
        sums = [one[: len(one) // SIZE * SIZE].view(-1, SIZE).sum(0).double() for one in wrong]
        unsigned.append((float(sums[0] @ sums[1]) - exact) / norms)
    assert abs(np.mean(ratios)) < 4 / np.sqrt(12 * SIZE) and np.std(ratios) < 2 / np.sqrt(SIZE) < min(unsigned)
    same = [sketched(a) @ sketched(a) for _ in range(2)]
    assert same[0] == same[1] == pytest.approx(sum(float((x**2).sum()) for x in a), rel=6 / np.sqrt(SIZE))
    assert not sketched([None, torch.zeros(3)]).any()
    parts = [sketched([x]) for x in (a[0], 2 * a[0])]
    np.testing.assert_allclose(parts[1], 2 * parts[0])


def test_a_gradient_in_chunks_is_one_gradient(monkeypatch):
    gradient = torch.randn(40_000, generator=torch.Generator().manual_seed(0))
    whole = sketched([gradient])
    monkeypatch.setattr("rftlab.llm.probe_run.CHUNK", 2 * SIZE)
    np.testing.assert_allclose(sketched([gradient]), whole, atol=1e-9)


def test_weights_of_a_half_are_the_raw_reward_and_that_less_the_others():
    rewards = np.array([1.0, 0.0, 0.5])
    raw, centred = half_weights(rewards)
    np.testing.assert_allclose(raw, rewards / 3)
    by_hand = [rewards[i] - np.delete(rewards, i).mean() for i in range(3)]
    np.testing.assert_allclose(centred, np.array(by_hand) / 3)


def test_a_file_that_cannot_be_trusted_is_one_line(tmp_path):
    place = tmp_path / "run.json"
    with pytest.raises(UserError, match=r"run.json"):
        file_noise(place)
    place.write_text('{"rewards": [[1]]}')
    with pytest.raises(UserError, match="was changed"):
        file_noise(place)
    table = np.ones((16, 4)).tolist()
    known = {"rounds": [1, 2], "rewards": table, "lengths": table, "surprise": table}
    short = {"group": 2, "block": [0], "gram": [[1]], "squares": [1], "differences": [1]}
    wrong = [
        ({}, "no gradients"),
        ({"raw": short, "centred": short}, "products of raw gradients are damaged"),
        ({"raw": short | {"gram": "x"}}, "could not convert"),
        ({"lengths": table[1:]}, "tables are damaged"),
        ({"surprise": [1]}, "tables are damaged"),
        ({"rewards": [[float("nan")] * 4] * 16}, "tables are damaged"),
        ({"rounds": 3}, "TypeError"),
    ]
    for part, message in wrong:
        place.write_bytes(checksummed(known | part, [1, "run"]))
        with pytest.raises(UserError, match=message):
            file_noise(place)
    with pytest.raises(UserError, match=r"pilot\.json is missing"):
        file_noise(tmp_path / "pilot.json")


def test_rewards_alone_give_pass_rates_and_no_ratios(tmp_path):
    """What verl shows: groups of the usual size, in several rounds; `rftlab signal` reads them."""
    for turn in range(5):
        rewards = [1.0, 0.0] * 128 + [1.0]
        labels = [i // 4 for i in range(256)] + ["alone"]
        keep_rewards("mine", str(tmp_path), rewards, [3 + turn] * 257, labels)
    place = tmp_path / "pilot" / "mine" / "run.json"
    run = read_law_run(place)
    assert run.rewards.shape == run.lengths.shape == (256, 4) and run.rounds == (1, 4)
    assert run.lengths[-1].tolist() == [6] * 4 and run.ratios is None and np.isnan(run.entropy)
    assert "mean reward 0.500, 4 tokens a response" in run.sentences()[0] and "nats" not in run.sentences()[0]
    assert read_rates(place, None, None).counts.tolist() == [2] * 256
    with pytest.raises(UserError, match="no gradients"):
        file_noise(place)


def test_a_forecast_takes_the_ratios_of_a_file(tmp_path, monkeypatch):
    """In place of guesses, and says so."""
    place = tmp_path / "run.json"
    noise = MeasuredNoise(0.1, 0.02, 0.9, 0.05)
    monkeypatch.setattr("rftlab.studies.forecast.forecast.file_noise", lambda path: (noise, [f"of {path.name}"]))
    request = request_from_runs("public:pods/gsm8k", tmp_path, (), True, None, None)
    assert sum("guessed: r" in remark for remark in request.evidence.remarks) == 1
    changed = with_noise(request, place)
    told = changed.evidence
    assert told.noise == noise and not any("guessed: r" in remark for remark in told.remarks)
    assert told.remarks[-2:] == ("of run.json", noise_text(noise)) and "measured from gradients" in told.remarks[-1]
    before, after = (forecast_designs(one, None).table["law"].to_numpy() for one in (request, changed))
    assert not np.array_equal(before, after)
