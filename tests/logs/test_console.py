"""What TRL prints: steps are told by epochs, by progress bars, or by counting; what tells nothing is refused."""

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.formats.trl import values_in
from tests.support.logs.formats import said, trl_console, verl_log


def read(folder, lines):
    (folder / "out.txt").write_text("\n".join(lines) + "\n")
    (run,) = read_logs([folder / "out.txt"])
    return run


def rewards(run):
    return {round_: value for (round_, _, metric), value in said([run]).items() if metric == "reward_mean"}


def lines_of(steps, epochs=None, bars=None):
    """A dictionary a step, with an epoch and a bar before it where they are given."""
    found = []
    for i, step in enumerate(steps):
        found += [f" 1%|# | {bars[i]}/50 [00:10<01:00, 2.0s/it]"] if bars else []
        epoch = f", 'epoch': {epochs[i]}" if epochs else ""
        found.append(f"{{'loss': 0.0, 'grad_norm': nan, 'reward': {step / 100}{epoch}}}")
    return found


EVERY_FIVE = [5, 10, 15, 25, 30]
"""Steps that are logged; one is lost."""


@pytest.mark.parametrize(
    ("epochs", "bars", "steps", "said"),
    [
        ([0.01, 0.02, 0.03, 0.05, 0.06], None, [1, 2, 3, 5, 6], "taken as one update"),
        ([0.01, 0.02, 0.03, 0.05, 0.06], EVERY_FIVE, EVERY_FIVE, "progress bars tell the first"),
        ([0.0, 0.0, 0.01, 0.01, 0.01], EVERY_FIVE, EVERY_FIVE, "those of the progress bar"),
        (None, EVERY_FIVE, EVERY_FIVE, "those of the progress bar"),
        (None, None, [1, 2, 3, 4, 5], "counted"),
        ([0.0, 0.0, 0.01, 0.01, 0.01], None, [1, 2, 3, 4, 5], "counted"),
    ],
)
def test_steps_are_told_by_epochs_then_bars_then_counting(epochs, bars, steps, said, tmp_path):
    run = read(tmp_path, lines_of(EVERY_FIVE, epochs, bars))
    assert list(rewards(run)) == steps and list(rewards(run).values()) == [step / 100 for step in EVERY_FIVE]
    assert any(said in note for note in run.notes) and any("not finite" in note for note in run.notes)


def test_bars_of_evaluations_are_not_those_of_training(tmp_path):
    lines = [line for one in lines_of(EVERY_FIVE, None, EVERY_FIVE) for line in ("100%|##| 2/2 [00:01<00:00]", one)]
    lines = [line for i, line in enumerate(lines) if i % 4 != 2]  # the bar of training stands last, but once
    lines.insert(-1, "100%|##| 2/2 [00:01<00:00]")
    run = read(tmp_path, lines)
    assert list(rewards(run)) == EVERY_FIVE[:-1] and any("1 dictionaries without" in note for note in run.notes)


def test_epochs_that_fall_without_bars_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"line 3: the epoch goes back from 0.02 to 0.0; *|allowed: one run a file"):
        read(tmp_path, lines_of([1, 2, 3, 4], [0.02, 0.02, 0.0, 0.02]))


def test_a_restart_by_its_epochs_counts_once(tmp_path):
    run = read(tmp_path, lines_of([1, 2, 3, 4, 3, 4, 5], [0.01, 0.02, 0.03, 0.04, 0.03, 0.04, 0.05]))
    assert list(rewards(run)) == [1, 2, 3, 4, 5] and any("restart" in note for note in run.notes)


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': __import__('os').system('true'), 'epoch': 0.1}",
        "{'loss': 0.1, 'epoch': ",
        "{'loss': {'a': 1}, 'epoch': 0.1}",
        "{'loss': " + "[" * 100_000,
        "{'" * 100_000,
        "{'loss': '" + "9" * 5000,
    ],
)
def test_what_is_no_dictionary_of_numbers_is_none(line):
    assert values_in(line) is None


def test_texts_in_it_are_left_out_and_numbers_in_quotes_are_read():
    line = "[rank0] {'loss': '1.5', 'kind': 'a text', 'on': True, 'rewards': [1, 2], 'epoch': 2e-05}"
    assert values_in(line) == {"loss": 1.5, "epoch": 2e-05}


def test_the_kind_of_a_log_is_that_of_most_lines(tmp_path):
    for log, stray, form in (
        (trl_console(), "step:3 - critic/score/mean:9.9\n", "TRL console"),
        (verl_log(), "{'loss': 0.5, 'epoch': 0.1}\n", "verl console"),
    ):
        (tmp_path / "mixed.log").write_text(stray + log.text)
        (run,) = read_logs([tmp_path / "mixed.log"])
        assert run.format == form
