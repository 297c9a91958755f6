"""Compute a round with all options: beyond `rftlab.sim.round.plain`, it has responses with style tokens, a sampler that
is not the trainer, replaced groups, masks, importance corrections, given baselines and an entropy bonus. Without these
options both rounds give the same bits, and the plain one is faster."""

import numpy as np

from rftlab.shared.advantage import advantages_into
from rftlab.shared.aggregation import shares_into
from rftlab.shared.combine import combined_into
from rftlab.shared.config.advantage import GREEDY, OF_EACH, OPTIMAL, OPTIMAL_TOKEN, VALUE
from rftlab.shared.config.aggregation import PROMPT_MEAN
from rftlab.shared.config.correction import NONE as UNCORRECTED
from rftlab.shared.config.correction import RATIO
from rftlab.shared.config.mask import CLIP_COV, KL_COV, TOP_ENTROPY, UNMASKED
from rftlab.shared.correction import correction_into
from rftlab.shared.mask import mask_into
from rftlab.shared.memory import add_into, move_bonus, push_into
from rftlab.shared.objective import objective_and_weights_into
from rftlab.shared.plumbing.jit import inner, jit, kernel
from rftlab.shared.prepare import Batch, shape_into
from rftlab.shared.sampling import keep_shortest_into
from rftlab.sim.lanes.random import COMMON, MASKING, NUISANCE, normals, uniforms
from rftlab.sim.policy.common import remember_base
from rftlab.sim.policy.products import backward, whole_blocks
from rftlab.sim.policy.style import style_logit_at, style_logp
from rftlab.sim.round.answers import N, add_baseline_set, answer_logp, count_group, shares_by_length
from rftlab.sim.round.baselines import (
    find_baseline,
    find_squares,
    greedy_length,
    optimal_token_advantages,
    teach_critic,
)
from rftlab.sim.round.common import teach_common
from rftlab.sim.round.plain import optimizer_step, policy_forward
from rftlab.sim.round.ragged import INT, MARK, NUMBER, ROW, TOKEN
from rftlab.sim.round.replays import remember_right
from rftlab.sim.round.responses import drop_silent, roll_out_rows, sampler_forward
from rftlab.sim.round.scores import (
    add_entropy,
    add_style_scores,
    find_entropies,
    find_others,
    gradient_noise,
    interfere,
    score_answers,
)
from rftlab.sim.state import TOTAL


@kernel
def trainer_forward(contexts, plan, theta, batch, view):
    """Compute the trainer's policy on a batch."""
    remember_base(policy_forward(contexts, plan, theta, batch, view), view)


