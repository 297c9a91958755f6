#!/usr/bin/env bash
# From a bare machine with an NVIDIA driver (580 or newer), Python 3.11 or newer with its headers, a C compiler, git and
# make to results and a report: apt install python3-venv python3-dev gcc git make.
# Not run on such a machine. The same command goes on where the last one stopped.
#
#     HOURS=100 PAIRS=all bash examples/rented/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
HOURS=${HOURS:-100} PAIRS=${PAIRS:-all} RESULTS=${RESULTS:-results}

nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv
make gpu-check    # installs the trainer and vLLM first; ends here if one of the eleven checks did not pass

asked=(reproduce --level llm --pair "$PAIRS" --hours "$HOURS" --results "$RESULTS")
.venv/bin/rftlab "${asked[@]}" --dry-run --gpu measured
.venv/bin/rftlab "${asked[@]}" --quiet
cat "$RESULTS/verdicts-llm.md"
