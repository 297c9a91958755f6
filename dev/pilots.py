"""Ship the measurements of base models in a results folder with the package: `python -m dev.pilots RESULTS` (`make
pilots`)."""

import json
import sys
from pathlib import Path

from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below, folders_in
from rftlab.studies.forecast.pilot import store
from rftlab.studies.forecast.pilot.pilot import Base


def ship(root: Path) -> None:
    """Write the measurements of a results folder into the package; those of other pairs stay. Raises DamagedPilot."""
    bases = [
        store.read_measurements(store.pilot_path(root, folder.name, "base"), Base)
        for folder in folders_in(folder_below(root, "pilot"))
    ]
    known = store.shipped() | {base.pair: store.encoded(base) for base in bases if base}
    write_file(Path(str(store.SHIPPED)), json.dumps(known, sort_keys=True).encode())


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
