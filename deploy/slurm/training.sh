#!/bin/bash
# Trains a recipe on several machines of eight GPUs: sbatch deploy/slurm/training.sh RECIPE RUN
# The corpora and RUN lie where every machine sees them. A job that is put back into the queue goes on from RUN.
#SBATCH --job-name=macaron-training
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node 8 \
  --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
  -m -- macaron.training train "$1" loop.device=cuda --run "$2"
