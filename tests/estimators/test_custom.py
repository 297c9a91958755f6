"""Custom functions in the place of an advantage or a surrogate: the same numbers as the compiled estimator of
the same formula, wherever it runs, and a line for each way to get it wrong."""

import asyncio
import functools
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numba
import numpy as np
import pytest

import rftlab as rl
from rftlab.shared.advantage import advantages
from rftlab.shared.cards import CARDS, SHIPPED
from rftlab.shared.cards.card import Card
from rftlab.shared.config.advantage import CustomAdvantage
from rftlab.shared.config.mask import ClipCov
from rftlab.shared.custom.plugins import load_plugin
from rftlab.shared.custom.registry import configured
from rftlab.shared.plumbing.pool import make_pool
from rftlab.sim.environments import build
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.estimators.show import show_cards
from tests.support.estimators.custom_cards import shipped_alone  # noqa: F401
from tests.support.estimators.vectors import ROOT
from tests.support.machine.command import rftlab
from tests.support.machine.here import printed

GROUP = np.array([0, 0, 1, 1, 1, 2])
REWARDS = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
STARTS, LOGP = np.arange(0, 13, 2), -np.ones(12)


def centred(rewards):
    """Reward minus the mean.

    A = r - mean
    """
    return rewards - rewards.mean()


def clipped(advantage, logp, old_logp):
    ratio = np.exp(logp - old_logp)
    held = advantage * np.clip(ratio, 0.8, 1.2)
    return np.minimum(advantage * ratio, held), np.where(held < advantage * ratio, 0.0, advantage * ratio)


def prepared(estimator, rewards=REWARDS, group=GROUP):
    return rl.prepare(estimator, rewards, group, STARTS, LOGP)


def small_run(estimator, **choices):
    run = rl.start_at("qwen-gsm8k", "sim")
    design = rl.Design(batch_size=8, rollouts=4, rounds=12, eval_every=4, estimator=estimator, **choices)
    return replace(run, environment=rl.Linear(n_train=64, n_test=16, n_features=16), design=design)


def curve(estimator, **choices):
    run = small_run(estimator, **choices)
    return rl.simulate(run, build(run.environment)).curve.to_frame().drop(columns="seconds")


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "numba"])
def test_an_advantage_is_the_one_of_its_formula(compiled):
    rl.advantage("mine")(numba.njit(centred) if compiled else centred)
    same = replace(rl.preset("mine"), advantage=rl.Advantage("group_mean"))
    rng = np.random.default_rng(0)
    for order in (np.arange(6), rng.permutation(6)):
        batches = [prepared(estimator, REWARDS[order], GROUP[order]) for estimator in (rl.preset("mine"), same)]
        batches[1] = batches[1]._replace(advantage=np.where(GROUP[order].repeat(2) == 2, 0, batches[1].advantage))
        np.testing.assert_allclose(batches[0].advantage, batches[1].advantage, atol=1e-12)
    for choices in ({}, {"minibatches": 2}, {"support_rollouts": 2}, {"replay_window": 8}):
        alike = curve(rl.preset("mine"), **choices).equals(curve(same, **choices))
        assert alike == (not choices or "minibatches" in choices), "it takes no pool"


def test_arrays_may_lie_anywhere():
    """Compiled code hands over addresses; numbers of another type and every second number are the same numbers."""
    rl.advantage("mine")(centred)
    wide, groups = np.repeat(REWARDS, 2)[::2], np.repeat(GROUP.astype(np.int32), 2)[::2]
    pool = make_pool(3, (REWARDS, GROUP))
    found = [advantages(rl.preset("mine").advantage, *columns, pool) for columns in ((REWARDS, GROUP), (wide, groups))]
    np.testing.assert_array_equal(*found)
    rl.surrogate("held")(clipped)
    batch, logp = prepared(rl.preset("held")), LOGP + 0.1
    strided = type(batch)(*(np.repeat(column, 3)[::3] for column in batch))
    weights = [rl.objective_and_weights(rl.preset("held"), one, logp).weight for one in (batch, strided)]
    np.testing.assert_array_equal(*weights)


