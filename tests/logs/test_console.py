"""What TRL prints: steps are told by epochs, by progress bars, or by counting; what tells nothing is refused."""

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.formats.trl import values_in
from tests.support.logs.formats import trl_console, verl_log
from tests.support.logs.reading import run_of, values


def lines_of(steps, epochs=None, bars=None):
    """A dictionary a step, with an epoch and a bar before it where they are given."""
    lines = []
    for i, step in enumerate(steps):
        lines += [f" 1%|# | {bars[i]}/50 [00:10<01:00, 2.0s/it]"] if bars else []
        epoch = f", 'epoch': {epochs[i]}" if epochs else ""
        lines.append(f"{{'loss': 0.0, 'grad_norm': nan, 'reward': {step / 100}{epoch}}}")
    return lines


def steps_of(folder, lines):
    """The rounds of the rewards of these lines, and all notes."""
    run = run_of(folder, "\n".join(lines) + "\n", "out.txt")
    return values([run], "reward_mean"), " | ".join(run.notes)


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
    rewards, notes = steps_of(tmp_path, lines_of(EVERY_FIVE, epochs, bars))
    assert rewards == dict(zip(steps, [step / 100 for step in EVERY_FIVE], strict=True))
    assert said in notes and "not finite" in notes


def test_bars_of_evaluations_are_not_those_of_training(tmp_path):
    lines = [line for one in lines_of(EVERY_FIVE, None, EVERY_FIVE) for line in ("100%|##| 2/2 [00:01<00:00]", one)]
    lines = [line for i, line in enumerate(lines) if i % 4 != 2]  # the bar of training stands last, but once
    lines.insert(-1, "100%|##| 2/2 [00:01<00:00]")
    rewards, notes = steps_of(tmp_path, lines)
    assert list(rewards) == EVERY_FIVE[:-1] and "1 dictionaries without" in notes


def test_epochs_that_fall_are_refused_and_those_of_a_restart_count_once(tmp_path):
    with pytest.raises(UserError, match=r"line 3: the epoch goes back from 0.02 to 0.0; *|allowed: one run a file"):
        steps_of(tmp_path, lines_of([1, 2, 3, 4], [0.02, 0.02, 0.0, 0.02]))
    rewards, notes = steps_of(tmp_path, lines_of([1, 2, 3, 4, 3, 4, 5], [0.01, 0.02, 0.03, 0.04, 0.03, 0.04, 0.05]))
    assert list(rewards) == [1, 2, 3, 4, 5] and "restart" in notes


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("{'loss': __import__('os').system('true'), 'epoch': 0.1}", None),
        ("{'loss': 0.1, 'epoch': ", None),
        ("{'loss': {'a': 1}, 'epoch': 0.1}", None),
        ("{'loss': " + "[" * 100_000, None),
        ("{'" * 100_000, None),
        ("{'loss': '" + "9" * 5000, None),
        ("[0] {'loss': '1.5', 'kind': 'text', 'on': True, 'x': [1, 2], 'epoch': 2e-05}", {"loss": 1.5, "epoch": 2e-05}),
    ],
)
def test_of_a_dictionary_the_numbers_are_read_and_nothing_runs(line, numbers):
    assert values_in(line) == numbers


def test_the_kind_of_a_log_is_that_of_most_lines(tmp_path):
    for log, stray, form in (
        (trl_console(), "step:3 - critic/score/mean:9.9\n", "TRL console"),
        (verl_log(), "{'loss': 0.5, 'epoch': 0.1}\n", "verl console"),
    ):
        assert run_of(tmp_path, stray + log.text, "mixed.log").format == form
