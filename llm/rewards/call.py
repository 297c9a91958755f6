"""Call a user's reward functions within a time limit, and check them. A function must return one finite number for each
response, or one for each of its tokens, leave its inputs unchanged, return in time, and return the same for the same
inputs.

In the main thread a signal interrupts a function, also inside a regular expression or an operation on large integers.
The function may use threads and processes of its own. In other threads, and where there are no such signals, it runs in
a thread that is abandoned when its time is up.

R responses to G prompts; _R runs along responses, _T along tokens."""

import copy
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from rftlab.llm.rewards.load import OFFERED, PIECES, Function, NamedReward, asked_for
from rftlab.shared.custom import slow
from rftlab.shared.plumbing.errors import UserError, check, few, said_by
from rftlab.shared.plumbing.pool import LARGEST

SAMPLE = 8
"""Number of responses for which a reward is computed again, as a check."""


class RewardBatch(NamedTuple):
    """Scored responses with their prompts, truths and columns of data."""

    place: str
    """The round, for messages."""
    numbers: Sequence[int]
    """(G,) numbers of the prompts in their split, for messages."""
    prompts: Sequence[Any]
    """(G,) chat messages, or text."""
    truths: Sequence[str]
    """(G,) true answers."""
    rows: Sequence[dict[str, Any]]
    """(G,) columns of the data; empty where a task has none."""
    group: np.ndarray
    """(R,) index of each response's prompt."""
    texts: Sequence[str]
    """(R,) texts of the responses."""
    tokens: Sequence[list[int]]
    """(R,) token ids of each response."""

    def take(self, rows: Iterable[int]) -> "RewardBatch":
        """Return some of the responses, with all prompts."""
        rows = list(rows)
        texts, tokens = [self.texts[i] for i in rows], [self.tokens[i] for i in rows]
        return self._replace(group=self.group[rows], texts=texts, tokens=tokens)

    def group_name(self, row: int) -> str:
        """Return the group of a response in words, for messages."""
        return f"the group of prompt {self.numbers[self.group[row]]}"


class Rewarded(NamedTuple):
    """Rewards of R responses."""

    outcome: np.ndarray
    """(R,) weighted sum of the rewards that give one number for a response."""
    steps: np.ndarray | None
    """(T,) weighted sum of the rewards that give one number for each token; None where there are none."""
    by_name: dict[str, np.ndarray]
    """By name, (R,) each reward before its weight; for a reward of tokens, the sum over the response's tokens."""
    weights: tuple[float, ...] = ()
    """(C,) weights of these rewards."""

    def take(self, rows_r: np.ndarray, tokens_t: np.ndarray) -> "Rewarded":
        """Return the rewards of some responses, whose tokens are tokens_t."""
        steps_t = None if self.steps is None else self.steps[tokens_t]
        by_name = {name: own[rows_r] for name, own in self.by_name.items()}
        return Rewarded(self.outcome[rows_r], steps_t, by_name, self.weights)

    def followed_by(self, other: "Rewarded") -> "Rewarded":
        """Return these rewards followed by others."""
        if not len(other.outcome) or not len(self.outcome):
            return other if len(other.outcome) else self
        steps_T = None if self.steps is None or other.steps is None else np.concatenate([self.steps, other.steps])
        names = {name: np.concatenate([own, other.by_name[name]]) for name, own in self.by_name.items()}
        return Rewarded(np.concatenate([self.outcome, other.outcome]), steps_T, names, self.weights)


