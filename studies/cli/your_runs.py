"""The commands about runs that exist: check, import, diagnose, compare, report."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import MAX_SEED, check, check_count, check_finite, plain
from rftlab.studies.cli.common import Common, check_named
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.pairs import Level
from rftlab.studies.data.runs.limits import check_size

if TYPE_CHECKING:
    from rftlab.studies.readers.run import KnownDesign

AxisName = Literal["rounds", "fraction", "rollouts", "tokens", "seconds"]


@dataclass(frozen=True)
class CheckRun:
    """Say what your batch is, if a run is healthy, what to try.

    From a configuration, a log, or both: of verl, TRL, OpenRLHF, slime, W&B, and whatever else rftlab import reads.

        rftlab check grpo.json --model Qwen/Qwen3-1.7B --processes 1
        rftlab check grpo.json trainer_output --rounds 500
        rftlab check imported:mine --evidence

    Nothing in a file is run, and nothing is downloaded.
    """

    paths: tyro.conf.Positional[tuple[str, ...]] = ()
    """A configuration, logs of its run, imported:NAME or public:SOURCE."""
    model: str = ""
    """Model: a name, a folder with a config.json, or a number of parameters (1.7B); that of the files if left out."""
    gpus: str = ""
    """GPUs as COUNTxNAME, of A100-40, A100-80, H100, H200; 1xH100 if left out."""
    rounds: int | None = None
    """Steps that the run will have; those of the configuration, else twice those of the log, if left out."""
    processes: int | None = None
    """World size, which TRL's batch depends on and its arguments do not hold; the number of --gpus if left out."""
    prompt_tokens: int | None = None
    """Mean tokens of a prompt."""
    response_tokens: int | None = None
    """Mean tokens of a response; those of the log if left out."""
    questions: int | None = None
    """Questions of an evaluation, where the log does not say."""
    evidence: bool = False
    """Print what each sentence rests on."""
    page: bool = False
    """Write RESULTS/check-NAME/check.html, check.csv and check.json."""
    results: Path = Path("results")
    """Results folder."""

    def __post_init__(self):
        check(bool(self.paths), "no file is named; allowed: a configuration, a log, or both")
        check_named(self, ("rounds", "processes", "prompt_tokens", "response_tokens", "questions"), check_count)

    def execute(self, console: Console) -> int:
        """Read, judge, print, and write the page."""
        from rftlab.studies.forecast.checkup.page import make_sections, show_sections, write_check
        from rftlab.studies.forecast.checkup.subject import Asked, read_subject

        asked = Asked(**{name: getattr(self, name) for name in Asked._fields})
        subject = read_subject(self.paths, self.results, asked)
        sections = make_sections(subject)
        show_sections(console, sections, self.evidence)
        if self.page:
            say(console, f"page: {write_check(subject, sections, self.results)}")
        return 0


