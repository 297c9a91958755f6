"""Small training logs of every format with known values, ways to damage them, and what must hold of an import."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rftlab.studies.readers.run import ImportedRun

ROUNDS, EVERY = 20, 5
Key = tuple[int, str, str]
"""Round, split, metric."""
_NUMBER = re.compile(r"(?<=[:,\"' ])\d+\.\d{3}(?![\d%])")
_CONFIG = """{'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,
                                 'optim': {'lr': 1e-06},
                                 'ppo_epochs': 1,
                                 'ppo_mini_batch_size': 16},
                       'rollout': {'n': 8, 'temperature': 1.0}},
 'algorithm': {'adv_estimator': 'grpo'},
 'data': {'max_response_length': 256, 'train_batch_size': 64}}"""


class Log(NamedTuple):
    """A log and what it says, in rftlab's terms."""

    name: str
    """Of its file."""
    text: str
    truth: dict[Key, float]


def values(seed: int = 0) -> tuple[list[dict[str, float]], dict[int, float]]:
    """Train metrics of each round, and Pass@1 on the test set after some; three decimals, as verl prints."""
    draw = random.Random(seed)
    train = [
        {
            "pass_at_1": round(0.2 + 0.02 * r + draw.random() / 50, 3),
            "entropy": round(0.5 - 0.02 * r + draw.random() / 50, 3),
            "grad_norm": round(0.1 + draw.random(), 3),
            "response_length": round(100 + 5 * r + draw.random(), 3),
        }
        for r in range(ROUNDS)
    ]
    return train, {r: round(0.1 + 0.03 * r + draw.random() / 100, 3) for r in range(0, ROUNDS + 1, EVERY)}


def truth_of(train: list[dict[str, float]], test: dict[int, float], **names: str) -> dict[Key, float]:
    """What an import should say of these values."""
    rows = ((r, names.get(name, name), value) for r, row in enumerate(train, 1) for name, value in row.items())
    truth = {(r, "train", name): value for r, name, value in rows}
    return truth | {(r, "test", "pass_at_1"): value for r, value in test.items()}


def verl_log(seed: int = 0, old: bool = False) -> Log:
    """A console log of verl: steps from 1, or from 0 as until January 2025."""
    train, test = values(seed)
    ray = "\x1b[36m(TaskRunner pid=2001)\x1b[0m "
    new = ("val-core/openai/gsm8k/acc/mean@4", "entropy", "timing_s")
    score, entropy, timing = ("val/test_score/openai/gsm8k", "entropy_loss", "timing") if old else new
    lines = [ray + line for line in _CONFIG.splitlines()] + ["(WorkerDict pid=7) a warning: key:value - and step: 3"]
    lines.append(f"{ray}step:0 - {score.removeprefix('val/')}:{test[0]:.3f}")
    for r, row in enumerate(train):
        parts = [f"{timing}/gen:18.100", f"actor/{entropy}:{row['entropy']:.3f}"]
        parts += [f"actor/grad_norm:{row['grad_norm']:.3f}", f"critic/score/mean:{row['pass_at_1']:.3f}"]
        parts += ["critic/score/max:1.000", "critic/score/min:0.000"]
        parts += [f"response_length/mean:{row['response_length']:.3f}"]
        parts += [f"{score}:{test[r + 1]:.3f}"] if r + 1 in test else []
        lines.append(f"{ray}step:{r if old else r + 1} - {' - '.join(parts)}")
        lines.append(f"{ray}Training Progress:  {r}%|##        | {r}/50 [1:00:00<2:00:00, 60.00s/it]")
    return Log("verl.log", "\n".join(lines) + "\n", truth_of(train, test))


def tidy_csv(seed: int = 0) -> Log:
    """A row a step."""
    train, test = values(seed)
    head = "step,reward,entropy,grad_norm,avg_response_len,eval_acc\n"
    rows = [
        (r + 1, *(f"{value:.3f}" for value in row.values()), f"{test[r + 1]:.3f}" if r + 1 in test else "")
        for r, row in enumerate(train)
    ]
    truth = truth_of(train, {r: value for r, value in test.items() if r}, pass_at_1="reward_mean")
    return Log("tidy.csv", head + "".join(",".join(map(str, row)) + "\n" for row in rows), truth)


