"""Run TRL's GRPOTrainer on a case, in a process of its own: `python -m benchmarks.llm.peer_trl CASE [fast]`.

By default it takes eight rows at a time, with gradient checkpointing. `fast`: all rows at once and no checkpointing,
which costs memory.
"""

import sys
import tempfile

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.llm.case import BETA, Case, Clock, given, problems, report
from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.rewards.verify import score

ROWS = 8
"""Number of rows of a pass, TRL's default."""


class Laps(TrainerCallback):
    """Times from the end of one optimiser step to the end of the next: rollouts, rewards, the reference and the
    update."""

    def __init__(self):
        self.clock = None

    def on_train_begin(self, args, state, control, **more):
        """Start the clock."""
        self.clock = Clock()

    def on_step_end(self, args, state, control, **more):
        """Note the end of a round."""
        self.clock.lap()


class Reward:
    """Our strict reward with TRL's interface; it keeps rewards and lengths."""

    __name__ = "strict"

    def __init__(self, verifier: str, pool: MathPool):
        self.verifier, self.pool, self.rewards, self.lengths = verifier, pool, [], []

    def __call__(self, completions, answer, completion_ids, **more) -> list[float]:
        """Return the rewards of texts or chat messages."""
        texts = [completion if isinstance(completion, str) else completion[0]["content"] for completion in completions]
        found = score(self.verifier, texts, answer, self.pool).strict.tolist()
        self.rewards.append(sum(found) / len(found))
        self.lengths.append(sum(map(len, completion_ids)) / len(completion_ids))
        return found


def config_of(case: Case, folder: str, fast: bool) -> GRPOConfig:
    """Return TRL's defaults with the settings of the case; weights are float32, under autocast in bf16, as ours."""
    responses = case.prompts * case.rollouts
    rows = responses if fast else min(ROWS, responses)
    return GRPOConfig(
        output_dir=folder,
        use_cpu=case.device == "cpu",
        bf16=case.precision == "bf16",
        beta=BETA,
        learning_rate=case.rate,
        lr_scheduler_type="constant",
        max_steps=case.rounds + 1,
        num_generations=case.rollouts,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=responses // rows,
        gradient_checkpointing=not fast,
        max_completion_length=case.limit,
        generation_kwargs={"min_new_tokens": case.limit} if case.full else None,
        model_init_kwargs={"dtype": "float32"},
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def main() -> None:
    """Train on the case."""
    case, fast = given(sys.argv[1]), sys.argv[2:] == ["fast"]
    torch.set_num_threads(case.threads)
    task = problems(case)
    train, laps = task["train"], Laps()
    prompts = [f"<start>{prompt}" if isinstance(prompt, str) else prompt for prompt in train.prompts]
    data = Dataset.from_dict({"prompt": prompts, "answer": list(train.answers)})
    with MathPool() as pool, tempfile.TemporaryDirectory() as folder:
        reward = Reward(task.verifier, pool)
        tokenizer = AutoTokenizer.from_pretrained(case.folder, trust_remote_code=False)
        trainer = GRPOTrainer(
            case.folder, reward, config_of(case, folder, fast), data, processing_class=tokenizer, callbacks=[laps]
        )
        trainer.train()
    report(case, laps.clock, reward.rewards, reward.lengths)


if __name__ == "__main__":
    main()
