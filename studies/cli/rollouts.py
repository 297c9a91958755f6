"""The command line of `rftlab rollouts`: what a run wrote."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check, check_count, check_finite
from rftlab.studies.data.results.order import Order


@dataclass(frozen=True)
class ShowRollouts:
    """Show what a run sampled, the lowest rewards first.

    Or the questions that changed most.

        rftlab rollouts results/train
        rftlab rollouts results/train --by changed --groups 3
        rftlab rollouts results/train --by round --first-round 60 --most-reward 0

    A group is the responses to one prompt in one round. Texts of models and of data are shown as they are, with what a
    terminal would obey written out.
    """

    run: tyro.conf.Positional[Path]
    """Folder of `rftlab train`, or of a run of a study; it may still be running."""
    by: Order = "worst"
    """worst: lowest mean reward first. changed: questions by the change of their mean reward from the first visit to
    the last. round: in order."""
    groups: int = 5
    """Groups, or questions, that are shown."""
    responses: int = 4
    """Responses of each, the best and the worst."""
    first_round: int | None = None
    """No earlier rounds."""
    last_round: int | None = None
    """No later rounds."""
    least_reward: float | None = None
    """No responses with a lower reward."""
    most_reward: float | None = None
    """No responses with a higher reward."""
    prompt: int | None = None
    """One prompt by its number."""
    letters: int = 300
    """Of a text that are shown."""

    def __post_init__(self):
        for name in ("groups", "responses", "letters"):
            check_count(name, getattr(self, name))
        for name in ("first_round", "last_round", "prompt"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 0)
        for name in ("least_reward", "most_reward"):
            if getattr(self, name) is not None:
                check_finite(name, getattr(self, name))
        check(
            None in (self.first_round, self.last_round) or (self.first_round or 0) <= (self.last_round or 0),
            f"first_round = {self.first_round}; allowed: at most last_round = {self.last_round}",
        )

    def execute(self, console: Console) -> int:
        """Print the groups."""
        from rftlab.studies.cli.execute.show_rollouts import show
        from rftlab.studies.data.results.rollouts import RecordFilter

        wanted = RecordFilter(self.first_round, self.last_round, self.least_reward, self.most_reward, self.prompt)
        show(console, self.run, wanted, self.by, self.groups, self.responses, self.letters)
        return 0
