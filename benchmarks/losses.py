"""`rl.losses.objective` and the trainer's bridge beside a GRPO in six lines of torch, forward and backward, for 64
responses of up to 1,024 tokens: `python -m benchmarks.losses`.

The bridge brings log-probabilities to the CPU, asks the compiled estimators for weights, and takes the weights back;
advantages and shares are prepared before, as in a run. All take turns; the table has the fastest of many, because other
processes only ever slow a call down, and medians.
"""

import argparse
import statistics
import time

import numpy as np
import torch

import rftlab as rl
from rftlab.llm.training.update import add_gradient
from rftlab.shared.config.aggregation import Aggregation

RESPONSES, TOKENS, GROUP = 64, 1024, 8


def by_hand(logp, old_logp, rewards, mask):
    """Return GRPO's objective as it is written in a user's own loop."""
    groups = rewards.view(-1, GROUP)
    advantage = ((groups - groups.mean(1, True)) / (groups.std(1, keepdim=True) + 1e-6)).view(-1, 1).to(logp)
    ratio, mask = (logp - old_logp).exp(), mask.to(logp)
    token = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return ((token * mask).sum(1) / mask.sum(1)).mean()


def bridge(spec: rl.Estimator, batch, logp_T: torch.Tensor) -> None:
    """Add the gradient as the trainer does."""
    weighed = rl.objective_and_weights(spec, batch, logp_T.detach().cpu().numpy())
    add_gradient([logp_T], [weighed.weight])


def seconds(work, leaf: torch.Tensor) -> float:
    """Return the seconds of a forward and a backward pass."""
    leaf.grad = None
    began = time.perf_counter()
    work()
    if leaf.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def compare(dtype: torch.dtype, device: str, turns: int) -> None:
    """Print a row of the table."""
    torch.manual_seed(0)
    logp = (-3 * torch.rand(RESPONSES, TOKENS, device=device)).to(dtype).requires_grad_()
    old = (logp.detach() + 0.1 * torch.randn(RESPONSES, TOKENS, device=device)).to(dtype)
    lengths = torch.randint(300, TOKENS + 1, (RESPONSES, 1), device=device)
    mask, rewards = torch.arange(TOKENS, device=device) < lengths, torch.randint(0, 2, (RESPONSES,)).float().to(device)
    group = torch.arange(RESPONSES, device=device) // GROUP
    spec = rl.Estimator(rl.Advantage("group_mean", "group_std"), aggregation=Aggregation("seq_mean_token_mean"))
    starts = np.concatenate([[0], lengths[:, 0].cumsum(0).cpu().numpy()])
    old_T, rewards_R, group_R = (part.double().cpu().numpy() for part in (old[mask], rewards, group))
    batch = rl.prepare(spec, rewards_R, group_R.astype(np.int64), starts, old_T)
    works = {
        "by hand": lambda: by_hand(logp, old, rewards, mask).backward(),
        "rl.losses": lambda: rl.losses.objective(logp, old, rewards, mask, group, estimator=spec).backward(),
        "bridge": lambda: bridge(spec, batch, logp[mask]),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 10):
        for name, work in works.items():
            found = seconds(work, logp)
            times[name] += [found] if turn >= 10 else []
    fastest = {name: 1e3 * min(own) for name, own in times.items()}
    usual = {name: 1e3 * statistics.median(own) for name, own in times.items()}
    ratios = " and ".join(f"{fastest[name] / fastest['by hand']:.2f}" for name in list(works)[1:])
    medians = " and ".join(f"{usual[name] / usual['by hand']:.2f}" for name in list(works)[1:])
    told = ", ".join(f"{name} {fastest[name]:.2f} ms (median {usual[name]:.2f})" for name in works)
    print(f"{dtype!s:16} {told}, ratios {ratios}, of medians {medians}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for dtype in (torch.float32, torch.bfloat16):
        compare(dtype, options.device, options.turns)


if __name__ == "__main__":
    main()
