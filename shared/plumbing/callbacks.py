"""Callbacks of a caller who does not listen, as the defaults of arguments."""


def noop(*anything: object) -> None:
    """Hear it and do nothing."""


def never() -> bool:
    """Do not ask to stop."""
    return False
