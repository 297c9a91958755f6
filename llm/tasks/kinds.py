"""Which kind of question a prompt is, where a task has kinds: the story of a word problem, the operations of a sum."""

import re

from rftlab.llm.tasks import arithmetic, words
from rftlab.llm.tasks.task import Prompt

_BLANK = re.compile(r"\\\{\w+\\\}")
_STORIES = tuple(re.compile(_BLANK.sub(r"\\w+", re.escape(template.text))) for template in words.TEMPLATES)


def kind_of(task: str, prompt: Prompt) -> str:
    """The kind of a prompt of a task, empty where the task has no kinds."""
    if task == "words" and not isinstance(prompt, str):
        question = prompt[-1]["content"]
        return next((str(i) for i, story in enumerate(_STORIES) if story.match(question)), "")
    if task in arithmetic.KINDS and isinstance(prompt, str):
        return "".join(sign for sign in prompt if sign in "+-*")
    return ""
