"""Launch scripts: a value is taken only where the script says it plainly; of another one no default takes the place."""

import re
import time
from pathlib import Path

import pytest
import yaml

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.config_file import read_config
from tests.support.logs.reading import told

VERL = (
    "python3 -m verl.trainer.main_ppo data.train_batch_size=64 actor_rollout_ref.rollout.n={n} "
    "actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_epochs=1"
)


TEXT = (Path(__file__).parent / "samples" / "scripts.yaml").read_text()
SCRIPTS = yaml.safe_load(re.sub(r"<verl (.*?)>", lambda match: VERL.format(n=match[1]), TEXT))


@pytest.mark.parametrize("case", SCRIPTS["known"])
def test_what_a_script_says_plainly_is_taken(case, tmp_path):
    design, notes = told(tmp_path, SCRIPTS["known"][case])
    assert (design.prompts, design.rollouts) == (64, 16), notes
    assert not any("rollout.n" in text for text in (*notes, *design.assumed))


@pytest.mark.parametrize("case", SCRIPTS["unless"])
def test_a_default_of_the_script_is_taken_and_said(case, tmp_path):
    text, said = SCRIPTS["unless"][case].values()
    design, notes = told(tmp_path, text)
    assert design.rollouts == 16 and any("rollout.n: 16 unless" in line and said in line for line in design.assumed)
    assert not notes


@pytest.mark.parametrize("case", SCRIPTS["unknown"])
def test_of_what_a_script_does_not_say_no_default_takes_the_place(case, tmp_path):
    design, notes = told(tmp_path, SCRIPTS["unknown"][case])
    assert design.rollouts is None
    assert any("actor_rollout_ref.rollout.n is " in note for note in notes), notes
    assert not any("rollout.n" in line for line in design.assumed)


def test_the_reason_names_the_variable(tmp_path):
    for before, why in (("", "does not set"), ("ROLLOUT_N=8\nROLLOUT_N=16\n", "sets more than once")):
        _, notes = told(tmp_path, before + VERL.format(n="${ROLLOUT_N}"))
        assert notes == [f"actor_rollout_ref.rollout.n is ${{ROLLOUT_N}}, which the script {why}"]


TRL = "accelerate launch --num_processes 2 grpo.py --per_device_train_batch_size {b} --num_generations 8 \\\n"
TRL += "  --gradient_accumulation_steps 4 --learning_rate={lr}\n"


def test_a_script_of_trl(tmp_path):
    for before, size in (("", 32), ("B=32\n", "$B")):
        design, notes = told(tmp_path, before + TRL.format(b=size, lr="1e-6"))
        assert (design.prompts, design.rollouts) == (16, 8) and not notes
    for text in ("", "B=32\nB=64\n", "B=$1\n", "B=$((4*8))\n", "if x; then B=32; fi\n"):
        design, notes = told(tmp_path, text + TRL.format(b="${B}", lr="1e-6"))
        assert design.prompts is None and design.rollouts == 8 and any("batch_size is ${B}, " in note for note in notes)
    assert told(tmp_path, TRL.format(b="32", lr="$LR"))[0].learning_rate is None
    first = "trl sft --per_device_train_batch_size 16 --learning_rate 2e-5\n"  # two things of one library
    design, _ = told(tmp_path, first + TRL.format(b=32, lr="1e-6"))
    assert (design.prompts, design.learning_rate) == (16, 1e-6)


def test_here_documents_and_references_that_lead_nowhere_hold_no_settings(tmp_path):
    for text in ("bash <<EOF\n" + VERL.format(n="16"), "cat > c.yaml <<'EOF'\nnum_generations: 16"):
        with pytest.raises(UserError, match="holds no configuration"):
            told(tmp_path, text + "\nEOF\ntrl grpo --config c.yaml")
    text = "data: {train_batch_size: 64}\nactor_rollout_ref: {rollout: {n: '${rollout_n}'}}\n"
    design, notes = told(tmp_path, text, "verl.yaml")
    assert design.rollouts is None and any("'${rollout_n}'" in note for note in notes)
    anchors = "base: &base {n: 16}\nactor_rollout_ref: {rollout: {<<: *base}}\ndata: {train_batch_size: 64}\n"
    assert told(tmp_path, anchors, "verl.yaml")[0].rollouts == 16


PYTHON = "import os\n{before}\nargs = GRPOConfig(per_device_train_batch_size=8, num_generations={n})\n"


@pytest.mark.parametrize(
    ("before", "value", "rollouts"),
    [
        ("N = 16", "N", 16), ("N: int = 16", "N", 16), ("", "16", 16), ("N = 16\nN = 8", "N", None),
        ("if x:\n    N = 16", "N", None), ("for N in (8, 16):\n    pass", "N", None),
        ("def f(N=16):\n    pass", "N", None), ("N = int(os.environ['N'])", "N", None),
        ("", "int(os.environ['N'])", None), ("N = 8 * 2", "N", None), ("", "args.n", None), ("", "64 // K", None),
        ("", "8 if big else 4", None), ("", "sizes[0]", None), ("", "N", None), ("(N := 16)", "N", None),
        ("N = 16\nN += 1", "N", None), ("N, M = 16, 8", "N", None),
    ],
)  # fmt: skip
def test_a_python_file(before, value, rollouts, tmp_path):
    design, notes = told(tmp_path, PYTHON.format(before=before, n=value), "train.py")
    assert design.rollouts == rollouts and (rollouts is not None or any("num_generations is " in n for n in notes))
    assert not any("num_generations" in line for line in design.assumed)


