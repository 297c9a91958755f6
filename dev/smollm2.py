"""Run the reference cells of SmolLM2: `python -m dev.smollm2 RESULTS`. Finished cells are not repeated."""

import sys
from pathlib import Path

from rich.console import Console

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.results.reference import smollm2_points
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.finish import finish_points

if __name__ == "__main__":
    try:
        finish_points(Console(), store.open_store(Path(sys.argv[1])), smollm2_points(), 0, False)
    except UserError as error:
        sys.exit(str(error))
