"""Write a design as text for another tool: a command line, lines of Python, the configuration of a trainer."""

import shlex
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from rftlab.llm.budget.plan import LENGTHS, TAIL
from rftlab.shared.cards import CARDS, preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.explore.choices import Choices, chosen_run
from rftlab.studies.explore.jobs import SEEDS
from rftlab.studies.explore.measures import model_behind, plain_pair
from rftlab.studies.forecast.advise.engines import EngineSettings, engine_flags
from rftlab.studies.integrations.cluster import EngineChoice


def command_text(choices: Choices) -> str:
    """Return the `rftlab run` command that makes the same curves."""
    run, card = chosen_run(choices), CARDS[choices.estimator]
    own = start_at(plain_pair(choices.start), "sim")
    design = Design(rollouts=card.rollouts, replay_window=card.replay_window, estimator=preset(choices.estimator),
                    sampling=card.sampling, rounds=own.design.rounds, eval_every=own.design.eval_every)  # fmt: skip
    flags = [*_flags(run.design, design, ""), *_flags(run.optimizer, own.optimizer, "optimizer."),
             *_flags(run.environment, own.environment, "environment.")]  # fmt: skip
    words = ["rftlab", "run", "cell", "--pair", plain_pair(choices.start), "--preset", choices.estimator]
    return shlex.join([*words, "--seeds", str(SEEDS), *flags])


def _flags(part: Any, usual: Any, path: str) -> list[str]:
    """Return flags for the fields that differ."""
    flags: list[str] = []
    for name in (field.name for field in fields(part)):
        own, default = getattr(part, name), getattr(usual, name)
        if is_dataclass(own):
            flags += _flags(own, default, f"{path}{name}.")
        elif own != default:
            flags += [f"--{path}{name}".replace("_", "-"), str(own)]
    return flags


def python_text(choices: Choices) -> str:
    """Return lines of Python that make the same curves."""
    pair = plain_pair(choices.start)
    run, own = chosen_run(choices), start_at(pair, "sim")
    estimator = _changed_text(f'rl.preset("{choices.estimator}")', run.design.estimator, preset(choices.estimator))
    sampling = CARDS[choices.estimator].sampling
    given = {"estimator": estimator}
    if run.design.sampling == sampling and sampling != Design().sampling:
        given["sampling"] = f'rl.CARDS["{choices.estimator}"].sampling'
    others = [field for field in fields(Design) if field.name not in ("estimator", "sampling")]
    values = {field.name: getattr(run.design, field.name) for field in others}
    plain = {field.name: repr(values[field.name]) for field in others if values[field.name] != field.default}
    designed = ", ".join(f"{name}={text}" for name, text in (plain | given).items())
    changed = ""
    for name in ("environment", "optimizer"):
        if getattr(run, name) != getattr(own, name):
            changed += f", {name}={_changed_text(f'start.{name}', getattr(run, name), getattr(own, name))}"
    return "\n".join([
        "from dataclasses import replace",
        "import rftlab as rl",
        "",
        f'start = rl.start_at("{pair}", "sim")',
        f"design = rl.Design({designed})",
        f"run = replace(start, design=design{changed})",
        f"curves = rl.sweep(run, [design], seeds={SEEDS})",
    ])  # fmt: skip


def _changed_text(text: str, part: Any, usual: Any) -> str:
    """Return an expression for `part`, which differs in some fields from the value of the expression `text`."""
    changed = []
    for name in (field.name for field in fields(part)):
        own, default = getattr(part, name), getattr(usual, name)
        if own != default:
            inner = _changed_text(f"{text}.{name}", own, default) if is_dataclass(own) else repr(own)
            changed.append(f"{name}={inner}")
    return f"replace({text}, {', '.join(changed)})" if changed else text


def trainer_text(choices: Choices, engine: EngineChoice) -> str:
    """Return the configuration of a trainer for the pair's language model. Raises UserError where there is no model."""
    run, real = chosen_run(choices), model_behind(choices.start)
    if real is None:
        raise UserError(f"start = {choices.start}: no model of ours is behind it; allowed: a pair")
    factor = run.optimizer.learning_rate / choices.origin.optimizer.learning_rate
    prompt, response = LENGTHS.get(real.task.name, (256, 256))
    rate = float(f"{real.optimizer.learning_rate * factor:.4g}")
    wanted = EngineSettings(run.design, real.model.source, 1, TAIL * prompt, TAIL * response, rate, 1, real.temperature)
    flags, notes = engine_flags(engine, wanted)
    rate_note = f"learning rate: the pair's {real.optimizer.learning_rate:g} times {factor:.3g}, the slider's"
    said = [f"# {note}" for note in (*notes, rate_note)]
    return "\n".join(said + [f"{name}={value}" for name, value in flags.items()])


FORMS: dict[str, Callable[[Choices], str]] = {
    "rftlab run": command_text,
    "Python": python_text,
    "verl": lambda choices: trainer_text(choices, "verl"),
    "TRL": lambda choices: trainer_text(choices, "trl"),
}


def text_as(form: str, choices: Choices) -> str:
    """Return the text of a form, or a comment on why there is none."""
    try:
        return FORMS[form](choices)
    except UserError as error:
        return f"# {error}"
