"""Load any task by its name."""

from rftlab.llm.tasks import arithmetic, benchmarks, custom, words
from rftlab.llm.tasks.config import BENCHMARKS, OWN, TaskConfig
from rftlab.llm.tasks.task import Task


def load_task(config: TaskConfig) -> Task:
    """Return the task that a configuration names. Raises UserError for data that cannot be used."""
    if config.name in BENCHMARKS:
        return benchmarks.load_benchmark(config.name, config.source, config.test_source)
    if config.name == OWN:
        return custom.load_custom(config.source, config.test_source, config.own)
    if config.name == "words":
        return words.generate_words(config.seed, config.sizes)
    if config.name == "largest":
        return words.generate_largest(config.seed, config.sizes)
    return arithmetic.generate_arithmetic(config.name, config.seed, config.sizes)
