"""The command as a process."""

import subprocess
import sys


def rftlab(*arguments, cwd, **options):
    return subprocess.run(
        [sys.executable, "-m", "rftlab.studies.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1200,
        cwd=cwd,
        **options,
    )
