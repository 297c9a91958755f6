"""Paces of designs from curves of imported runs: what is planted is found."""

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from dev.paces import RATIOS, believed_ratio, fit_paces, show_imported
from rftlab.shared.effective_batch import NoiseRatios
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.imported.groups import Group
from rftlab.studies.forecast.forecasters import design_pace
from rftlab.studies.forecast.imported import simulated_design
from rftlab.studies.readers.run import KnownDesign


def group(prompts: int, rollouts: int, ratio: float, power: float | None = None, rounds: int = 400) -> Group:
    """A curve from .1 to .6 whose pace is the law's at r / phi, or B^power; a little noise."""
    known = KnownDesign(prompts, rollouts, 1, 1e-6, "group_mean", model="m")
    at = np.arange(0, rounds + 1, 20)
    empty = Group("", known, "t", ("a",), pd.DataFrame(), None)
    pace = design_pace(simulated_design(empty, rounds), NoiseRatios(ratio)) if power is None else prompts**power
    values = 0.6 / (1 + 5 * np.exp(-((0.02 * at * pace) ** 0.7)))
    values += 0.004 * np.random.default_rng(prompts * 100 + rollouts).standard_normal(len(at))
    curves = pd.DataFrame({"run": "a", "round": at, "value": values, "n": 1000.0})
    return empty._replace(label=f"{prompts}x{rollouts}", curves=curves)


@pytest.mark.parametrize("ratio", [0.0, RATIOS[7], RATIOS[10]])
def test_the_planted_ratio_is_found_from_the_rollouts(ratio):
    fit = fit_paces([group(32, k, ratio) for k in (2, 8, 64)])
    believed = believed_ratio([fit.profile])
    assert believed.low <= ratio <= believed.high and believed.high < 10 * ratio + 0.1
    law = [design_pace(one, NoiseRatios(ratio)) for one in fit.designs]
    np.testing.assert_allclose(fit.paces, np.array(law) / law[0], rtol=0.1)
    assert fit.squares["law"] < 0.5 * fit.squares["no difference"]


def test_the_planted_power_of_the_batch_is_found_and_says_nothing_of_r():
    fit = fit_paces([group(b, 8, 0.0, power=0.3) for b in (8, 64, 512)])
    assert fit.powers["B"].low < 0.3 < fit.powers["B"].high < 0.45 and list(fit.powers) == ["B"]
    assert np.isnan(fit.profile).all()


def test_one_design_says_nothing(tmp_path):
    with pytest.raises(UserError, match="one B and K"):
        fit_paces([group(32, 8, 0.0), group(32, 8, 0.0)])
    with pytest.raises(UserError, match="no two designs"):
        show_imported(Console(quiet=True), "public:pods", tmp_path)
