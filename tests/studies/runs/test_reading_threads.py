"""Tables are read by the thread that asks: one of pyarrow's that outlives Python takes the exit status with it."""

import subprocess
import sys

import pytest

from rftlab.studies.readers.store import write_collection
from tests.support.estimators.vectors import ROOT
from tests.support.logs.reading import read

READS = {
    "imported": "from rftlab.studies.readers.store import read_collection; read_collection(sys.argv[1], 'mine')",
    "public": "from rftlab.studies.analysis.public.store import curves; curves()",
    "reference": "from rftlab.studies.data.results.reference import shipped_runs; shipped_runs()",
}
CODE = """
import os, sys
import pandas, pyarrow.parquet, rftlab.studies.readers.run


def threads():  # but for one of jemalloc, which knows nothing of Python
    names = (open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task"))
    return sum(not name.startswith("jemalloc") for name in names)


before = threads()
READ
print(threads() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
@pytest.mark.parametrize("what", READS)
def test_reading_a_table_starts_no_thread(what, tmp_path):
    runs = read(tmp_path, "step,reward\n" + "".join(f"{step},0.5\n" for step in range(1, 40)))
    write_collection(tmp_path / "results", "mine", runs)
    command = [sys.executable, "-c", CODE.replace("READ", READS[what]), str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
