"""Where a curve may begin: pairs of the simulator, and simulations that were calibrated to a pilot or to imported runs.

A calibration is many parameter sets; the explorer takes the one with the largest weight. One that is not finished is
left out, because finishing it takes minutes. Modules that read them are imported where a results folder is named, so
that the page appears soon.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from rftlab.llm.config import LLMRun
from rftlab.shared.plumbing.errors import UserError, check_choice
from rftlab.shared.plumbing.folders import below, folders_in, path_kind, read_file
from rftlab.sim.config import Simulation
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at, start_at

if TYPE_CHECKING:
    from rftlab.studies.forecast.evidence import Evidence

CALIBRATED = "calibrated:"
PLAIN = "qwen-gsm8k"
"""The pair whose flags a copied command starts from where the start is none."""
SEED = 0
"""The seed of the calibrations that are looked for: that of `rftlab predict` without --seed."""
_calibrated: dict[str, Simulation] = {}
"""Calibrations of the results folder that was named; set once, before pages are served."""


def start_names() -> tuple[str, ...]:
    """All starts there are."""
    return (*pairs_at("sim"), *_calibrated)


def start_named(name: str) -> Simulation:
    """The simulation of that name. Raises UserError for another."""
    check_choice("start", name, start_names())
    return _calibrated[name] if name in _calibrated else start_at(name, "sim")


def plain_pair(name: str) -> str:
    """The pair of the simulator whose flags come nearest to a start."""
    return PLAIN if name in _calibrated else name


def model_behind(name: str) -> LLMRun | None:
    """The run of a language model behind a start; None where it is no pair of ours."""
    pair = PAIRS.get(name.removeprefix(CALIBRATED))
    return pair.llm if pair else None


def take_calibrations(root: Path) -> list[str]:
    """Make the finished calibrations of a results folder starts; returns what is wrong with the others."""
    wrong = []
    _calibrated.clear()
    for folder in folders_in(below(root, "calibrate")):
        try:
            best = _best(root, folder.name)
        except UserError as error:
            wrong.append(f"{folder.name}: {error}")
            continue
        if best is None:
            wrong.append(f"{folder.name}: not finished, or of another pilot; `rftlab predict` goes on with it")
        else:
            _calibrated[f"{CALIBRATED}{folder.name}"] = best
    return wrong


def _evidence(root: Path, name: str) -> "Evidence":
    from rftlab.studies.forecast.evidence import pilot_evidence
    from rftlab.studies.forecast.forecast import find_pilot
    from rftlab.studies.forecast.imported import imported_evidence

    if name in PAIRS:
        return pilot_evidence(find_pilot(root, name))
    return imported_evidence(f"imported:{name.removeprefix('imported-')}", root).evidence


def _best(root: Path, name: str) -> Simulation | None:
    """The parameter set with the largest weight; None where the calibration is not finished."""
    from rftlab.studies.forecast.calibrate import calibrated, identity

    evidence = _evidence(root, name)
    path = below(root, "calibrate", name, f"{identity(evidence, SEED)}.bin")
    if not path_kind(path) or len(read_file(path)) < 32 + 8 * evidence.facts.family.effort.total:
        return None
    posterior = calibrated(root, name, evidence, SEED, 1, lambda *_: None, lambda _: None)
    return posterior.simulation(int(posterior.weights.argmax()))
