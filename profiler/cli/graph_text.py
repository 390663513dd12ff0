"""What the subcommands of `profile-sd3 graph` print."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from profiler.cli.terminal import tell, terminal
from profiler.text import counted, duration, percent

if TYPE_CHECKING:
    from profiler.compare.compare import Gate
    from profiler.graph.annotate import AnnotatedFile
    from profiler.graph.check import CheckResult
    from profiler.graph.compare import GraphComparison, MeasuredFinding, TimeComparison
    from profiler.graph.export import ExportedPart
    from profiler.graph.fix import FixResult
    from profiler.graph.optimize.files import OptimizedFile
    from profiler.graph.split import SplitFile, SplitOperation
    from profiler.graph.verify import OutputDifference
    from profiler.run.run import Run


_Entry = TypeVar("_Entry")
_NAMED = 3  # named nodes per group
_HOT = 5  # printed nodes with most time
_UNPLACED = 3  # printed commands without a node


def tell_exported(part: ExportedPart, show_all: bool) -> None:
    """Print what was exported of one part, and how far its outputs are from torch's."""
    tell(
        f"{part.submodule} → {part.folder}/model.onnx: {part.class_name}, {part.dtype}, opset "
        f"{part.opset}, {part.node_count} nodes, {_bytes_text(part.weight_bytes)} of weights, "
        f"{part.seconds:.1f} s"
    )
    free = dict.fromkeys(a for axes in part.inputs.values() for a in axes if isinstance(a, str))
    tell(f"  free sizes: {', '.join(free) or 'none'}")
    if part.layer_norms:
        tell(f"  LayerNorms given ones and zeros: {part.layer_norms}")
    for note in part.notes:
        tell(f"  note: {note}")
    sizes = "; ".join(", ".join(f"{k} {v}" for k, v in trial.items()) for trial in part.trials)
    tell(f"  compared with torch on {sizes}" if sizes else "  compared with torch")
    worst = max(part.differences, key=lambda found: found.relative)
    for found in part.differences if show_all else [worst]:
        tell(f"    {found}")
    if not show_all and len(part.differences) > 1:
        tell(f"    (the most of {len(part.differences)} outputs)")


