"""Every task by its name."""

from rftlab.llm.tasks import arithmetic, benchmarks, largest, own, words
from rftlab.llm.tasks.config import BENCHMARKS, OWN, TaskConfig
from rftlab.llm.tasks.task import Task


def load(config: TaskConfig) -> Task:
    """The task that a configuration names. Raises UserError for data that cannot be used."""
    if config.name in BENCHMARKS:
        return benchmarks.load(config.name, config.source, config.test_source)
    if config.name == OWN:
        return own.load(config.source, config.test_source, config.own)
    if config.name == "words":
        return words.generate(config.seed, config.sizes)
    if config.name == "largest":
        return largest.generate(config.seed, config.sizes)
    return arithmetic.generate(config.name, config.seed, config.sizes)