def test_an_interrupt_stays_one():
    rl.advantage("mine")(lambda rewards: raises(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepared(rl.preset("mine"))


def test_the_pool_is_the_baseline_set():
    rl.advantage("pooled")(lambda rewards, pool: rewards - pool.mean())
    same = replace(rl.preset("pooled"), advantage=rl.Advantage("group_mean"))
    for choices in ({"support_rollouts": 2}, {"replay_window": 8}):
        own, shipped = curve(rl.preset("pooled"), **choices), curve(same, **choices)
        np.testing.assert_allclose(own["test_pass_at_1"], shipped["test_pass_at_1"], atol=1e-5)


def test_a_surrogate_is_the_one_of_its_formula():
    rl.surrogate("mine", kl=rl.KL("k3", coef=0.1))(clipped)
    same = replace(rl.preset("mine"), surrogate=rl.Clip())
    moved = LOGP + np.linspace(-0.6, 0.6, 12)
    pair = rl.preset("mine"), same
    batches = (rl.prepare(e, REWARDS, GROUP, STARTS, LOGP, LOGP) for e in pair)
    own, shipped = (rl.objective_and_weights(e, batch, moved) for e, batch in zip(pair, batches, strict=True))
    np.testing.assert_allclose(own.weight, shipped.weight, atol=1e-12)
    assert own.objective == pytest.approx(shipped.objective, abs=1e-12)
    with pytest.raises(rl.UserError, match="ClipCov"):
        replace(rl.preset("mine"), mask=ClipCov())
    a, b = (curve(e, minibatches=2, epochs=2) for e in pair)
    np.testing.assert_allclose(a["train_pass_at_1"], b["train_pass_at_1"], atol=1e-4)


def middle(rewards, pool):
    return rewards - np.median(pool, axis=-1, keepdims=True)


def test_groups_together_are_groups_one_by_one():
    """To the last bit: in any order, of several sizes, and in the simulator with every baseline set."""
    for name, batched in (("each", False), ("stacked", True)):
        rl.advantage(name, batched=batched)(middle)
    each, stacked = rl.preset("each"), rl.preset("stacked")
    assert each.advantage.source != stacked.advantage.source, "the same source, another meaning"
    rng = np.random.default_rng(1)
    group = rng.integers(0, 5, 40)
    rewards, starts = rng.normal(size=40), np.arange(41)
    a, b = (rl.prepare(e, rewards, group, starts, np.zeros(40)).advantage for e in (each, stacked))
    np.testing.assert_array_equal(a, b)
    by_hand = [value - np.median(rewards[group == g]) for value, g in zip(rewards, group, strict=True)]
    np.testing.assert_array_equal(a, by_hand)
    penalty = {"estimator": [replace(e, kl=rl.KL("k1", coef=0.1, place="reward")) for e in (each, stacked)]}
    for choices in ({}, {"support_rollouts": 2}, {"replay_window": 8}, penalty):
        given = choices.pop("estimator", [each, stacked])
        assert curve(given[0], **choices).equals(curve(given[1], **choices))


def test_what_a_function_keeps_is_its_own():
    """Rewards that it keeps are not written over by the next round, and it cannot make them writable."""
    kept = []

    def keeps(rewards):
        kept.append((rewards, rewards.copy()))
        return rewards - rewards.mean()

    rl.advantage("keeps")(keeps)
    curve(rl.preset("keeps"))
    assert len(kept) > 1 and all(np.array_equal(*pair) for pair in kept)
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        kept[0][0].flags.writeable = True


def writes(rewards):
    rewards[:] = 0.0
    return rewards


class Mute(Exception):
    """It cannot say what it is."""

    def __str__(self):
        raise ValueError


def raises(error):
    raise error


async def later(rewards):
    return rewards


def late(rewards):
    if rewards.size == 3:
        raise ValueError("no")
    return rewards


NO_SHAPE, NOT_FINITE = "returned shape {}; allowed: {}", "returned numbers that are not finite"
NO_FLOAT = "group 0: returned {}; allowed: an array of float64"
WRONG = {
    "python": [
        (lambda rewards: rewards[:-1], "group 0: " + NO_SHAPE.format(r"\(1,\)", r"\(2,\)")),
        (lambda rewards: rewards / 0.0 if len(rewards) == 3 else rewards, f"group 1: {NOT_FINITE}"),
        (lambda rewards: rewards.astype(np.float32), NO_FLOAT.format("float32")),
        (lambda rewards: list(rewards), NO_FLOAT.format("list")),
        (lambda rewards: np.ma.masked_array(rewards), NO_FLOAT.format("MaskedArray")),
        (lambda rewards: None, "group 0: returned NoneType"),
        (lambda rewards: rewards[7] * rewards, "group 0: IndexError: index 7 is out of bounds"),
        (writes, "group 0: ValueError: assignment destination is read-only"),
        (lambda rewards: sys.exit(0), "group 0: SystemExit: 0"),
        (lambda rewards: raises(Mute), "group 0: Mute$"),
        (lambda rewards: raises(asyncio.CancelledError("gone")), "group 0: CancelledError: gone"),
        (lambda rewards: raises(rl.UserError("PLACE of its own")), "group 0: PLACE of its own"),
    ],
    "batched": [
        (lambda r: r[0], "groups 2 to 2: " + NO_SHAPE.format(r"\(1,\)", r"\(1, 1\)")),
        (lambda r: r / 0.0 if r.shape[1] == 3 else r, f"group 1: {NOT_FINITE}"),
        (lambda r: r.missing, "groups 2 to 2: AttributeError"),
    ],
    "numba": [
        (lambda rewards: rewards[:1], "group 0: " + NO_SHAPE.format(r"\(1,\)", r"\(2,\)")),
        (lambda rewards: rewards / (rewards.size - 3), f"group 1: {NOT_FINITE}"),
        (lambda rewards: rewards.sum(), NO_FLOAT.format("float")),
        (lambda rewards: rewards.astype(np.float32), NO_FLOAT.format("float32")),
        (late, "group 1: ValueError: no"),
        (writes, "group 0: TypingError: No implementation of .*readonly array"),
    ],
}


@pytest.mark.parametrize(("how", "row"), [(how, row) for how, rows in WRONG.items() for row in rows])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_wrong_advantage_is_one_line(how, row):
    function = numba.njit(error_model="numpy")(row[0]) if how == "numba" else row[0]
    rl.advantage("wrong", batched=how == "batched")(function)
    for _ in range(2):
        with pytest.raises(rl.UserError, match=f"advantage wrong: {row[1]}") as error:
            prepared(rl.preset("wrong"))
        assert how == "numba" or "\n" not in str(error.value)
    report = rl.check_estimator("wrong")
    assert not report.passed and "FAIL" in str(report)


def test_a_wrong_advantage_names_the_round_of_a_simulation():
    rl.advantage("later")(lambda rewards: rewards - (np.nan if rewards.sum() in (1.0, 3.0) else rewards.mean()))
    with pytest.raises(rl.UserError, match=r"advantage later: round \d+, group \d+: returned numbers that are not fin"):
        curve(rl.preset("later"))
    rl.advantage("later")(centred)
    assert len(curve(rl.preset("later"))) == 4, "and the next run is whole"


def test_a_compiled_function_that_goes_wrong_later_is_named_too():
    """In compiled code, which the first batch only prepares."""
    rl.advantage("later")(numba.njit(error_model="numpy")(lambda rewards: rewards / (rewards.sum() - 7)))
    prepared(rl.preset("later"))
    with pytest.raises(rl.UserError, match="advantage later: group 1: returned numbers that are not finite"):
        prepared(rl.preset("later"), np.array([1.0, 0.0, 1.0, 1.0, 5.0, 1.0]))


def scaled(rewards, eps=0.5):
    return (rewards - rewards.mean()) / (rewards.std() + eps)


def of_pool(rewards, pool=None, *, eps=0.5):
    return (rewards - pool.mean()) / (pool.std() + eps)


class Scaled:
    def __init__(self, eps):
        self.eps = eps

    def of_group(self, rewards):
        return scaled(rewards, self.eps)

    def __call__(self, rewards):
        return scaled(rewards, self.eps)


@functools.wraps(scaled)
def around(*arguments):
    return scaled(*arguments)


WITH_DEFAULTS = {"default": scaled, "compiled": numba.njit(scaled), "pool": of_pool, "method": Scaled(0.5).of_group}
WITH_DEFAULTS |= {"object": Scaled(0.5), "partial": functools.partial(scaled, eps=0.5), "wrapped": around}


@pytest.mark.parametrize("function", WITH_DEFAULTS.values(), ids=WITH_DEFAULTS)
def test_a_second_parameter_with_a_default_is_not_the_pool(function):
    rl.advantage("mine")(function)
    expected = np.concatenate([scaled(REWARDS[g == GROUP]) for g in range(3)])
    np.testing.assert_allclose(prepared(rl.preset("mine")).advantage[::2], expected, atol=1e-12)


def test_a_function_may_use_another_estimator():
    """And the round is told as if it had not."""

    def alone(rewards):
        return rewards[:1] if rewards.sum() == 1.0 else rewards - rewards.mean()

    rl.advantage("plain")(centred)
    rl.advantage("alone")(alone)
    rl.advantage("nested")(lambda rewards: (prepared(rl.preset("plain")), alone(rewards))[1])
    said = []
    for name in ("alone", "nested"):
        with pytest.raises(rl.UserError, match=r"round \d+, group \d+: returned shape") as error:
            curve(rl.preset(name))
        said.append(str(error.value).split(": ", 1)[1])
    assert said[0] == said[1]


@pytest.mark.parametrize(("times", "lines"), [(1.0, 1), (1e6, 0)])
def test_a_slow_run_says_by_how_much_and_what_to_do(times, lines, monkeypatch, capfd):
    """Once for each function, and not of those that are fast already."""
    for name, value in (("ENOUGH", 0.0), ("TIMES", times), ("_told", set())):
        monkeypatch.setattr(f"rftlab.shared.custom.slow.{name}", value)
    rl.advantage("each")(middle)
    rl.advantage("stacked", batched=True)(middle)
    rl.advantage("compiled")(numba.njit(centred))
    for name in ("each", "stacked", "compiled", "each"):
        curve(rl.preset(name))
    said = [line for line in capfd.readouterr().err.splitlines() if "as long" in line]
    assert len(said) == lines
    for line in said:
        assert line.startswith("rftlab: advantage each in Python makes this run ")
        assert line.endswith(" times as long; batched=True or numba makes it fast")


def test_a_slow_function_is_told_so(monkeypatch):
    monkeypatch.setattr("rftlab.shared.custom.functions.LIMIT", 0.01)
    rl.advantage("slow")(lambda rewards: time.sleep(0.05) or rewards)
    with pytest.raises(rl.UserError, match="advantage slow: took 0 seconds; allowed: 0 for a batch"):
        prepared(rl.preset("slow"))


HEARD = threading.Event()


def stuck(rewards):
    HEARD.wait(20)
    return rewards - rewards.mean()


def test_a_function_that_does_not_come_back_is_named_once(monkeypatch):
    said = []
    monkeypatch.setattr("rftlab.shared.custom.slow._do", lambda line: [said.append(line), HEARD.set()])
    for name, function, patience in (("quick", centred, 60), ("stuck", stuck, 0.1)):
        monkeypatch.setattr("rftlab.shared.custom.slow.PATIENCE", patience)
        rl.advantage(name)(function)
        prepared(rl.preset(name))
    assert said == ["advantage stuck: no answer for 0 seconds"]


STUCK = """
import time
import rftlab as rl
from rftlab.shared.custom import slow

slow.PATIENCE = 0.5
rl.advantage("stuck")(lambda rewards: time.sleep(1000))
"""


def test_the_command_line_ends_where_a_function_does_not_come_back(tmp_path):
    """From a worker's thread, where nothing can be raised."""
    (tmp_path / "stuck.py").write_text(STUCK)
    run = ("run", "cell", "--preset", "stuck", "--rollouts", "8", "--rounds", "100", "--seeds", "2")
    made = rftlab(*run, "--plugins", "stuck.py", cwd=tmp_path)
    assert made.returncode == 2
    assert "rftlab: advantage stuck: no answer for 0 seconds; finished runs are kept" in made.stderr
    assert "Traceback" not in made.stderr


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, logp, old: a, "returned no pair"),
        (lambda a, logp, old: (a, a[:1]), r"derivative: returned shape \(1,\)"),
        (lambda a, logp, old: (a * np.nan, a), "value: returned numbers that are not finite"),
        (lambda a, logp, old: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_surrogate_is_one_line(function, message):
    rl.surrogate("wrong")(function)
    with pytest.raises(rl.UserError, match=f"surrogate wrong: {message}"):
        rl.objective_and_weights(rl.preset("wrong"), prepared(rl.preset("wrong")), LOGP)
    with pytest.raises(rl.UserError, match=f"surrogate wrong: round 0, {message}"):
        curve(rl.preset("wrong"))


def test_a_changed_function_is_another_run():
    """The old configuration does not run the new function; tests/estimators/test_source.py has what changes one."""
    rl.advantage("mine")(centred)
    first = rl.preset("mine")
    rl.advantage("mine")(lambda rewards: rewards - np.median(rewards))
    second = rl.preset("mine")
    ids = {RunSpec("qwen-gsm8k", small_run(estimator)).id for estimator in (first, second)}
    assert len(ids) == 2 and first.advantage.source != second.advantage.source
    with pytest.raises(rl.UserError, match="advantage 'mine' is another function than the configuration's"):
        prepared(first)


def test_it_has_a_card_and_a_label():
    rl.advantage("mine", surrogate=rl.Clip(0.1, 0.3))(centred)
    assert CARDS["mine"].family == "Your own" and CARDS["mine"].title == "Reward minus the mean."
    assert RunSpec("qwen-gsm8k", small_run(rl.preset("mine"))).cell == "8x4-mine" and "mine" not in SHIPPED
    assert "A = mine(rewards, pool)" in printed(show_cards, "mine") and isinstance(CARDS["mine"], Card)
    assert configured(rl.preset("mine").advantage).function is centred


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("grpo", centred, "estimator 'grpo' is shipped with rftlab"),
        ("Mine", centred, "name = 'Mine' of an estimator; allowed"),
        ("", centred, "name = '' of an estimator"),
        ("mine", lambda: 0, "mine: the function takes other arguments"),
        ("mine", 3, "mine: the function takes other arguments"),
        ("mine", lambda rewards, *, eps: 0, "mine: the function takes other arguments"),
        ("mine", lambda *rewards: 0, "mine: the function takes other arguments"),
        ("mine", lambda rewards=None: 0, "mine: the function takes other arguments"),
        ("mine", later, "mine: the function is async, or yields; allowed: one that returns"),
    ],
)
def test_a_name_or_function_that_does_not_fit_is_refused(name, function, message):
    with pytest.raises(rl.UserError, match=message):
        rl.advantage(name)(function)