class RewardCaller:
    """The reward functions of a run, called in their order."""

    def __init__(
        self,
        rewards: Mapping[NamedReward, Function],
        columns: Sequence[str],
        seconds: float,
        piece: Callable[[int], str],
        remark: Callable[[str], None],
    ):
        """Set up the caller; columns: of the data; seconds: limit of a call; piece: function that returns a token's
        text. Raises UserError for a function with a parameter that nothing can fill."""
        self.seconds, self.piece, self.remark = seconds, piece, remark
        self.functions = {named.name: function for named, function in rewards.items()}
        self.weights = {named.name: named.weight for named in rewards}
        self.wanted = {name: asked_for(name, function, columns) for name, function in self.functions.items()}
        self._sample: dict[str, tuple[RewardBatch, list[np.ndarray]]] = {}
        """By reward, the responses of its first check and their rewards."""
        self._named: set[str] = set()
        """Rewards about whose changes the user was warned."""

    def __call__(self, batch: RewardBatch) -> Rewarded:
        """Return the rewards of responses. Raises UserError that names the reward, the round and the group."""
        outcome_R, steps_T = np.zeros(len(batch.texts)), None
        by_name = {name: np.zeros(len(batch.texts)) for name in self.wanted}
        for name, weight in self.weights.items() if batch.texts else ():
            values = self._values(name, batch)
            self._ask_again(name, batch)
            by_token = values[0].ndim == 1
            total_R = np.array([value.sum() for value in values])
            if by_token:
                own_T = weight * np.concatenate(values)
                steps_T = own_T if steps_T is None else steps_T + own_T
            else:
                outcome_R = outcome_R + weight * total_R
            by_name[name] = total_R
        return Rewarded(outcome_R, steps_T, by_name, tuple(self.weights.values()))

    def repeat(self) -> None:
        """Call every reward once more with the responses of its first check, and warn where a result changed."""
        for name, (batch, before) in self._sample.items():
            self._compare(name, batch, before, self._values(name, batch))

    def _ask_again(self, name: str, batch: RewardBatch) -> None:
        """At a reward's first call, compute it twice for the same few responses, and compare."""
        if name not in self._sample:
            few = batch.take(range(min(SAMPLE, len(batch.texts))))
            first = self._values(name, few)
            self._sample[name] = (few, first)
            self._compare(name, few, first, self._values(name, few))

    def _compare(self, name: str, batch: RewardBatch, before: list[np.ndarray], now: list[np.ndarray]) -> None:
        changed = [i for i, (x, y) in enumerate(zip(before, now, strict=True)) if not np.array_equal(x, y)]
        if changed and name not in self._named:
            self._named.add(name)
            was, seen = float(before[changed[0]].sum()), float(now[changed[0]].sum())
            self.remark(
                f"reward {name}: asked twice about a response in {batch.group_name(changed[0])} of "
                f"{batch.place} it says {was:g} and {seen:g}; it depends on time, on randomness or on earlier "
                "calls, so the same run again gives another curve"
            )

    def _values(self, name: str, batch: RewardBatch) -> list[np.ndarray]:
        """Return the reward of each response: a number, or (tokens,) numbers."""
        n = len(batch.texts)
        given = self._arguments(name, batch)
        kept = copy.deepcopy(given)
        try:
            said = self._asked(name, given)
        except OutOfTime:
            raise UserError(
                f"reward {name}, {batch.place}: no answer after {self.seconds:g} s for the {n} responses of "
                f"{_groups(batch)}; allowed: less, or a larger reward timeout"
            ) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also what is no Exception: an exit, a cancelled task, a panic in compiled code
            raise UserError(f"reward {name}, {batch.place}, {self._culprit(name, batch)}: {said_by(error)}") from None
        for key in kept:
            check(
                _same(given[key], kept[key]),
                f"reward {name}, {batch.place}, {_changed(batch, given[key], kept[key])}: it changed its input {key}; "
                "allowed: to read it",
            )
        return _checked(name, batch, said)

    def _asked(self, name: str, given: dict[str, list]) -> Any:
        with _settings_kept():
            return within(self.seconds, partial(self.functions[name], **given), f"reward {name}")

    def _arguments(self, name: str, batch: RewardBatch) -> dict[str, list]:
        return {key: self._argument(key, batch) for key in self.wanted[name]}

    def _argument(self, name: str, batch: RewardBatch) -> list:
        if name == PIECES:
            return [[self.piece(token) for token in tokens] for tokens in batch.tokens]
        if name == "completion_ids":
            return [list(tokens) for tokens in batch.tokens]
        if name == "responses":
            return list(batch.texts)
        if name == "completions":
            return [
                text if isinstance(batch.prompts[g], str) else [{"role": "assistant", "content": text}]
                for text, g in zip(batch.texts, batch.group, strict=True)
            ]
        if name in OFFERED:
            return [copy.deepcopy(getattr(batch, name)[g]) for g in batch.group]
        return [copy.deepcopy(batch.rows[g].get(name)) for g in batch.group]

    def _culprit(self, name: str, batch: RewardBatch) -> str:
        """Return the first group for which a reward raises an error by itself, in words."""
        for g in np.unique(batch.group):
            own = batch.take(np.flatnonzero(batch.group == g))
            try:
                self._asked(name, self._arguments(name, own))
            except (KeyboardInterrupt, OutOfTime) as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
            except BaseException:
                return own.group_name(0)
        return _groups(batch)


@contextmanager
def _settings_kept() -> Iterator[None]:
    """Restore the working folder and torch's settings after a call of a user's function."""
    number = torch.get_default_dtype()
    with chdir("."), torch.set_grad_enabled(torch.is_grad_enabled()):
        try:
            yield
        finally:
            torch.set_default_dtype(number)


