"""The examples of training on several machines: they parse, and agree with themselves.

That the manifests fit the schemas of Kubernetes is tested with the others.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch.distributed.run import get_args_parser

from training.__main__ import _parse

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SCRIPT = DEPLOY / "slurm" / "training.sh"


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "kubernetes" / "examples" / name).read_text())


def job_command() -> str:
    (container,) = read("training-job.yaml")["spec"]["template"]["spec"]["containers"]
    command: str = container["command"][-1]
    return command


def torchrun_words(text: str) -> list[str]:
    """What stands behind torchrun, with a number in the place of each shell variable."""
    words = shlex.split(text.replace("\\\n", " ").partition("torchrun ")[2])
    return ["2" if word.startswith("$") and ":" not in word else word for word in words]


@pytest.mark.parametrize("text", [SCRIPT.read_text(), job_command()], ids=["slurm", "kubernetes"])
def test_torchrun_and_training_read_their_words(text: str) -> None:
    options = get_args_parser().parse_args(torchrun_words(text))
    assert options.module
    assert options.training_script == "macaron.training"
    train = _parse(options.training_script_args)
    assert (train.verb, train.overrides, train.processes) == ("train", ["loop.device=cuda"], 1)
    assert train.run is not None
    assert options.nproc_per_node == "8"


def test_the_script_is_one_that_bash_reads_and_asks_for_what_it_uses() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    asked = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2]
        for line in SCRIPT.read_text().splitlines()
        if line.startswith("#SBATCH")
    )
    options = get_args_parser().parse_args(torchrun_words(SCRIPT.read_text()))
    assert asked["gpus-per-node"] == options.nproc_per_node
    assert (asked["ntasks-per-node"], asked["nodes"]) == ("1", options.nnodes)


def test_the_processes_get_the_processors_that_the_script_asks_for() -> None:
    """`srun` does not take --cpus-per-task over from `sbatch`."""
    (line,) = [line for line in SCRIPT.read_text().splitlines() if line.startswith("srun ")]
    assert '--cpus-per-task="$SLURM_CPUS_PER_TASK"' in line.partition("torchrun")[0]
    assert "#SBATCH --cpus-per-task=" in SCRIPT.read_text()  # or the variable would not be set


def test_the_pods_of_the_job_find_the_first_of_them() -> None:
    job, service = read("training-job.yaml"), read("training-service.yaml")
    pod = job["spec"]["template"]
    options = get_args_parser().parse_args(torchrun_words(job_command()))
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    name, subdomain = job["metadata"]["name"], pod["spec"]["subdomain"]
    assert service["metadata"]["name"] == subdomain
    assert options.master_addr == f"{name}-0.{subdomain}"
    (port,) = service["spec"]["ports"]
    assert options.master_port == port["port"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == int(options.nnodes)
    (container,) = pod["spec"]["containers"]
    assert str(container["resources"]["limits"]["nvidia.com/gpu"]) == options.nproc_per_node
