"""Reports of `make gpu-check` as devices of a plan."""

import json

import pytest

from rftlab.llm.budget.devices import FORMAT, GPUS, known_gpu
from rftlab.shared.plumbing.errors import UserError
from tests.support.machine.here import rftlab

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
