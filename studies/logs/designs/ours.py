"""Our own: config.json of a folder of `rftlab train`."""

from rftlab.studies.logs.designs.values import at, count, real, word
from rftlab.studies.logs.run import KnownDesign


def recognise(config: dict) -> bool:
    """Whether a configuration is ours."""
    return config.get("level") in ("llm", "sim") and isinstance(config.get("design"), dict)


_RATIOS = {"sequence": "ratio of a sequence", "sequence_token": "ratio of a sequence"}
"""As TRL's designs have it; a ratio of a token is not told."""


def design(config: dict, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """The design of a run of ours."""
    epochs, parts = (count(at(config, f"design.{name}")) or 1 for name in ("epochs", "minibatches"))
    kl = real(at(config, "design.estimator.kl.coef"))
    known = KnownDesign(
        prompts=count(at(config, "design.batch_size")),
        rollouts=count(at(config, "design.rollouts")),
        updates_per_round=epochs * parts,
        learning_rate=next(
            (
                found
                for name in ("learning_rate", "rate")
                if (found := real(at(config, f"optimizer.{name}"))) is not None
            ),
            None,
        ),
        advantage=_advantage(config),
        loss=", ".join(
            part
            for part in (
                word(at(config, "kinds.surrogate")),
                word(at(config, "design.estimator.aggregation.kind")),
                _RATIOS.get(at(config, "design.estimator.ratio.level")),
            )
            if part
        )
        or None,
        kl_coefficient=0.0 if at(config, "design.estimator.kl.kind") == "none" else kl,
        temperature=real(at(config, "temperature")),
        response_limit=count(at(config, "model.max_response_length")),
        model=word(at(config, "model.source")),
    )
    return known, []


def _advantage(config: dict) -> str | None:
    """The baseline in the words of other trainers' designs; support and replay, for which they have none, behind it."""
    baseline, scale = (word(at(config, f"design.estimator.advantage.{name}")) for name in ("baseline", "scale"))
    support, window = (count(at(config, f"design.{name}")) for name in ("support_rollouts", "replay_window"))
    kind = advantage_name(baseline, scale)
    if kind is None:
        return None
    alone = count(at(config, "design.rollouts")) == 1 and not support and not window
    kind = "raw" if alone or kind == "none" else kind
    more = f" with {support} support rollouts" if support else ""
    return kind + more + (f" with a window of {window}" if window else "")


def advantage_name(baseline: str | None, scale: str | None) -> str | None:
    """An advantage of ours in the words of `KnownDesign`."""
    if baseline == "group_mean" and scale == "group_std":
        return "group_zscore"
    return baseline if scale in (None, "none") else f"{baseline} / {scale}"
