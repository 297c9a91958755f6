"""Values of columns, checked. Errors name the row."""

from rftlab.llm.tasks.files import DatasetRow
from rftlab.shared.plumbing.errors import UserError, check


def shown(value: object) -> str:
    """A value in a message, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_missing(value: object) -> bool:
    """Whether a value is none: tables of numbers have nan there."""
    return value is None or value != value


def is_text(text: str) -> bool:
    """Whether all of a text can be written down: JSON can spell half of a character."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def column_of(row: DatasetRow, column: str, allowed: str) -> object:
    """A column that must be there."""
    have = ", ".join(row.columns) or "none"
    check(column in row.columns, f"{row.place}: column {column} is missing (there are: {have}); allowed: {allowed}")
    return row.columns[column]


def text_column(row: DatasetRow, column: str, allowed: str) -> str:
    """A column that must hold some text."""
    value = column_of(row, column, allowed)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{row.place}: {column} is {shown(value)}; allowed: text that is not empty")
    return value


def messages_column(row: DatasetRow, column: str) -> list[dict[str, str]]:
    """A column that must hold chat messages with some text."""
    messages = row.columns[column]
    if not isinstance(messages, list) or not messages:
        raise UserError(f"{row.place}: {column} is {shown(messages)}; allowed: a list of chat messages")
    for message in messages:
        good = (
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            and is_text(message["role"] + message["content"])
        )
        check(good, f"{row.place}: {column} has the message {shown(message)}; allowed: role and content, both text")
    check(
        any(message["content"].strip() for message in messages),
        f"{row.place}: {column} has no text; allowed: a message with some",
    )
    return [{"role": message["role"], "content": message["content"]} for message in messages]
