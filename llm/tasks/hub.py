"""Rows of data sets on the hub."""

from collections.abc import Iterable

from rftlab.llm.tasks.files import DatasetRow
from rftlab.shared.plumbing.errors import UserError


def hub_rows(repository: str, configuration: str | None, split: str) -> list[DatasetRow]:
    """Every row of a split. Raises UserError where it cannot be loaded."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            "source = 'hub' needs the package datasets: pip install '.[llm]' in rftlab's folder; a local file "
            "or folder needs nothing"
        ) from None
    try:
        table: Iterable[dict] = datasets.load_dataset(repository, configuration, split=split)
    except Exception as error:  # it raises what its many parts raise, most of them for a network that is not there
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{repository} ({split}) cannot be loaded from the hub: {said}; source can also name a local file or folder"
        ) from None
    return [DatasetRow(f"{repository} ({split}) row {i}", dict(columns)) for i, columns in enumerate(table, start=1)]