def test_two_functions_of_a_file_have_names_of_their_own(tmp_path):
    program = "import rftlab as rl\n" + 2 * "@rl.advantage('twice')\ndef f(r):\n    return r\n"
    (tmp_path / "twice.py").write_text(program)
    with pytest.raises(rl.UserError, match="two functions are called twice; allowed: names of their own"):
        load_plugin(tmp_path / "twice.py")


@pytest.mark.parametrize(("kind", "own"), [(rl.advantage, "advantage"), (rl.surrogate, "surrogate")])
def test_choices_are_fields_of_an_estimator_but_the_functions_own(kind, own):
    function = centred if own == "advantage" else clipped
    for choice in ("baseline", own):
        with pytest.raises(rl.UserError, match=f"mine: a field of the estimator = '{choice}' is unknown; allowed: "):
            kind("mine", **{choice: rl.Clip()})(function)
    with pytest.raises(rl.UserError, match="the decorator has no name; allowed"):
        kind(function)


def test_a_compiled_function_takes_no_stack():
    with pytest.raises(rl.UserError, match="mine: batched; allowed: where numba did not compile it"):
        rl.advantage("mine", batched=True)(numba.njit(centred))


# --- the battery ---


def test_the_battery_knows_rloo():
    """Unbiased, RLOO's variance, RLOO's weights."""
    rloo = rl.preset("rloo")

    @rl.advantage("mine", surrogate=rloo.surrogate, aggregation=rloo.aggregation)
    def mine(rewards):
        n = len(rewards)
        return (rewards - rewards.mean()) * n / (n - 1) if n > 1 else rewards

    report = rl.check_estimator(mine, like="rloo")
    said = {line.what: (line.verdict, line.said) for line in report.lines}
    assert report.passed and said["bias"] == ("fact", "unbiased") and said["like"] == ("ok", "the weights of rloo")
    assert said["pass rate 0.5"][1].endswith("variance 1.00 of RLOO's")
    assert said["scale"][1] == "2 r gives twice the advantages" and said["shift"][1] == "none"
    assert not rl.check_estimator(mine, like="gpg").passed


