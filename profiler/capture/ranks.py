"""The rank of a process in its job, from the launcher's environment variables.

    own_job(os.environ, os.getpid())     # None if the process is no rank of a job

| launcher | rank and size | number on its machine | job |
|---|---|---|---|
| torchrun, accelerate, DeepSpeed | RANK, WORLD_SIZE | LOCAL_RANK | TORCHELASTIC_RUN_ID |
| Open MPI | OMPI_COMM_WORLD_RANK, …_SIZE | OMPI_COMM_WORLD_LOCAL_RANK | PMIX_NAMESPACE |
| MPICH, Intel MPI | PMI_RANK, PMI_SIZE | MPI_LOCALRANKID | |
| MVAPICH | MV2_COMM_WORLD_RANK, …_SIZE | MV2_COMM_WORLD_LOCAL_RANK | |
| Slurm (srun) | SLURM_PROCID, SLURM_STEP_NUM_TASKS | SLURM_LOCALID | SLURM_JOB_ID, SLURM_STEP_ID |

A process that a rank has started inherits these variables and is no rank itself. So the first
process that opens a run leaves a note for its children.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from profiler.trace.manifest_fields import Job, Rank

_NOTE = "PROFILE_SD3_RANK"  # the process that is the environment's rank
_MOST = 1 << 31  # ranks
_BATCH = "SLURM_JOB_ID"  # of an allocation, in which several jobs may run one after the other


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables that a launcher sets for each rank. `job` are those that name the job, `place`
    those of its ranks' meeting point, used if none does."""

    name: str
    rank: str
    size: str
    local: str
    job: tuple[str, ...] = ()
    place: tuple[str, ...] = ()


_LAUNCHERS = (  # the innermost first: torchrun may run inside srun
    _Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        ("TORCHELASTIC_RUN_ID",),
        ("MASTER_ADDR", "MASTER_PORT"),
    ),
    _Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("PMIX_NAMESPACE",),
    ),
    _Launcher("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    _Launcher("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    _Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ("SLURM_STEP_ID",)),
)


def own_job(environment: MutableMapping[str, str], process: int) -> Job | None:
    """The job in which this process is a rank, None if it is not one of several. Marks the
    environment, so that no child takes itself for this rank."""
    for launcher in _LAUNCHERS:
        rank, size = (_number(environment, name) for name in (launcher.rank, launcher.size))
        if rank is None or size is None or not rank < size < _MOST or size < 2:
            continue
        named = _name(launcher, environment)
        note = f"{named} {rank} "
        before = environment.get(_NOTE, "")
        if before.startswith(note) and before != f"{note}{process}":
            return None
        environment[_NOTE] = f"{note}{process}"
        own = Rank(rank=rank, local_rank=_number(environment, launcher.local), machine=_machine())
        return Job(world_size=size, reference=rank, name=named, ranks=(own,))
    return None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else None


def _name(launcher: _Launcher, environment: Mapping[str, str]) -> str:
    """The name of the job, the same for all its ranks as far as the environment says."""

    def given(names: tuple[str, ...]) -> tuple[str, ...]:
        texts = (environment.get(name, "") for name in names)
        return tuple(text for text in texts if text not in ("", "none"))

    named = given(launcher.job) or given(launcher.place)
    return " ".join((launcher.name, *given((_BATCH,)), *named))


def _machine() -> str:
    """The ID of the machine's current boot, the same for all processes that share its clocks; "" if
    unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
