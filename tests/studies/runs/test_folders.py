"""What others put into a folder of ours: no link is followed, no pipe is waited for."""

import json
import os
from pathlib import Path

import pytest

from rftlab.shared.plumbing import folders
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import remove_partial, verify_folder, write_file, write_folder
from rftlab.shared.plumbing.folders import below, cache_folder, entries, folder_below, numbered, read_file, read_json
from tests.support.damage import PUT

KINDS = ("a file", "a folder", "a pipe", "a symbolic link", "a socket")


@pytest.fixture
def outside(tmp_path):
    (folder := tmp_path / "outside").mkdir()
    (folder / "mine.json").write_text("{}")
    return folder


@pytest.fixture
def root(tmp_path):
    (folder := tmp_path / "root").mkdir()
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_is_below_folders_alone(kind, root, outside):
    PUT[kind](root / "x", outside)
    assert folders.path_kind(root / "x") == kind and below(root, "x") == root / "x"
    places = {
        "a folder": lambda: [below(root, "x", "y"), folder_below(root, "x"), folder_below(root, "x", "y")],
        "a file": lambda: [folders.file_below(root, "x")],
    }
    for allowed, found in places.items():
        if kind == allowed:
            assert all(root in place.parents for place in found())
        else:
            said = f"^{root / 'x'} is {kind}; allowed: {allowed}, or nothing of that name; remove it$"
            with pytest.raises(UserError, match=said):
                found()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_only_files_are_read(kind, root, outside):
    PUT[kind](root / "x", outside / "mine.json")
    for read in (read_file, read_json):
        with pytest.raises(OSError, match=f"it is {kind}, not a file"):
            read(root / "x")


def test_a_file_larger_than_any_of_ours_is_not_read(root, monkeypatch):
    (root / "x").write_bytes(b"12345")
    monkeypatch.setattr(folders, "LARGEST", 5)
    assert read_file(root / "x") == b"12345"
    monkeypatch.setattr(folders, "LARGEST", 4)
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_file(root / "x")


@pytest.mark.parametrize("depth", [41, 900, 100_000])
def test_deep_json_is_no_json(depth, root):
    (root / "x").write_text("[" * 39 + "]" * 39)
    assert read_json(root / "x")
    (root / "x").write_text("[" * depth + "]" * depth)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(root / "x")


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_a_name_is_removed_and_what_a_link_leads_to_stays(kind, root, outside):
    folders.remove(root / "x")
    PUT[kind](root / "x", outside)
    folders.remove(root / "x")
    assert not os.path.lexists(root / "x") and (outside / "mine.json").exists()


def test_only_folders_with_plain_numbers_are_numbered(root, outside):
    for name in ("10", "9", "1²", "٣", "-1", "x"):
        (root / name).mkdir()
    (root / "11").touch()
    (root / "12").symlink_to(outside)
    assert folder_below(root / "12", "a", "b") == root / "12" / "a" / "b", "the folder itself may be a link"
    assert [path.name for path in numbered(root)] == ["9", "10"] and numbered(root / "12") == entries(root / "12") == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_replaces_what_has_its_name_but_no_folder(kind, root, outside):
    PUT[kind](root / "x", outside / "mine.json")
    if kind == "a folder":
        with pytest.raises(OSError) as caught:
            write_file(root / "x", b"new")
        assert caught.value.filename == str(root / "x") and entries(root) == [root / "x"]
    else:
        write_file(root / "x", b"new")
        assert read_file(root / "x") == b"new"
    assert (outside / "mine.json").read_text() == "{}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_replaces_what_has_its_name(kind, root, outside):
    PUT[kind](root / "x", outside)
    write_folder(root / "x", {"a": b"new"})
    verify_folder(root / "x", ("a",))
    assert {path.name for path in entries(root / "x")} == {"a", "checksums.json"}
    assert [path.name for path in entries(outside)] == ["mine.json"]


def test_a_link_to_a_whole_folder_is_none_and_what_was_half_written_goes(root, outside):
    (root / ".writing-a").symlink_to(outside)
    (root / ".writing-b").mkdir()
    os.mkfifo(root / ".writing-c")
    remove_partial(root)
    assert entries(root) == [] and (outside / "mine.json").exists()
    write_folder(outside / "x", {"a": b"{}"})
    (root / "x").symlink_to(outside / "x")
    with pytest.raises(ValueError, match=f"{root / 'x'}: "):
        verify_folder(root / "x")
    write_folder(root / "y", {"a": b"{}"})
    (root / "y" / "a").unlink()
    (root / "y" / "a").symlink_to(outside / "x" / "a")
    assert json.loads((root / "y" / "a").read_bytes()) == {}
    with pytest.raises(ValueError, match="it is a symbolic link"):
        verify_folder(root / "y")


SUMS = {
    "deep": "[" * 100_000,
    "nothing": "{}",
    "list": "[]",
    "other types": '{"a": 3}',
    "outside": '{"../outside/mine.json": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}',
    "parent": '{"..": ""}',
    "other file": '{"b": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}',
}


@pytest.mark.parametrize("kind", SUMS)
def test_a_folder_whose_checksums_say_nothing_is_damaged(kind, root, outside):
    write_folder(root / "x", {"a": b"{}", "b": b"{}"})
    verify_folder(root / "x", ("a", "b"))
    (root / "x" / "checksums.json").write_text(SUMS[kind])
    with pytest.raises(ValueError, match=str(root / "x")):
        verify_folder(root / "x", ("a",))


def test_a_user_without_a_home_has_no_cache_and_is_told(monkeypatch, tmp_path):
    from rftlab.shared.plumbing import jit

    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="no home folder to keep a cache in; allowed: a folder in HOME or XDG_CACHE_H"):
        cache_folder("tiny")
    assert jit._choose_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("tiny") == tmp_path / "rftlab" / "tiny"
