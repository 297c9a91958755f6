"""Measure the costs of scoring MATH in a round: `python -m benchmarks.llm.scoring`. Three responses in ten are right as
text, the others are for math-verify."""

import random
import resource
import time

from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.rewards.verify import in_doubt, score

RIGHT = 0.3
STEPS, STEP = 500, 0.02
"""Number of a sampler's steps, and seconds of one step."""
THOUGHTS = "We solve step by step. Let $x$ be the unknown, then $2x+3=7$ so $x=2$. " * 20
FORMS = (
    "{a}",
    r"\frac{{{a}}}{{{b}}}",
    r"{a}\sqrt{{{b}}}",
    "({a}, {b}]",
    "x^2+{a}x-{b}",
    r"\frac{{{a}+\sqrt{{{b}}}}}{{{c}}}",
    r"\begin{{pmatrix}} {a} & {b} \\ {c} & 1 \end{{pmatrix}}",
    r"{a}\pi/{b}",
)


def answer(rng: random.Random) -> str:
    """Return an answer like those of MATH."""
    return rng.choice(FORMS).format(**{name: rng.randrange(1, 99) for name in "abc"})


def processor(who: int) -> float:
    """Return the processor seconds of this process, or of the children that ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def left_over(responses: list[str], truths: list[str], pool: MathPool) -> float:
    """Return the seconds that scoring takes after the last of several responses that ended one by one, over the steps
    of a sampler that does nothing else."""
    ends = [responses[i::STEPS] for i in range(STEPS)], [truths[i::STEPS] for i in range(STEPS)]
    for ended in zip(*ends, strict=True):
        pairs = [in_doubt("math", response, truth) for response, truth in zip(*ended, strict=True)]
        pool.submit([pair for pair in pairs if pair])
        time.sleep(STEP)
    began = time.perf_counter()
    score("math", responses, truths, pool)
    return time.perf_counter() - began


def measure(n: int) -> None:
    """Score n responses after sampling and during it, with children that were started before."""
    rng = random.Random(0)
    truths = [answer(rng) for _ in range(n)]
    responses = [f"{THOUGHTS}\\boxed{{{truth if rng.random() < RIGHT else answer(rng)}}}" for truth in truths]
    ended = processor(resource.RUSAGE_CHILDREN)
    with MathPool() as pool:
        pool.equivalent([(str(i), "0") for i in range(8 * pool.workers)])
        before, began = processor(resource.RUSAGE_SELF), time.perf_counter()
        checks = score("math", responses, truths, pool).checks
        wall, own, workers = time.perf_counter() - began, processor(resource.RUSAGE_SELF) - before, pool.workers
    children = processor(resource.RUSAGE_CHILDREN) - ended
    print(
        f"{n} responses, {checks.asked} for math-verify: {wall:.1f} s on {workers} processes; CPU s: {own:.2f} "
        f"here, {children:.1f} there, their start too"
    )
    with MathPool() as pool:
        pool.equivalent([(str(i), "0") for i in range(8 * pool.workers)])
        print(
            f"begun beside {STEPS} steps of {STEP * 1e3:.0f} ms in which they end: "
            f"{left_over(responses, truths, pool):.2f} s after the last"
        )


if __name__ == "__main__":
    for responses in (256, 2048):
        measure(responses)
