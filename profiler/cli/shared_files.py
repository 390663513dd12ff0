"""The option `--shared` of subcommands that write files about runs: these are for the user alone
without it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

import typer

from profiler.files import SHARED

__all__ = ["with_shared_option"]

_Shared = Annotated[
    bool,
    typer.Option(
        "--shared",
        help=f"Let the umask decide who may read what is written, as {SHARED}=1 does.  "
        "[default: you alone]",
    ),
]


def with_shared_option(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the option, which holds while it runs, for the programs that it starts as
    well."""

    @wraps(command)
    def with_option(*, shared: bool, **given: Any) -> None:
        if not shared:
            command(**given)
            return
        with _shared():
            command(**given)

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "shared", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Shared
    )
    every = [*signature.parameters.values(), option]
    with_option.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    with_option.__annotations__ = {each.name: each.annotation for each in every}
    return with_option


@contextmanager
def _shared() -> Iterator[None]:
    before = os.environ.get(SHARED)
    os.environ[SHARED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SHARED]
        else:
            os.environ[SHARED] = before
