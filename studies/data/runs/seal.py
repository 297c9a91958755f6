"""JSON files that say what they are of, and tell when they were changed: beside the facts lies a checksum of them
and of what they are of."""

import hashlib
import json
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.folders import read_json

SEAL = "sha256"


def sealed(facts: dict[str, Any], of: Any, indent: int | None = 1) -> bytes:
    """A file with `facts` about `of`, both plain JSON values."""
    return json.dumps(facts | {SEAL: _sum(facts, of)}, indent=indent).encode()


def read_sealed(path: Path, of: Any) -> dict[str, Any]:
    """The facts of a file about `of`. Raises OSError where there is none, and ValueError where they cannot be
    trusted."""
    facts = read_json(path)
    if not isinstance(facts, dict) or facts.pop(SEAL, None) != _sum(facts, of):
        raise ValueError(f"{path.name} was changed, or is of something else, or of another version of rftlab")
    return facts


def _sum(facts: dict[str, Any], of: Any) -> str:
    return hashlib.sha256(json.dumps([of, facts], sort_keys=True).encode()).hexdigest()
