"""Configurations of trainers in files: YAML, TOML, JSON, training_args.bin, or the script that started the run.
Nothing in them is run."""

import tomllib
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import read_json
from rftlab.studies.readers.formats.trl_state import frozen_values
from rftlab.studies.readers.launch import Settings, shell_settings
from rftlab.studies.readers.python_file import python_settings
from rftlab.studies.readers.text import check_file, encoding_of

LARGEST, SCRIPT = 1 << 20, 1 << 18
"""Bytes of a file, and of a script."""
ENTRIES, LEVELS = 50_000, 100
"""Keys and values of a YAML file, and how deep they are inside each other."""
CHARACTERS = 10_000
"""Of a value that may be a number."""
ALLOWED = "verl's config.yaml or command line, TRL's arguments (YAML, TOML, JSON, training_args.bin, script)"


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
    return found if isinstance(found, Settings) else {str(key): value for key, value in found.items()}


def _parsed(path: Path, data: bytes, encoding: str) -> Any:
    if not encoding:
        return frozen_values(path)
    text = data.decode(encoding, "replace")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(text)
    if text.lstrip("\ufeff \r\n\t").startswith("{"):
        return read_json(path)
    _check_small("bytes, which is too long for a script", len(data), SCRIPT)
    return python_settings(text) if path.suffix == ".py" else shell_settings(text)


def _yaml(text: str) -> Any:
    """A YAML document. Its events are counted before anything is built of them: building takes long, and libyaml
    ends the process where nodes are too deep."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            """Merges (<<) inside each other could double the entries each time."""
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:merge" and isinstance(value, yaml.SequenceNode):
                    for part in value.value:
                        self.flatten_mapping(part)
                    _check_small("entries", sum(len(part.value) for part in value.value), ENTRIES)
            super().flatten_mapping(node)
            self.merged += len(node.value)
            _check_small("entries", self.merged, ENTRIES)

    try:
        depth = 0
        for number, event in enumerate(yaml.parse(text, base)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            _check_small("entries", number, ENTRIES)
            _check_small("levels", depth, LEVELS)
            plain = isinstance(event, yaml.ScalarEvent) and not event.style
            _check_small("characters without quotes in a value", len(event.value) if plain else 0, CHARACTERS)
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _check_small(what: str, number: int, most: int) -> None:
    if number > most:
        raise ValueError(f"it has more than {most} {what}")
