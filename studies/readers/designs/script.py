"""Read settings of a trainer from a script: those on which its commands agree, or those of a Python file. In Python
they are keywords of a call such as GRPOConfig(...), or verl's settings in texts. The file is parsed, not run.

The value of a name is known where the file assigns it exactly once, at its top level and under no condition, to a
constant.
"""

import ast
import re
import warnings
from collections import Counter
from typing import Any

from rftlab.studies.readers.designs.completions import MARKS, NAMES
from rftlab.studies.readers.designs.values import Fallback, Unknown

UNSET, TWICE = "which the script does not set", "which the script sets more than once"
ELSEWHERE = "which the script sets inside of something else"
COMPUTED = "which only running the script would show"
VERL = re.compile(
    r"(?:data|actor_rollout_ref|algorithm|trainer|critic|generator|worker|rollout|train|actor|algo|ds)\.[\w.]{1,100}"
)
_GRPO = ("num_generations", "steps_per_generation", "generation_batch_size", "scale_rewards")
TRL = (*_GRPO, "per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations", "learning_rate",
       "loss_type", "beta", "epsilon", "epsilon_high", "temperature", "max_completion_length", "model_name_or_path",
       "num_processes", "rollout_batch_size")  # fmt: skip
"""Arguments by which a command counts as one of TRL's; those of GRPO alone come first."""
_SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w.]{0,100})=(.{1,200})")
_ADAPTERS = ("LoraConfig", "get_peft_model")
_LOADERS = ("AutoModelForCausalLM", "FastLanguageModel", "FastModel", "FastVisionModel")
_MODELS = ("model_name", "pretrained_model_name_or_path", "model")
"""Keywords that hold the model in calls that load one, and in GRPOTrainer's."""
_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
_NONE = object()
"""Mark of an expression that is no constant."""


class Settings(dict):
    """Settings of a script by their names."""

    hidden = ""
    """Where further settings may stand that were not read; "" for nowhere."""
    unless = ""
    """Clause that says when settings of the script do not hold, for its arguments may state others; "" for none."""


Launch = tuple[dict[str, Any], list[str]]
"""Settings in the arguments of one command (NAME=VALUE, --NAME VALUE and --NAME=VALUE, flags with underscores), and the
arguments in which further settings may stand."""


def agreed_settings(launches: list[Launch]) -> Settings:
    """Return the settings of all commands that start verl, else TRL; a setting on which they do not agree is unknown.
    Of TRL's commands those of reinforcement learning count, where there are any."""
    verl = [({n: v for n, v in values.items() if VERL.fullmatch(n)}, hidden) for values, hidden in launches]
    trl = [one for one in launches if set(TRL) & set(one[0])]
    started = [one for one in verl if one[0]] or trl
    own = [pair for pair in started if any(name.startswith("actor_rollout_ref.") or name in _GRPO for name in pair[0])]
    started, agreed = own or started, Settings()
    for name in dict.fromkeys(name for values, _ in started for name in values):
        values = list(dict.fromkeys(values.get(name, "(not stated)") for values, _ in started))
        differ = f"which differs between {len(started)} commands of the script"
        agreed[name] = values[0] if len(values) == 1 else Unknown(" or ".join(map(str, values)), differ)
    handed = [text for _, hidden in started for text in hidden]
    agreed.hidden = next((text for text in handed if text not in ("$@", "$*")), "")
    agreed.unless = ", unless an argument of the script says otherwise" if handed else ""
    return agreed


def python_settings(text: str) -> Settings:
    """Return the settings in a Python file. Raises ValueError for text that is no Python."""
    try:
        tree = parse_python(text)
        nodes = list(ast.walk(tree))
        names = _Names(tree, nodes)
        settings = agreed_settings([launch for node in nodes if (launch := _launch(node, names))])
        plain = _plain(nodes, names)
        if plain.keys() >= set(MARKS) and not settings.keys() & set(_GRPO):
            return plain
        for name, value in _made(nodes, names).items() if settings else ():
            settings.setdefault(name, value)
        return settings or agreed_settings([(_in_texts(nodes), [])])
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"it is no Python: {type(error).__name__}") from None


def parse_python(text: str) -> ast.Module:
    """Parse Python code, without the warnings that Python gives of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


class _Names:
    """Names of a file and what they stand for."""

    def __init__(self, tree: ast.Module, nodes: list[ast.AST]):
        stored = [node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
        self.times = Counter(stored + [node.arg for node in nodes if isinstance(node, ast.arg)])
        self.values: dict[str, ast.expr | None] = {}
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign) and len(targets) == 1 and isinstance(targets[0], ast.Name):
                self.values[targets[0].id] = node.value

    def value(self, node: ast.expr) -> Any:
        """Return the value of a constant, a name of one, or a default of the environment; others are unknown."""
        written = _written(node)
        if isinstance(node, ast.Name):
            if self.times[written] != 1:
                return Unknown(written, TWICE if self.times[written] else UNSET)
            assigned = self.values.get(written)
            if assigned is None:
                return Unknown(written, ELSEWHERE)
            node = assigned
        constant = _constant(node)
        return Unknown(written, COMPUTED) if constant is _NONE else constant


def _launch(node: ast.AST, names: _Names) -> Launch | None:
    """Return TRL's settings in a call, a dictionary, or an assignment to an attribute; None for another node."""
    hidden: list[str] = []
    pairs: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Call):
        pairs = [(word.arg, word.value) for word in node.keywords if word.arg]
        hidden = [f"**{_written(word.value)}" for word in node.keywords if word.arg is None]
    elif isinstance(node, ast.Dict):
        pairs = [(key.value, value) for key, value in zip(node.keys, node.values, strict=True)
                 if isinstance(key, ast.Constant) and isinstance(key.value, str)]  # fmt: skip
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
        pairs = [(node.targets[0].attr, node.value)]
    if not {name for name, _ in pairs} & set(TRL):
        return None
    return {name: names.value(value) for name, value in pairs}, hidden


