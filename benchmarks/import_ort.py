"""ONNX Runtime's profile to a bundle, beside the usual reading of the same file into a DataFrame.

    python benchmarks/import_ort.py [--nodes 300000] [--rounds 3] [--folder DIR] [--form new]

The profile is generated as onnxruntime 1.32 writes it (`new`: shapes, memory and the statistics of
threads with each node) and as its versions of 2022 did (`old`: fences around each node), runs of
1,000 nodes. `import` writes the whole bundle; `pandas` only reads: orjson (json where that is not
installed) and `DataFrame` of the events; `flat` makes columns of their arguments as well, as
questions by provider or operator need. Each measurement is a process of its own, in turn; figures
are medians of processor seconds, since machines are shared, and the largest resident set.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from import_peers import compare, decoded, import_file, measure

FORMS = ("new", "old")
RUN = 1_000  # nodes
OPERATORS = ("MatMul", "Add", "Mul", "Softmax", "Reshape", "Transpose", "Gemm", "Concat")


def line(category: str, name: str, begin: int, length: int, args: str = "") -> str:
    """An event as ONNX Runtime spells it."""
    return (
        f'{{"cat" : "{category}","pid" :4242,"tid" :4242,"dur" :{length},"ts" :{begin},'
        f'"ph" : "X","name" :"{name}","args" : {{{args}}}}}'
    )


def new_args(number: int) -> str:
    """The arguments of a node in onnxruntime 1.32."""
    dims = 64 * (1 + number % RUN % 7)
    used = 300_000 + 256 * (number % 99)
    return (
        f'"mem_arena_held" : "1121364","op_name" : "{OPERATORS[number % 8]}",'
        f'"mem_bytes_requested_in_use" : "{used}","thread_scheduling_stats" : {{"main_thread": '
        '{"thread_pool_name": "session-1-intra-op", "thread_id": "140221695929216", '
        '"block_size": [], "core": -1, "Distribution": 0, "DistributionEnqueue": 0, "Run": 0, '
        '"Wait": 0, "WaitRevoke": 0}, "sub_threads": {"140221509260992": {"num_run": 56, '
        f'"core": 0}}}}}},"node_index" : "{number % RUN}","input_type_shape" : '
        f'[{{"float":[1,{dims},24]}},{{"float":[24,24]}}],"mem_in_use_peak" : "440660",'
        f'"mem_in_use_delta" : "256","mem_bytes_in_use" : "{used}","output_type_shape" : '
        f'[{{"float":[1,{dims},24]}}],"parameter_size" : "2304","provider" : '
        f'"CPUExecutionProvider","activation_size" : "{96 * dims}","output_size" : "{96 * dims}",'
        '"mem_arena_held_delta" : "0","mem_requested_in_use_delta" : "77"'
    )


def old_args(number: int) -> str:
    """The arguments of a node of 2022."""
    return (
        f'"output_size" : "{200_704 + number % RUN % 9}","parameter_size" : "9679",'
        f'"activation_size" : "150528","graph_index" : "{number % RUN}",'
        f'"exec_plan_index" : "{number % RUN}",'
        f'"provider" : "CPUExecutionProvider","op_name" : "{OPERATORS[number % 8]}"'
    )


def lines(form: str, nodes: int) -> Iterator[str]:
    """The events of so many nodes and of their runs."""
    yield line("Session", "model_loading_uri", 4, 2_936)
    yield line("Session", "session_initialization", 3_007, 7_651)
    for number in range(nodes):
        name = f"/transformer_blocks.{number % RUN // 40}/attn/node_{number % RUN}"
        begin = 20_000 + 20 * number
        if form == "old":
            fence = f'"op_name" : "{OPERATORS[number % 8]}"'
            yield line("Node", f"{name}_fence_before", begin, 1, fence)
        args = new_args(number) if form == "new" else old_args(number)
        yield line("Node", f"{name}_kernel_time", begin + 2, 10 + number % 7, args)
        if form == "old":
            yield line("Node", f"{name}_fence_after", begin + 19, 1, fence)
        if number % RUN == RUN - 1:
            first = begin - 20 * (RUN - 1)
            yield line("Session", "SequentialExecutor::Execute", first, 20 * RUN)
            yield line("Session", "model_run", first - 1, 20 * RUN + 2)


def generate(form: str, path: Path, nodes: int) -> int:
    """Write a profile, and say how many events it has."""
    count = 0
    with path.open("w") as file:
        for text in lines(form, nodes):
            file.write(",\n" if count else "[\n")
            file.write(text)
            count += 1
        file.write("\n]\n")
    return count


def _events(path: Path) -> list[dict[str, object]]:
    events: list[dict[str, object]] = decoded(path.read_bytes())
    return events


def read_with_pandas(path: Path, _folder: Path) -> None:
    """The events as a DataFrame, whose arguments are dictionaries."""
    import pandas as pd

    pd.DataFrame(_events(path))


def read_flat(path: Path, _folder: Path) -> None:
    """The events as a DataFrame with a column an argument."""
    import pandas as pd

    events = _events(path)
    pd.DataFrame(events).join(pd.DataFrame([event.pop("args") for event in events]))


WAYS = {"import": import_file, "pandas": read_with_pandas, "flat": read_flat}


def measured(form: str, folder: Path, nodes: int, rounds: int) -> None:
    """Print what each way takes of one form."""
    path = folder / f"{form}.json"
    events = generate(form, path, nodes)
    print(f"{form}: {events:,} events, {path.stat().st_size / 1e6:,.0f} MB")
    compare(__file__, ["--file", str(path)], [*WAYS], events, rounds)


def main() -> None:
    """Compare each form, or the one that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--form", choices=FORMS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        measure(WAYS[given.way], given.file)
        return
    for form in (given.form,) if given.form else FORMS:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            measured(form, Path(folder), given.nodes, given.rounds)


if __name__ == "__main__":
    main()