@kernel(inline="always")
def sample_try(contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batch, at, ragged):
    """Sample a batch of contexts as rows `at` and following of the round, compute baselines that precede its rewards,
    and store its rewards.

    Random numbers are indexed by the batch instead of the round, because a context may occur twice in a round, the
    second time in a later epoch.
    """
    first, starts, others = ragged.rows[ROW.first], ragged.ints[INT.start], ragged.rows[ROW.other]
    gets = ragged.rows[ROW.gets]
    rewards, given_of = ragged.numbers[NUMBER.reward], ragged.numbers[NUMBER.given]
    old_logp, ref_logp = ragged.tokens[TOKEN.old_logp], ragged.tokens[TOKEN.ref_logp]
    stream = memory.spent[2] - 1
    trainer_forward(contexts, plan, state.theta, batch, trainer)
    if choices.lag > 0 or choices.every > 1 or choices.noise > 0.0:
        # The sampler's weights: the last synchronization minus the lag, or the initial weights where that is before
        # round 0.
        synced = max(0, round_index - round_index % choices.every - choices.lag)
        behind = memory.history[synced % (choices.lag + choices.every)]
        sampler_forward(contexts, plan, choices, behind, stream, batch, sampler, ragged.noise)
    start = first[at]
    stop = roll_out_rows(
        contexts, plan, choices, memory.averages, memory.replays, trainer, sampler, stream, batch, at, ragged
    )
    memory.spent[0] += stop - start
    memory.spent[1] += starts[stop] - starts[start] + (stop - start) * (len(plan.token_starts) - 1)
    for row in range(batch.shape[0] if memory.replays.reward.shape[1] > 0 else 0):
        new, end = first[at + row] + gets[row], first[at + row + 1]
        # Replayed responses were counted when they were sampled.
        memory.spent[0] -= end - new
        memory.spent[1] -= starts[end] - starts[new] + (end - new) * (len(plan.token_starts) - 1)
        remember_right(memory.replays, batch[row], ragged, first[at + row], new)
    if rule.shaping.active:
        shape_into(rule, rewards[start:stop], starts[start : stop + 1], old_logp, ref_logp)
    if rule.advantage.baseline == OPTIMAL_TOKEN:
        for row in range(batch.shape[0]):
            find_squares(plan, trainer, row, first[at + row], first[at + row + 1], ragged)
    if rule.advantage.baseline == OPTIMAL and plan.interference > 0.0:
        find_others(contexts, plan, round_index, batch, ragged.uniform, others)
    for row in range(batch.shape[0]):
        given, kind = 0.0, rule.advantage.baseline
        if rule.advantage.given:
            given = find_baseline(contexts, plan, kind, memory, trainer, row, batch[row], others[row])
        given_of[first[at + row] : first[at + row + 1]] = given
        if rule.advantage.baseline == GREEDY:
            memory.spent[0] += 1
            memory.spent[1] += len(plan.token_starts) + greedy_length(plan, choices.style, trainer, row)
    for row in range(batch.shape[0]):
        a, b = first[at + row], first[at + row] + gets[row]
        # The baseline is read before this round is added to the moving average; otherwise the two would depend on each
        # other.
        if choices.averages:
            add_into(memory.averages, batch[row], choices.decay, rewards, a, b)
        if rule.advantage.baseline == VALUE:
            teach_critic(contexts, choices.critic_learning_rate, memory.critic, batch[row], rewards[a:b].mean())
        if plan.replays:
            push_into(state.windows, batch[row], rewards, a, b)


@kernel
def sample_round(contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batches, ragged):
    """Fill the rows of a round from as many of `batches` (tries, B) as are needed."""
    n, rows = batches.shape[1], np.int64(0)  # a plain 0 has another type, and numba would compile the callees twice
    for attempt in range(choices.tries):
        memory.spent[2] += 1
        sample_try(
            contexts, plan, choices, rule, state, memory, trainer, sampler, round_index, batches[attempt], rows, ragged
        )
        if choices.tries == 1:
            return
        # The last try keeps groups without signal too, so that a round always has n groups.
        rows = drop_silent(plan, ragged, rows, n, n - rows if attempt + 1 == choices.tries else 0)
        if rows >= n:
            return


@inner
def find_advantages(plan, choices, rule, windows, n, ragged):
    """Compute baseline sets, and from them the advantages of responses and of their tokens."""
    first, context_of, sets = ragged.rows[ROW.first], ragged.rows[ROW.context], ragged.rows[ROW.set]
    starts, group, selected = ragged.ints[INT.start], ragged.ints[INT.group], ragged.ints[INT.selected]
    rewards, given_of, advantage = (
        ragged.numbers[NUMBER.reward],
        ragged.numbers[NUMBER.given],
        ragged.numbers[NUMBER.advantage],
    )
    credit = ragged.tokens[TOKEN.advantage]
    end, support = np.int64(0), first[n]
    for row in range(n):
        a, b, extra = first[row], first[row + 1], support + row * plan.support
        sets[row] = end
        selected[a:b] = True
        if choices.keep > 0:
            keep_shortest_into(starts[1:] - starts[:-1], a, b, choices.keep, selected)
            for i in range(a, b):
                if selected[i]:
                    ragged.pool[end] = rewards[i]
                    end += 1
        else:
            end = add_baseline_set(
                plan, windows, context_of[row], rewards[a:b], rewards[extra : extra + plan.support], ragged.pool, end
            )
    sets[n] = end
    if rule.advantage.baseline == OPTIMAL_TOKEN:
        optimal_token_advantages(rule.advantage, support, ragged)
        return
    trained = slice(0, support)
    rewards, given, group, out = rewards[trained], given_of[trained], group[trained], advantage[trained]
    if rule.advantage.combine == OF_EACH:
        several, weights = np.empty((2, support)), np.ones(2)
        for i in range(support):
            several[0, i] = ragged.numbers[NUMBER.first_reward, i]
            several[1, i] = ragged.numbers[NUMBER.form_reward, i]
        combined_into(rule.advantage, several, weights, starts[: support + 1], group, several, sets[: n + 1], out)
    else:
        advantages_into(rule.advantage, rewards, starts[: support + 1], group, ragged.pool, sets[: n + 1], given, out)
    for i in range(support):
        # Responses that are not trained on keep their place with advantage 0, so that no tokens are moved.
        if not selected[i]:
            out[i] = 0.0
        credit[starts[i] : starts[i + 1]] = out[i]


