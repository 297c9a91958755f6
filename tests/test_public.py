"""What `import rftlab as rl` gives."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rftlab as rl
from rftlab.sim.environments import build
from tests.support.estimators.vectors import ROOT

SOURCE = Path(rl.__file__).read_text()
TRAINER = {"train", "losses"}
"""Names that need the extra `llm`."""


def known_to_type_checkers() -> dict[str, str]:
    """Public names and their modules, as type checkers read them."""
    block = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    return {alias.asname: node.module for node in block.body for alias in node.names}


def test_type_checkers_editors_and_python_know_the_same_names():
    assert known_to_type_checkers() == rl._HOME
    assert {name for name in dir(rl) if not name.startswith("_")} == set(rl._HOME)


@pytest.mark.parametrize("name", sorted(set(rl._HOME) - TRAINER))
def test_every_name_is_there_and_in_the_table_of_contents(name):
    assert getattr(rl, name) is not None and name in rl.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'rftlab' has no attribute 'nonsense'"):
        rl.nonsense  # noqa: B018


def test_importing_it_loads_nothing_heavy():
    heavy = ("numpy", "numba", "pandas", "torch", "rftlab.shared", "rftlab.sim", "rftlab.llm", "rftlab.studies")
    code = f"import sys, rftlab; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "[]\n"


def small_run():
    run = rl.start_at("qwen-gsm8k", "sim")
    return replace(run, environment=rl.Linear(n_train=64, n_test=16, n_features=16))


def designs():
    return [rl.Design(batch_size=8, rollouts=k, rounds=8, eval_every=4, estimator=rl.preset("rloo")) for k in (2, 4)]


def test_a_sweep_is_its_runs_one_after_another():
    run, told = small_run(), []
    world = build(run.environment)
    alone = [
        rl.simulate(replace(run, design=design, seed=seed), world).curve.to_frame()
        for design in designs()
        for seed in range(2)
    ]
    found = rl.sweep(run, designs(), seeds=2, threads=2, progress=lambda done, total: told.append((done, total)))
    totals = {"rollouts": "rollouts_total", "tokens": "tokens_total"}
    expected = pd.concat(alone, ignore_index=True).drop(columns="seconds").rename(columns=totals)
    pd.testing.assert_frame_equal(found[list(expected)], expected)
    assert found["rollouts"].tolist() == [2] * 6 + [4] * 6 and found["diverged_at"].isna().all()
    assert told == [(n, 4) for n in range(1, 5)]


def test_a_grid_is_its_combinations(capsys):
    values = {"rollouts": [2, 4], "estimator": ["rloo", rl.preset("grpo")], "batch_size": 8, "rounds": 8}
    found = rl.sweep(small_run(), design=values, environment={"kappa": [5.0, 4.0]}, seeds=2, progress=True)
    assert list(found.columns[:5]) == ["batch_size", "rollouts", "estimator", "rounds", "kappa"]
    assert {"rollouts_total", "tokens_total", "seed", "round", "diverged_at"} <= set(found.columns)
    runs = found.groupby(["rollouts", "estimator", "kappa", "seed"], sort=False)
    assert len(runs) == 16 and (runs["round"].max() == 8).all() and set(found["estimator"]) == {"rloo", "grpo"}
    ends = found[found["round"] == 8]
    assert (ends["rollouts_total"] == 8 * 8 * ends["rollouts"]).all()
    design = rl.Design(batch_size=8, rollouts=4, rounds=8, eval_every=8, estimator=rl.preset("rloo"))
    run = replace(small_run(), design=design, environment=replace(small_run().environment, kappa=4.0), seed=1)
    alone = rl.simulate(run).curve.test_pass_at_1
    np.testing.assert_array_equal(runs.get_group((4, "rloo", 4.0, 1))["test_pass_at_1"], alone)
    lines = [line for line in capsys.readouterr().err.splitlines() if "compiling" not in line]
    numbers = rl.sweep(small_run(), design=values | {"rollouts": np.array([2, 4])}, seeds=1)
    assert numbers["rollouts"].unique().tolist() == [2, 4]
    assert lines[0].startswith("rftlab: 1 of 16 runs, about ") and lines[-1] == "rftlab: 16 of 16 runs, about 0 s left"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"designs": designs(), "seeds": 0}, "seeds = 0"),
        ({"designs": designs(), "seeds": 1.5}, "seeds = 1.5; allowed: a whole number, 1 or more"),
        ({"designs": designs(), "seeds": [1, 2]}, "seeds = "),
        ({"designs": designs(), "threads": -1}, "threads = -1"),
        ({"designs": designs(), "threads": "all"}, "threads = 'all'; allowed: a whole number, 0 or more"),
        ({"designs": []}, "designs names none"),
        ({"designs": rl.Design()}, "designs is a Design; allowed: several designs, as a list"),
        ({"designs": ["grpo"]}, "designs has 'grpo'; allowed: designs"),
        ({"designs": designs(), "start": "qwen-gsm8k"}, "start is a str; allowed: a Simulation"),
        ({"design": {"rolouts": [2]}}, "a field of design = 'rolouts' is unknown; allowed: batch_size"),
        ({"environment": {"nothing": 1}}, "a field of environment = 'nothing' is unknown"),
        ({"design": {"rollouts": []}}, "design.rollouts names no value"),
        ({"design": {"estimator": "grop"}}, "estimator = 'grop' is unknown"),
        ({"design": {"estimator": 3}}, "design.estimator = 3; allowed: an estimator, or its name"),
        *(({"design": {"rollouts": value}}, f"design.rollouts = {value!r}; allowed: a whole number")
          for value in ("two", 2.5, None, True)),
        ({"design": {"sampling": "x"}}, "design.sampling = 'x'; allowed: Sampling"),
        ({"environment": {"kappa": "x"}}, "environment.kappa = 'x'; allowed: a number"),
        ({"design": ["rollouts"]}, "design is a list; allowed: names of fields and their values"),
        ({"design": {"rollouts": range(1, 1001), "batch_size": range(1, 1001)}}, "1000000 combinations; allowed: up"),
        ({"design": {"rollouts": 2}, "designs": designs()}, "allowed: one of the two ways"),
    ],
)  # fmt: skip
def test_a_sweep_and_a_grid_say_what_is_allowed(options, message):
    with pytest.raises(rl.UserError, match=message):
        rl.sweep(**{"start": small_run()} | options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rl.start_at("qwen-gsm8k", "simulator"), "level = 'simulator' is unknown; allowed: sim, llm"),
        (lambda: rl.start_at(np.array(["a", "b"]), "sim"), "pair = .* is unknown; allowed: qwen-gsm8k"),
        (lambda: rl.simulate("qwen-gsm8k"), "run is a str; allowed: a Simulation"),
        (lambda: rl.simulate(None), "run is a NoneType; allowed: a Simulation"),
        (lambda: rl.ResultsFolder(None), "root is a NoneType; allowed: a path"),
        (lambda: rl.preset(("grpo",)), "estimator = .* is unknown; allowed: "),
        (lambda: rl.Optimizer(np.ones(2)), "kind = .* is unknown; allowed: "),
    ],
)
def test_a_wrong_argument_is_named(call, message):
    with pytest.raises(rl.UserError, match=message):
        call()
