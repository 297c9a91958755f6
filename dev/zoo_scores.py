"""Score forecasts for runs of `tiny` models from a pilot without training: `python -m dev.zoo_scores`. The models of
this zoo differ in the length of their pre-training, in task, size, and in whether they know the rewarded format.

`zoo_predictions.csv` has the pilots and the forecasts as they were written before the runs, `zoo_runs.csv` the runs
(`dev/zoo.py`). All scores are strict Pass@1 on one set of unseen questions. Models that differ only in the length of
their pre-training are checkpoints of one pre-training; they are left out together, and intervals resample
pre-trainings.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.studies.analysis.public.credit import grouped_mean
from rftlab.studies.analysis.public.store import DATA
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.paper.experiments import BASELINE, GRPO
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.pilot.store import shipped_base

PREDICTIONS, RUNS = "zoo_predictions.csv", "zoo_runs.csv"
DESIGNS = {"32x8": replace(GRPO, rollouts=8), "32x1": BASELINE}
"""Designs by label, in the order in which they are run."""
ROUNDS = 200
"""Number of rounds of a run."""
CREDIT = ["flexible", "greedy", "majority"]
"""Abilities of a base model that strict Pass@1 at temperature 1 does not measure, right in any format."""
CELLS = {"32x8": "32x8-paper_text", "32x1": "32x1-minimalist"}
KNOWN = ("tiny-mix97", "tiny-mod97", "tiny-sign97")
"""Reference runs that were known before the zoo: names of their designs, and their pairs."""
FITTED: dict[str, list[str]] = {
    "+ mean": [],
    "+ credit": ["credit"],
    "+ pass@64": ["pass@64"],
    "+ silence": ["silent"],
    "+ size": ["log parameters"],
    "+ task": ["sums and differences"],
    "+ format": ["taught"],
}
"""Linear fits of the gain to the other pre-trainings, with the variables of each: credit minus Pass@1, pass@64 minus
Pass@1, the share of zero-variance groups of 8, the logarithm of the parameters, and the kind of the model."""
SHUFFLES = 1000


def credit_line(label: str) -> np.ndarray:
    """Return slope and intercept of the line from credit to the Pass@1 after ROUNDS of a design, by least squares
    through the reference runs of KNOWN: three points, seeds averaged."""
    runs, bases = shipped_runs(), [shipped_base(name) for name in KNOWN]
    runs = runs[(runs["cell"] == CELLS[label]) & (runs["round"] == ROUNDS)]
    ends = [runs.loc[runs["pair"] == name, "test_pass_at_1"].mean() for name in KNOWN]
    rooms = [base.headroom for base in bases if base.headroom]
    given = [(room.temperatures[-1].value, room.majority[-1].value) for room in rooms]
    own = [max(base.test.flexible.mean() / base.test.samples, *more) for base, more in zip(bases, given, strict=True)]
    return np.polyfit(own, ends, 1)


def predict_ends(pilots: pd.DataFrame) -> pd.DataFrame:
    """Return forecasts of the end from pilots alone, a column each: `stays`, each of CREDIT and the best of them,
    `pass_at_64`, and for each design the line through runs that were known. pilots: a row a model."""
    ends = pilots[[*CREDIT, "pass_at_64"]].assign(stays=pilots["strict"], credit=pilots[CREDIT].max(axis=1))
    for label in DESIGNS:
        ends[f"line_{label}"] = np.clip(np.polyval(credit_line(label), ends["credit"]), 0.0, 1.0)
    return ends


def zoo_models() -> pd.DataFrame:
    """Return a row for each model: its pilot, its forecasts `end_...`, `pretraining`, and the Pass@1 at the end of its
    run with each design, nan where there is none."""
    with (DATA / PREDICTIONS).open("rb") as file:
        models = pd.read_csv(file, comment="#")
    with (DATA / RUNS).open("rb") as file:
        runs = pd.read_csv(file)
    ends = runs[runs["round"] == ROUNDS].pivot(index="model", columns="design", values="test_pass_at_1")
    pretraining = models["task"] + models["format"] + models["size"]
    return models.assign(pretraining=pretraining).join(ends.reindex(columns=list(DESIGNS)), on="model")


def gain_maps(models: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return for each fit of FITTED the matrix (n, n) that maps the gains of n models to their forecasts: least squares
    on the models of other pre-trainings. models: the result of `zoo_models`."""
    features = models[["silent"]].assign(
        **{
            "credit": models["end_credit"] - models["strict"],
            "pass@64": models["pass_at_64"] - models["strict"],
            "log parameters": np.log(models["parameters"]),
            "sums and differences": (models["task"] == "sign97").astype(float),
            "taught": (models["format"] == "taught").astype(float),
            "constant": 1.0,
        }
    )
    maps = {name: np.zeros((len(models), len(models))) for name in FITTED}
    for name, columns in FITTED.items():
        known = features[[*columns, "constant"]].to_numpy()
        for pretraining in models["pretraining"].unique():
            own = (models["pretraining"] == pretraining).to_numpy()
            maps[name][np.ix_(own, ~own)] = known[own] @ np.linalg.pinv(known[~own])
    return maps


