"""`profile-sd3 graph split`: large operations in parts, as compilers of accelerators cut them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli.commands.graph import grouped, named, parse_bytes, parse_sizes, tell_compared
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import check_documents, progress, tell, write_result
from profiler.errors import InputError
from profiler.text import counted, name_list

if TYPE_CHECKING:
    from profiler.graph.split import SplitFile, SplitOperation
    from profiler.graph.split_parts import Target


@cli_options
class SplitOptions:
    """Options of `profile-sd3 graph split`."""

    model: Path = shared.MODEL_PATH
    out: Path = shared.OUT_PATH
    max_bytes: str | None = opt(
        "BYTES  Split what has more, such as 8MiB: of the weights of an operation, or of its "
        "largest operand if it has none."
    )
    parts: int | None = opt("N  Split every operation into so many parts.")
    op_types: str | None = opt(
        "TYPES  What to split, with commas.  [default: MatMul,Gemm,Conv,Attention]"
    )
    node: list[str] = opt("NAME  Split this node alone; may be repeated.")
    size: list[str] = opt(
        "NAME=N  A symbolic dimension, to tell bytes by, and of the inputs that outputs are "
        "compared on; may be repeated.  [default, of inputs: 2 for a batch, 8 for others]"
    )
    show_all: bool = opt("--all  Show every operation, not three of a kind.")
    json_file: Path | None = shared.RESULT_FILE


def split(options: SplitOptions) -> None:
    """Split large operations as compilers of NPUs do.

    MatMul, Gemm, Conv and attention become commands. Parts have columns, rows, channels or heads of
    the output, or terms of its sums. They keep the operation's layer and have a command_index: a
    profiled run of OUT shows split operators, which analyze folds back. OUT is written once its
    outputs are those of MODEL on random inputs.
    """
    from profiler.graph.split import OPERATION_TYPES, split_files

    target = _target(options.max_bytes, options.parts)
    types = name_list(options.op_types) if options.op_types else OPERATION_TYPES
    sizes = parse_sizes(options.size)
    check_documents(
        {"--json": options.json_file}, inputs=[options.model], outputs={"OUT": options.out}
    )
    with progress(f"splitting {options.model}"):
        files = split_files(
            options.model, options.out, target, op_types=types, nodes=options.node, sizes=sizes
        )
    if write_result(
        options.json_file, "graph_split", lambda: {"models": [file.to_json() for file in files]}
    ):
        for file in files:
            _print(file, options.show_all)


def _target(max_bytes: str | None, parts: int | None) -> Target:
    from profiler.graph.split_parts import Target

    if (max_bytes is None) == (parts is None):
        raise InputError("give either --max-bytes, such as 8MiB, or --parts, such as 4")
    if max_bytes is not None:
        return Target(max_bytes=parse_bytes(max_bytes, "--max-bytes"))
    if parts is not None and parts < 2:
        raise InputError(f"--parts {parts} splits nothing: give 2 or more")
    return Target(parts=parts)


def _print(file: SplitFile, show_all: bool) -> None:
    result = file.result
    parts = sum(operation.parts for operation in result.split)
    left = [f"{len(result.whole)} cannot be split"] if result.whole else []
    left += [f"{result.small} small enough"] if result.small else []
    count = counted(len(result.split), "operation")
    done = f"{count} split into {parts} parts" if parts else "copied"
    tell(f"{file.out}: {', '.join([done, *left])}")
    for operations in grouped(result.split, _kind, each=show_all):
        first = operations[0]
        names = named(operation.node for operation in operations)
        tell(f"  {first.op_type} by {first.axis} in {first.parts}: {names}")
        if first.bytes is not None and first.part_bytes is not None:
            most = max(operations, key=lambda operation: operation.part_bytes or 0)
            tell(f"    largest part: {most.part_bytes:,} of {most.bytes:,} bytes, {most.node}")
    for whole in result.whole:
        tell(f"  not split: {whole.node} ({whole.op_type}, {whole.layer}): {whole.reason}")
    tell_compared(file.differences, each=True)


def _kind(operation: SplitOperation) -> tuple[object, ...]:
    return operation.op_type, operation.axis, operation.parts, operation.bytes is None


SUBCOMMAND = Subcommand(split, place=30, needs="graph")
