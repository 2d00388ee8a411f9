"""The number of processes that torchrun or SLURM has started, and restarts, by environment variables."""

import dataclasses
import os

import pytest
from lightning.fabric.utilities.rank_zero import rank_zero_only

from molslice.config import TrainerConfig
from molslice.folders.run import LAST_CHECKPOINT, SUMMARY
from molslice.training.fabric import build_fabric
from molslice.training.processes import find_environment, was_restarted
from molslice.training.run import train
from molslice.types import MolsliceError

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "LOCAL_RANK": "0"}
SLURM = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_JOB_ID": "1"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Return a function that sets variables. Those of the machine are removed, those of Fabric afterwards."""
    names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for name in [*names, *(name for name in os.environ if name.startswith(("SLURM_", "TORCHELASTIC_")))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "")
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    # Fabric keeps the rank in its function, also for the tests that follow
    monkeypatch.setattr(rank_zero_only, "rank", getattr(rank_zero_only, "rank", 0), raising=False)

    def set_all(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("variables", "devices", "nodes", "words"),
    [
        (
            {**TORCHRUN, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            1,
            1,
            "torchrun has started 2 processes (nodes: 1, processes on each: 2), but trainer.devices is 1 and "
            "trainer.num_nodes 1; set --trainer.devices 2 --trainer.num_nodes 1",
        ),
        (
            {**TORCHRUN, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
            8,
            1,
            "set --trainer.devices 4 --trainer.num_nodes 2",
        ),
        (
            {**SLURM, "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"},
            1,
            1,
            "SLURM has started 4 processes (nodes: 1, processes on each: 4)",
        ),
        ({**SLURM, "SLURM_NTASKS": "2", "SLURM_PROCID": "1"}, 1, 1, "set --trainer.devices 2"),
        ({**SLURM, "SLURM_NTASKS": "1"}, 2, 1, "SLURM has started 1 processes"),
        (
            {**SLURM, "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "2"},
            4,
            1,
            "set --trainer.devices 2 --trainer.num_nodes 2",
        ),
        ({**SLURM, "SLURM_NTASKS": "4", "SLURM_LOCALID": "2"}, 2, 2, "srun --ntasks-per-node=2"),
    ],
)
def test_another_number_of_processes_is_refused(environment, variables, devices, nodes, words):
    environment(variables)
    with pytest.raises(MolsliceError) as error:
        build_fabric(TrainerConfig(accelerator="cpu", devices=devices, num_nodes=nodes))
    assert words in str(error.value)


def test_the_tasks_of_srun_are_used_without_a_number_for_each_node(environment):
    environment({**SLURM, "SLURM_NTASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "3"})
    fabric = build_fabric(TrainerConfig(accelerator="cpu", devices=4))
    assert (fabric.global_rank, fabric.world_size) == (3, 4)


def test_one_process_in_the_batch_script_of_several_tasks(environment):
    """Only `srun` starts several tasks; the script itself is one process."""
    environment({**SLURM, "SLURM_NTASKS": "4"})
    assert build_fabric(TrainerConfig(accelerator="cpu")).world_size == 1
    environment({"SLURM_JOB_NAME": "interactive", "SLURM_STEP_ID": "0"})
    assert find_environment(TrainerConfig()) == []


@pytest.mark.parametrize("name", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_a_restarted_process_continues_its_run_without_resume(environment, build_config, tmp_path, name):
    config = build_config(training={"max_steps": 4})
    train(config, tmp_path / "run", quiet=True)
    (tmp_path / "run" / SUMMARY).unlink()
    environment({name: "0"})
    assert not was_restarted()
    with pytest.raises(MolsliceError, match="not empty"):
        train(config, tmp_path / "run", quiet=True)
    environment({name: "1"})
    before = (tmp_path / "run" / LAST_CHECKPOINT).read_bytes()
    assert train(config, tmp_path / "run", quiet=True)["steps"] == 4
    assert (tmp_path / "run" / LAST_CHECKPOINT).read_bytes() == before  # nothing was trained
    other = dataclasses.replace(config, seed=config.seed + 1)
    with pytest.raises(MolsliceError, match="another configuration: seed"):
        train(other, tmp_path / "run", quiet=True)
    assert train(config, tmp_path / "new", quiet=True)["steps"] == 4  # killed before it made its folder


def test_float16_cannot_be_sharded():
    with pytest.raises(MolsliceError, match=r"precision 16 .*strategy fsdp; choices: 32, bf16"):
        build_fabric(TrainerConfig(accelerator="cpu", strategy="fsdp", precision="16"))