def test_the_battery_finds_what_is_wrong():
    rl.advantage("noisy")(lambda rewards: rewards + np.random.default_rng().random(len(rewards)))
    rl.advantage("ordered")(lambda rewards: rewards * np.arange(len(rewards)))
    rl.advantage("mixed", batched=True)(lambda rewards: rewards - rewards.mean())
    rl.surrogate("sign")(lambda a, logp, old: (a * logp, -a))
    failed = {
        name: [line.what for line in rl.check_estimator(name).lines if line.verdict == "FAIL"]
        for name in ("noisy", "ordered", "mixed", "sign", "dapo")
    }
    assert "again" in failed["noisy"] and failed["ordered"] == ["order"]
    assert failed["mixed"] == ["alone"]
    assert failed["sign"] == ["derivative"] and failed["dapo"] == []


# --- plug-ins ---


FILE = """
import rftlab as rl

@rl.advantage("filed")
def filed(rewards):
    return rewards - 0.25
"""


def test_a_file_is_read_by_every_command(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("import rftlab as rl\n\nx = 1 / 0\n")
    done = rftlab("estimators", "filed", "--plugins", "mine.py", cwd=tmp_path)
    assert done.returncode == 0 and "filed(rewards, pool)" in done.stdout
    done = rftlab("estimators", "filed", cwd=tmp_path)
    assert done.returncode == 2 and "'filed' is unknown" in done.stderr
    for arguments, said in (
        (["--plugins", "none.py"], "plugins = 'none.py'; allowed: a Python file that is there"),
        (["--plugins", "~nobody at all/a.py"], "'~nobody at all/a.py': nobody has such a home folder; allowed"),
        (["--plugins"], "--plugins names no file"),
        (["--plugins=broken.py"], "broken.py, line 3: ZeroDivisionError: division by zero"),
    ):
        done = rftlab("estimators", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and said in done.stderr


NAMING = """
import pickle, pathlib, sys
import rftlab as rl
from rftlab.shared.cards import estimator_name
from rftlab.shared.custom.plugins import name_plugins
if sys.argv[1:]:
    name_plugins([pathlib.Path(sys.argv[1])])
    pathlib.Path("e").write_bytes(pickle.dumps(rl.preset("filed")))
print(estimator_name(pickle.loads(pathlib.Path("e").read_bytes())))
"""


def test_a_process_of_its_own_gives_the_same_name(tmp_path):
    """A run of a language model is named in one process and trained in another, which reads the files when it must."""
    (tmp_path / "mine.py").write_text(FILE)
    for arguments, variable in ((["mine.py"], ""), ([], str(tmp_path / "mine.py"))):
        command = [sys.executable, "-c", NAMING, *arguments]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "RFTLAB_PLUGINS": variable}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=1200, env=environment)
        assert done.stdout == "filed\n", done.stderr


