"""The command line of `rftlab import`: other people's training logs."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check, check_count, check_finite


@dataclass(frozen=True)
class Import:
    """Read training logs of other tools and keep them.

    Logs of verl, TRL, W&B, Trackio, TensorBoard or tables of your own.

        rftlab import run.log                                # recognised by its content
        rftlab import exports/*.csv --name sweep             # several runs, one collection
        rftlab import mine.csv --columns step=iter pass_at_1=accuracy
        rftlab import --config grpo.yaml --processes 8       # what are my B and K?

    Prints what was found, the design in our terms, what could not be told, and every repair. Runs lie in
    RESULTS/imported/NAME.
    """

    paths: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Logs, or folders of them."""
    name: str | None = None
    """Name of the collection; that of the first path if left out."""
    columns: tuple[str, ...] = ()
    """Columns that are not recognised: step=NAME run=NAME pass_at_1=NAME reward=NAME, any metric of ours;
    train.pass_at_1=NAME for the train split."""
    config: Path | None = None
    """The run's configuration, where the log holds none: verl's or TRL's; alone it is only explained."""
    reader: str | None = None
    """FILE.py:FUNCTION of your own, which gets a path and returns rftlab.studies.readers.RawRun; that file is run."""
    repeats: tuple[str, ...] = ()
    """Runs that repeat one design with other seeds, by name, * for any letters: 'grpo-s*'. Without configurations
    nothing else tells, and names decide nothing."""
    results: Path = Path("results")
    """Results folder."""
    processes: int | None = None
    """World size, which TRL's batch depends on and its arguments do not hold."""
    prompts: int | None = None
    """B, prompts of a round, where you know it; this and those below outrank the configuration."""
    rollouts: int | None = None
    """K, responses to each prompt."""
    updates: int | None = None
    """Optimiser updates a round."""
    learning_rate: float | None = None
    """Of the policy."""
    advantage: str | None = None
    """raw, group_mean, group_zscore, or another name."""
    loss: str | None = None
    """In words."""

    def __post_init__(self):
        for name in ("processes", "prompts", "rollouts", "updates"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.learning_rate is not None:
            check_finite("learning_rate", self.learning_rate, above=0.0)
        check(
            bool(self.paths) or self.config is not None,
            "paths names none; allowed: one or more logs, or --config FILE to explain a configuration",
        )

    def execute(self, console: Console) -> int:
        """Read, print, keep."""
        from rftlab.studies.console.table import say
        from rftlab.studies.readers.read import read_logs
        from rftlab.studies.readers.repeats import describe_unmarked, mark_repeats
        from rftlab.studies.readers.show import show_runs
        from rftlab.studies.readers.store import check_name, name_for, write_collection

        if not self.paths and self.config is not None:
            self._explain(console, self.config)
            return 0
        name = check_name(self.name or name_for(self.paths[0]))
        runs = read_logs(self.paths, _columns(self.columns), self._reader(), self._given(), self.config, self.processes)
        runs = mark_repeats(runs, self.repeats)
        show_runs(console, runs)
        if apart := describe_unmarked(runs):
            say(console, apart, "dim")
        new = write_collection(self.results, name, runs)
        say(console, f"{'kept in' if new else 'unchanged:'} {self.results / 'imported' / name}", "dim")
        return 0

    def _explain(self, console: Console, file: Path) -> None:
        """What a configuration says, in our terms."""
        from rftlab.studies.console.table import say
        from rftlab.studies.readers.designs import detect_trainer, read_design
        from rftlab.studies.readers.designs.config_file import read_config
        from rftlab.studies.readers.run import merge_designs
        from rftlab.studies.readers.show import show_design

        config = read_config(file)
        design, notes = read_design(config, "", self.processes)
        show_design(
            console, merge_designs(self._given(), design), f"{file.name} ({detect_trainer(config) or 'unknown'})"
        )
        for note in notes:
            say(console, f"  note: {note}", "dim")

    def _given(self):
        """What the flags say of the design."""
        from rftlab.studies.readers.run import KnownDesign

        return KnownDesign(self.prompts, self.rollouts, self.updates, self.learning_rate, self.advantage, self.loss)

    def _reader(self):
        """The user's own function; None where none is named."""
        from rftlab.studies.readers.read import load_reader

        return load_reader(self.reader) if self.reader else None


def _columns(pairs: tuple[str, ...]) -> dict[str, str]:
    """step=NAME and so on, as a mapping."""
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    wrong = [pair for pair in pairs if "=" not in pair or not all(pair.split("=", 1))]
    check(not wrong, f"columns = {wrong[:1]}; allowed: WHAT=COLUMN, such as step=iter or pass_at_1=accuracy")
    check(len(found) == len(pairs), f"columns = {' '.join(pairs)}; allowed: one column for each")
    return found
