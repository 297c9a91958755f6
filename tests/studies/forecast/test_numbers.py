"""Single numbers of forecasts and their scores: what one wrong sign or bound would change."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rftlab import Curve, Design, Linear, preset
from rftlab.studies.forecast.evidence import Evidence, Observed, observe_curve
from rftlab.studies.forecast.knobs import SHORT, Facts, answer_rates, as_right
from rftlab.studies.forecast.score.cases import Case, group_cases
from rftlab.studies.forecast.score.score import SOURCES, rank_agreement, score_case, show_scores, summary
from rftlab.studies.readers import read_collection
from tests.support.logs.reading import collection
from tests.support.machine.here import printed

BLUNT = Linear(n_train=256, n_test=32, n_features=32, n_answers=8, kappa=0.2)


def test_the_error_of_a_point_is_binomial():
    rounds = np.arange(0, 50, 10)
    rates = np.array([0.1, 0.2, 0.5, 0.9, 1.0])
    columns = dict.fromkeys(Curve._fields, np.zeros(5)) | {"round": rounds, "train_pass_at_1": rates}
    curve = Curve(**columns | {"test_pass_at_1": rates[::-1].copy()})
    observed_run = observe_curve(Design(8, 1), curve, (400, 100), responses=4)
    inner = np.clip(observed_run.values, 0.01, 0.99)
    np.testing.assert_allclose(observed_run.errors, np.sqrt(inner * (1 - inner) / [1600, 400]))
    assert observed_run.errors[list(observed_run.rounds).index(20), 1] == pytest.approx(0.5 / 20)
    assert observed_run.errors[-1, 0] == pytest.approx(np.sqrt(0.01 * 0.99 / 1600))


def test_where_align_is_too_little_kappa_is_raised_and_where_that_is_too_little_there_is_no_world():
    reach = answer_rates(replace(BLUNT, align=1.0)).mean()
    sharper = as_right(BLUNT, (1 + reach) / 2)
    assert sharper is not None and sharper.align == 1.0 and sharper.kappa > BLUNT.kappa
    assert as_right(BLUNT, 0.999999) is None and as_right(BLUNT, 0.01) is None
    assert Design(8, 3, support_rollouts=2).round_rollouts == 40, "support counts"


CELLS = ("32x8-grpo", "64x8-grpo")


def case_of(truth: pd.DataFrame) -> Case:
    """Two held-out cells, and a known run that rises from 0.1 to 0.5."""
    designs = [Design(size, 8, estimator=preset("grpo"), rounds=200, eval_every=200) for size in (32, 64)]
    rounds, values = np.array([50, 100, 200]), np.repeat([[0.2], [0.3], [0.5]], 2, axis=1)
    run = Observed(Design(8, 8, estimator=preset("grpo"), rounds=200), rounds, values, np.full((3, 2), 0.01))
    evidence = Evidence(Facts(SHORT, 2048, 64, 0.1, 0.5), (run,))
    cells = dict(zip(CELLS, designs, strict=True))
    return Case("planted", evidence, ("8x8-grpo",), cells, {"test": truth}, (2048, 64), simulated=False)


def test_a_truth_is_the_mean_over_seeds_and_coverage_the_share_of_them():
    low, high = (score_case(Path("unused"), case_of(pd.DataFrame([[0.0, 0.0]], columns=CELLS)), 0, 1)[f"law_{end}"]
                 for end in ("low", "high"))  # fmt: skip
    inside = float(low[0] + high[0]) / 2
    truth = pd.DataFrame({CELLS[0]: [inside, inside, 0.0, 0.0], CELLS[1]: [0.1, 0.2, 0.9, np.nan]})
    table = score_case(Path("unused"), case_of(truth), 0, 1)
    assert table["truth"].tolist() == pytest.approx([inside / 2, 0.4])
    assert low[0] > 0 and table["law_covered"][0] == 0.5


@pytest.mark.parametrize(
    ("forecast", "truth", "expected"),
    [
        ([1, 2, 3], [0.1, 0.3, 0.2], 0.5),  # 1 - 6 (0 + 1 + 1) / (3 (9 - 1))
        ([1, 1, 1], [0.3, 0.2, 0.1], 0.0),
        ([1, 2, 3], [0.2, 0.2, 0.2], 0.0),
        ([1, 2], [0.1, 0.2], np.nan),
    ],
)
def test_rank_agreement_is_spearmans_and_none_of_two_cells(forecast, truth, expected):
    assert rank_agreement(pd.Series(forecast), pd.Series(truth)) == pytest.approx(expected, nan_ok=True)


def scored(pair: str, truth: list[float], law: list[float]) -> pd.DataFrame:
    """Scores of a pair whose recommended forecast is right, covered, and whose law covers nothing."""
    table = pd.DataFrame({"pair": pair, "split": "test", "source": "simulator", "truth": truth}).assign(forecast=truth)
    table = table.assign(**(dict.fromkeys(SOURCES[1:], np.nan) | {"law": law}))
    return table.assign(forecast_covered=1.0, law_covered=0.0, simulator_covered=np.nan, cell=[*"abc"][: len(truth)])


def test_pairs_count_alike_and_the_interval_of_an_excess_resamples_their_cells():
    table = pd.concat([scored("one", [0.5], [0.9]), scored("three", [0.2, 0.4, 0.6], [0.2, 0.4, 0.9])])
    over = summary(table).set_index("forecast")
    assert list(over.index) == ["forecast", "law"]
    assert over.loc["law", "mae"] == over.loc["law", "excess"] == pytest.approx((0.4 + 0.3 / 3) / 2)
    assert over.loc["forecast", "mae"] == 0 and over["covered"].tolist() == [1, 0]
    # Of three cells with excesses 0, 0 and 1 all are the third once in 27 draws: beyond 2.5%, within 5%.
    for truth, law in (([0.0] * 3, [0.0, 0.0, 1.0]), ([0.0] * 2, [0.0, 1.0])):
        row = summary(scored("pair", truth, law)).set_index("forecast").loc["law"]
        assert (row["excess_low"], row["excess_high"]) == (0.0, 1.0)


def test_printed_errors_are_means_over_cells_and_the_coverage_that_of_the_recommended_forecast():
    table = scored("three", [0.2, 0.4, 0.6], [0.2, 0.4, 0.9])
    lines = [line.split() for line in printed(show_scores, table, summary(table), width=100).splitlines()]
    assert ["law", "0.100"] in lines and ["80%", "covers", "100%"] in lines and ["cells", "3"] in lines


def cases_in(folder: Path, runs: dict[str, tuple[dict[int, float], dict]]) -> list[Case]:
    """Cases of runs, each its test values by round and what is known of it."""
    facts = {"prompts_per_round": 32, "rollouts_per_prompt": 8, "updates_per_round": 1, "advantage": "group_mean"}
    known = {name: facts | own for name, (_, own) in runs.items()}
    results = collection(folder, "c", {name: {"t": curve} for name, (curve, _) in runs.items()}, known)
    return group_cases("c", read_collection(results, "c"))


LONG, BRIEF = {0: 0.1, 10: 0.2, 20: 0.3, 40: 0.5}, {0: 0.1, 10: 0.25, 20: 0.4}


def test_of_designs_that_cost_alike_the_longest_is_known(tmp_path):
    wide = {"prompts_per_round": 64, "rollouts_per_prompt": 4}
    (case,) = cases_in(tmp_path, {"brief": (BRIEF, {}), "long": (LONG, wide)})
    assert case.known == ("64x4",) and list(case.cells) == ["32x8"] and case.cells["32x8"].rounds == 20
    assert case.truth["test"]["32x8"].tolist() == [0.4]
    (tmp_path / "part").mkdir()
    part = {"rollouts_per_prompt": 64, "advantage": "group_mean on 16 of 64"}  # it counts as the part
    (case,) = cases_in(tmp_path / "part", {"a": (LONG, {}), "b": (LONG, part)})
    assert [(cell.batch_size, cell.rollouts) for cell in case.cells.values()] == [(32, 16)]


def test_the_end_of_repeats_is_at_a_round_that_all_reached_and_of_those_that_were_measured_by_then(tmp_path):
    curves = {"b0": BRIEF, "b1": {0: 0.1, 10: 0.2, 30: 0.6}, "b2": {30: 0.6, 60: 0.9}}
    runs = {name: (curve, {"prompts_per_round": 64, "repeats": "b"}) for name, curve in curves.items()}
    (case,) = cases_in(tmp_path, {"a": (LONG, {})} | runs)
    (column,) = case.truth["test"].columns
    assert case.cells[column].rounds == 20 and case.truth["test"][column].tolist() == pytest.approx([0.4, 0.4])
