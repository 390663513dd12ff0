"""`profile-sd3 fleet accept`: end an alarm, with a reason."""

from __future__ import annotations

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import tell


@cli_options
class AcceptOptions:
    """Options of `profile-sd3 fleet accept`."""

    dataset: str = shared.DATASET_PLACE
    change: str = arg("CHANGE  Its name, METRIC@RUN, as history and gate print it.")
    because: str = opt("REASON  Why: it stands in the history from then on.", default=...)


def accept(options: AcceptOptions) -> None:
    """Accept a change of a metric: its new level is what later runs are held against."""
    from profiler.fleet.dataset import Dataset
    from profiler.fleet.history import accept as accept_change

    data = Dataset(options.dataset)
    made = accept_change(data.storage, data.runs(), options.change, options.because)
    tell(f"accepted {made.name}: {made.because}")


SUBCOMMAND = Subcommand(accept, place=40)
