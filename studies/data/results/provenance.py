"""Where stored runs come from, as it is recorded beside each of them."""

from pathlib import Path

from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import Point

UNKNOWN = "unknown"


def provenance(root: Path, points: list[Point]) -> dict[str, str]:
    """Commit, time and versions of finished runs by name; where runs differ, every value that occurs. Raises
    store.Damaged."""
    done = [facts for point in points if (facts := store.read_facts(root, point))]
    versions = [facts["versions"] for facts in done]
    found = {"commit": [facts["commit"] for facts in done]}
    found |= {
        name: [of_run.get(name, UNKNOWN) for of_run in versions]
        for name in dict.fromkeys(name for of_run in versions for name in of_run)
    }
    listed = {name: "; ".join(dict.fromkeys(values)) for name, values in found.items()}
    seconds = sum(facts["seconds"] for facts in done)
    return {"commit": listed.pop("commit"), "run time": f"{seconds:.1f} s, the sum over {len(done)} runs"} | listed
