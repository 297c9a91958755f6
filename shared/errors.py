"""The one exception that the command line turns into a single line and exit status 2."""


class UserError(Exception):
    """Bad input: the message names the thing that is wrong and what is allowed."""


def check(condition: bool, message: str) -> None:
    """Raise `UserError(message)` unless `condition` holds."""
    if not condition:
        raise UserError(message)


def check_choice(field: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `allowed`; the message lists them."""
    check(value in allowed, f"{field} = {value!r} is unknown; allowed: {', '.join(allowed)}")
