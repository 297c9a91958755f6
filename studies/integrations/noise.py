"""Measure the noise of gradients in a user's training run, and write the file that keeps it.

The quantities are those of a pilot (llm/probe.py): for each prompt the gradients of two halves of its responses, with
the raw reward and with each reward against the mean of the others of its half, from which an analysis of variance
takes r and phi (studies/forecast/pilot/noise.py). Gradients are sketched (llm/probe_run.py).

    RESULTS/pilot/NAME/run.json     rewards, lengths and -log pi of the groups, and the products; rewards and lengths
                                    alone where a trainer gives no more
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rftlab.llm.probe_config import BLOCKS, GradientProducts
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import below
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.readers.store import check_name

if TYPE_CHECKING:
    from rftlab.llm.probe_run import GroupNoise

FORMAT = 1
KIND = "run"
"""Name of the file without its ending, and the kind that its checksum covers."""
QUESTIONS = 256
"""Number of prompts of a run that are measured."""


def sketch_products(sketches_G: np.ndarray) -> GradientProducts:
    """Return the products of the halves' gradients from their sketches (G, 2, SIZE)."""
    means_G, block_G = sketches_G.mean(axis=1), np.arange(len(sketches_G)) * BLOCKS // len(sketches_G)
    sums = np.array([means_G[block_G == block].sum(axis=0) for block in range(BLOCKS)])
    differences_G = ((sketches_G[:, 0] - sketches_G[:, 1]) ** 2).sum(axis=1)
    return GradientProducts(0, block_G, sums @ sums.T, (means_G**2).sum(axis=1), differences_G)


def write_run(root: Path, name: str, groups: "list[GroupNoise]", rounds: tuple[int, int]) -> Path:
    """Write the measurements of rounds first to last of a run. Returns the file's path. Raises UserError for fewer than
    two prompts a block."""
    least = 2 * BLOCKS
    check(len(groups) >= least, f"{len(groups)} prompts were measured; allowed: {least} or more, for errors of r")
    half = len(groups[0].rewards) // 2
    columns = ("rewards", "lengths", "surprise")
    content: dict[str, Any] = {name: np.array([getattr(group, name) for group in groups]).tolist() for name in columns}
    for i, estimator in enumerate(("raw", "centred")):
        products = sketch_products(np.array([group.sketches[i] for group in groups]))._replace(group=half)
        content[estimator] = {key: np.asarray(value).tolist() for key, value in products._asdict().items()}
    return write_content(root, name, content, rounds)


def write_content(root: Path, name: str, content: dict[str, Any], rounds: tuple[int, int]) -> Path:
    """Write a file with rewards and lengths (G, K) of a run, and perhaps more. Returns its path."""
    path = below(root, "pilot", name, f"{KIND}.json")
    content = {"name": name, "rounds": list(rounds)} | content
    with reported(path):
        write_file(path, checksummed(content, [FORMAT, KIND], indent=None))
    return path


class GroupRewards:
    """Rewards and lengths of the first QUESTIONS prompts of a run, which verl hands over round by round. verl gives a
    plug-in no gradients, so r and phi are not measured; `rftlab pilot --model` measures them for a checkpoint."""

    def __init__(self, name: str, results: Path):
        self.name, self.results = name, results
        self.groups: list[tuple[list[float], list[int]]] = []
        self.round = 0

    def add(self, rewards: list[float], lengths: list[int], group: list) -> None:
        """Add the rewards and lengths (R,) of a round; groups of another size than the first are left out. Writes the
        file when there are enough prompts."""
        self.round += 1
        rows: dict[str, list[int]] = {}
        for row, label in enumerate(group):
            rows.setdefault(label, []).append(row)
        for own in rows.values():
            if not self.groups or len(own) == len(self.groups[0][0]):
                self.groups.append(([rewards[i] for i in own], [lengths[i] for i in own]))
        if len(self.groups) >= QUESTIONS:
            kept = zip(*self.groups[:QUESTIONS], strict=True)
            content = dict(zip(("rewards", "lengths"), map(list, kept), strict=True))
            write_content(self.results, self.name, content, (1, self.round))


_MEASURED: dict[str, GroupRewards] = {}
"""Measurements so far in this process, by the name of a run."""


def keep_rewards(name: str, results: str, rewards: list[float], lengths: list[int], group: list) -> None:
    """Keep rewards and lengths (R,) of a round of the named run, and write them when there are enough. Raises UserError
    for an invalid name, and for a folder that is not a results folder."""
    if name not in _MEASURED:
        _MEASURED[name] = GroupRewards(check_name(name), open_store(Path(results)))
    if len(_MEASURED[name].groups) < QUESTIONS:
        _MEASURED[name].add(rewards, lengths, group)
