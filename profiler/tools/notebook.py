"""`%load_ext profiler`: the cell magic `%%profile`, which records what a cell runs.

    %load_ext profiler

    %%profile run --ops first,last
    pipe("a lighthouse", num_inference_steps=28)

The cell runs as it does without the magic; what was recorded is shown below it and bound to `run`.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import SUPPRESS
from typing import Any

from profiler.capture.settings import CONFIG, environment_settings
from profiler.capture.startup import done, is_switched_on, start
from profiler.errors import ProfilerError, needing
from profiler.tools.sources import load

with needing("notebook", __name__, "IPython"):
    from IPython.core.error import UsageError
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.magic_arguments import MagicArgumentParser
    from IPython.display import display


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magic in `shell`; IPython calls this for `%load_ext profiler`."""

    def profile(line: str, cell: str) -> None:
        try:
            _profile(shell, line, cell)
        except ProfilerError as error:
            raise UsageError(str(error)) from None

    profile.__doc__ = _parser().format_help()  # what `%%profile?` shows
    shell.register_magic_function(profile, "cell", "profile")


def _profile(shell: InteractiveShell, line: str, cell: str) -> None:
    """Run `cell` with the settings in `line` and show its run, even if the cell fails."""
    settings = _settings(line)
    variable = settings.pop("variable", None)
    if _awaits(shell, cell):
        raise UsageError(
            "%%profile records no cell that awaits: "
            "put `with profiler.profile(pipe) as recorded:` around what is awaited"
        )
    if is_switched_on():
        raise UsageError("this kernel is being recorded already: call profiler.done() first")
    start(**settings)
    failure = "KeyboardInterrupt"  # anything that `run_cell` does not catch itself
    try:
        result = shell.run_cell(cell)
        error = result.error_before_exec or result.error_in_exec
        failure = "" if error is None else f"{type(error).__name__}: {error}".removesuffix(": ")
    finally:
        path = done(failure)
    if path is None:
        sys.stdout.write("nothing was recorded: the cell ran no pipeline, module or session\n")
    else:
        sys.stdout.write(f"{os.path.relpath(path)}\n")
        run = load(path)
        if variable is not None:
            shell.push({variable: run})
        display(run)
    if failure:  # shown above; prevents the following cells from running
        raise UsageError(f"the cell ended with {failure}")


def _awaits(shell: InteractiveShell, cell: str) -> bool:
    """Whether the cell would need the event loop in which the magic itself runs."""
    try:
        code = shell.transform_cell(cell)
    except SyntaxError:  # running the cell reports it
        return False
    return bool(shell.should_run_async(cell, transformed_cell=code))


def _settings(line: str) -> dict[str, Any]:
    """Parse the magic's line into keywords of `profiler.start`, and `variable`, as far as given."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%profile {line}: {error}") from None
    settings: dict[str, Any] = vars(_parser().parse_args(words))
    if not settings.get("variable", "run").isidentifier():
        raise UsageError(f"{settings['variable']!r} is no name of a variable")
    config = settings.pop("config", None)
    if config is not None:
        asked = environment_settings({**os.environ, CONFIG: config})
        settings = {**asked.given(), **settings}
    return settings


def _parser() -> MagicArgumentParser:
    parser = MagicArgumentParser(
        "%profile",  # a % is added
        description="Record what the cell runs, and show its run.",
        argument_default=SUPPRESS,
    )
    add = parser.add_argument
    add("variable", nargs="?", help="what to call the run in this notebook")
    add("--ops", help="calls whose operators are recorded: all, none, first,last, every:N, …")
    add("--out", metavar="FOLDER", help="of runs; traces if it is not given")
    add("--name", help="of the run's folder; its time if it is not given")
    add("--config", metavar="JSON", help="settings as JSON, or a JSON file")
    add("--compress", metavar="HOW", help="none, deflate or zstd")
    add("--max-size", metavar="SIZE", help="what a run may write, such as 2GiB")
    add("--memory", action="store_true", help="record allocations")
    add("--keep-prompts", action="store_true", help="leave prompts in the recorded command line")
    return parser