PROGRAMS = {
    "import sys; sys.exit(0)": "line 1: SystemExit: 0",
    "class E(Exception):\n    def __str__(self): raise E\nraise E": "line 3: E",
    "\0": "Error: source code string cannot contain null bytes",  # a ValueError before Python 3.11.4
    "import rftlab as rl\nrl.advantage('x', surrogate=5)(lambda rewards: rewards)": "surrogate = 5; allowed: Rein",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_goes_wrong_is_one_line(program, tmp_path):
    (tmp_path / "mine.py").write_text(program)
    with pytest.raises(rl.UserError, match=PROGRAMS[program]) as error:
        load_plugin(tmp_path / "mine.py")
    assert "None" not in str(error.value) and "line 0" not in str(error.value)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"baseline": "group_mean"}, r"advantage.baseline \(a function of your own\) = 'group_mean' is unknown"),
        ({"credit": "set_mean"}, r"advantage.credit \(a function of your own\)"),
        ({"scale": "group_std"}, r"advantage.scale \(a function of your own\) = 'group_std' is unknown; allowed: none"),
        ({"gamma": 0.5}, "advantage.gamma"),
        ({"name": "nobody"}, "advantage 'nobody' is not there; allowed: with --plugins and the file that has it"),
    ],
)
def test_what_a_function_leaves_no_room_for_is_refused(choices, message):
    with pytest.raises(rl.UserError, match=message):
        prepared(rl.Estimator(CustomAdvantage(**choices)))


