"""Tensors in a file that is mapped into memory: they are read from it when used, and their memory can be given back
in between."""

import mmap
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from rftlab.shared.plumbing.files import reported

ALIGNMENT = 64
"""Bytes; where torch's own tensors begin."""


class Mapped:
    """Copies of tensors, read-only by agreement, in a file without a name that goes with the process."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        """tensors: of a CPU, none of them empty. Raises UserError where the folder of temporary files (TMPDIR) has
        no room."""
        with (
            reported(Path(tempfile.gettempdir()), "set TMPDIR to a folder with room"),
            tempfile.TemporaryFile() as file,
        ):
            starts = []
            for tensor in tensors:
                starts.append(file.seek(-(-file.tell() // ALIGNMENT) * ALIGNMENT))
                file.write(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
            file.flush()
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.tensors = [
            torch.frombuffer(self.memory, dtype=tensor.dtype, count=tensor.numel(), offset=start).view(tensor.shape)
            for tensor, start in zip(tensors, starts, strict=True)
        ]

    def rest(self) -> None:
        """Give the memory back; the next use reads the file again, which the system keeps in memory of its own while
        it has some to spare."""
        self.memory.madvise(mmap.MADV_DONTNEED)
