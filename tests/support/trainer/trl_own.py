"""TRL's own tests of its trainer, with our class in the place of TRL's: `make test-trl TRL=FOLDER`.

FOLDER is a checkout of github.com/huggingface/trl, whose tests are not in its package. The models and the data set that
they name are on the hub. Small random models of the same architectures and a few prompts stand in for them, in a cache
of the hub's layout, so no network is needed. The text tests of `TestGRPOTrainer` run twice: with TRL's class, and with
ours and the estimator that the configuration of a test says. A test that TRL's class fails with these stand-ins does
not count. It takes a quarter of an hour on one core.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

FILES = ("__init__.py", "conftest.py", "testing_constants.py", "testing_utils.py", "test_grpo_trainer.py")
OWNER, REVISION = "trl-internal-testing", "0" * 40
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}
"""Tokens beside the bytes. Qwen's 151,936 would make a test take minutes."""
SIZES = {
    "vocab_size": 259,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": SPECIAL["<|im_end|>"],
    "pad_token_id": SPECIAL["<|endoftext|>"],
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 4}
ROUTED = {**MOE, "n_routed_experts": 4, "first_k_dense_replace": 1}
MAMBA = {"mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 16}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny-Qwen2ForCausalLM-2.5": ("Qwen2", {}),
    "tiny-Qwen3ForCausalLM": ("Qwen3", {"head_dim": 4}),
    "tiny-Qwen3MoeForCausalLM": ("Qwen3Moe", MOE),
    "tiny-Glm4MoeForCausalLM": ("Glm4Moe", ROUTED),
    "tiny-GptOssForCausalLM": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 4}),
    "tiny-NemotronHForCausalLM-nano": ("NemotronH", {**ROUTED, **MAMBA, "hybrid_override_pattern": "M*"}),
    "tiny-LlamaForCausalLM-3.2": ("Llama", {}),
    "tiny-MistralForCausalLM-0.2": ("Mistral", {}),
    "tiny-Cohere2ForCausalLM": ("Cohere2", {}),
    "tiny-Gemma2ForCausalLM": ("Gemma2", {"head_dim": 4}),
    "tiny-Qwen2ForSequenceClassification-2.5": ("Qwen2", {"num_labels": 1}),
    "tiny-Qwen3ForSequenceClassification": ("Qwen3", {"num_labels": 1, "head_dim": 4}),
    "tiny-LlamaForSequenceClassification-3.2": ("Llama", {"num_labels": 1}),
}
"""Family and sizes of the models that stand in for those of these names."""
LEFT_OUT = {
    "test_train_loss_types[cispo": "refused, because without epsilon_high TRL caps the weights of CISPO at 0.2",
    "test_warning_raised_sequence_level": "asks for a warning about an option, which the estimator decides here",
    "test_entropy_bonus_scale[luspo": "asks for a bonus that does not follow the aggregation",
}
"""Beginnings of the names of tests that ours may fail, and why."""


def write_models(hub: Path) -> None:
    """Tiny random models under the names that the tests ask the hub for."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)} | SPECIAL, []))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    bytes_alone.add_special_tokens(list(SPECIAL))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT
    )
    for name, (family, sizes) in MODELS.items():
        torch.manual_seed(0)
        head = "ForCausalLM" if "ForCausalLM" in name else "ForSequenceClassification"
        config = getattr(transformers, f"{family}Config")(**SIZES | sizes)
        folder = hub / f"models--{OWNER}--{name}" / "snapshots" / REVISION
        getattr(transformers, family + head)(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        refs = folder.parents[1] / "refs"
        refs.mkdir()
        (refs / "main").write_text(REVISION)


def load_dataset(name: str, config: str = "standard_prompt_only", split: str | None = None, streaming: bool = False):
    """Prompts in the place of the hub's."""
    from datasets import Dataset, DatasetDict, IterableDatasetDict

    texts = [f"Is {number} better than nothing, or" for number in range(9)]
    rows = texts * 2 if config.startswith("standard") else [[{"role": "user", "content": text}] for text in texts * 2]
    parts = DatasetDict({part: Dataset.from_dict({"prompt": rows[:n]}) for part, n in (("train", 17), ("test", 2))})
    streams = {part: rows.to_iterable_dataset() for part, rows in parts.items()}
    whole = IterableDatasetDict(streams) if streaming else parts
    return whole if split is None else whole[split]


