"""The script that measures rounds on a device, here on a CPU with the smallest model there is."""

import sys

import pytest
from rich.console import Console

from benchmarks.llm import measure
from rftlab.llm.budget.devices import named_device
from rftlab.llm.budget.footprint import memory_use
from rftlab.llm.budget.plan import Assumed, cost_plan
from rftlab.llm.budget.shapes import read_shape
from rftlab.studies.data.paper.pairs import start_at
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401


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
    assert (short.model.max_prompt_length, short.model.max_response_length, short.compute.sample_rows) == (
        *found.longest,
        24,
    )
    plan = cost_plan(
        run, named_device("cpu", None, 1), Assumed(round(found.prompt), round(found.response), 1, 1), shape
    )
    measure.show(console, plan._replace(memory=memory_use(short, shape)), found, 2)
    printed = console.export_text()
    assert all(word in printed for word in ("sample ", "update ", "round ", "tokens a second", "a utilisation of"))


def test_a_flag_that_is_wrong_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["measure", "--pair", "gpt-5"])
    with pytest.raises(measure.UserError, match="pair = 'gpt-5' is unknown"):
        measure.main()
