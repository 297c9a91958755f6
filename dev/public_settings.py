"""Count the outcomes of settings of public runs: `python -m dev.public_settings FOLDER..` writes the table with which
`rftlab check` and `rftlab advise` compare.

A folder has runs.csv and curves.csv. A row counts the runs of a source that share model, adapter, precision, B, K,
updates, learning rate and KL coefficient, train with a baseline and were evaluated after round 0. It has the number of
failed runs, and the mean end over that of the source's best row, on the task that most runs were tested on.
"""

import sys
from pathlib import Path

import pandas as pd

from rftlab.shared.plumbing.files import write_file
from rftlab.studies.analysis.public.settings import SETTINGS
from rftlab.studies.analysis.public.store import DATA
from rftlab.studies.forecast.law.limits import FALLEN
from rftlab.studies.readers.designs.values import weight_precision

KEYS = ["source", "model", "billions", "lora", "precision", "prompts", "rollouts", "updates", "rate", "kl"]
OTHER = ("prompt", "subset_rule")
"""Variations of runs that do not concern these settings: the prompt, and the responses that are trained on."""


def read_ends(folder: Path) -> pd.DataFrame:
    """Return one row per run with its settings, its best and its last test Pass@1."""
    runs = pd.read_csv(folder / "runs.csv", dtype={"kl_coefficient": str}).rename(
        columns={"prompts_per_round": "prompts", "rollouts_per_prompt": "rollouts", "updates_per_round": "updates",
                 "learning_rate": "rate"})  # fmt: skip
    other = runs["varied"].isin(OTHER) | runs["advantage"].isin(["raw", "none"])
    runs = runs[~other & runs["rate"].notna()]
    runs["billions"] = runs["model_parameters"].str.removesuffix("B").astype(float)
    runs["lora"] = runs["adapter"].fillna("").str.contains("lora").astype(int)
    text = runs["precision"] if "precision" in runs else pd.Series("", index=runs.index)
    runs["precision"] = [weight_precision(one) or "" for one in text.fillna("")]
    runs["kl"] = runs["kl_coefficient"].str.extract(r"^([\d.e-]+)", expand=False).astype(float)
    curves = pd.read_csv(folder / "curves.csv", low_memory=False)
    tested = (curves["split"] == "test") & (curves["metric"] == "pass_at_1") & (curves["round"] > 0)
    rows = curves[tested].merge(runs[["run_id", "source"]], on="run_id")
    usual = rows.groupby(["source", rows["task"].fillna("")])["run_id"].nunique().groupby("source").idxmax().str[1]
    rows = rows[rows["task"].fillna("") == rows["source"].map(usual)].sort_values("round")
    scores = rows.groupby("run_id")["value"].agg(best="max", end="last")
    return runs.merge(scores, left_on="run_id", right_index=True)


def count_settings(ends: pd.DataFrame) -> pd.DataFrame:
    """Return runs, failed runs and relative ends of every setting. A run failed if it ends below FALLEN of its own
    best, or of the best run of its source and model at the same or a lower rate."""
    fell = []
    for run in ends.itertuples():
        own = ends[(ends["source"] == run.source) & (ends["model"] == run.model) & (ends["rate"] <= run.rate)]
        fell.append(run.end < FALLEN * max(run.best, own["end"].max()))
    ends = ends.assign(failed=fell)
    table = ends.groupby(KEYS, dropna=False).agg(runs=("end", "size"), failed=("failed", "sum"),
                                             end=("end", "mean"), reference=("commit", "first"))  # fmt: skip
    table = table.reset_index()
    table["end"] /= table.groupby(["source", "model"])["end"].transform("max")
    return table


def main(folders: list[str]) -> None:
    """Write the table."""
    ends = pd.concat([read_ends(Path(folder)) for folder in folders])
    table = count_settings(ends)
    for name in ("prompts", "rollouts", "updates"):
        table[name] = table[name].astype("Int64")
    content = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_file(Path(str(DATA)) / SETTINGS, content.encode())


if __name__ == "__main__":
    main(sys.argv[1:])
