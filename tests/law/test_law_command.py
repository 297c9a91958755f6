"""`rftlab dev law`: what it prints, what it refuses."""

import pytest
from rich.console import Console

from dev import law_scores as run
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.pilot.pilot import pilot_from
from rftlab.studies.forecast.pilot.store import pilot_path, shipped_base, write_measurements
from tests.support.machine.here import rftlab

BAD = [
    ([], "pair and r; allowed: one of the two"),
    (["--r", "-1"], "r = -1.0; allowed: 0 or more, finite"),
    (["--pair", "tiny-mix97", "--r", "0.1"], "pair and r; allowed: one of the two"),
    (["--pair", "tiny-mix97", "--phi", "0.5"], "phi = 0.5; allowed: with --r"),
    (["--r", "0.1", "--phi", "0"], "phi = 0.0; allowed: more than 0, finite"),
    (["--r", "0.1", "--budget", "1"], "budget = 1; allowed: 2 or more"),
    (["--r", "0.1", "--cost.rollout", "0"], "cost of a rollout = 0; allowed: more than 0"),
    (["--r", "0.1", "--cost.prompt-tokens", "-5"], "cost.prompt_tokens = -5.0; allowed: 0 or more, finite"),
    (
        ["--pair", "[bold]x"],
        "pair = '[bold]x' has no pilot in results; allowed: smollm2-largest, smollm2-words, tiny-mix97",
    ),
]


@pytest.mark.parametrize(("arguments", "line"), BAD, ids=lambda value: str(value)[:30])
def test_bad_input_is_one_line(arguments, line):
    status, text = rftlab("dev", "law", *arguments)
    assert status == 2 and text.startswith(f"rftlab: {line}") and text.count("\n") == 1


def test_the_split_of_a_round():
    _, text = rftlab("dev", "law", "--r", 0.04, "--cost.prompt", 4, "--budget", 280)
    rows = [line.split() for line in text.splitlines()]
    assert ["raw", "reward", "10.00", "20", "10", "142.9", "280"] in rows


def test_a_measured_pair():
    _, text = rftlab("dev", "law", "--pair", "tiny-mod97")
    assert text.startswith("half way through the baseline's run, from the pilot's gradients: r = 0.1727 ± 0.07")
    assert "counts as 1" in text
    rows = [line.split() for line in text.splitlines()]
    names = [row[0] for row in rows if len(row) > 5 and row[0][0].isdigit()]
    assert names[0] == "2048x1w8" and names[-1] == "1x256" and len(names) == 25


def test_all_scores_and_the_figure(tmp_path, monkeypatch):
    few = [one for one in run.language_pairs() if one.pair in ("smollm2-largest", "smollm2-words")]
    monkeypatch.setattr(run, "published_pairs", lambda: iter(()))
    monkeypatch.setattr(run, "language_pairs", lambda: iter(few))
    console = Console(record=True, width=80)
    run.score_all(console, tmp_path / "results", True)
    text = console.export_text()
    assert "…" not in text and text.splitlines()[1].split()[-1] == "regret"
    assert "smollm2-largest, test" in text and "no simulated pairs" in text and "1.0000*" in text
    written = {path.name for path in (tmp_path / "results" / "law").iterdir()}
    assert written == {f"{name}.{kind}" for name in ("collapse", "overview") for kind in ("svg", "png", "csv")}


def test_a_pilot_of_the_results_folder_comes_first(tmp_path):
    pilot = pilot_from(shipped_runs(), shipped_base("tiny-mod97"))
    noisy = pilot.base.raw._replace(between=4 * pilot.base.raw.between)
    place = pilot_path(tmp_path, "tiny-mod97")
    write_measurements(place, pilot._replace(base=pilot.base._replace(raw=noisy, ratios=None, midway=None)), {})
    status, text = rftlab("dev", "law", "--pair", "tiny-mod97", "--results", tmp_path)
    assert (
        status == 0
        and text.startswith("base model, ")
        and "r = 0.2" in text
        and "forecast after 600 rounds from 32x1 raw, 32x8" in text
    )
    write_measurements(place, pilot._replace(runs=()), {})
    status, text = rftlab("dev", "law", "--pair", "tiny-mod97", "--results", tmp_path)
    assert status == 0 and "r = 0.1727" in text and "forecast" not in text and "1x256" in text
    place.write_text(place.read_text()[:-40])
    status, text = rftlab("dev", "law", "--pair", "tiny-mod97", "--results", tmp_path)
    assert status == 2 and text.count("\n") == 1 and "damaged" in text