def test_a_python_files_other_ways(tmp_path):
    text = PYTHON.format(before="", n='int(os.environ.get("N", 16))')
    design, _ = told(tmp_path, text, "train.py")
    assert design.rollouts == 16 and any("unless N is set in the environment" in line for line in design.assumed)
    design, notes = told(tmp_path, "args = GRPOConfig(per_device_train_batch_size=8, **more)\n", "train.py")
    assert design.rollouts is None and any("**more may state it" in note for note in notes)
    changed = PYTHON.format(before="", n="16") + "args.num_generations = 8\n"
    assert told(tmp_path, changed, "train.py")[0].rollouts is None
    listed = 'run(["python", "actor_rollout_ref.rollout.n=8", f"data.train_batch_size={b}"])'
    design, notes = told(tmp_path, listed, "train.py")
    assert (design.rollouts, design.prompts) == (8, None) and any("train_batch_size is {b}" in note for note in notes)


@pytest.mark.parametrize(
    ("call", "rank"),
    [("peft = LoraConfig(r=16)", 16), ("R = 8\nm = FastLanguageModel.get_peft_model(m, r=R)", 8), ("", None),
     ("if args.lora:\n    peft = LoraConfig(r=16)", None), ("if __name__ == '__main__':\n    LoraConfig(r=4)", 4),
     ("LoraConfig(r=16)\nLoraConfig(r=8)", None), ("LoraConfig(r=args.r)", None)],
)  # fmt: skip
def test_the_rank_of_adapters_that_a_python_file_makes(call, rank, tmp_path):
    assert told(tmp_path, PYTHON.format(before=call, n=16), "train.py")[0].adapter_rank == rank


@pytest.mark.parametrize(
    ("call", "model"),
    [
        ("m, t = FastLanguageModel.from_pretrained(model_name='me/a-1B')", "me/a-1B"),
        ("GRPOTrainer(model='me/b')", "me/b"),
        ("NAME = 'me/c'\nm = AutoModelForCausalLM.from_pretrained(NAME, device_map='auto')", "me/c"),
        ("GRPOTrainer(model=m)\nFastModel.from_pretrained(args.model)", None),
        ("AutoTokenizer.from_pretrained('me/t')", None),
        ("if late:\n    m = FastModel.from_pretrained('me/d')", None),
        ("GRPOTrainer('me/e')\nGRPOTrainer('me/f')", None),
    ],
)
def test_the_model_that_a_python_file_loads(call, model, tmp_path):
    assert told(tmp_path, PYTHON.format(before=call, n=16), "train.py")[0].model == model


HOSTILE = {
    "doubling.sh": "A0=xxxxxxxxxx\n" + "".join(f"A{i + 1}=$A{i}$A{i}\n" for i in range(60)) + VERL.format(n="$A60"),
    "often.sh": "N=1\n" * 25_000 + "echo $N\n" * 20_000,
    "deep.sh": "echo " + "${a:-" * 35_000,
    "arrays.sh": "A=(" * 80_000,
    "outputs.sh": "echo " + "$(" * 120_000,
    "quotes.sh": 'echo "' + '\\"' * 120_000,
    "parts.sh": "echo " + "a'b'" * 60_000,
    "name.sh": "A" * 250_000,
    "counted.sh": "((" + "A" * 250_000,
    "blanks.sh": "\\" + " " * 250_000,
    "backslashes.sh": "\\ " * 120_000,
    "documents.sh": "cat <<E\n" * 30_000,
    "sources.sh": "source x\n" * 14_000 + "echo $N\n" * 14_000,
    "chain.sh": "".join(f"A{i}=${{A{i}:-$A{i - 1}}}\n" for i in range(1, 10_000)) + VERL.format(n="$A9999"),
    "maybe.sh": "".join(f"A{i}=$A{i - 1}\nA{i}='--x $A{i - 1}'\n" for i in range(1, 7_000)) + VERL.format(n="8 $A6999"),
    "flags.sh": "python x.py " + "--a " * 60_000,
    "doubts.sh": "".join(f"(A{i}=1)\n" for i in range(25_000)),
    "again.sh": f"if x; then A='{'--a ' * 30_000}'; fi\npython x.py {''.join(f'--a{i} ' for i in range(14_000))}$A",
    "lines.sh": "x.py\n" + "--a\n" * 60_000,
    "dots.sh": "data." + "a." * 120_000 + "=1",
    "minus.py": "x = " + "-" * 250_000 + "1",
    "brackets.py": "x = " + "[" * 250_000,
    "attributes.py": "x" + ".a" * 120_000,
    "sum.py": "x = " + "1+" * 120_000 + "1",
    "calls.py": "GRPOConfig(num_generations=8)\n" * 8_000,
    "keys.yaml": "a: 1\n" * 180_000,
    "merges.yaml": "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 40)),
    "wide.yaml": "a: &a {" + ", ".join(f"k{i}: 1" for i in range(9000)) + "}\nb: {<<: [" + "*a, " * 20_000 + "]}",
    "deep.yaml": "[" * 250_000,
    "sixty.yaml": "a: " + "1:" * 32_000 + "1",
    "nested.yaml": "[" * 60_000,
    "laughs.yaml": "a0: &a0 [1]\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    + "num_generations: *a59\n",
    "cycle.yaml": "num_generations: &a [*a]\n",
    "digits.yaml": f"num_generations: 0x{'f' * 60_000}\n",
    "digits.py": f"GRPOConfig(num_generations=0x{'f' * 60_000})\n",
    "tag.yaml": "num_generations: !!bool x\n",
    "chain.yaml": "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}, k{i}: 1}}\n" for i in range(1, 1_500)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_takes_no_time(name, tmp_path):
    (tmp_path / name).write_text(HOSTILE[name])
    start = time.process_time()
    try:
        read_design(read_config(tmp_path / name), "", None)
    except UserError as error:
        assert name in str(error)
    assert time.process_time() - start < 10
