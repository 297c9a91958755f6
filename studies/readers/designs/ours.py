"""Our own: config.json of a folder of `rftlab train`."""

from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.run import KnownDesign


def is_own_config(config: dict) -> bool:
    """Whether a configuration is ours."""
    return config.get("level") in ("llm", "sim") and isinstance(config.get("design"), dict)


_RATIOS = {"sequence": "ratio of a sequence", "sequence_token": "ratio of a sequence"}
"""As TRL's designs have it; a ratio of a token is not told."""


def own_design(config: Reader, processes: int | None) -> KnownDesign:
    """The design of a run of ours."""
    epochs, parts = (config.count(f"design.{name}") or 1 for name in ("epochs", "minibatches"))
    kl = config.real("design.estimator.kl.coef")
    return KnownDesign(
        prompts=config.count("design.batch_size"),
        rollouts=config.count("design.rollouts"),
        updates_per_round=epochs * parts,
        learning_rate=next(
            (rate for name in ("learning_rate", "rate") if (rate := config.real(f"optimizer.{name}")) is not None), None
        ),
        advantage=_advantage(config),
        loss=", ".join(
            part
            for part in (
                config.word("kinds.surrogate"),
                config.word("design.estimator.aggregation.kind"),
                _RATIOS.get(config.word("design.estimator.ratio.level") or ""),
            )
            if part
        )
        or None,
        kl_coefficient=0.0 if config.word("design.estimator.kl.kind") == "none" else kl,
        temperature=config.real("temperature"),
        response_limit=config.count("model.max_response_length"),
        precision="fp32",
        model=config.word("model.source"),
    )


def _advantage(config: Reader) -> str | None:
    """The baseline in the words of other trainers' designs; support and replay, for which they have none, behind it."""
    baseline, scale = (config.word(f"design.estimator.advantage.{name}") for name in ("baseline", "scale"))
    support, window = (config.count(f"design.{name}", 0) for name in ("support_rollouts", "replay_window"))
    kind = advantage_name(baseline, scale)
    if kind is None:
        return None
    alone = config.count("design.rollouts") == 1 and not support and not window
    kind = "raw" if alone or kind == "none" else kind
    more = f" with {support} support rollouts" if support else ""
    return kind + more + (f" with a window of {window}" if window else "")


def advantage_name(baseline: str | None, scale: str | None) -> str | None:
    """An advantage of ours in the words of `KnownDesign`."""
    if baseline == "group_mean" and scale == "group_std":
        return "group_zscore"
    return baseline if scale in (None, "none") else f"{baseline} / {scale}"
