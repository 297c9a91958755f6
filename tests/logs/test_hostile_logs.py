"""Files that ask for more than they hold: texts on which a pattern may try for ever, databases that compute, tables
that grow. A process that is ended after a while reads them all, so that one that hangs fails here."""

import contextlib
import json
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import product

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from rftlab.llm.tasks import files as bounds
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.formats import stores
from tests.support.logs.reading import read

SIZE, SECONDS = 100_000, 300
MARKS = ("<!---->", " ", "\t", "/", ":", "-", ",", ".", "0", "1e", "a", "=", '"', "'", "(", ")", "[", "]", "{", "{'a':",
         "|", "%", "_", "@", "step:1 - ", "]step:1 - a( ", "pid=1", "(pid=", "{'", "\x1b[", "actor_rollout_ref.",
         "iteration 1", "SUCCESS ", "np.", "accuracy", "rewards/", " - ", "\u00b2", "\u0661")  # fmt: skip
FRAMES = ("{}", "{}x\n", "step,reward\n1,{}x\n2,.5\n", "step:1 - critic/score/mean:0.5 - {}\nstep:2 - {}x\n",
          "{{'loss': 0.5, 'reward': {}}}\n", "SUCCESS Step 1 | Reward: {}x | \n", "step: 3: {{'{}\n",
          "run - {}\n1,2\n", '{{"step": 1, "{}": 0.5}}\n{{"step": 2}}\n', "(pid=1) step:1 - a/b:1\n{}\n")  # fmt: skip
READ_ALL = """
import resource
import sys
from pathlib import Path
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)  # of the processor, however busy the machine is
for path in sorted(Path(sys.argv[1]).iterdir()):
    print(path.name, flush=True)
    try:
        read_logs([path])
    except UserError as error:
        assert "Traceback" not in str(error)
"""


def family():
    """Repeats of every mark, alone in every frame, and of every pair in the plain ones."""
    for (i, mark), (j, frame) in product(enumerate(MARKS), enumerate(FRAMES)):
        yield f"{i}-{j}.txt", frame.replace("{}", mark * (SIZE // len(mark))).replace("{{", "{").replace("}}", "}")
    for (i, one), (j, other) in product(enumerate(MARKS), repeat=2):
        if i != j:
            yield f"pair-{i}-{j}.txt", "step:1 - " + (one + other) * (SIZE // 4 // len(one + other)) + "x\n"


def test_no_text_takes_a_reader_for_ever(tmp_path):
    for name, text in family():
        (tmp_path / name).write_text(text)
    done = subprocess.run([sys.executable, "-c", READ_ALL, str(tmp_path), str(SECONDS)], capture_output=True, text=True)
    assert done.returncode == 0, f"in {done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"


def notebook(table):
    cell = {"cell_type": "code", "source": [], "outputs": [{"data": {"text/html": [table]}}]}
    return json.dumps({"cells": [cell]})


ASKING = {
    "tags.ipynb": notebook("<tr><th>Step</th><th>reward</th></tr><tr>" + "<td>" * 250_000 + "<" * 500_000),
    "half.ipynb": notebook("<tr><th>Step</th></tr><tr>" + "<td " * 250_000 + "<td>1" + "<b" * 250_000),
    "block.log": "{'actor_rollout_ref': {\n" + "\n" * 200_000,
    "blocks.log": ("{'actor_rollout_ref': {'a': [" + "1," * 130_000 + "\n" + "x\n" * 60 + "step:\n") * 20,
    "key.log": "{'actor_rollout_ref': {}, [1]: 2}\nstep:1 - critic/score/mean:0.5\n",
    "names.jsonl": json.dumps({"step": 1, "a" * 500_000: {f"b{i}": 1 for i in range(9000)}}) + '\n{"step": 2}\n',
    "kind.jsonl": json.dumps({"step": 1, "type": "a" * 500_000} | {f"b{i}": 1 for i in range(9000)})
    + '\n{"step": 2}\n',
}


@pytest.mark.parametrize("name", ASKING)
def test_a_small_file_takes_little_time_and_memory(name, tmp_path):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with contextlib.suppress(UserError):
        read(tmp_path, ASKING[name], name)
    assert time.process_time() - start < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000


def database(path, *statements):
    with closing(sqlite3.connect(path)) as made, made:
        for statement in statements:
            made.execute(statement)
    return path


ENDLESS = (
    "with recursive c(x) as (select 1 union all select x + 1 from c) select 'r' run_name, x step, '{}' metrics from c"
)
TABLE = "create table metrics(id integer primary key, run_name text, step integer, metrics text"


@pytest.mark.parametrize(
    "statements",
    [
        (f"create view metrics as {ENDLESS}",),
        (f"create view METRICS as {ENDLESS}",),
        ("create table metrics(run_name text, step integer, metrics text as(hex(zeroblob(90000000))))",
         "insert into metrics values ('r', 1)"),
        ("create table metrics(run_name text, step integer, metrics text as (hex(zeroblob(9))) stored)",),
        ("create virtual table metrics using fts5(run_name, step, other)",),
        (f"{TABLE})", "insert into metrics values (1, 'r', 1, hex(zeroblob(5000000)))"),
    ],
)  # fmt: skip
def test_a_database_computes_nothing(statements, tmp_path):
    with pytest.raises(UserError, match="no table of Trackio's can be read"):
        read_logs([database(tmp_path / "a.db", *statements)])


def test_rows_of_a_write_ahead_log_are_read_and_a_cut_is_said(tmp_path, monkeypatch):
    place = tmp_path / "a.db"
    writer = sqlite3.connect(place)
    writer.execute("pragma journal_mode = wal")
    writer.execute(f"{TABLE})")
    rows = [(step, json.dumps({"reward": step})) for step in (1, 2, 3)]
    writer.executemany("insert into metrics(run_name, step, metrics) values ('r', ?, ?)", rows)
    writer.commit()
    (run,) = read_logs([place])
    assert run.curves["value"].tolist() == [1, 2, 3]
    monkeypatch.setattr(stores, "MAX_ROWS", 2)
    (run,) = read_logs([place])
    writer.close()
    assert len(run.curves) == 2 and any("more than 2 rows" in note for note in run.notes)


@pytest.mark.parametrize("what", ["MAX_CELLS", "LARGEST"])
def test_a_table_that_grows_is_refused(what, tmp_path, monkeypatch):
    rows = 20_000
    text = pyarrow.array(["x" * 50_000]).dictionary_encode()
    note = pyarrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), text.dictionary)
    table = pyarrow.table({"step": np.arange(rows), "reward": np.zeros(rows), "note": note})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 10**6
    monkeypatch.setattr(bounds, what, 50_000)
    with pytest.raises(UserError, match="allowed: at most 50000"):
        read_logs([tmp_path / "a.parquet"])


@pytest.mark.parametrize("name", ["checkpoint-\u00b2", "checkpoint-\u0661", "checkpoint-" + "9" * 5000])
def test_digits_of_other_scripts_are_no_steps(name, tmp_path):
    state = {"log_history": [{"step": 1, "reward": 0.5}]}
    for folder in ("checkpoint-1", name[:200]):
        (tmp_path / folder).mkdir()
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text(json.dumps(state))
    assert len(read_logs([tmp_path])) == 1
    lines = "".join(f'{{"global_step/max_steps": "{step}/94", "reward": 1}}\n' for step in ("\u00b2", "3"))
    assert read(tmp_path, lines, "a.jsonl")[0].curves["source_step"].tolist() == [3]
