"""Named estimators of the field. A preset is a value, so any field of it can be changed with `dataclasses.replace`."""

from shared.errors import check_choice
from shared.estimator import KL, Advantage, Aggregation, Estimator, Surrogate

_PAPER_KL = KL("k3", 0.001)

PRESETS: dict[str, Estimator] = {
    "minimalist": Estimator(Advantage("reward"), Surrogate("clip"), _PAPER_KL, Aggregation("seq_mean_token_sum")),
    "grpo": Estimator(Advantage("group_zscore"), Surrogate("clip"), KL("k3", 0.04), Aggregation("seq_mean_token_mean")),
    "dr_grpo": Estimator(Advantage("group_mean"), Surrogate("clip"), KL("none"), Aggregation("seq_mean_token_sum", length=1024)),
    "rloo": Estimator(Advantage("leave_one_out"), Surrogate("reinforce"), KL("none"), Aggregation("seq_mean_token_sum")),
    "paper_text": Estimator(Advantage("group_zscore"), Surrogate("clip"), _PAPER_KL, Aggregation("seq_mean_token_sum")),
    "paper_code": Estimator(Advantage("group_zscore"), Surrogate("clip", dual=3.0), _PAPER_KL, Aggregation("token_mean")),
}


def preset(name: str) -> Estimator:
    """The estimator of that name; an unknown name is an error that lists the known ones."""
    check_choice("estimator", name, tuple(PRESETS))
    return PRESETS[name]


def name_of(estimator: Estimator) -> str:
    """Name of the preset that equals `estimator`, else its advantage's kind and `custom`."""
    return next((name for name, known in PRESETS.items() if known == estimator), f"{estimator.advantage.kind}_custom")
