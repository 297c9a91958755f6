"""Describe the request of a study, and read and write its record in a results folder."""

import hashlib
from pathlib import Path
from typing import NamedTuple

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below, path_kind
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import Level, start_at, usual_pairs
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.files import checksummed, read_checksummed
from rftlab.studies.data.runs.limits import CHANGED_PARTS, check_size
from rftlab.studies.data.runs.points import Changes, RunSpec, canonical, changed, study_points


class Study(NamedTuple):
    """Request of a study, kept in the results folder so that the report can be made again."""

    level: Level
    pairs: list[str]
    seeds: int
    rounds: int | None
    """Number of rounds of every run; None for each pair's own."""
    whole_sets: bool = False
    """Whether language models are evaluated on all questions, as in the paper."""
    changes: Changes | None = None
    """Settings that differ from those of each pair; None where no setting does."""

    @property
    def changed(self) -> str:
        """Changed settings in words; "" where nothing is changed."""
        return ", ".join(f"{name} = {value}" for name, value in (self.changes or {}).items())

    def folder(self, root: Path) -> Path:
        """Return the results folder of the study: `root`, or with changed settings a folder below it for these
        changes."""
        if not self.changes:
            return root
        return folder_below(root, f"changed-{hashlib.sha256(canonical(self.changes)).hexdigest()[:8]}")

    def points(self) -> list[RunSpec]:
        """Return every run of the study."""
        return study_points(
            list(EXPERIMENTS.values()), self.level, self.pairs, self.seeds, self.rounds, self.whole_sets, self.changes
        )


def study_path(root: Path, level: Level) -> Path:
    """Return the file in which a results folder keeps the request of its study of a level."""
    return root / f"study-{level}.json"


def has_study(root: Path, level: Level) -> bool:
    """Whether a results folder has the record of a study of a level, readable or not."""
    return path_kind(study_path(root, level)) is not None


def checked_study(
    level: Level,
    pairs: list[str],
    seeds: int,
    rounds: int | None,
    whole_sets: bool = False,
    changes: Changes | None = None,
) -> Study:
    """Return a study whose settings were checked; without pairs, one of the level's usual pairs. Raises UserError."""
    pairs = pairs or list(usual_pairs(level))
    for name in pairs:
        changed(start_at(name, level), changes or {})
    check(len(set(pairs)) == len(pairs), f"pairs: {', '.join(pairs)} names one twice")
    check_size(seeds, rounds)
    check(
        not whole_sets or level == "llm",
        f"whole_sets with level {level}: the simulator evaluates on all contexts anyway; allowed: with --level llm",
    )
    return Study(level, pairs, seeds, rounds, whole_sets, changes or None)


def write_study(root: Path, study: Study) -> None:
    """Write the request of a study into a results folder."""
    facts = study._asdict()
    if not study.changes:  # keeps the record equal to those from before studies could change settings
        del facts["changes"]
    write_file(study_path(root, study.level), checksummed(facts, study.level))


def read_study(root: Path, level: Level) -> Study:
    """Return the study of a level that a results folder holds. Raises UserError, which names the file, where there is
    none or it is not readable."""
    store.check_format(root)
    manifest = study_path(root, level)
    try:
        study = Study(**read_checksummed(manifest, level))
        _check_kinds(study, level)
        return checked_study(*study)
    except (OSError, ValueError, TypeError, UserError) as error:
        raise UserError(
            f"{manifest} cannot be read ({error}); run `rftlab reproduce --level {level} --results {root}` first"
        ) from None


def _check_kinds(study: Study, level: Level) -> None:
    """Raise UserError where a field of a stored request cannot be one that `reproduce` wrote."""
    check(study.level == level, f"level; allowed: {level}")
    check(
        isinstance(study.pairs, list) and all(isinstance(name, str) for name in study.pairs),
        "pairs; allowed: a list of names",
    )
    check(type(study.seeds) is int, "seeds; allowed: a whole number")
    check(study.rounds is None or type(study.rounds) is int, "rounds; allowed: a whole number or null")
    check(isinstance(study.whole_sets, bool), "whole_sets; allowed: true, false")
    check(
        isinstance(study.changes, dict | None)
        and all(name.partition(".")[0] in CHANGED_PARTS for name in study.changes or {}),
        f"changes; allowed: values of fields of {', '.join(CHANGED_PARTS)}",
    )
