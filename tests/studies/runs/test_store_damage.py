"""Points that are not what they seem: tables of other points, facts of other types, links and pipes in their places.
All are named and redone, or refused."""

import io
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.files import remove_stale
from rftlab.studies.data.runs.runner import collect, split
from rftlab.studies.data.runs.store import point_folder
from tests.support.damage import PUT, old_files
from tests.support.stores import DEEP, bytes_of, change, nested, points, reseal, run_all


@pytest.fixture
def outside(tmp_path):
    (folder := tmp_path / "outside").mkdir()
    old_files(folder)
    return folder


def healed(root, damaged, part=""):
    """Whether the damaged point alone is named and redone, and all tables are as before."""
    todo, remarks = points(2), []
    assert split(root, todo, remarks.append)[1] == [damaged]
    assert len(remarks) == 1 and str(point_folder(root, damaged)) in remarks[0] and part in remarks[0]
    run_all(root, [damaged])
    return bytes_of(collect(root, todo))


@pytest.fixture
def done(root):
    """A folder with two designs and two seeds, and its tables."""
    run_all(root, points(2))
    return root, bytes_of(collect(root, points(2)))


@pytest.mark.parametrize("donor", [1, 2], ids=["another design", "another seed"])
@pytest.mark.parametrize("files", [("curve.parquet", "done.json"), ("curve.parquet", "done.json", "config.json")])
def test_tables_of_another_point_are_not_taken(done, donor, files):
    root, before = done
    first, other = points(2)[0], points(2)[donor]
    for name in files:
        shutil.copyfile(point_folder(root, other) / name, point_folder(root, first) / name)
    assert healed(root, first, "done.json was changed, or is of something else") == before


def flip_a_byte(folder):
    data = bytearray((folder / "curve.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "curve.parquet").write_bytes(data)


def marked(text):
    return lambda folder: (folder / "done.json").write_text(text)


def with_facts(**facts):
    """Other facts, with their checksum."""
    return lambda folder: reseal(folder.parents[2], points(2)[0], **facts)


FACTS = [{"commit": 3}, {"versions": ["numpy"]}, {"versions": {"numpy": 2.0}}, {"diverged_at": 99},
         *({"seconds": value} for value in ("1", float("inf"), float("nan")))]  # fmt: skip
DAMAGE = {
    "truncated curve": (lambda folder: os.truncate(folder / "curve.parquet", 100), ""),
    "flipped byte": (flip_a_byte, ""),
    "no curve": (lambda folder: (folder / "curve.parquet").unlink(), ""),
    "no marker": (lambda folder: (folder / "done.json").unlink(), ""),
    "other configuration": (lambda folder: (folder / "config.json").write_text("{}"), ""),
    "deep configuration": (lambda folder: (folder / "config.json").write_text(DEEP), ""),
    "configuration too deep to be written": (lambda folder: (folder / "config.json").write_text(nested(500)), ""),
    "no round of divergence": (lambda folder: change(folder / "done.json", diverged_at="x"), ""),
    **{f"marker {text[:9]}": (marked(text), "") for text in ("", "[1]", "{}", "[]", DEEP, '{"curve_sha256": "x"}')},
    **{f"other {field}": (lambda folder, field=field: change(folder / "done.json", **{field: 1}), "was changed")
       for field in ("commit", "seconds", "diverged_at")},
    **{f"{facts} with its checksum": (with_facts(**facts), "done.json") for facts in FACTS},
}  # fmt: skip
"""What is done to a point's folder, and a part of what is said of it."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_point_is_named_and_redone(done, kind):
    root, before = done
    damage, said = DAMAGE[kind]
    damage(point_folder(root, points(2)[0]))
    with pytest.raises(UserError, match="run the same study again"):
        collect(root, points(2))
    assert healed(root, points(2)[0], said) == before


TABLES = {
    "no column": (lambda table: table.drop(columns="kl"), "'kl'"),
    "text": (lambda table: table.assign(reward="0.5"), "'reward'"),
    "no rows": (lambda table: table.iloc[:0], "rounds must be those from 0 to 4"),
    "a row less": (lambda table: table.iloc[:-1], "rounds must be those from 0 to 4"),
    "shifted rounds": (lambda table: table.assign(round=table["round"] + 2), "rounds must be those from 0 to 4"),
    "rounds with a point": (lambda table: table.assign(round=table["round"] * 1.0), "whole numbers"),
    "seed": (lambda table: table.assign(seed=1), "is not of seed 0"),
    "rollouts": (lambda table: table.assign(rollouts=table["rollouts"] * 4), "rollouts are not those of the design"),
    "nan": (lambda table: table.assign(test_pass_at_1=np.nan), "test_pass_at_1 must be rates"),
    "percent": (lambda table: table.assign(train_pass_at_1=50.0), "train_pass_at_1 must be rates"),
    "no table": (lambda table: b"PAR1 no table PAR1", "curve.parquet cannot be read"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_cannot_be_the_run_s_is_damage_even_with_its_checksum(done, kind):
    root, before = done
    changed, said = TABLES[kind]
    point, data = points(2)[0], io.BytesIO()
    file = point_folder(root, point) / "curve.parquet"
    found = changed(pd.read_parquet(file))
    found = found if isinstance(found, bytes) else (found.to_parquet(data), data.getvalue())[1]
    file.write_bytes(found)
    reseal(root, point, curve_sha256=store.file_sha256(file))
    assert healed(root, point, said) == before


IN_PLACE = ("a file", "a folder", "a pipe", "a symbolic link", "a dangling link", "a looping link")


@pytest.mark.parametrize("name", [None, "config.json", "done.json", "curve.parquet"])
@pytest.mark.parametrize("kind", IN_PLACE)
def test_what_lies_in_the_place_of_a_point_or_its_files_is_named_and_the_point_redone(done, outside, kind, name):
    root, before = done
    folder = point_folder(root, points(2)[0])
    place = folder / name if name else folder
    shutil.rmtree(folder) if name is None else place.unlink()
    PUT[kind](place, outside)
    assert healed(root, points(2)[0]) == before
    assert (outside / "done.json").read_text() == "mine"


@pytest.mark.parametrize("part", ["sim", "sim/qwen-gsm8k", ".scratch"])
@pytest.mark.parametrize("kind", [kind for kind in IN_PLACE if kind != "a folder"])
def test_what_lies_in_the_place_of_a_folder_of_points_is_refused_by_name(done, outside, kind, part):
    root, _ = done
    shutil.rmtree(root / part)
    PUT[kind](root / part, outside)
    said = f"^{root / part} is a .*; allowed: a folder, or nothing of that name; remove it$"
    with pytest.raises(UserError, match=said):
        split(store.open_store(root), points(2), print)
    assert (outside / "done.json").read_text() == "mine"


def test_old_files_behind_a_link_stay(root, outside):
    (root / ".scratch").rmdir()
    (root / ".scratch").symlink_to(outside)
    remove_stale(root / ".scratch", "tmp*")
    assert (outside / "tmpold").exists()
    link = root / "tmplink"  # one among what is half written goes alone
    link.symlink_to(outside)
    os.utime(link, (0, 0), follow_symlinks=False)
    remove_stale(root, "tmp*")
    assert not link.is_symlink() and (outside / "done.json").exists()
    with pytest.raises(UserError, match=f"^{root / '.scratch'} is a symbolic link"):
        run_all(root, points(1))
    assert (outside / "tmpold").exists()
