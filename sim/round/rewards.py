"""Rewards that are not 0 or 1: partial credit, and noise of whoever gives them. Pass@1 knows neither."""

import math

import numpy as np

from rftlab.shared.plumbing.jit import inner, kernel
from rftlab.sim.lanes.random import REWARDING, uniforms
from rftlab.sim.round.answers import N
from rftlab.sim.round.ragged import NUMBER, ROW


@kernel(forceinline=True)
def partial_credit(plan, part, correct, form, right, arms, at):
    """The reward of the answer arms[at : at + T]: `part` of it in proportion to its right tokens where it is well
    formed, the rest where all are right."""
    hits, tokens = 0, len(plan.token_starts)
    for s in range(tokens):
        hits += (correct >> np.uint32(arms[at + N(s)])) & np.uint32(1)
    return (1.0 - part) * right + part * form * hits / tokens


@inner
def add_noise(plan, choices, round_index, batch, at, ragged):
    """Add a normal number of standard deviation choices.reward_noise to the reward of every response of a try, whose
    rows begin at `at`; its uniforms take the place of those for lengths."""
    first, gets, rewards = ragged.rows[ROW.first], ragged.rows[ROW.gets], ragged.numbers[NUMBER.reward]
    uniforms(plan.key, round_index, batch, choices.draws, REWARDING, ragged.lengths)
    support = first[at + batch.shape[0]]
    for row in range(batch.shape[0]):
        for j in range(gets[row] + plan.support):
            trained = j < gets[row]
            i = first[at + row] + j if trained else support + row * plan.support + j - gets[row]
            draw = row * choices.draws + j
            size = math.sqrt(-2.0 * math.log(1.0 - ragged.lengths[0, draw]))
            rewards[i] += choices.reward_noise * size * math.cos(2.0 * math.pi * ragged.lengths[1, draw])
