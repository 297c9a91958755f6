"""Measured devices: reports of `make gpu-check` as devices of a plan, and the script that measures rounds, here on a
CPU with the smallest model there is."""

import json
import sys

import pytest
from rich.console import Console

from benchmarks.llm import measure
from rftlab import UserError, start_at
from rftlab.llm.budget.devices import FORMAT, GPUS, known_gpu, named_device
from rftlab.llm.budget.footprint import memory_use
from rftlab.llm.budget.plan import Assumed, cost_plan
from rftlab.llm.budget.shapes import read_shape
from tests.support.machine.here import rftlab
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401

CONSTANTS = {"utilisation": 0.41, "step": 3e-3, "row": 1e-5, "sleep": 1.2}
WHOLE = {
    "format": FORMAT,
    "complete": True,
    "device": {"name": "NVIDIA H100 80GB HBM3", "memory": 84e9, "like": "H100"},
    "constants": CONSTANTS,
}


def test_a_report_gives_its_constants_to_plans(tmp_path):
    path = tmp_path / "gpu-check.json"
    path.write_text(json.dumps(WHOLE))
    device = known_gpu(f"measured:{path}")
    assert {name: getattr(device, name) for name in CONSTANTS} == CONSTANTS
    assert (device.memory, device.bandwidth, device.link) == (84e9, GPUS["H100"].bandwidth, GPUS["H100"].link)


@pytest.mark.parametrize(
    "text",
    [
        "",
        json.dumps(WHOLE)[:150],
        "[" * 100_000,
        "[]",
        "null",
        json.dumps(WHOLE | {"format": "another"}),
        json.dumps(WHOLE | {"complete": False}),
        json.dumps(WHOLE | {"constants": {}}),
        json.dumps(WHOLE | {"constants": CONSTANTS | {"sleep": "\x1b[31m\n" * 9}}),
        json.dumps(WHOLE | {"constants": CONSTANTS | {"utilisation": float("nan")}}),
        json.dumps(WHOLE | {"constants": CONSTANTS | {"row": 1e300}}),
        json.dumps(WHOLE | {"constants": CONSTANTS | {"step": [1]}}),
        json.dumps(WHOLE | {"device": WHOLE["device"] | {"like": ["H100"]}}),
        json.dumps(WHOLE | {"device": WHOLE["device"] | {"like": "T4"}}),
        json.dumps(WHOLE | {"device": WHOLE["device"] | {"memory": 10**400}}),
    ],
)
def test_a_hostile_or_half_written_report_is_refused_in_a_line(tmp_path, text):
    path = tmp_path / "gpu-check.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"allowed: the report that `make gpu-check` writes") as told:
        known_gpu(f"measured:{path}")
    assert len(str(told.value)) < 500 and str(told.value).isprintable()


def test_advise_and_dry_runs_take_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    advise = ("advise", "--model", "7B", "--designs", "32x8", "--gpu")
    status, text = rftlab(*advise, "8xmeasured")
    assert status == 2 and "results/gpu-check.json" in text and len(text.splitlines()) == 1
    (tmp_path / "results").mkdir()
    (tmp_path / "results/gpu-check.json").write_text(json.dumps(WHOLE))
    status, text = rftlab(*advise, "8xmeasured")
    assert status == 0 and "8xNVIDIA H100 80GB HBM3" in text and "41% of the peak" in text
    status, text = rftlab("train", "--pair", "qwen-gsm8k", "--dry-run", "--gpu", "measured")
    assert status == 0 and "constants measured" in text and "41% of the device's peak" in text


def test_what_an_update_needs_is_six_operations_for_each_weight_and_token():
    run = start_at("qwen-gsm8k", "llm")
    shape = read_shape(run.model)
    tokens = run.design.batch_size * run.design.rollouts * (300 + 200)
    found = measure.needed(run, shape, Assumed(300, 200, 1, 1))
    assert found == pytest.approx(6 * shape.parameters * tokens, rel=0.25)
    assert run.compute.gradient_checkpointing, "what it computes again is no need of the model"


def test_rounds_are_measured_by_phase_and_stand_beside_their_plan():
    run = run_of(batch_size=6, rollouts=4)
    found, shape, console = measure.measure(run, 2), read_shape(run.model), Console(record=True, width=80)
    assert found.seconds >= sum(found.meter.seconds.values()) / 2 > 0
    assert 0 < found.response <= found.longest[1] <= 12 and found.sampled == pytest.approx(found.response * 24)
    short = measure.as_long(run, found)
    assert (short.model.max_prompt_length, short.model.max_response_length) == found.longest
    assert short.compute.sample_rows == 24
    assumed = Assumed(round(found.prompt), round(found.response), 1, 1)
    plan = cost_plan(run, named_device("cpu", None, 1), assumed, shape)
    measure.show(console, plan._replace(memory=memory_use(short, shape)), found, 2)
    printed = console.export_text()
    assert all(word in printed for word in ("sample ", "update ", "round ", "tokens a second", "a utilisation of"))


def test_a_flag_that_is_wrong_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["measure", "--pair", "gpt-5"])
    with pytest.raises(measure.UserError, match="pair = 'gpt-5' is unknown"):
        measure.main()
