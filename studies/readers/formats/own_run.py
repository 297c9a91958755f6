"""A folder of `rftlab train`: curve.parquet and metrics.parquet, with config.json for the design."""

from pathlib import Path

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import FILE, kind_of, read_json
from rftlab.studies.readers.formats.tidy import read_parquet
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head

FORMAT, CURVE, METRICS, CONFIG = "rftlab train", "curve.parquet", "metrics.parquet", "config.json"
_OURS = {"seconds": "train.elapsed_seconds", "reward": "train.reward_mean", "train_pass_at_1": "train.train_pass_at_1"}
"""train_pass_at_1 is an evaluation on training questions after the round, not the mean reward of its batch, so it
keeps its name."""


def recognise(head: Head) -> bool:
    """Whether it is the curve in such a folder."""
    return head.path.name == CURVE and kind_of(head.path.parent / CONFIG) == FILE


def files_of(folder: Path) -> list[Path]:
    """Its files; [] where the folder is none."""
    names = (CURVE, METRICS, CONFIG)
    return (
        [folder / name for name in names if kind_of(folder / name) == FILE] if kind_of(folder / CURVE) == FILE else []
    )


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run whose curve this is."""
    run = RawRun(path.resolve().parent.name, FORMAT, tool="rftlab", place="row", aliases=dict(_OURS))
    for name in (CURVE, METRICS):
        place = path.parent / name
        if kind_of(place) != FILE:
            continue
        (found,) = read_parquet(place, {"step": "round"}, with_runs=False)
        run.series |= {key: series for key, series in found.series.items() if key not in run.series and key != "seed"}
    try:
        config = read_json(path.parent / CONFIG) if kind_of(path.parent / CONFIG) == FILE else None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path.parent / CONFIG} cannot be read: {error}; allowed: the file that rftlab train wrote"
        ) from None
    run.config = config if isinstance(config, dict) else None
    return [run]
