"""Callbacks that do nothing, as the defaults of arguments."""


def noop(*anything: object) -> None:
    """Ignore all arguments."""


def never() -> bool:
    """Return False, which means "do not stop"."""
    return False
