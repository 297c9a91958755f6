"""A folder with SmolLM2-135M-Instruct from its GGUF file: `python -m tests.bench_llm.smollm2_folder WHERE_THE_FILE_IS FOLDER`."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main() -> None:
    """Weights are unpacked to float32."""
    place, folder = map(Path, sys.argv[1:])
    file = next(place.glob("*.gguf")).name
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=file, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(place, gguf_file=file).save_pretrained(folder)


if __name__ == "__main__":
    main()