def _bytes_text(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def tell_fixed(result: FixResult, show_all: bool) -> None:
    """Print what was repaired in a model."""
    repaired = ", ".join(f"{rule} {count}" for rule, count in result.repaired.items())
    tell(f"{result.out}: repaired: {repaired or 'nothing'}")
    tell_compared(result.differences, each=show_all)


def tell_checked(result: CheckResult, run: Run | None, show_all: bool) -> None:
    """Print the findings about a model."""
    counts = [(result.count(name), name) for name in ("error", "warning", "note")]
    total = ", ".join(counted(n, name) for n, name in counts if n) or "nothing found"
    nodes = counted(result.node_count, "node")
    tell(f"{result.path}: opset {result.opset}, {nodes}: {total}")
    for findings in grouped(measured_findings(result, run), _kind_of_finding, each=show_all):
        first = findings[0].finding
        names = named(one.finding.node for one in findings) or "the model"
        tell(f"  {first.severity} {first.rule}: {names}")
        if run is not None:
            tell(f"    measured: {_measured_text(findings)}")
        tell(f"    {first.evidence}")
        tell(f"    → {first.recommendation}{' (--fix does)' if first.fix else ''}")


def measured_findings(result: CheckResult, run: Run | None) -> list[MeasuredFinding]:
    """Return the findings, with the time of their nodes if a run was given."""
    from profiler.graph.compare import MeasuredFinding, measured

    if run is None:
        return [MeasuredFinding(finding, None, None, None) for finding in result.findings]
    return [*measured(result, run)]


def _measured_text(findings: Sequence[MeasuredFinding]) -> str:
    """The time per call of the findings' nodes, as text; each layer counts once."""
    known = {one.layer: one for one in findings if one.ns is not None}
    if not known:
        return "none of them is a layer of the run"
    total = sum(one.ns or 0 for one in known.values())
    share = sum(one.share or 0 for one in known.values())
    return f"{duration(total)} a call, {percent(share)} of what was measured"


def _kind_of_finding(one: MeasuredFinding) -> tuple[object, ...]:
    finding = one.finding
    return finding.rule, finding.severity, finding.recommendation, finding.fix


def tell_split(file: SplitFile, show_all: bool) -> None:
    """Print which operations of a model were split, and which were not."""
    result = file.result
    parts = sum(operation.parts for operation in result.split)
    left = [f"{len(result.whole)} cannot be split"] if result.whole else []
    left += [f"{result.small} small enough"] if result.small else []
    count = counted(len(result.split), "operation")
    done = f"{count} split into {parts} parts" if parts else "copied"
    tell(f"{file.out}: {', '.join([done, *left])}")
    for operations in grouped(result.split, _kind_of_operation, each=show_all):
        first = operations[0]
        names = named(operation.node for operation in operations)
        tell(f"  {first.op_type} by {first.axis} in {first.parts}: {names}")
        if first.bytes is not None and first.part_bytes is not None:
            most = max(operations, key=lambda operation: operation.part_bytes or 0)
            tell(f"    largest part: {most.part_bytes:,} of {most.bytes:,} bytes, {most.node}")
    for whole in result.whole:
        tell(f"  not split: {whole.node} ({whole.op_type}, {whole.layer}): {whole.reason}")
    tell_compared(file.differences, each=True)


def _kind_of_operation(operation: SplitOperation) -> tuple[object, ...]:
    return operation.op_type, operation.axis, operation.parts, operation.bytes is None


def tell_optimized(file: OptimizedFile, show_all: bool) -> None:
    """Print the number of nodes by type before and after."""
    before, after = file.nodes_before, file.nodes_after
    optimizer = file.optimizer
    how = optimizer.level if optimizer.name == "ort" else optimizer.model_type
    tell(
        f"{file.out}: {f'{optimizer.name} {how}'.rstrip()}: {sum(before.values()):,} → "
        f"{sum(after.values()):,} nodes, {file.bytes_before:,} → {file.bytes_after:,} bytes"
    )
    types = sorted(
        {*before, *after}, key=lambda name: (-before.get(name, 0), -after.get(name, 0), name)
    )
    changed = [name for name in types if before.get(name, 0) != after.get(name, 0)]
    shown = types if show_all else changed
    width = max(map(len, shown), default=0)
    digits = len(f"{max([*before.values(), *after.values(), 0]):,}")
    for name in shown:
        counts = before.get(name, 0), after.get(name, 0)
        tell(f"  {name:{width}}  {counts[0]:{digits},} → {counts[1]:{digits},}")
    same = len(types) - len(changed)
    if not show_all and same:
        tell(f"  {'all' if not changed else 'other'} {counted(same, 'type')}: as many as before")
    _tell_optimizer_notes(file)
    tell_compared(file.differences, each=show_all)


def _tell_optimizer_notes(file: OptimizedFile) -> None:
    paths = file.paths
    kept = paths.survived + paths.fused
    fused = f" ({paths.survived} survived, {paths.fused} fused or new)" if paths.fused else ""
    total = kept + paths.without
    tell(
        f"  module paths: on {kept} of {total} nodes{fused}; "
        f"before on {paths.had} of {paths.before}"
    )
    casts = file.done.get("casts_removed")
    if casts:
        what = f"{casts} cast{'s' * (casts > 1)}"
        tell(f"  removed: {what} to float32 that ONNX Runtime inserts for its CPU")
        tell("  where that has no kernel of a type it writes out operations; onnxslim does not")
    prepared, left = (file.done.get(f"attention_{name}", 0) for name in ("prepared", "left"))
    if prepared:
        name = "com.microsoft.MultiHeadAttention"
        fused_now = file.nodes_after.get(name, 0) - file.nodes_before.get(name, 0)
        tell(f"  attention: {prepared} written as the MMDiT fusion looks for it, {fused_now} fused")
    if left:
        tell(f"  attention: {left} left as they are: masked, of another scale or form")
    if file.optimizer.name == "ort" and file.optimizer.level == "all":
        tell("  level all: its layouts are for CPUs as this machine's; elsewhere it may be slower")


def tell_graphs(
    graphs: GraphComparison, times: TimeComparison | None, gates: list[Gate], top: int
) -> None:
    """Print how two graphs differ, and their times if they were run."""
    from profiler.compare.report import comparison_report
    from profiler.report.html.two_runs import graphs_report
    from profiler.report.terminal import print_report
    from profiler.report.terminal_layout import clean

    console = terminal()
    for pair in graphs.pairs:
        print_report(console, graphs_report(pair, top=top))
        console.print()
    for side, names in graphs.only_in.items():
        if names:
            console.print(clean(f"only in {side}: {', '.join(names)}"), soft_wrap=True)
            console.print()
    if times is not None:
        print_report(console, comparison_report(times.comparison, gates, top=top))
        console.print()
        for side, path in (("base", times.base), ("new", times.new)):
            console.print(clean(f"{side} run: {path}"), soft_wrap=True)


def tell_annotated(written: AnnotatedFile, run_id: str) -> None:
    """Print which nodes of a model take most time, and which commands have no node."""
    found = written.annotation
    calls = max(written.calls, 1)
    total = f"{found.total_ns / calls / 1e6:.2f} ms of operators a call"
    tell(
        f"{written.out}: {written.submodule}, {total}, {calls} call{'s' * (calls > 1)} of run "
        f"{run_id}"
    )
    fused = f", {found.fused} are fused into one of them" if found.fused else ""
    tell(f"  placed: {found.placed}; {len(found.nodes)} nodes have time{fused}")
    for layer, op_type, duration in found.unplaced[:_UNPLACED]:
        share = 100 * duration / max(found.total_ns, 1)
        tell(f"  not in the model: {layer} ({op_type or 'no op type'}), {share:.1f} %")
    more = len(found.unplaced) - _UNPLACED
    if more > 0:
        tell(f"  … and {more} more")
    hot = found.nodes[:_HOT]
    times = [f"{node.duration_ns / calls / 1000:,.1f}" for node in hot]
    width = max(map(len, times), default=0)
    for node, time in zip(hot, times, strict=True):
        role = f", {node.role}" if node.role else ""
        kind = f"{node.op_type}{role}"
        tell(f"  {100 * node.share:4.1f} % {time:>{width}} µs  {node.node or '(unnamed)'} ({kind})")


def tell_compared(differences: Sequence[OutputDifference], *, each: bool) -> None:
    """Print the largest difference of outputs; with `each`, all of them."""
    worst = max(differences, key=lambda difference: difference.relative, default=None)
    more = f" (the most of {len(differences)} outputs)" if len(differences) > 1 else ""
    for line in differences if each else [f"{worst}{more}"][: len(differences)]:
        tell(f"  compared: {line}")


def grouped(
    entries: Iterable[_Entry], kind: Callable[[_Entry], Hashable], *, each: bool
) -> list[list[_Entry]]:
    """Group the entries by kind, in order of first occurrence; with `each` not at all."""
    groups: dict[Hashable, list[_Entry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault(number if each else kind(entry), []).append(entry)
    return list(groups.values())


def named(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    found = list(dict.fromkeys(filter(None, names)))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more