@kernel
def count(n, replays, ragged, totals):
    """Add a round's new rewards and its contexts without signal to the totals."""
    first, gets = ragged.rows[ROW.first], ragged.rows[ROW.gets]
    for row in range(n):
        a, b = first[row], first[row + 1]
        new = a + gets[row] if replays.reward.shape[1] > 0 else b
        count_group(ragged.numbers[NUMBER.reward, a:new], ragged.numbers[NUMBER.advantage, a:b], totals)


@kernel
def freeze_round(rule, n, ragged):
    """Compute the importance weights of the round's tokens, and set the reference of a KL penalty against the old
    policy. With the correction `ratio` the sampler then replaces the old policy."""
    starts, correction = ragged.ints[INT.start], ragged.tokens[TOKEN.correction]
    old_logp, ref_logp, sampled = (
        ragged.tokens[TOKEN.old_logp],
        ragged.tokens[TOKEN.ref_logp],
        ragged.tokens[TOKEN.sampler_logp],
    )
    stop = ragged.rows[ROW.first, n]
    tokens = starts[stop]
    if rule.correction.kind == UNCORRECTED:
        correction[:tokens] = 1.0
    else:
        correction_into(rule.correction, starts[: stop + 1], old_logp, sampled, correction)
    if rule.kl.from_old:
        for t in range(tokens):
            ref_logp[t] = old_logp[t]
    if rule.correction.kind == RATIO:
        for t in range(tokens):
            old_logp[t] = sampled[t]


@kernel(inline="always")
def find_logp(contexts, plan, choices, view, low, high, ragged):
    """Compute log-probabilities of the tokens of rows low .. high-1 under a policy's view of these rows."""
    first, context_of, tokens = ragged.rows[ROW.first], ragged.rows[ROW.context], len(plan.token_starts)
    starts, forms = ragged.ints[INT.start], ragged.ints[INT.form]
    logp, style_logits = ragged.tokens[TOKEN.logp], ragged.tokens[TOKEN.style_logit]
    signs_of, style_tokens = ragged.marks[MARK.signs], ragged.marks[MARK.style_token]
    for row in range(low, high):
        for i in range(first[row], first[row + 1]):
            t = starts[i]
            logp[t] = answer_logp(plan, view, row - low, ragged.arms, N(i * tokens), forms[i])
            for s in range(t + 1, starts[i + 1]):
                style_logit = style_logit_at(
                    choices.style,
                    np.uint32(signs_of[s]),
                    view,
                    contexts,
                    row - low,
                    context_of[row],
                    plan,
                )
                style_logits[s], logp[s] = style_logit, style_logp(style_logit, style_tokens[s] != 0)


