"""A process that holds a lock."""

import subprocess
import sys
from contextlib import contextmanager

from tests.support.estimators.vectors import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from rftlab.llm.stored import locked
with locked(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(120)
"""


@contextmanager
def held(folder):
    """A process that holds the lock of a folder until the block ends."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout.readline() == "held\n"
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
