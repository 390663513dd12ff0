"""Changes that somebody accepted: each is one file of the data set, and ends an alarm.

    accept(storage, "denoise.step@3fa1b2c4", because="the new sampler takes longer")

A change is named by its metric and the first run after it, so that the name stays when runs are
added. Files follow the data set's commit rule: each appears whole, by a conditional create, and
never changes (`docs/decisions/0084-fleet-data-set.md`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import polars as pl

from profiler.errors import InputError
from profiler.files import decoded
from profiler.fleet.storage import Storage
from profiler.metrics import metric_name

__all__ = ["ACCEPTED", "Accepted", "accept", "accepted_changes", "change_name", "named_run"]

ACCEPTED = "accepted"
_DIGITS = 8
_MOST = 2000

_Name = Annotated[str, msgspec.Meta(max_length=_MOST)]


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's word that a `metric` may be as it is from the run with the key `run` on."""

    metric: _Name
    run: Annotated[str, msgspec.Meta(max_length=64)]
    because: _Name
    when_ns: int

    @property
    def name(self) -> str:
        return change_name(self.metric, self.run)


def change_name(metric: str, run: str) -> str:
    """`denoise.step@3fa1b2c4`: how a change is called that begins with the run of this key."""
    return f"{metric}@{run[:_DIGITS]}"


def accept(
    storage: Storage,
    runs: pl.DataFrame,
    change: str,
    because: str,
    clock: Callable[[], int] = time.time_ns,
) -> Accepted:
    """Accept a change of a data set with these `runs`. Raises InputError where its name is none, no
    reason is given, or it is accepted already."""
    metric, at, run = change.rpartition("@")
    if not at or not metric:
        raise InputError(
            f"{change!r:.120} is no change: give its name, METRIC@RUN, as `profile-sd3 fleet "
            "history` prints it"
        )
    reason = " ".join(because.split())
    if not reason or len(reason) > _MOST:
        raise InputError(f"--because is the reason in the history: give 1 to {_MOST} characters")
    key = named_run(runs, run)["run"]
    made = Accepted(metric=metric_name(metric).text, run=key, because=reason, when_ns=clock())
    digest = hashlib.sha256(f"{made.metric}\0{key}".encode()).hexdigest()[:32]
    if not storage.create(f"{ACCEPTED}/{digest}.json", msgspec.json.encode(made) + b"\n"):
        raise InputError(f"{made.name} is accepted already: its reason stands in the history")
    return made


def accepted_changes(storage: Storage) -> list[Accepted]:
    """What was accepted, oldest first. Raises InputError for a file that is none."""
    found = []
    for name in storage.names(ACCEPTED):
        if not name.endswith(".json"):
            continue
        try:
            found.append(decoded(storage.read(name), Accepted))
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            raise InputError(f"{storage.place}/{name} is damaged ({error}): remove it") from error
    return sorted(found, key=lambda each: (each.when_ns, each.metric, each.run))


def named_run(runs: pl.DataFrame, name: str) -> dict[str, Any]:
    """The row of the run with this key, its first 8 digits at least, or name (the newest of that
    name). Raises InputError where there is none, or a short key is of several."""
    found = runs.filter((pl.col("run") == name) | (pl.col("run_id") == name))
    if found.is_empty() and len(name) >= _DIGITS:
        found = runs.filter(pl.col("run").str.starts_with(name))
        if len(found) > 1:
            raise InputError(f"{name} begins the keys of {len(found)} runs: give more of it")
    if found.is_empty():
        raise InputError(
            f"the data set has no run {name!r:.80}: add it with `profile-sd3 fleet add`, or give a "
            "key or name that it has"
        )
    return found.row(-1, named=True)