@dataclass(frozen=True)
class Import:
    """Read training logs of other tools and keep them.

    Logs of verl, TRL, W&B, Trackio, TensorBoard or tables of your own.

        rftlab import run.log                                # recognised by its content
        rftlab import exports/*.csv --name sweep             # several runs, one collection
        rftlab import mine.csv --columns step=iter pass_at_1=accuracy
        rftlab import --config grpo.yaml --processes 8       # what are my B and K?

    Prints what was found, the design in rftlab's terms, what is unknown, and every repair. Runs lie in
    RESULTS/imported/NAME.
    """

    paths: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Logs, or folders of them."""
    name: str | None = None
    """Name of the collection; that of the first path if left out."""
    columns: tuple[str, ...] = ()
    """Columns that are not recognised: step=NAME run=NAME pass_at_1=NAME reward=NAME, any metric of rftlab;
    train.pass_at_1=NAME for the train split."""
    config: Path | None = None
    """File with the run's configuration, where the log holds none: verl's or TRL's. Alone it is only explained."""
    reader: str | None = None
    """FILE.py:FUNCTION of your own reader: it gets a path, returns rftlab.studies.readers.RawRun, and is run."""
    repeats: tuple[str, ...] = ()
    """Names of runs that repeat one design with other seeds, * for any letters: 'grpo-s*'. Needed where runs have no
    configurations, since names alone do not count."""
    results: Path = Path("results")
    """Results folder."""
    processes: int | None = None
    """World size, which TRL's batch depends on and its arguments do not hold."""
    prompts: int | None = None
    """B: prompts of a round, where you know it; this flag and those below outrank the configuration."""
    rollouts: int | None = None
    """K: responses to each prompt."""
    updates: int | None = None
    """Optimiser updates a round."""
    learning_rate: float | None = None
    """Learning rate of the policy."""
    advantage: str | None = None
    """Advantage: raw, group_mean, group_zscore, or another name."""
    loss: str | None = None
    """Surrogate and how tokens are averaged, in words."""

    def __post_init__(self):
        check_named(self, ("processes", "prompts", "rollouts", "updates"), check_count)
        check_named(self, ("learning_rate",), check_finite, above=0.0)
        check(
            bool(self.paths) or self.config is not None,
            "paths names none; allowed: one or more logs, or --config FILE to explain a configuration",
        )

    def execute(self, console: Console) -> int:
        """Read, print, keep."""
        from rftlab.studies.readers.assemble import describe_unmarked, mark_repeats
        from rftlab.studies.readers.read import load_reader, read_logs
        from rftlab.studies.readers.run import KnownDesign
        from rftlab.studies.readers.show import show_runs
        from rftlab.studies.readers.store import check_name, name_for, write_collection

        told = (self.prompts, self.rollouts, self.updates, self.learning_rate, self.advantage, self.loss)
        given = KnownDesign(*told)
        if not self.paths and self.config is not None:
            self._explain(console, self.config, given)
            return 0
        name = check_name(self.name or name_for(self.paths[0]))
        reader = load_reader(self.reader) if self.reader else None
        runs = read_logs(self.paths, self._named_columns(), reader, given, self.config, self.processes)
        runs = mark_repeats(runs, self.repeats)
        show_runs(console, runs)
        if apart := describe_unmarked(runs):
            say(console, apart, "dim")
        new = write_collection(self.results, name, runs)
        say(console, f"{'kept in' if new else 'unchanged:'} {self.results / 'imported' / name}", "dim")
        return 0

    def _explain(self, console: Console, file: Path, given: "KnownDesign") -> None:
        """Print what a configuration says, in rftlab's terms."""
        from rftlab.studies.readers.designs import detect_trainer, read_design
        from rftlab.studies.readers.designs.config_file import read_config
        from rftlab.studies.readers.run import merge_designs
        from rftlab.studies.readers.show import show_design

        config = read_config(file)
        design, notes = read_design(config, "", self.processes)
        show_design(console, merge_designs(given, design), f"{file.name} ({detect_trainer(config) or 'unknown'})")
        for note in notes:
            say(console, f"  note: {note}", "dim")

    def _named_columns(self) -> dict[str, str]:
        """Return the pairs WHAT=COLUMN of --columns as a mapping. Raises UserError for others."""
        named = dict(pair.split("=", 1) for pair in self.columns if "=" in pair)
        wrong = [pair for pair in self.columns if "=" not in pair or not all(pair.split("=", 1))]
        check(not wrong, f"columns = {wrong[:1]}; allowed: WHAT=COLUMN, such as step=iter or pass_at_1=accuracy")
        repeated = len(named) < len(self.columns)
        check(not repeated, f"columns = {' '.join(self.columns)}; allowed: one column for each")
        return named


@dataclass(frozen=True)
class Diagnose:
    """Say what is going on in a run, and what to try.

    Each finding comes with its evidence and its threshold, alarms with how often they were right on public runs.

        rftlab diagnose run.log                  # any log that rftlab import reads
        rftlab diagnose runs/first               # a folder of rftlab train, or of a simulated run
        rftlab diagnose imported:sweep#lr1e-5    # one run of a collection
        rftlab diagnose imported:sweep           # a line for each of its runs

    Checks that the log does not allow are listed, not judged.
    """

    runs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Logs, folders of runs, imported:NAME or public:SOURCE; #RUN behind it picks one of several runs."""
    results: Path = Path("results")
    """Results folder of imported:NAME."""
    questions: int | None = None
    """Questions of an evaluation, where the log does not say."""
    claim: float | None = None
    """Difference of Pass@1 that the evaluation should show; that of its first and its last value if left out."""

    def __post_init__(self):
        check(bool(self.runs), "no run is named; allowed: a log, a folder, imported:NAME or public:SOURCE")
        check_named(self, ("questions",), check_count)
        check_named(self, ("claim",), check_finite, above=0.0)
        check(self.claim is None or self.claim <= 1, f"claim = {self.claim}; allowed: above 0, at most 1")

    def execute(self, console: Console) -> int:
        """Read, judge, print: of one run everything, of several a line each."""
        from rftlab.studies.analysis.diagnose import diagnose, show_diagnosis
        from rftlab.studies.analysis.source import named_runs

        runs = [run for named in self.runs for run in named_runs(named, self.results)]
        for run in runs:
            said = diagnose(run, self.questions, self.claim)
            if len(runs) == 1:
                show_diagnosis(console, said)
            else:
                say(console, plain(said.verdict))
        if len(runs) > 1:
            say(console, "rftlab diagnose NAME#RUN says more of one run", "dim")
        return 0


