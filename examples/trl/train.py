"""A run of TRL's own GRPOTrainer, without rftlab, whose files the README reads: grpo.json and train.log in this folder.

    pip install 'trl==1.16.*' && python examples/trl/train.py       # minutes on a CPU, nothing is downloaded

The model has random weights and 20 words, so nothing here says anything about a language model. A prompt is two
numbers; a completion that begins with an even number is right. The learning rate is far too large on purpose.
"""

import json
import logging
from pathlib import Path
from tempfile import gettempdir

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

FOLDER = Path(__file__).parent
SETTINGS = {
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 4,
    "num_generations": 8,
    "max_completion_length": 4,
    "max_steps": 30,
    "learning_rate": 3e-2,
    "lr_scheduler_type": "constant",
    "logging_steps": 1,
    "seed": 0,
}


class WriteLog(TrainerCallback):
    """Write what TRL logs as it prints it, a line each."""

    def on_log(self, arguments, state, control, logs=None, **more):
        """Append a line."""
        with (FOLDER / "train.log").open("a") as file:
            print({name: f"{value:.4g}" for name, value in logs.items()}, file=file)


def begins_even(completions, **columns):
    """Rewards of completions: 1.0 where the first word is an even number."""
    first = [completion.split()[:1] for completion in completions]
    return [float(bool(word) and int(word[0]) % 2 == 0) for word in first]


def main():
    """Train, and write grpo.json and train.log."""
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    words = ["<pad>", "<unk>", "<eos>", *map(str, range(17))]
    symbols = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    symbols.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<eos>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=symbols, **special)
    shape = {"vocab_size": 20, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 2, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    model = LlamaForCausalLM(LlamaConfig(**shape))
    (FOLDER / "grpo.json").write_text(json.dumps(SETTINGS, indent=2) + "\n")
    (FOLDER / "train.log").unlink(missing_ok=True)
    here = {"output_dir": gettempdir(), "save_strategy": "no", "report_to": [], "use_cpu": True, "bf16": False}
    trainer = GRPOTrainer(
        model,
        begins_even,
        GRPOConfig(**SETTINGS, **here),
        Dataset.from_list([{"prompt": f"{a} {b}"} for a in range(12) for b in range(16)]),
        processing_class=tokenizer,
        callbacks=[WriteLog()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