@inner
def find_weights(plan, rule, update, low, high, view, ragged):
    """Compute the weights of the tokens of rows low .. high-1, one optimiser batch. Return the number of clipped
    tokens, the sum of KL values, and the number of tokens."""
    first, starts, response = ragged.rows[ROW.first], ragged.ints[INT.start], ragged.marks[MARK.response]
    weights, logp, plain, share = (
        ragged.tokens[TOKEN.weight],
        ragged.tokens[TOKEN.logp],
        ragged.tokens[TOKEN.plain_share],
        ragged.tokens[TOKEN.share],
    )
    kl_share, old_logp, ref_logp = (
        ragged.tokens[TOKEN.kl_share],
        ragged.tokens[TOKEN.old_logp],
        ragged.tokens[TOKEN.ref_logp],
    )
    credit, correction = ragged.tokens[TOKEN.advantage], ragged.tokens[TOKEN.correction]
    start, stop = first[low], first[high]
    a, b = starts[start], starts[stop]
    n_rows = float(high - low if rule.aggregation.kind == PROMPT_MEAN else stop - start)
    shares_into(
        rule.aggregation, starts[start : stop + 1], ragged.ints[INT.group, start:stop], float(b - a), n_rows, plain
    )
    if plan.length_by_style > 0.0:  # a response is one token here
        shares_by_length(plan, rule.aggregation, ragged.arms, start, stop - start, plain[a:b])
    # A loop, because for slices numba also compiles the error about different lengths, which takes seconds.
    for t in range(a, b):
        share[t] = plain[t] * correction[t]
        kl_share[t] = rule.kl.in_loss * (share[t] if rule.mask.kind == KL_COV else plain[t])
    tokens = slice(a, b)
    batch = Batch(credit[tokens], share[tokens], kl_share[tokens], old_logp[tokens], ref_logp[tokens], response[tokens])
    if rule.mask.kind == CLIP_COV:
        uniforms(plan.key, update, np.arange(b - a), 1, MASKING, ragged.keys)
    if rule.mask.kind == TOP_ENTROPY:
        find_entropies(plan, view, low, high, ragged)
    if rule.mask.kind != UNMASKED:
        mask_into(
            rule, batch, logp[tokens], ragged.keys[0, : b - a].astype(np.float64), share[tokens], kl_share[tokens]
        )
    _, clipped, _, kl = objective_and_weights_into(rule, batch, logp[tokens], weights[tokens])
    return clipped, kl, b - a


@kernel(inline="always")
def set_scores(contexts, plan, choices, entropy, round_index, low, start, stop, rows, view, ragged, grad):
    """Compute the scores of the contexts start .. stop-1 of an optimiser batch whose first row is `low`. Return the
    gradient of the format parameter; that of the shared parameters is added to `grad`.

    entropy: coefficient of the entropy bonus. rows: these contexts, padded to whole blocks; the scores of the padding
    are 0.
    """
    first, starts, tokens = ragged.rows[ROW.first], ragged.ints[INT.start], len(plan.token_starts)
    weights, plain_share, answer_weights = (
        ragged.tokens[TOKEN.weight],
        ragged.tokens[TOKEN.plain_share],
        ragged.numbers[NUMBER.weight],
    )
    format_grad, nuisance = 0.0, plan.nuisance if choices.style.tokens == 0.0 else 0.0
    noise, scores = ragged.noise, ragged.scores
    if nuisance > 0.0:
        normals(plan.key, round_index, rows, NUISANCE, ragged.noise[start:])
    if plan.n_common > 0:
        normals(plan.key, round_index, rows, COMMON, ragged.common_noise[start:])
    for row in range(start, stop):
        a, b, bonus = first[low + row], first[low + row + 1], 0.0
        for i in range(a, b):
            answer_weights[i] = weights[starts[i]]
            bonus += entropy * plain_share[starts[i]]
        forms, arms = ragged.ints[INT.form, a:b], ragged.arms[a * tokens : b * tokens]
        formed, spread = score_answers(plan, view, row, answer_weights[a:b], forms, arms, nuisance, noise, scores)
        format_grad += formed
        if bonus > 0.0:
            format_grad += add_entropy(plan, view, row, bonus, scores)
        if plan.n_common > 0:
            of_common, context = gradient_noise(choices, spread, a, b, ragged), ragged.rows[ROW.context, low + row]
            drawn = ragged.common_noise, noise
            teach_common(contexts, plan, view.common[0], row, context, of_common, *drawn, scores, grad)
        if choices.style.slope > 0.0 or plan.exploration > 0.0:
            pushes = add_style_scores(plan, choices, entropy, low + row, row, ragged, scores)
            if plan.exploration > 0.0:
                grad[grad.shape[0] - 2] += plan.exploration * pushes
    ragged.scores[stop : start + rows.shape[0]] = 0.0
    return plan.format_scale * format_grad


