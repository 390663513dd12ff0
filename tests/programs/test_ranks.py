"""Processes of one job: each bundle says which rank it is of, and together they are one run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from profiler.capture.ranks import own_job
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.tools.sources import load, resolve
from profiler.trace import MANIFEST_NAME

HERE = Path(__file__).parent

LAUNCHERS = {  # what each sets for rank 1 of 2, and what the job is called then
    "torchrun": (
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "sd3-7"},
        "torchrun sd3-7",
    ),
    "torchrun without an id": (
        {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "1",
            "TORCHELASTIC_RUN_ID": "none",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        },
        "torchrun 127.0.0.1 29500",
    ),
    "Open MPI": (
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "PMIX_NAMESPACE": "prterun-vm-22276@1",
        },
        "Open MPI prterun-vm-22276@1",
    ),
    "MPICH": ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, "MPI"),
    "Slurm": (
        {
            "SLURM_PROCID": "1",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_LOCALID": "1",
            "SLURM_JOB_ID": "991",
            "SLURM_STEP_ID": "0",
        },
        "Slurm 991 0",
    ),
}


def _job(bundle):
    return json.loads((bundle / MANIFEST_NAME).read_text()).get("job")


def _of_rank(variables, rank):
    """The variables of a rank: those that say 1 of rank 1 are its numbers."""
    return {name: str(rank) if value == "1" else value for name, value in variables.items()}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_launchers_set(launcher):
    """Rank, local rank, size and job come from the launcher's variables; a helper process that a
    rank has started has them, too, with what the rank has left in them, and is no rank."""
    variables, name = LAUNCHERS[launcher]
    for rank in (0, 1):
        environment = _of_rank(variables, rank)
        job = own_job(environment, 7)
        (own,) = job.ranks
        assert (job.name, job.world_size, own.rank, own.local_rank) == (name, 2, rank, rank)
        assert own_job(environment, 8) is None
        assert own_job(environment, 7) == job  # the rank's next run


def test_ranks_with_helpers(scripts):
    """The same of processes: the ranks of the folder are one run, without what helpers ran."""
    variables, name = LAUNCHERS["Open MPI"]
    program = (HERE / "rank_with_helper.py").read_text(encoding="utf-8")
    for rank in (0, 1):
        ended = scripts.run(program, **_of_rank(variables, rank))
        assert ended.code == 0, ended.err
    jobs = [job for job in map(_job, ended.bundles) if job is not None]
    assert len(ended.bundles) == 4  # two helpers
    assert [job["name"] for job in jobs] == [name, name]
    assert [job["world_size"] for job in jobs] == [2, 2]
    found = [(one["rank"], one["local_rank"]) for job in jobs for one in job["ranks"]]
    assert sorted(found) == [(0, 0), (1, 1)]
    both = [bundle for bundle in ended.bundles if _job(bundle) is not None]
    joined = load(both)
    assert joined.calls["rank"].sort().to_list() == [0, 0, 1, 1]
    assert joined.info.job.name == name
    for bundle in both:
        shutil.copytree(bundle, bundle.with_name(f"{bundle.name}-copy"))
    assert load(both[0].parent).calls["rank"].sort().to_list() == [0, 0, 1, 1]


def test_ranks_of_torchrun(scripts):
    """A loop over two processes: its output is that of the plain program, and the folder of both
    bundles is one run, with the calls and commands of each on its rank's device, on one clock."""
    pytest.importorskip("torch", reason="needs the torch extra")
    script = scripts.work / "two_ranks.py"
    script.write_text((HERE / "two_ranks.py").read_text(encoding="utf-8"), encoding="utf-8")
    runner = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [scripts.python, *runner, str(script)]
    ended = {}
    for on in (None, "1"):
        variables = scripts.variables({"RBLN_PROFILER": on})
        options = {"cwd": scripts.work, "env": variables, "capture_output": True, "text": True}
        ended[on] = subprocess.run(command, **options, timeout=120, check=True)
    assert ended["1"].stdout == ended[None].stdout
    traces = scripts.work / "traces"
    bundles = {_job(path)["ranks"][0]["rank"]: path for path in traces.iterdir()}
    assert sorted(bundles) == [0, 1]
    joined, alone = load(traces), {rank: load(path) for rank, path in bundles.items()}
    offset = {rank: one.info.clocks.monotonic_offset_ns for rank, one in alone.items()}
    for rank, one in alone.items():
        assert one.calls["rank"].to_list() == [rank] * 4
        calls = joined.calls.filter(pl.col("rank") == rank)
        shift = offset[0] - offset[rank]  # both ran on this machine's CLOCK_MONOTONIC
        assert calls["start_ns"].to_list() == [t + shift for t in one.calls["start_ns"]]
        assert calls["duration_ns"].to_list() == one.calls["duration_ns"].to_list()
        assert calls["device"].cast(pl.String).unique().to_list() == [f"rank{rank}/cpu:0"]
        commands = joined.commands.filter(pl.col("rank") == rank)
        assert commands["duration_ns"].sum() == one.commands["duration_ns"].sum()
        assert len(commands) == len(one.commands)
    assert joined.calls["call"].to_list() == list(range(8))
    assert (joined.info.job.world_size, len(joined.info.job.ranks)) == (2, 2)
    assert not joined.others
    kept = load(import_trace(traces, scripts.work / "job"))  # what `import traces/` writes
    assert kept.calls.equals(joined.calls)
    assert load(bundles[0]).info.job.ranks[0].rank == 0  # one bundle alone is that rank's


def test_runs_of_one_job(scripts):
    """A job that ran twice under one name, as torchrun without an id: the newest two bundles are
    one run, the others another, and ranks of different jobs are refused as one."""
    program = (HERE / "rank_with_helper.py").read_text(encoding="utf-8").replace("not in", "in")
    variables, _ = LAUNCHERS["torchrun without an id"]
    for rank in (0, 1, 1, 0):
        ended = scripts.run(program, **_of_rank(variables, rank))
    (found,) = resolve([[scripts.work / "traces"]])
    first, *others = found.sources
    assert [_job(path)["ranks"][0]["rank"] for path in first.foreign.paths] == [0, 1]
    assert len(others) == 2
    assert {one.path for one in others} == set(ended.bundles) - set(first.foreign.paths)
    elsewhere = scripts.run(program, **_of_rank(LAUNCHERS["Slurm"][0], 1)).bundles
    (other,) = set(elsewhere) - set(ended.bundles)
    with pytest.raises(InputError, match="give traces of one job"):
        load([first.foreign.paths[0], other])
    with pytest.raises(InputError, match="both of rank"):
        load([first.foreign.paths[0], others[0].path, others[1].path])