@dataclass(frozen=True)
class Compare(Common):
    """Compare two or three sources of runs side by side.

    Does the cheap level tell what the expensive one does?

    A level is LEVEL:PAIR. sim:qwen-gsm8k is simulated where the results folder lacks it (minutes); llm:tiny-mix97 comes
    from the results folder or from the reference runs that come with rftlab; published:qwen-gsm8k is what arXiv
    2601.22532 reports, endpoints alone. Pairs may differ. imported:NAME is what `rftlab import` keeps, whatever its
    designs and tasks; imported:NAME/TASK or imported:NAME#RUN is a part of it. public:SOURCE is one of `rftlab dev
    public` whose numbers come with rftlab. train:FOLDER is a run of `rftlab train`, or all that lie in a folder.

        rftlab compare sim:qwen-gsm8k published:qwen-gsm8k
        rftlab compare llm:tiny-mix97 llm:tiny-mod97 --axis rollouts
        rftlab compare sim:qwen-gsm8k llm:tiny-mix97 published:qwen-gsm8k
        rftlab compare imported:mine imported:theirs
        rftlab compare public:pods/gsm8k public:kaip598
        rftlab compare train:results/short train:results/long

    Writes RESULTS/compare-NAMES/compare.html: curves overlaid, errors and rank agreement with intervals, every claim
    with its sign at each level, and where levels disagree the gradients' signal-to-noise, contexts without signal and
    pass rates behind it. With an imported level: curves, ends, gains, noise and common designs.
    """

    levels: tyro.conf.Positional[tuple[str, ...]] = ()
    """Two or three of LEVEL:PAIR; `rftlab --help` lists the pairs."""
    axis: AxisName = "rounds"
    """Axis of the curves; trade-off curves compare designs at equal values of it. fraction: part of the planned
    rounds."""
    seeds: int | None = None
    """Seeds of simulated levels; those of the folder's study if left out, else 5."""
    rounds: int | None = None
    """Rounds of simulated levels; those of the folder's study if left out, else the pair's own 2000."""
    seed: int = 0
    """Seed of the resampling."""

    def __post_init__(self):
        super().__post_init__()
        check_size(self.seeds, self.rounds)
        check_count("seed", self.seed, 0, MAX_SEED)

    def execute(self, console: Console) -> int:
        """Load or simulate the levels, compare them, write the page."""
        from rftlab.studies.analysis.compare.compare import compare
        from rftlab.studies.analysis.source import curve_sets

        runs = {"seeds": self.seeds, "rounds": self.rounds, "threads": self.threads}
        compare(console, curve_sets(list(self.levels)), self.results, self.axis, self.seed, self.quiet, **runs)
        return 0


@dataclass(frozen=True)
class Report:
    """Write the report of a results folder or of imported runs.

    Nothing is run.

        rftlab report                          # of the study of --level, or of what `rftlab run` left there
        rftlab report --results results/train  # of the folder of a run of `rftlab train`
        rftlab report imported:mine            # what `rftlab import` keeps; also imported:NAME/TASK, imported:NAME#RUN
        rftlab report public:pods/gsm8k        # a public source that comes with rftlab
        rftlab report train:results/train      # a run of `rftlab train`, or all that lie in a folder

    Imported runs go to RESULTS/report-imported-NAME/report.html: curves, ends, designs in rftlab's terms, repairs and
    what is unknown.
    """

    source: tyro.conf.Positional[str | None] = None
    """imported:NAME or public:SOURCE, or a part of it, or train:FOLDER; the study of --level if left out."""
    results: Path = Path("results")
    """Results folder, or the folder of one run. Without a study, the report shows the runs that are there."""
    level: Level = "sim"
    """Study of the results folder to report: of the simulator or of language models."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def execute(self, console: Console) -> int:
        """Write the report."""
        from rftlab.studies.analysis.imported.own import run_folders
        from rftlab.studies.analysis.imported.page import report
        from rftlab.studies.cli.execute.study import write_study_report
        from rftlab.studies.data.runs.study import has_study, read_study

        if self.source is not None:
            report(console, self.source, self.results, self.quiet)
        elif not has_study(self.results, self.level) and run_folders(self.results):
            report(console, None, self.results, self.quiet)
        else:
            write_study_report(console, read_study(self.results, self.level), self.results, self.quiet)
        return 0