def our_class() -> type:
    """Our trainer with TRL's arguments alone."""
    from trl import GRPOConfig

    from rftlab.studies.forecast.advise.as_trl import read_trl_estimator
    from rftlab.studies.integrations.trl import RftlabGRPOTrainer
    from rftlab.studies.integrations.trl_options import SAID_BY_ESTIMATOR
    from rftlab.studies.readers.designs.values import Reader

    class OurTrainer(RftlabGRPOTrainer):
        """Takes its estimator from the configuration of the test."""

        def __init__(self, model, reward_funcs=None, args=None, *arguments, **named):
            estimator = "grpo_trl"
            if args is not None:
                estimator = read_trl_estimator(Reader(vars(args)))
                usual = {one.name: one.default for one in fields(GRPOConfig)}
                for name in (*SAID_BY_ESTIMATOR, "beta"):
                    setattr(args, name, usual[name])
            super().__init__(model, reward_funcs, args, *arguments, estimator=estimator, **named)

    return OurTrainer


class Outcomes:
    """A plug-in of pytest: puts our class into the tests where it is asked to, and keeps what passed."""

    def __init__(self, ours: bool, path: Path):
        self.ours, self.path = ours, path

    def pytest_collection_modifyitems(self, items) -> None:
        """Put the class in its place."""
        if self.ours:
            for module in {item.module for item in items}:
                module.GRPOTrainer = our_class()

    def pytest_runtest_logreport(self, report) -> None:
        """Keep the outcome of a test, and the error that it ended with."""
        if report.when == "call" or not report.passed:
            text = report.longreprtext.strip().splitlines()[-1] if report.failed else ""
            with self.path.open("a") as file:
                file.write(f"{report.nodeid.split('::')[-1]}\t{report.outcome}\t{text}\n")


def run_tests(checkout: Path, ours: bool, path: Path) -> None:
    """Run the tests in this process, with the hub's stand-ins."""
    import datasets
    import pytest
    from trl import import_utils

    with tempfile.TemporaryDirectory() as place:
        package = Path(place) / "trl_tests"
        package.mkdir()
        for name in FILES:
            shutil.copy(checkout / "tests" / name, package)
        datasets.load_dataset = load_dataset
        # The checkout may ask for packages that the installed version of TRL does not look for.
        import_utils.__getattr__ = lambda name: lambda: False
        asked = ["-q", "--no-header", "-p", "no:cacheprovider", "-k", "TestGRPOTrainer and not VLM and not Slow"]
        pytest.main([*asked, "--rootdir", place, "-c", os.devnull, str(package)], plugins=[Outcomes(ours, path)])


def outcomes(checkout: Path, hub: Path, *ours: str) -> dict[str, tuple[str, str]]:
    """Outcome and error of each test, from a process of its own."""
    path = hub / "outcomes.tsv"
    path.unlink(missing_ok=True)
    offline = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1", "PYTEST_ADDOPTS": ""}
    one_core = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.trainer.trl_own", str(checkout), "--out", str(path), *ours]
    subprocess.run(command, env=os.environ | offline | one_core, check=False)
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return {name: (outcome, text) for name, outcome, text in rows}


def main() -> int:
    """Print how many tests each class passes, and what ours fails; 1 where ours fails one for no known reason."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, help="run the tests here, and write their outcomes to this file")
    parser.add_argument("--ours", action="store_true", help="with our class")
    asked = parser.parse_args()
    if absent := [name for name in FILES if not (asked.checkout / "tests" / name).is_file()]:
        parser.error(f"{asked.checkout} is no checkout of TRL: tests/{absent[0]} is not in it")
    if asked.out:
        run_tests(asked.checkout, asked.ours, asked.out)
        return 0
    with tempfile.TemporaryDirectory() as place:
        hub = Path(place)
        write_models(hub)
        theirs, ours = outcomes(asked.checkout, hub), outcomes(asked.checkout, hub, "--ours")
    passed = [name for name, (outcome, _) in theirs.items() if outcome == "passed"]
    errors = {name: ours.get(name, ("", "did not run")) for name in passed}
    failed = {name: text for name, (outcome, text) in errors.items() if outcome != "passed"}
    print(f"TRL's class passes {len(passed)} of {len(theirs)} tests with these stand-ins.")
    print(f"Ours passes {len(passed) - len(failed)} of these {len(passed)}.")
    unknown = 0
    for name, text in failed.items():
        reason = next((why for start, why in LEFT_OUT.items() if name.startswith(start)), "")
        unknown += not reason
        print(f"  {name}: {reason or text}")
    return int(unknown > 0 or not passed)


if __name__ == "__main__":
    sys.exit(main())
