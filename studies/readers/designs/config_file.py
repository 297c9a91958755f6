"""Read configurations of trainers from files: YAML, TOML, JSON, training_args.bin, or the script that started the run.
Nothing in them is run."""

import io
import pickle
import pickletools
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import read_json
from rftlab.studies.readers.designs.script import Settings, python_settings
from rftlab.studies.readers.designs.shell import shell_settings
from rftlab.studies.readers.designs.values import plain_values
from rftlab.studies.readers.text import check_file, detect_encoding

LARGEST, YAML, SCRIPT = 1 << 20, 1 << 16, 1 << 18
"""Largest sizes in bytes: of a file, and of YAML and scripts, which take long to parse."""
ALLOWED = (
    "verl's config.yaml or command line, TRL's arguments (YAML, TOML, JSON, training_args.bin, script), the "
    "configuration of OpenRLHF, slime, SkyRL, EasyR1, AReaL, ROLL, open-instruct, NeMo-RL or prime-rl, or settings "
    "with CS336's names (group_size and rollout_batch_size)"
)


def read_config(path: Path) -> dict[str, Any]:
    """Return the configuration in a file, as plain values. Raises UserError where there is none."""
    check_file(path, ALLOWED)
    check(
        path.stat().st_size <= LARGEST,
        f"{path} has {path.stat().st_size} bytes; allowed: a configuration of at most {LARGEST}",
    )
    data = path.read_bytes()
    encoding = detect_encoding(data)
    try:
        config = _parsed(path.resolve(), data, encoding)
        copy = plain_values(config)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read as a configuration: {type(error).__name__}: {str(error)[:200]}; allowed: {ALLOWED}"
        ) from None
    check(isinstance(config, dict) and bool(config), f"{path} holds no configuration; allowed: {ALLOWED}")
    return config if isinstance(config, Settings) else copy


def _parsed(path: Path, data: bytes, encoding: str) -> Any:
    if not encoding:
        return frozen_values(path)
    text = data.decode(encoding, "replace")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if text.lstrip("\ufeff \r\n\t").startswith("{"):
        return read_json(path)
    kind, most = ("YAML", YAML) if path.suffix in (".yaml", ".yml") else ("a script", SCRIPT)
    if len(data) > most:
        raise ValueError(f"{len(data)} bytes are too many for {kind}; at most {most}")
    if kind == "YAML":
        return read_yaml(text)
    return python_settings(text) if path.suffix == ".py" else shell_settings(text)


def read_yaml(text: str) -> Any:
    """Return the content of a YAML document. Raises ValueError for a damaged one, and for merges (<<) of several parts,
    which could double the entries each time when they are nested."""
    import yaml

    class Loader(yaml.SafeLoader):
        def flatten_mapping(self, node: Any) -> None:
            merges = (value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge")
            if any(isinstance(value, yaml.SequenceNode) for value in merges):
                raise ValueError("it merges (<<) several parts at once")
            super().flatten_mapping(node)

    try:
        return yaml.load(text, Loader)
    except Exception as error:  # a tag before a value that it does not fit may raise anything
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


class _Frozen:
    """Replacement for any object of a pickle: it keeps the arguments that it is given, and does nothing."""

    given: tuple

    def __new__(cls, *given, **named):
        made = super().__new__(cls)
        made.given = given
        return made

    def __init__(self, *given, **named):
        pass

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        """Ignore an item of an object that is some kind of dictionary."""

    def append(self, item):
        """Ignore an item of an object that is some kind of list."""

    extend = append


class _Reader(pickle.Unpickler):
    """Unpickler that makes only plain values and `_Frozen`. It looks up no name in a pickle."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that does nothing, whatever is asked for."""
        return _Frozen

    def persistent_load(self, pid: Any) -> None:
        """Return None for a tensor, which is left out."""
        return None


def frozen_values(path: Path) -> dict[str, Any]:
    """Return the plain values of a pickled object's fields without running any of it. Raises ValueError where there are
    none."""
    data = path.read_bytes() if path.stat().st_size <= LARGEST else b""
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                info = next(info for info in archive.infolist() if info.filename.endswith("data.pkl"))
                data = archive.read(info) if info.file_size <= LARGEST else b""
        puts = [int(place or 0) for code, place, _ in pickletools.genops(data) if code.name.endswith("PUT")]
        if any(place > len(data) for place in puts):  # the unpickler makes room for all places below
            raise ValueError("it keeps a value at a place beyond its end")
        frozen = _Reader(io.BytesIO(data)).load()
        fields = plain_values(getattr(frozen, "state", frozen), _thawed)
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{type(error).__name__}: {str(error)[:100]}") from None
    if not isinstance(fields, dict):
        raise ValueError("it holds no fields")
    return fields


def _thawed(value: Any) -> str | None:
    """Return the text of an enum; None for another object."""
    given = value.given if isinstance(value, _Frozen) else ()
    return given[0] if len(given) == 1 and isinstance(given[0], str) else None
