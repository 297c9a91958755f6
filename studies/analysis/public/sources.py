"""The sources of the public runs: where they are, under which licence, what they show, and their traps."""

from typing import NamedTuple


class Source(NamedTuple):
    """One public repository of training logs."""

    name: str
    reference: str
    """Repository at a commit, where that is recorded, and paper."""
    licence: str
    """As the source states it. Numbers of one without a stated licence are not shipped: figures and statistics are."""
    runs: int
    """Training runs, the untrained model among them where it has rows of its own."""
    points: int
    """Rows of curves."""
    model: str
    data: str
    varied: str
    shows: str
    traps: tuple[str, ...]

    @property
    def shipped(self) -> bool:
        """Whether its numbers come with the package."""
        return not self.licence.startswith("none")


SOURCES: tuple[Source, ...] = (
    Source(
        "pods",
        "YixuanEvenXu/pods@187f43b648f69385103029c2dd0934521e17bb71, arXiv 2504.13818",
        "Apache-2.0",
        101,
        14123,
        "Qwen2.5-3B-Instruct, 4 bits, LoRA of rank 64",
        "GSM8K; also tested on MATH-500 and AMC23",
        "responses generated (16 to 256) and trained on (2 to 16), rule that selects them; ten runs a cell",
        "Ten repeats of each of ten cells, timed: the only source here whose intervals come from repeats.",
        (
            "The reward is correctness + 0.1 format + 0.1 tags: groups of equally correct responses have a signal.",
            "One prompt a round: its steps are noisier than those of the usual batch.",
            "What is trained on is selected for variance and scaled inside the selection: biased by design.",
            "Runs end after six hours, not after equal steps; seconds are nominal, a checkpoint each half hour.",
            "Pass@1 grades the answer without its tags, and some cells lose the format late (n = 16: 0.73 keep it).",
            "One configuration is archived, that of (16, 16); overrides of the other cells are not.",
            "Two runs of (64, 2) have 14 checkpoints, all others 12.",
        ),
    ),
    Source(
        "shibukizero",
        "ShibukiZero/assignment5-alignment@73a0f466 (branch solutions)",
        "none stated",
        22,
        13072,
        "Qwen2.5-Math-1.5B",
        "a substitute of MATH with numeric answers",
        "learning rate (9), baseline, division by the deviation, updates a round (1 to 16)",
        "Learning rates from too slow to collapse, and updates a round, with curves; a seed each.",
        (
            "Its test set is not the usual one: levels (0.88) cannot be compared with other MATH numbers.",
            "The untrained model scores 0.04 mostly for lack of format (0.18 have it): the early rise is format.",
            "One seed. Three pairs of runs are unintended repeats, and one pair differs more than most axes do.",
            "Rates 3e-6, 7e-5 and 2e-4 stop at round 50.",
            "The reference run serves every axis: claims about it share its noise.",
        ),
    ),
    Source(
        "kaip598",
        "KaiP-598/grpo-from-scratch (commit not recorded)",
        "MIT",
        10,
        20,
        "Qwen2.5-Math-1.5B",
        "GSM8K",
        "learning rate, baseline, deviation, length normalisation, re-use and clip, prompt",
        "End points of ten variants, a run each.",
        (
            "Rows end after 200 or 100 steps: the reference (200) is no partner of the rows with 100.",
            "No curves, no repeats; prompts a round are not stated.",
            "The noise of its differences is borrowed from the repeats of shibukizero, which trains the same model.",
        ),
    ),
    Source(
        "verl_logs",
        "eric-haibin-lin/verl-data@experiments (commit not recorded)",
        "none recorded",
        2,
        5310,
        "Qwen2.5-0.5B-Instruct",
        "GSM8K",
        "response limit 512 or 256 (and prompt limit 1,024 or 512), PPO with a critic",
        "How a curve under a strict rule is mostly format: from 0.00 to 0.57 where the model card says 0.50.",
        (
            "Untrained 0.001 under the strict marker, 0.496 by the model card.",
            "The runs differ in two limits at once, a seed each: no claim here can be tested.",
            "File names carry a middle and a peak value, not the last one.",
        ),
    ),
    Source(
        "josancamon",
        "josancamon19/rl-scaling-laws@cc6c4ee",
        "none stated",
        2,
        28,
        "Qwen3-0.6B and 1.7B, base",
        "GSM8K",
        "model size; rewards, as end points",
        "A slow start, and none: the smaller model begins at 0.04 under a strict rule, the larger at 0.55.",
        (
            "The two sizes are evidently scored by different rules: their starts cannot be compared.",
            "A curve a size; which reward it was trained on is not stated.",
        ),
    ),
    Source(
        "verl_docs",
        "volcengine/verl docs/algo/baseline.md",
        "Apache-2.0",
        0,
        0,
        "Qwen2 and 2.5, 0.5B to 72B, Mixtral",
        "GSM8K, MATH, AIME and others",
        "algorithm and model, a number each (endpoints)",
        "What implementers report, for the order of magnitude.",
        (
            "Last, intermediate and best evaluations are mixed; no seeds, rounds or temperatures.",
            "One entry (ReMax, 0.97) is far above its neighbours.",
        ),
    ),
)
BY_NAME = {source.name: source for source in SOURCES}
