"""Scattered memory, asked for before it is read."""

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.lanes.simd import prefetch


@kernel(inline="always")
def fetch(contexts, plan, windows, batch):
    """Ask for what a chunk will read of its contexts besides features: scattered lines, which loops would wait for
    one by one."""
    columns, size = contexts.base_logits.shape[1], windows.rewards.shape[1]
    for row in range(batch.shape[0]):
        context = batch[row]
        prefetch(contexts.base_logits, context * columns)
        prefetch(contexts.base_lse, context)
        prefetch(contexts.base_format, context)
        prefetch(contexts.base_format_logp, context * 2)
        prefetch(contexts.correct, context)
        if plan.replays:
            prefetch(windows.pushed, context)
            prefetch(windows.rewards, context * size)
            prefetch(windows.rewards, context * size + size - 1)
