"""Every task by its name, and the kinds of questions that it has: the story of a word problem, the operations of a
sum."""

import re

from rftlab.llm.tasks import arithmetic, benchmarks, custom, words
from rftlab.llm.tasks.config import BENCHMARKS, OWN, TaskConfig
from rftlab.llm.tasks.task import Prompt, Task


def load_task(config: TaskConfig) -> Task:
    """The task that a configuration names. Raises UserError for data that cannot be used."""
    if config.name in BENCHMARKS:
        return benchmarks.load_benchmark(config.name, config.source, config.test_source)
    if config.name == OWN:
        return custom.load_custom(config.source, config.test_source, config.own)
    if config.name == "words":
        return words.generate_words(config.seed, config.sizes)
    if config.name == "largest":
        return words.generate_largest(config.seed, config.sizes)
    return arithmetic.generate_arithmetic(config.name, config.seed, config.sizes)


_BLANK = re.compile(r"\\\{\w+\\\}")
_STORIES = tuple(re.compile(_BLANK.sub(r"\\w+", re.escape(story))) for _, story in words.TEMPLATES)


def prompt_kind(task: str, prompt: Prompt) -> str:
    """The kind of a prompt of a task, empty where the task has no kinds."""
    if task == "words" and not isinstance(prompt, str):
        question = prompt[-1]["content"]
        return next((str(i) for i, story in enumerate(_STORIES) if story.match(question)), "")
    if task in arithmetic.KINDS and isinstance(prompt, str):
        return "".join(sign for sign in prompt if sign in "+-*")
    return ""