def wide_csv(seed: int = 0) -> Log:
    """W&B's export of one metric of one run."""
    _, test = values(seed)
    name = "data/EX-1"
    metrics = ("_step", "eval/rewards/accuracy_reward/mean")
    columns = [f"{name} - {metric}{bound}" for metric in metrics for bound in ("", "__MIN", "__MAX")]
    rows = [[f"{100.0 * r:.2f}"] + [str(r)] * 3 + [f"{value:.3f}"] * 3 for r, value in test.items()]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [["eval/time", *columns], *rows])
    return Log("wide.csv", text + "\n", {(r, "test", "pass_at_1"): value for r, value in test.items()})


def long_csv(seed: int = 0) -> Log:
    """A row a value, a metric after the other."""
    train, test = values(seed)
    names = {name: f"train/{name}" for name in train[0]} | {"pass_at_1": "train/accuracy"}
    rows = [(name, r + 1, row[ours]) for ours, name in names.items() for r, row in enumerate(train)]
    rows += [("eval/accuracy", r, value) for r, value in test.items()]
    text = "run_name,metric,step,value\n" + "".join(f"a run,{name},{step},{value:.3f}\n" for name, step, value in rows)
    return Log("long.csv", text, truth_of(train, test))


def json_lines(seed: int = 0) -> Log:
    """A record a round, and one an evaluation."""
    train, test = values(seed)
    records: list[dict] = []
    for r in range(ROUNDS + 1):
        if r:
            own = {"accuracy" if name == "pass_at_1" else name: value for name, value in train[r - 1].items()}
            records.append({"type": "train", "step": r, **own})
        if r in test:
            records.append({"type": "eval", "step": r, "accuracy": test[r]})
    return Log("metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records), truth_of(train, test))


_TRL = {"pass_at_1": "rewards/accuracy_reward/mean", "response_length": "completions/mean_length"}


def trainer_state(seed: int = 0) -> Log:
    """trainer_state.json of TRL."""
    train, test = values(seed)
    history = [
        {"step": r, "epoch": 0.1, **{_TRL.get(name, name): value for name, value in row.items()}}
        for r, row in enumerate(train, 1)
    ]
    history += [{"step": r, "eval_rewards/accuracy_reward/mean": value} for r, value in test.items()]
    text = json.dumps({"log_history": history, "logging_steps": 1}, indent=1)
    return Log("trainer_state.json", text, truth_of(train, test))


def trl_console(seed: int = 0) -> Log:
    """What TRL prints with its progress bar, as since transformers 5: numbers in quotes, four digits."""
    train, test = values(seed)
    lines = ["a warning about {'braces': in text and 3/4 of nothing"]
    for r in range(ROUNDS + 1):
        if r:
            told = {"loss": "0.012", **{_TRL.get(name, name): f"{v:.3f}" for name, v in train[r - 1].items()}}
            lines += [f"  4%|4         | {r}/{ROUNDS} [00:0{r % 10}<01:20,  4.10s/it]"]
            lines += [str(told | {"lr_kind": "constant", "epoch": f"{0.0037 * r:.4g}"})]
        if r in test:
            epoch = 0 if r == 0 else f"{0.0037 * r:.4g}"
            lines += [str({"eval_rewards/accuracy_reward/mean": f"{test[r]:.3f}", "epoch": epoch})]
    lines += [str({"train_runtime": "81.2", "train_loss": "0.01", "epoch": "0.074"})]
    return Log("console.txt", "\n".join(lines) + "\n", truth_of(train, test))


def json_document(seed: int = 0) -> Log:
    """A list of records, a record a line."""
    records = json_lines(seed)
    return Log("metrics.json", "[\n" + records.text.rstrip().replace("}\n", "},\n") + "\n]\n", records.truth)


def checkpoints(seed: int = 0) -> Log:
    """Evaluations by checkpoint, each twice."""
    _, test = values(seed)
    found = {f"checkpoint-{r}": {"accuracy": [value - 0.125, value + 0.125]} for r, value in test.items() if r}
    truth = {(r, "test", "pass_at_1"): value for r, value in test.items() if r}
    return Log("results.json", json.dumps(found, indent=1) + "\n", truth)


LOGS: dict[str, Callable[[int], Log]] = {
    "verl": verl_log,
    "verl_old": lambda seed=0: verl_log(seed, old=True),
    "tidy": tidy_csv,
    "wide": wide_csv,
    "long": long_csv,
    "json": json_lines,
    "trl": trainer_state,
    "trl_console": trl_console,
    "document": json_document,
    "checkpoints": checkpoints,
}


def _lines(change: Callable[[list[str], random.Random], list[str]]) -> Callable[[str, random.Random], bytes]:
    """A damage of lines."""
    return lambda text, draw: "".join(change(text.splitlines(keepends=True), draw)).encode()


def _cut(text: str, draw: random.Random) -> bytes:
    return text.encode()[: draw.randrange(len(text) // 3, len(text) - 1)]


def _repeated(lines: list[str], draw: random.Random) -> list[str]:
    chosen = set(draw.sample(range(1, len(lines)), 4))
    return [line for i, line in enumerate(lines) for _ in range(1 + (i in chosen))]


def _skipped(lines: list[str], draw: random.Random) -> list[str]:
    gone = set(draw.sample(range(len(lines) // 2, len(lines)), 3))
    return [line for i, line in enumerate(lines) if i not in gone]


def _shuffled(lines: list[str], draw: random.Random) -> list[str]:
    body = lines[1:]
    draw.shuffle(body)
    return lines[:1] + body


def _foreign(lines: list[str], draw: random.Random) -> list[str]:
    at = draw.randrange(1, len(lines))
    junk = ["Traceback (most recent call last):\n", "[bold red]step:3 - critic/score/mean:9.9[/]\n"]
    return [*lines[:at], *junk, "\x1b[2J<script>alert(1)</script>\n", "x" * 3000 + "\n", *lines[at:]]


def _number(word: str) -> Callable[[list[str], random.Random], list[str]]:
    """A number in the second half becomes a word."""

    def change(lines: list[str], draw: random.Random) -> list[str]:
        at = draw.choice([i for i in range(len(lines) // 2, len(lines)) if _NUMBER.search(lines[i])])
        found = draw.choice(list(_NUMBER.finditer(lines[at])))
        return [*lines[:at], lines[at][: found.start()] + word + lines[at][found.end() :], *lines[at + 1 :]]

    return change


DAMAGES: dict[str, Callable[[str, random.Random], bytes]] = {
    "cut": _cut,
    "no last newline": lambda text, draw: text.rstrip("\n").encode(),
    "repeated lines": _lines(_repeated),
    "skipped lines": _lines(_skipped),
    "shuffled lines": _lines(_shuffled),
    "foreign lines": _lines(_foreign),
    "nan": _lines(_number("nan")),
    "inf": _lines(_number("inf")),
    "a word": _lines(_number("a-word")),
    "twice": lambda text, draw: (text + text).encode(),
    "byte order mark": lambda text, draw: b"\xef\xbb\xbf" + text.encode(),
    "utf-16": lambda text, draw: text.encode("utf-16"),
    "utf-16 without mark": lambda text, draw: text.encode("utf-16-le"),
    "latin-1": lambda text, draw: text.replace("warning", "warn\xfcng").replace("a run", "a r\xfcn").encode("latin-1"),
    "windows": lambda text, draw: text.replace("\n", "\r\n").encode(),
    "old mac": lambda text, draw: text.replace("\n", "\r").encode(),
    "blank lines": lambda text, draw: text.replace("\n", "\n\n").encode(),
    "html": lambda text, draw: b"<!DOCTYPE html><html><body>" + text.encode(),
    "binary": lambda text, draw: bytes(draw.randrange(256) for _ in range(4000)),
    "zip": lambda text, draw: b"PK\x03\x04" + text.encode(),
    "empty": lambda text, draw: b"",
    "blank": lambda text, draw: b"\n \n\t\n",
    "zeros": lambda text, draw: b"\0" * 5000,
}
"""By name; those that make no sense of a format are refused like any other."""


def damaged(kind: str, damage: str, seed: int) -> tuple[Log, bytes]:
    """A log and what is left of it."""
    log = LOGS[kind](seed)
    return log, DAMAGES[damage](log.text, random.Random(f"{kind} {damage} {seed}"))


def said(runs: list[ImportedRun]) -> dict[Key, float]:
    """What an import says of the metrics that have a name of ours."""
    rows = (row for run in runs for row in run.curves[run.curves["split"] != ""].itertuples())
    return {(int(row.round), str(row.split), str(row.metric)): float(row.value) for row in rows}


def wrong(found: dict[Key, float], truth: dict[Key, float]) -> dict[Key, float]:
    """Values that are not the true ones, of metrics that the log has."""
    metrics = {key[1:] for key in truth}
    return {
        key: value
        for key, value in found.items()
        if key[1:] in metrics and abs(truth.get(key, float("inf")) - value) > 1e-9
    }


def runs_folder() -> Path | None:
    """Public logs beside the project, where they are."""
    place = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "runs"
    return place if (place / "curves.csv").is_file() else None
