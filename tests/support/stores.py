"""Small results stores, and changes to what they hold."""

import json

import pytest

from rftlab import Design, Linear, Simulation, preset
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.files import checksummed, read_checksummed
from rftlab.studies.data.runs.points import RunSpec, canonical
from rftlab.studies.data.runs.runner import StudyCallbacks, run_points

SMALL = Linear(n_train=40, n_test=30, n_features=16, base_format=2.0)
QUIET = StudyCallbacks(lambda point, outcome: None, lambda seconds: None, lambda text: None, lambda text: None)


def point_of(seed=0, rounds=4, **design):
    return RunSpec(
        "qwen-gsm8k",
        Simulation(SMALL, Design(**{"batch_size": 8, "rounds": rounds, "eval_every": 2} | design), seed=seed),
    )


def points(n=4):
    return [point_of(seed, rollouts=k, estimator=preset("paper_text")) for seed in range(n) for k in (1, 4)]


@pytest.fixture
def root(tmp_path):
    return store.open_store(tmp_path / "results")


def run_all(root, todo, threads=1):
    run_points(root, todo, threads, QUIET)


def bytes_of(results):
    """Curves as bytes, times aside."""
    return results.curves.drop(columns="seconds").to_csv().encode()


def nested(depth):
    return "[" * depth + "]" * depth


def change(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def reseal(root, point, **fields):
    """Change facts of a point as its own version of rftlab would have written them."""
    file, config = store.point_folder(root, point) / "done.json", json.loads(canonical(point.config))
    file.write_bytes(checksummed(read_checksummed(file, config) | fields, config))


DEEP = nested(100_000)