def score_zoo(models: pd.DataFrame, label: str) -> pd.DataFrame:
    """Return a row for each forecast of the ends of a design, those that were written before the runs and the base's
    Pass@1 plus each line of FITTED.

    `error` is its mean absolute error and `closer` how much closer than `stays` it is, both as Estimate. `rare` and
    `taught` are the errors of models by format. `shuffled` is the share of SHUFFLES of the gains among models in which
    the error is as small. models: as `zoo_models` returns them.
    """
    models = models[models[label].notna()].reset_index(drop=True)
    base, groups = models["strict"].to_numpy(), models["pretraining"]
    written = {f"end_{name}": name for name in ("stays", *CREDIT, "credit", "pass_at_64")}
    written |= {f"end_line_{label}": "line"}
    fixed, maps, draw = models[list(written)].rename(columns=written), gain_maps(models), np.random.default_rng(0)

    def errors(gains: np.ndarray) -> pd.DataFrame:
        fitted = pd.DataFrame({name: np.clip(base + line @ gains, 0.0, 1.0) for name, line in maps.items()})
        return fixed.join(fitted).sub(base + gains, axis=0).abs()

    gains = models[label].to_numpy() - base
    measured = errors(gains)
    chance = np.array([errors(draw.permutation(gains)).mean() for _ in range(SHUFFLES)])
    return pd.DataFrame(
        {
            "error": [grouped_mean(measured[name], groups) for name in measured],
            "rare": measured[models["format"] == "rare"].mean(),
            "taught": measured[models["format"] == "taught"].mean(),
            "closer": [grouped_mean(measured["stays"] - measured[name], groups) for name in measured],
            "shuffled": (chance <= measured.mean().to_numpy() + 1e-12).mean(axis=0),
        }
    ).rename_axis("forecast")


def show_zoo(console: Console) -> None:
    """Print a table of scores for each design, and the date of the forecasts."""
    models = zoo_models()
    for label in DESIGNS:
        gains = (models[label] - models["strict"]).dropna()
        if len(gains) < len(models):
            say(console, f"(32, {label[3:]}): {len(gains)} of {len(models)} runs are there, too few to score.")
            continue
        numbers = (Column(name, ".3f") for name in ("rare", "taught"))
        table = Table("forecast", "error, 95%", *numbers, "closer than stays", Column("chance", ".2f"))
        for name, row in score_zoo(models, label).iterrows():
            error, closer = (
                f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in (row["error"], row["closer"])
            )
            table.add(str(name), error, row["rare"], row["taught"], closer, row["shuffled"])
        about = f"{len(gains)} models, gain {gains.mean():.3f} with a deviation of {gains.std():.3f}"
        put(console, f"Where (32, {label[3:]}) ends: {about}", table)
    with (DATA / PREDICTIONS).open("rb") as file:
        written = file.readline().decode().strip("# \n")
    for line in (
        f"Errors are mean absolute errors of strict Pass@1. Forecasts without a plus were {written}; the others add "
        "to the base's Pass@1 a line through the other pre-trainings.",
        "rare, taught: models by how often their corpus has the format. chance: share of shuffles of the gains among "
        "models in which the error is as small.",
    ):
        say(console, line)


if __name__ == "__main__":
    show_zoo(Console())
