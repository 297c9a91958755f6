"""Every family of reference vectors with its adapter, and the compact subset of them that lies in tests/golden.

python -m tests.support.golden.families     writes the compact subset from the whole set
"""

import json

from tests.support.estimators.vectors import SUBSET, WHOLE, Api, cases_of, folder_of
from tests.support.golden import advantages, losses, trl

ADAPTERS = advantages.ADAPTERS | losses.ADAPTERS | trl.ADAPTERS
FAMILIES = tuple(ADAPTERS)
COARSE = ("adv_grpo_vectorized", "adv_grpo_vectorized_nostd", "adv_gdpo_multi", "adv_of_2026")
"""Families whose source computes in float32."""

DEPTH = {"adv": 4, "loss": 2, "kl": 2, "agg": 3, "trl": 2}
"""Times that every feature is shown, by the first word of the family."""
LARGEST = 500_000


def check_subset(api: Api, family: str) -> None:
    """Every case of a family in the compact subset."""
    for case in cases_of(SUBSET, family):
        ADAPTERS[family](api, case)


def features(case: dict) -> set[str]:
    """What the subset must show a few times, where the whole does."""
    params, outputs = case.get("params") or {}, case["outputs"]
    named = {f"{key}={value}" for key, value in params.items() if isinstance(value, (str, bool))}
    given = {f"with {key}" for key, value in params.items() if value is not None}
    answers = {f"{key} is {'null' if value is None else 'given'}" for key, value in outputs.items()}
    tags = {f"tag {tag}" for tag in case.get("tags") or []} | ({f"kind {case['kind']}"} if case.get("kind") else set())
    pairs = {f"{a} and {b}" for a in named for b in named if a < b and a.split("=")[0] in ("aggregation", "is_level")}
    return (
        named
        | given
        | answers
        | tags
        | pairs
        | {f"{signal} of {name}" for signal in signals(params, outputs) for name in pairs | {"any"}}
    )


def signals(params: dict, outputs: dict) -> set[str]:
    """What tells right from wrong: advantages of many values; a masked row, without gradient beside others."""
    advantage, rows = outputs.get("advantage") or [], outputs.get("grad_log_prob") or []
    at_rest = [not any(row) for row in rows] if params.get("off_policy_mask_threshold") is not None else []
    found = {
        "many advantages": len({round(value, 9) for value in advantage}) > 3,
        "a masked row": any(at_rest) and not all(at_rest),
    }
    return {name for name, holds in found.items() if holds}


def choose(cases: list[dict], depth: int) -> list[dict]:
    """Few small cases that show every feature at least `depth` times, in their first order."""
    missing = {feature: depth for case in cases for feature in features(case)}
    left, chosen = dict(enumerate(cases)), []
    size = {i: len(json.dumps(case)) for i, case in left.items()}
    while left:
        gain = {i: sum(missing[feature] > 0 for feature in features(case)) for i, case in left.items()}
        best = max(left, key=lambda i: (gain[i] / size[i] ** 0.4, -i))
        if not any(gain.values()):
            break
        for feature in features(left.pop(best)):
            missing[feature] -= 1
        chosen.append(best)
    return [cases[i] for i in sorted(chosen)]


def write_subset() -> None:
    """Fill the folder of the compact subset from the whole set."""
    target = folder_of(SUBSET)
    for family in (family for family in FAMILIES if not family.endswith("_of_2026")):  # which are no subset
        whole = json.loads((folder_of(WHOLE) / f"{family}.json").read_text())
        cases = choose(whole["cases"], DEPTH[family.split("_")[0]])
        (target / f"{family}.json").write_text(
            json.dumps(whole | {"n_cases": len(cases), "cases": cases}, separators=(",", ":")) + "\n"
        )
        print(f"{family}: {len(cases)} of {len(whole['cases'])} cases")
    total = sum(path.stat().st_size for path in target.glob("*.json"))
    print(f"{total} bytes")
    assert total < LARGEST


if __name__ == "__main__":
    write_subset()