@kernel(inline="always")
def add_gradient(contexts, plan, choices, entropy, round_index, low, high, view, ragged, grad):
    """Add the gradient of rows low .. high-1, an optimiser batch, to grad: chunk by chunk, as in
    `rftlab.sim.round.plain`."""
    context_of, n = ragged.rows[ROW.context], high - low
    for start in range(0, n, plan.chunk):
        stop = min(start + plan.chunk, n)
        rows = view.rows[start : start + whole_blocks(stop - start)]
        grad[-1] += set_scores(
            contexts, plan, choices, entropy, round_index, low, start, stop, rows, view, ragged, grad
        )
        scores = ragged.scores[start:]
        backward(contexts, rows, scores, grad)
        if plan.interference > 0.0:
            interfere(
                contexts, plan, round_index, context_of[low + start : low + stop], rows, scores, ragged.uniform, grad
            )


@kernel
def update_policy(contexts, plan, choices, rule, state, bonus, view, round_index, n, ragged, totals):
    """Make the updates of a round, each on its rows. Return False where a gradient is not finite. bonus: as in
    `rftlab.sim.state.GeneralState`."""
    context_of = ragged.rows[ROW.context]
    size, updates = n // plan.minibatches, plan.epochs * plan.minibatches
    for u in range(updates):
        low = u % plan.minibatches * size
        high = low + size
        # The first update of a whole round reuses the forward pass that sampled; replaced groups are in other rows.
        if u > 0 or size < n or choices.tries > 1:
            trainer_forward(contexts, plan, state.theta, context_of[low:high], view)
        find_logp(contexts, plan, choices, view, low, high, ragged)
        clipped, kl, tokens = find_weights(plan, rule, round_index * updates + u, low, high, view, ragged)
        # The coefficient is read before this update's entropy changes it for the next one.
        entropy = bonus[0] * bonus[1]
        if rule.entropy_target > 0.0:
            find_entropies(plan, view, low, high, ragged)
            move_bonus(bonus, rule.entropy_target, rule.entropy_step, ragged.keys[0, :tokens].mean())
        add_gradient(contexts, plan, choices, entropy, round_index, low, high, view, ragged, state.grad)
        totals[TOTAL.kl] += kl
        totals[TOTAL.clipped] += clipped
        totals[TOTAL.tokens] += tokens
        if not optimizer_step(plan, state, totals):
            return False
    return True


@jit
def general_rounds(
    contexts, plan, choices, rule, state, memory, trainer, sampler, batches, first_round, rounds, ragged, totals
):
    """Train for some rounds on batches (at least rounds x tries, B) of context indices. Return the number of rounds
    done, which is smaller where the run diverged."""
    n, tried = batches.shape[1], 0
    for r in range(rounds):
        # A ring of the weights that a stale sampler may still use.
        memory.history[(first_round + r) % (choices.lag + choices.every)] = state.theta
        before = memory.spent[2]
        stream = batches[tried : tried + choices.tries]
        sample_round(contexts, plan, choices, rule, state, memory, trainer, sampler, first_round + r, stream, ragged)
        tried += memory.spent[2] - before
        find_advantages(plan, choices, rule, state.windows, n, ragged)
        count(n, memory.replays, ragged, totals)
        freeze_round(rule, n, ragged)
        round_index = first_round + r
        if not update_policy(
            contexts, plan, choices, rule, state, memory.bonus, trainer, round_index, n, ragged, totals
        ):
            return r
    return rounds