def test_a_scale_over_the_batch_may_follow():
    rl.advantage("mine")(centred)
    spec = rl.preset("mine").advantage
    group = np.repeat(np.arange(3), 2)
    for choices in ({"scale": "batch_std"}, {"whiten": "responses"}):
        own = prepared(rl.Estimator(replace(spec, **choices)), group=group)
        shipped = prepared(rl.Estimator(rl.Advantage("group_mean", **choices)), group=group)
        np.testing.assert_allclose(own.advantage, shipped.advantage, atol=1e-12)


def test_an_advantage_may_look_at_the_whole_batch():
    """Centred by the mean of the batch: groups move each other, and the battery says so without a failure."""
    rl.advantage("of_batch", scope="batch")(lambda rewards: rewards - rewards.mean())
    group, rewards = np.repeat(np.arange(2), 3), np.array([1.0, 1, 1, 0, 0, 0])
    batch = rl.prepare(rl.preset("of_batch"), rewards, group, np.arange(7), np.zeros(6))
    np.testing.assert_allclose(batch.advantage, rewards - 0.5)
    report = rl.check_estimator("of_batch")
    assert report.passed and ("alone", "fact") in [(line.what, line.verdict) for line in report.lines]
    with pytest.raises(rl.UserError, match="scope"):
        rl.advantage("nowhere", scope="epoch")(lambda rewards: rewards)
