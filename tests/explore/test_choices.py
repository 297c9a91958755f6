"""Choices, addresses, and the texts that a design is copied as: without a browser."""

import shlex
from dataclasses import replace

import numpy as np
import pytest

from rftlab import UserError, simulate
from rftlab.shared.cards import PRESETS
from rftlab.sim.environments import build
from rftlab.studies.cli.simulate import parse_run
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import pairs_at, start_at
from rftlab.studies.explore import choices as module
from rftlab.studies.explore.choices import MOST_PINS, Choices, Scene, chosen_run, from_address, from_query, own_value
from rftlab.studies.explore.copy_as import FORMS, command_text, python_text, text_as
from tests.support.web.explorer_page import HOSTILE

QUERIES = (
    "",
    "B=256&K=1&window=8&kl=0.01",
    "estimator=dapo&kappa=4.5&rate=0.01&rounds=1000",
    "estimator=minimalist&K=1&kl=0.1",
    "start=llama-math&estimator=rloo&kl=0&noise=0.2&base=3",
    "B=2048&K=4&M=3&epochs=2&minibatches=4",
)


@pytest.mark.parametrize("query", QUERIES)
def test_an_address_a_command_and_lines_of_python_mean_the_same_run(query):
    choices, names = from_query(query), {}
    assert from_query(module.to_query(choices)) == choices
    command, run = parse_run(shlex.split(command_text(choices))[2:]), chosen_run(choices)
    assert (command.design, command.start()) == (run.design, replace(run, design=command.start().design))
    exec(python_text(choices).rpartition("\n")[0], names)
    assert names["run"] == run


@pytest.mark.parametrize("estimator", PRESETS)
def test_every_card_that_runs_has_a_run(estimator):
    assert chosen_run(Choices(estimator=estimator)).design.estimator == PRESETS[estimator]


@pytest.mark.parametrize("start", pairs_at("sim"))
def test_every_cell_of_the_experiments_is_a_preset(start):
    assert len(module.PRESETS_BY_NAME) == sum(len(one.cells) for one in EXPERIMENTS.values())
    for cell in module.PRESETS_BY_NAME.values():
        run = chosen_run(module.cell_choices(start, cell))
        assert replace(run.design, eval_every=cell.eval_every) == replace(cell, rounds=run.design.rounds)
        usual = start_at(start, "sim")
        assert (run.environment, run.optimizer) == (usual.environment, usual.optimizer)


def test_every_knob_says_what_it_is_and_stops_where_the_run_is():
    for knob in module.KNOBS:
        assert knob.help == module.field_sentences(knob.kind)[knob.path.rsplit(".", 1)[-1]] and len(knob.help) > 10
        for start in pairs_at("sim"):
            origin = Choices(start).origin
            stops = knob.stops_at(origin, own_value(origin, knob.name))
            assert own_value(origin, knob.name) in stops and stops == sorted(set(stops)) and len(stops) > 3

    # the last stop that is not where the run starts reaches the run; a window of 64 holds the rollouts
    origin = Choices().origin
    for knob in module.KNOBS:
        value = next(v for v in reversed(knob.stops_at(origin)) if v != own_value(origin, knob.name))
        assert own_value(chosen_run(Choices().moving(knob.name, value)), knob.name) == value, knob.name


def test_a_kl_coefficient_gives_a_penalty_and_what_a_trainer_cannot_do_is_said():
    without = chosen_run(from_query("estimator=dr_grpo&kl=0")).design.estimator.kl
    given = chosen_run(from_query("estimator=dr_grpo&kl=0.01")).design.estimator.kl
    assert (without.kind, given.kind, given.coef, given.place) == ("none", "k3", 0.01, "loss")
    assert "num_generations=8" in text_as("TRL", Choices()).splitlines()
    assert text_as("verl", from_query("window=8&K=1")).startswith("# none of these engines has support rollouts")
    assert text_as("TRL", from_query("estimator=rloo")).startswith("# TRL's GRPO has no baseline leave_one_out")
    assert all(text_as(form, from_query("B=0")).startswith("# batch_size = 0") for form in FORMS)


@pytest.mark.parametrize(
    "query",
    [
        "B=0", "B=nan", "B=1e400", "B=2.5", "B=" + "9" * 500, "start=x", "estimator=<b>", "window=4&K=8",
        "B=4096&K=128", "epochs=40&minibatches=2", "rate=-1", "kappa=inf", "axis=time", "gpu=abacus", "x" * 20_001,
        "&".join(["pin=B%3D32&name=a"] * (MOST_PINS + 1)), "pin=B%3D32", "pin=B%3D0&name=a", "B=9000", "noise=-1",
        "window=1025", "b=64", "?B=64", "start=" + "x" * 9000,
    ],
)  # fmt: skip
def test_an_address_that_means_nothing_is_a_line(query):
    with pytest.raises(UserError) as error:
        from_address(query)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000
    assert module.restored(query) == (Scene(), str(error.value))


def test_a_scene_comes_back_from_its_address_and_hostile_names_are_one_short_line_each():
    scene = Scene(from_query(QUERIES[1]), axis="rollouts", gpu="A100-80", dark=True).pinning("first").pinning("")
    hostile = Scene()
    for name in HOSTILE[:MOST_PINS]:
        hostile = hostile.pinning(name)
    for one in (replace(scene, choices=from_query(QUERIES[4])), hostile):
        assert from_address(module.to_address(one)) == one
    assert [pin.name for pin in scene.pins] == ["first", "pinned"]
    names = [pin.name for pin in hostile.pins]
    assert len(set(names)) == MOST_PINS and all(name.isprintable() and len(name) <= module.LONGEST for name in names)


def test_two_pins_of_one_name_are_told_apart_and_knobs_have_other_names_than_the_page():
    assert not set(module.BY_NAME) & {"start", "estimator", "axis", "gpu", "dark", "pin", "name"}
    scene = Scene().pinning("a").pinning("a").pinning("a")
    assert [pin.name for pin in scene.pins] == ["a", "a 2", "a 3"]
    assert scene.without(1).pins == (module.Pin("a", Choices()), module.Pin("a 3", Choices()))


def test_a_watcher_sees_the_curve_grow_and_more_evaluations_change_none():
    run = chosen_run(from_query("rounds=200&B=8&K=4"))
    run = replace(run, environment=replace(run.environment, n_train=200, n_test=100))
    world, seen = build(run.environment), []
    whole = simulate(run, world, watch=seen.append).curve
    assert [len(curve.round) for curve in seen] == list(range(1, len(whole.round) + 1))
    finer = simulate(replace(run, design=replace(run.design, eval_every=2)), world).curve
    assert np.array_equal(finer.test_pass_at_1[::5], whole.test_pass_at_1)
