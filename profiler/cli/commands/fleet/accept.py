"""`profile-sd3 fleet accept`: end an alarm, with a reason."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler.cli.commands.fleet import DatasetPlace
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import tell

_Change = Annotated[
    str,
    typer.Argument(metavar="CHANGE", help="Its name, METRIC@RUN, as history and gate print it."),
]
_Because = Annotated[
    str, typer.Option(metavar="REASON", help="Why: it stands in the history from then on.")
]


def accept(dataset: DatasetPlace, change: _Change, because: _Because) -> None:
    """Accept a change of a metric: its new level is what later runs are held against."""
    from profiler.fleet.dataset import Dataset
    from profiler.fleet.history import accept as accept_change

    data = Dataset(dataset)
    made = accept_change(data.storage, data.runs(), change, because)
    tell(f"accepted {made.name}: {made.because}")


SUBCOMMAND = Subcommand(accept, place=40)