def _made(nodes: list[ast.AST], names: _Names) -> dict[str, Any]:
    """Return the model that a file loads and the rank of the adapters that it makes, by the names of TRL's arguments.
    Only calls of transformers, PEFT or Unsloth under no condition count, and a fact with two values is left out."""
    chosen = [node for node in nodes if isinstance(node, ast.If | ast.IfExp) and "__name__" not in _written(node.test)]
    unsure = {id(below) for node in chosen for below in ast.walk(node)}
    made: dict[str, dict[str, Any]] = {"lora_r": {}, "model_name_or_path": {}}
    for node in nodes:
        if not isinstance(node, ast.Call) or id(node) in unsure:
            continue
        called, given = _last(node.func), {word.arg: word.value for word in node.keywords}
        if called in _ADAPTERS and "r" in given:
            rank = names.value(given["r"])
            made["lora_r"][str(rank)] = rank
        loads = called == "from_pretrained" and _last(getattr(node.func, "value", None)) in _LOADERS
        named = [given[name] for name in _MODELS if name in given] or node.args
        model = names.value(named[0]) if named and (loads or called == "GRPOTrainer") else None
        if isinstance(model, str) and not isinstance(model, Unknown):
            made["model_name_or_path"][str(model)] = model
    return {name: next(iter(values.values())) for name, values in made.items() if len(values) == 1}


def _plain(nodes: list[ast.AST], names: _Names) -> Settings:
    """Return the values that a file gives to the settings of plain training scripts: fields, entries, keywords,
    defaults, assignments. `group_size=args.group_size` passes a value on and gives none. A setting with two values is
    unknown."""
    known, given = {name for group in NAMES.values() for name in group}, Settings()
    values: dict[str, dict[str, Any]] = {}
    for name, value in ((_last(target).lower(), value) for node in nodes for target, value in _given(node)):
        if name in known and value is not None and _last(value).lower() not in known:
            read = names.value(value)
            values.setdefault(name, {})[str(read)] = read
    for name, each in values.items():
        given[name] = next(iter(each.values())) if len(each) == 1 else Unknown(" or ".join(each), TWICE)
    given.unless = ", unless an argument of the script says otherwise"
    return given


def _given(node: ast.AST) -> list[tuple[Any, Any]]:
    """Return the targets of a node that assigns values, and those values."""
    match node:
        case ast.Call(func=ast.Attribute(attr="add_argument"), args=[*_, ast.Constant(value=str(flag))]):
            name = flag.lstrip("-").replace("-", "_")
            return [(ast.Name(name), word.value) for word in node.keywords if word.arg == "default"]
        case ast.Dict(keys=keys, values=values):
            return list(zip(keys, values, strict=True))
        case ast.arguments(args=args, defaults=defaults):
            late = zip(args[::-1], defaults[::-1], strict=False)
            return [*late, *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=value):
            return [(target, value)]
        case ast.keyword(value=value):
            return [(node, value)]
    return []


def _last(node: Any) -> str:
    """Return the last name in an expression: `size` in size, args.size, args["size"], size=8 and "size"; else ""."""
    node = node.slice if isinstance(node, ast.Subscript) else node
    name = next((getattr(node, at) for at in ("id", "attr", "arg", "value") if hasattr(node, at)), "")
    return name if isinstance(name, str) else ""


def _in_texts(nodes: list[ast.AST]) -> dict[str, Any]:
    """Return the settings that texts of a file state as NAME=VALUE; unknown where a text is put together."""
    settings: dict[str, Any] = {}
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) else ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                f"{{{_written(part.value)}}}" if isinstance(part, ast.FormattedValue) else str(part.value)
                for part in node.values
                if isinstance(part, ast.FormattedValue | ast.Constant)
            )
        if isinstance(text, str) and (match := _SETTING.fullmatch(text)):
            settings[match[1]] = Unknown(match[2], COMPUTED) if isinstance(node, ast.JoinedStr) else match[2]
    return settings


def _constant(node: ast.expr) -> Any:
    """Return the value of a constant or a negative number, or the default in os.environ.get("N", 16), in os.getenv and
    in a number made of either; else `_NONE`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = node.operand.value if isinstance(node.operand, ast.Constant) else None
        return -inner if isinstance(inner, int | float) else _NONE
    if not isinstance(node, ast.Call):
        return _NONE
    if isinstance(node.func, ast.Name) and node.func.id in ("int", "float") and len(node.args) == 1:
        default = _constant(node.args[0]) if isinstance(node.args[0], ast.Call) else _NONE
        return default if isinstance(default, Fallback) else _NONE
    if _written(node.func) in _ENVIRONMENT and len(node.args) == 2:
        name, default = map(_constant, node.args)
        if isinstance(name, str) and default is not _NONE:
            return Fallback(str(default), f"unless {name[:80]} is set in the environment")
    return _NONE


def _written(node: ast.AST) -> str:
    """Return the text of an expression, cut where it is long."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        return f"{_written(node.value)}.{node.attr}"
    return ast.unparse(node)[:80]
