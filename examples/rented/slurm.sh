#!/usr/bin/env bash
# Not run. sbatch examples/rented/slurm.sh, in the clone's folder, on storage that the nodes share.
#SBATCH --job-name=rftlab
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1    # five minutes before the end; checkpoints stay
bash examples/rented/run.sh &
wait
