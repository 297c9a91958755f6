"""Configurations of trainers in files: YAML, TOML, JSON, training_args.bin, or the script that started the run.
Nothing in them is run."""

import re
import tomllib
from pathlib import Path
from typing import Any

from rftlab.shared.errors import UserError, check
from rftlab.shared.folders import read_json
from rftlab.studies.logs.formats.trl_state import frozen_values
from rftlab.studies.logs.text import check_file, encoding_of

LARGEST = 1 << 20
ALLOWED = (
    "verl's config.yaml or command line, TRL's arguments (YAML, JSON, training_args.bin, script), "
    "slime's or OpenRLHF's flags, prime-rl's TOML, tinker-cookbook's config.json"
)
_VERL = re.compile(
    r"(?:^|[\s\"'+])((?:data|actor_rollout_ref|algorithm|trainer|critic)\.[\w.]{1,100})=[\"']?([^\s\"'\\]{1,200})"
)
_TRL = re.compile(
    r"\b(per_device_train_batch_size|gradient_accumulation_steps|num_generations|num_iterations|steps_per_generation|generation_batch_size|learning_rate"
    r"|scale_rewards|loss_type|beta|epsilon|epsilon_high|temperature|max_completion_length|model_name_or_path|num_processes)"
    r"(?:\s*[=:]\s*|\s+)[\"']?([\w.+/${}-]{1,200}+(?:\s*[*%(\[][^,\n]{0,80}|\s+(?:/|if\b|or\b)[^,\n]{0,80})?)"
)
"""With the rest of an expression, which is no number."""
_OPENRLHF = re.compile(
    r"--(rollout_batch_size|n_samples_per_prompt|train_batch_size|max_epochs|advantage_estimator|no_advantage_std_norm"
    r"|actor_learning_rate|eps_clip|eps_clip_low_high|init_kl_coef|temperature|generate_max_len|pretrain"
    r"|dynamic_filtering)(?:[ =]+[\"']?([^\s\"'\\-][^\s\"'\\]{0,199}))?(?=\s|\\|$|[\"'])"
)
_ASSIGNED = re.compile(
    r"^[ \t]*(?:export +)?([A-Za-z_]\w{0,60})[ \t]*=[ \t]*[\"']?([\w.+/-]{1,200})[\"']?,?[ \t]*$", re.MULTILINE
)
_VARIABLE = re.compile(r"\$?\{?([A-Za-z_]\w{0,60})\}?")

_SLIME = (
    "rollout-batch-size",
    "n-samples-per-prompt",
    "global-batch-size",
    "num-steps-per-rollout",
    "advantage-estimator",
    "lr",
    "eps-clip",
    "eps-clip-high",
    "kl-loss-coef",
    "kl-coef",
    "rollout-temperature",
    "rollout-max-response-len",
    "hf-checkpoint",
)
_SLIME_SWITCHES = ("use-kl-loss", "disable-grpo-std-normalization", "calculate-per-token-loss")
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]{1,60})(?:[ =]+[\"']?([^\s\"'\\)-][^\s\"'\\)]{0,199}))?")


def read_config(path: Path) -> dict[str, Any]:
    """The configuration in a file, as plain values. Raises UserError where there is none."""
    check_file(path, ALLOWED)
    check(
        path.stat().st_size <= LARGEST,
        f"{path} has {path.stat().st_size} bytes; allowed: a configuration of at most {LARGEST}",
    )
    data = path.read_bytes()
    encoding = encoding_of(data)
    try:
        found = _parsed(path.resolve(), data, encoding)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read as a configuration: {type(error).__name__}: {str(error)[:200]}; allowed: {ALLOWED}"
        ) from None
    check(isinstance(found, dict) and bool(found), f"{path} holds no configuration; allowed: {ALLOWED}")
    return {str(key): value for key, value in found.items()}


def _parsed(path: Path, data: bytes, encoding: str) -> Any:
    if not encoding:
        return frozen_values(path)
    text = data.decode(encoding, "replace")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(text)
    return read_json(path) if text.lstrip("\ufeff \r\n\t").startswith("{") else _script(text)


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _script(text: str) -> dict[str, str]:
    """Settings of a command line or of a Python call, by the names that trainers have; the last where one is set
    twice."""
    lines = "\n".join(line.partition(" #")[0] for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = dict(_VERL.findall(lines)) or _slime(lines) or _openrlhf(lines) or dict(_TRL.findall(lines))
    assigned = _ASSIGNED.findall(lines)
    return {name: _valued(value, assigned) for name, value in found.items()}


def _valued(text: str, assigned: list[tuple[str, str]]) -> str:
    """A setting; one that names a variable has its value, if that is set once, to a plain value."""
    name = _VARIABLE.fullmatch(text)
    values = [value for own, value in assigned if name and own == name[1]]
    return values[0] if len(values) == 1 else text


def _openrlhf(text: str) -> dict[str, str]:
    """OpenRLHF's flags; {} of a script of something else."""
    found = {name: value or "true" for name, value in _OPENRLHF.findall(text)} if "openrlhf" in text.lower() else {}
    return found if {"rollout_batch_size", "n_samples_per_prompt"} & set(found) else {}


def _slime(text: str) -> dict[str, str]:
    """slime's flags; {} of a script without its two sizes."""
    flags = _FLAG.findall(text)
    found = {name: value for name, value in flags if name in _SLIME and value}
    return (
        found | {name: "true" for name, _ in flags if name in _SLIME_SWITCHES} if set(_SLIME[:2]) <= set(found) else {}
    )