def _groups(batch: RewardBatch) -> str:
    """Return the groups of a call in words."""
    seen = [str(batch.numbers[g]) for g in np.unique(batch.group)]
    if len(seen) == 1:
        return f"the group of prompt {seen[0]}"
    return f"the groups of prompts {few(seen, 5)}"


def _same(now: Any, before: Any) -> bool:
    with suppress(Exception):  # the comparison is the user's code
        return bool(type(now) is type(before) and now == before)
    return False


def _changed(batch: RewardBatch, now: Any, before: Any) -> str:
    """Return the group of the first entry of an argument that was changed, in words."""
    if isinstance(now, list) and len(now) == len(before):
        for i, (x, y) in enumerate(zip(now, before, strict=True)):
            if not _same(x, y):
                return batch.group_name(i)
    return _groups(batch)


def _checked(name: str, batch: RewardBatch, said: Any) -> list[np.ndarray]:
    """Return the rewards of the responses as numbers. Raises UserError for any other result."""
    said, n = _plain(said), len(batch.texts)
    where = f"reward {name}, {batch.place}"
    allowed = f"allowed: {n} finite numbers, one for each response, or {n} lists with one for each token"
    check(isinstance(said, list), f"{where}, {_groups(batch)}: it returned {_kind(said)}; {allowed}")
    check(len(said) == n, f"{where}, {_groups(batch)}: it returned {len(said)} values for {n} responses; {allowed}")
    values = [_plain(value) for value in said]
    by_token = isinstance(values[0], list)
    for i, value in enumerate(values):
        why = _wrong(value, by_token, len(batch.tokens[i]))
        check(not why, f"{where}, {batch.group_name(i)}: it returned {why}; {allowed}")
    return [np.array(value, dtype=np.float64) for value in values]


def _wrong(value: Any, by_token: bool, tokens: int) -> str:
    """Return a fault in the reward of a response with that many tokens; empty where there is none."""
    if isinstance(value, list) != by_token:
        return f"{_kind(value)} beside {'lists' if by_token else 'numbers'}"
    parts = [_plain(part) for part in value] if by_token else [value]
    if by_token and len(parts) != tokens:
        return f"{len(parts)} numbers for a response of {tokens} tokens"
    bad = [part for part in parts if not _is_number(part)]
    return _kind(bad[0]) if bad else ""


def _plain(value: Any) -> Any:
    """Convert arrays and tensors to lists or numbers, and tuples to lists."""
    if not isinstance(value, list | str | bytes | dict) and hasattr(value, "tolist"):
        with suppress(Exception):  # such as a tensor on another device
            return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _is_number(value: Any) -> bool:
    """Whether a value is a real number, finite, and so small that sums of such numbers are finite too."""
    real = isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
    return real and abs(value) < LARGEST


def _kind(value: Any) -> str:
    with suppress(ValueError):  # a number of more digits than Python writes
        if isinstance(value, str | bool | int | float):
            return f"{type(value).__name__} {value!r}"[:60]
    return type(value).__name__


AGAIN = 0.5
"""Seconds after which a function that continued is interrupted once more."""
STUBBORN = 60
"""Number of interrupts after which a function that catches them all is given up."""


class OutOfTime(BaseException):
    """Raised where a function's time is up. It is no Exception, so that `except Exception` in a user's function does
    not catch it."""


def within(seconds: float, call: Callable[[], Any], name: str = "a function") -> Any:
    """Return the result of a call. Raises OutOfTime where it takes longer, and the call's own exceptions. A call that
    keeps catching OutOfTime never ends; then `rftlab.shared.custom.slow` is informed with its name."""
    began = time.monotonic()
    in_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    returned = _interrupted(seconds, call, name) if in_main else _left_behind(seconds, call)
    if time.monotonic() - began > seconds:  # it set an alarm of its own, which replaced ours
        raise OutOfTime
    return returned


def _interrupted(seconds: float, call: Callable[[], Any], name: str) -> Any:
    """Run a call under an alarm. Two nested `finally` blocks end it, because it may ring inside the inner one; after
    the outer one it never rings."""
    armed, rings = True, 0

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        if rings == STUBBORN:
            slow.hung(f"{name}: no answer after {seconds:g} s, and it catches every interrupt")
        if armed:
            raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        try:
            return call()
        finally:
            armed = False
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _left_behind(seconds: float, call: Callable[[], Any]) -> Any:
    returned: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise OutOfTime
    if raised:
        raise raised[0]
    return returned[0]
