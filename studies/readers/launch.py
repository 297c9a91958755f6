"""Which settings of a script are a trainer's: verl's or TRL's."""

import re
from typing import Any, NamedTuple

from rftlab.studies.readers.designs.values import Unknown
from rftlab.studies.readers.script import Shell

_VERL = re.compile(r"(?:data|actor_rollout_ref|algorithm|trainer|critic)\.[\w.]{1,100}")
_FLAG = re.compile(r"--([A-Za-z][\w.-]{0,100})(?:=(.{0,1000}))?", re.DOTALL)
_FILES = {"config", "config_path", "config_name", "config_dir"}
"""Flags that name files in which further settings stand."""
_GRPO = ("num_generations", "steps_per_generation", "generation_batch_size", "scale_rewards")
TRL = (*_GRPO, "per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations", "learning_rate",
       "loss_type", "beta", "epsilon", "epsilon_high", "temperature", "max_completion_length", "model_name_or_path",
       "num_processes")  # fmt: skip
"""Arguments by which a command counts as one of TRL's; those of GRPO alone come first."""


class Settings(dict):
    """Settings of a script by their names."""

    hidden = ""
    """Where further settings may stand that were not read; "" for nowhere."""
    unless = ""
    """What a script hands on and may so set, as a clause; "" for nothing."""


class Launch(NamedTuple):
    """The arguments of one command."""

    flags: dict[str, Any]
    dotted: dict[str, Any]
    """NAME=VALUE."""
    hidden: list[str]


def shell_settings(text: str) -> Settings:
    """Settings of a shell script; none where it starts no known trainer. Raises ValueError for one that expands
    without end."""
    shell = Shell(text)
    for documents in (False, True):
        launches = [_launch(one, shell) for one in _joined(shell.texts(documents))]
        found = settings_of(launches, documents)
        if found:
            return found
    return settings_of([_launch(shell.assigned(), shell)], True)


def _joined(texts) -> list[str]:
    """Commands; a line that holds arguments alone belongs to the one before."""
    found: list[str] = []
    for text in texts:
        first = text.split(maxsplit=1)[:1]
        alone = first and (_FLAG.match(first[0]) or _VERL.match(first[0].lstrip("+")))
        if found and alone:
            found[-1] += " " + text
        else:
            found.append(text)
    return found


def settings_of(launches: list[Launch], bare: bool) -> Settings:
    """Settings of the commands that start a trainer. bare: names without dashes before them count as TRL's."""
    verl = [(launch, _only_verl(launch.dotted)) for launch in launches]
    trl = [(launch, _only_trl(launch, bare)) for launch in launches]
    for candidates in (verl, trl):
        started = [(launch, values) for launch, values in candidates if values]
        if started:
            return _agreed(_best(started))
    return Settings()


def _only_verl(dotted: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in dotted.items() if _VERL.fullmatch(name)}


def _only_trl(launch: Launch, bare: bool) -> dict[str, str]:
    flags = {name.replace("-", "_"): value for name, value in launch.flags.items()} | (launch.dotted if bare else {})
    return flags if set(TRL) & set(flags) else {}


def _best(started: list[tuple[Launch, dict]]) -> list[tuple[Launch, dict]]:
    """Those of reinforcement learning, where a script also starts something else of the same library."""
    own = [(launch, values) for launch, values in started
           if any(name.startswith("actor_rollout_ref.") or name in _GRPO for name in values)]  # fmt: skip
    return own or started


def _agreed(started: list[tuple[Launch, dict]]) -> Settings:
    """What all commands say; what they do not agree on is unknown."""
    found = Settings()
    for name in dict.fromkeys(name for _, values in started for name in values):
        values = list(dict.fromkeys(values.get(name, "(not stated)") for _, values in started))
        differ = f"which differs between {len(started)} commands of the script"
        found[name] = values[0] if len(values) == 1 else Unknown(" or ".join(map(str, values)), differ)
    handed = [text for launch, _ in started for text in launch.hidden]
    found.hidden = next((text for text in handed if text not in ("$@", "$*")), "")
    found.unless = ", unless an argument of the script says otherwise" if handed else ""
    return found


def _launch(text: str, shell: Shell) -> Launch:
    """The arguments of a command."""
    found = Launch({}, {}, [])
    _add(text, shell, found, set(), None)
    return found


def _add(text: str, shell: Shell, found: Launch, seen: set[int], within: Unknown | None) -> None:
    """Arguments of a text. within: what may stand for this text, or for another one."""
    tokens = text.split()
    started = within is not None
    place = 0
    while place < len(tokens):
        token = tokens[place].strip("\"'")
        flag, mark = _FLAG.fullmatch(token), shell.mark_of(token)
        place += 1
        if flag:
            value = flag[2]
            if value is None and place < len(tokens) and _is_value(tokens[place], shell):
                value = tokens[place]
                place += 1
            _set(found.flags, flag[1], "true" if value is None else value, shell, within)
            if flag[1].replace("-", "_") in _FILES:
                found.hidden.append(f"--{flag[1]} {shell.valued(value or '')}")
        elif "=" in token:
            name, value = token.split("=", 1)
            _set(found.dotted, name.lstrip("+~"), value, shell, within)
        elif token.endswith(":") and place < len(tokens):  # YAML in a here-document
            _set(found.dotted, token[:-1], tokens[place], shell, within)
        elif isinstance(mark, Unknown) and started:
            _open(mark, shell, found, seen)
        started = started or token.endswith(".py") or token == "-m" or bool(found.flags or found.dotted)


def _set(values: dict[str, str], name: str, raw: str, shell: Shell, within: Unknown | None) -> None:
    values[name] = shell.valued(raw) if within is None else Unknown(str(within), within.why)


def _is_value(token: str, shell: Shell) -> bool:
    """Whether a token is the value of the flag before it."""
    mark = shell.mark_of(token.strip("\"'"))
    return not token.startswith("--") and not (isinstance(mark, Unknown) and any("--" in text for text in mark.maybe))


def _open(mark: Unknown, shell: Shell, found: Launch, seen: set[int]) -> None:
    """An argument that may be several: of the texts that it may be, each setting is unknown."""
    if id(mark) in seen:
        return
    seen.add(id(mark))
    if not mark.maybe:
        found.hidden.append(str(mark).strip('"{}').replace("${", "$"))
    for text in mark.maybe:
        _add(text, shell, found, seen, mark)
