"""Replay windows of prompts that are told apart by their text."""

import json
from collections import deque
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import read_json


class TextWindows:
    """The most recent rewards of each prompt; as `rftlab.shared.replay`, where the number of prompts is not known."""

    def __init__(self, size: int):
        self.size = size
        self.rewards: dict[str, deque[float]] = {}
        """By the prompt's text, the oldest first."""

    def push(self, texts: list[str], rewards: list[float]) -> None:
        """Append rewards to the windows of their prompts, in order."""
        for text, reward in zip(texts, rewards, strict=True):
            self.rewards.setdefault(text, deque(maxlen=self.size)).append(reward)

    def pool(self, texts: dict[int, str]) -> tuple[list[float], list[int]]:
        """Baseline sets: rewards, and the labels of their groups, from the prompts of these."""
        held = [(reward, label) for label, text in texts.items() for reward in self.rewards.get(text, ())]
        return [reward for reward, _ in held], [label for _, label in held]

    def save(self, path: Path) -> None:
        """Write them to a file."""
        held = {text: list(rewards) for text, rewards in self.rewards.items()}
        write_file(path, json.dumps({"size": self.size, "rewards": held}).encode())

    def load(self, path: Path) -> None:
        """Take those of a file that `save` wrote. Raises UserError where there is none, or of another size."""
        try:
            found = read_json(path)
            size, rewards = found["size"], {text: _numbers(held) for text, held in found["rewards"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} cannot be read: {error}; allowed: the replay windows of a checkpoint") from None
        if size != self.size:
            raise UserError(f"{path}: window = {size}; allowed: as in this run, {self.size}")
        self.rewards = {text: deque(held, maxlen=self.size) for text, held in rewards.items()}


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list):
        raise TypeError("rewards that are no list")
    return [float(value) for value in values]
