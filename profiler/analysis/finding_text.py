"""Titles, caveats and recommendations of findings, with the measures that rules share.

    words(finding).title  == "cuda:0 waits for the host to launch work for 36 % of the time"

A module declares its rules with their text in `RULES`. Commands are called what the producer calls
them: kernels on GPUs, nodes in ONNX Runtime, operators in torch on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, astuple, force_setattr, replace

from profiler.analysis.commands import is_accelerator
from profiler.analysis.document import Group, Part
from profiler.analysis.health import busy_unknown
from profiler.analysis.question import question_modules
from profiler.analysis.result import Analysis, Finding, Where
from profiler.analysis.runtime import Runtime, for_device, for_runtime
from profiler.analysis.table_text import value_text, worded_note
from profiler.text import (
    Note,
    Noun,
    Said,
    Value,
    count,
    duration,
    filled,
    joined,
    percent,
    said,
    size,
)
from profiler.trace.events import GRAPH_CAPTURE, DropKind, device_kind
from profiler.trace.manifest_fields import Fields, stated

# --- What rules measure against: the run's time, shares of it, and what untraced calls add.


MATERIAL = 0.01  # of end to end: less is within the spread of repeated runs
MOSTLY_IN_GRAPHS = 0.5  # of the commands: from here on, no advice to use graphs
_NOTHING = 0.0005  # of end to end: less reads as 0.0 %
UNLABELLED = "unlabelled"  # importers' name for calls of an unknown submodule
_MOST_CALLS = 8  # that a finding names
_QUEUES = frozenset(("cuda", "mps", "rocm", "xpu"))  # kinds of devices whose work is launched ahead


def end_to_end_ns(analysis: Analysis) -> int:
    """End-to-end time; without pipeline spans the time of all submodules' calls."""
    accounting = analysis.accounting
    return accounting.end_to_end_ns or sum(part.wall_ns for part in accounting.submodules)


def is_nothing(gain_ns: float, total_ns: float) -> bool:
    """Whether a gain is too small to state, for a run that takes `total_ns`."""
    return gain_ns <= _NOTHING * total_ns


def share(part_ns: float, whole_ns: float) -> float:
    """`part_ns / whole_ns`, 0 if `whole_ns` is 0."""
    return part_ns / whole_ns if whole_ns > 0 else 0.0


def whole_of(analysis: Analysis, submodule: str) -> float:
    """Return what a sum over a submodule's calls is a share of, in ns: the end-to-end time, times
    how many of these calls ran concurrently, on devices of their own."""
    rows = zip(
        *(analysis.submodules[name] for name in ("submodule", "elapsed_ns", "share")), strict=True
    )
    wholes = [
        elapsed / part for name, elapsed, part in rows if name == submodule and elapsed and part
    ]
    return max([float(end_to_end_ns(analysis)), *map(float, wholes)])


def accelerators(analysis: Analysis) -> pl.DataFrame:
    """The idle table's rows of accelerators whose busy time is known; none without calls."""
    rows = analysis.idle if len(analysis.calls) else analysis.idle.clear()
    unknown = busy_unknown(analysis.inputs.run.info.health)
    known = [is_accelerator(name) and name not in unknown for name in rows["device"]]
    return rows.filter(pl.Series(known, dtype=pl.Boolean))


def idle_for_host(analysis: Analysis, device: str) -> int:
    """How long a device was idle because of its host, in ns: it launched late, had waited, or was
    between calls."""
    rows = analysis.idle.filter(pl.col("device") == device)
    return int(rows.select(pl.sum("launch_ns", "sync_ns", "host_ns")).sum_horizontal().sum())


def has_queues(analysis: Analysis) -> bool:
    """Whether some device works through a queue, behind calls that have returned."""
    return any(device_kind(name) in _QUEUES for name in analysis.devices["device"])


def unaligned(analysis: Analysis) -> bool:
    """Whether the clock of some device could not be aligned with another's."""
    return any(drop.kind == DropKind.UNALIGNED_CLOCK for drop in analysis.drops)


def only_captures(analysis: Analysis) -> bool:
    """Whether graphs were captured and none was replayed: launches ran nothing, so that no device
    waited for them."""
    return GRAPH_CAPTURE in analysis.inputs.run.info.capabilities


def captures_and_replays(analysis: Analysis) -> bool:
    """Whether graphs were captured in the run that replays them."""
    recording = analysis.run.recording
    graphs = recording.graphs if recording else None
    return graphs is not None and bool(graphs.captured and graphs.replays)


def in_graphs_share(analysis: Analysis, device: str | None = None) -> float:
    """The share of launched commands, of a device if one is given, that were launched by launches
    of CUDA or HIP graphs."""
    run = analysis.inputs.run
    flows = run.flows.select(
        by=run.commands["layer"].gather(run.flows["source"]),
        on=run.commands["device"].gather(run.flows["target"]),
        category=run.commands["category"].gather(run.flows["target"]),
    ).filter(~pl.col("category").cast(pl.String).is_in(["host", "sync"]))
    if device is not None:
        flows = flows.filter(pl.col("on") == device)
    by_graphs = pl.col("by").cast(pl.String).str.contains("(?i)graph_?launch")
    return float(flows.select(by_graphs.mean().fill_null(0.0)).item())


def of_server(analysis: Analysis) -> bool:
    """Whether the run is of a server, whose devices are models, not hardware."""
    return "requests" in analysis.inputs.run.info.capabilities


def scaled(analysis: Analysis, frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Return `frame` with the columns `names` scaled from traced calls to all calls of each
    `submodule`, a column of `frame`."""
    if frame.is_empty():
        return frame
    columns = (analysis.submodules[name] for name in ("submodule", "calls", "traced_calls"))
    submodules = zip(*columns, strict=True)
    scale = {name: calls / traced for name, calls, traced in submodules if traced > 0}
    factor = pl.Series([scale.get(name, 1.0) for name in frame["submodule"]], dtype=pl.Float64)
    return frame.with_columns(pl.col(name) * factor for name in names)


def calls_of(analysis: Analysis, submodule: str | None = None, **columns: object) -> Where:
    """Return where the calls of a submodule are; `columns` are further fields of `Where`."""
    rows = analysis.calls
    if submodule is not None:
        rows = rows.filter(pl.col("submodule") == submodule)
    for name in ("pipeline", "step"):
        if columns.get(name) is not None:
            rows = rows.filter(pl.col(name) == columns[name])
    numbers = tuple(rows["call"].head(_MOST_CALLS).to_list())
    fields: dict[str, Any] = {"submodule": submodule, **columns}
    return Where(**fields, calls=numbers)


def works_behind(analysis: Analysis) -> str:
    """A GPU with a queue whose calls were captured without operators and without device times, ""
    if there is none. Such a call returns once its work is launched, so that the host waits for it
    between calls."""
    if analysis.run.producer != "capture" or analysis.inputs.run.calls["ops_traced"].all():
        return ""
    recorded = pl.col("ops_traced") | pl.col("device_duration_ns").is_not_null()
    calls = analysis.inputs.run.calls.with_columns(pl.col("device").cast(pl.String))
    each = calls.group_by("submodule", "device").agg(recorded=recorded.any()).drop_nulls("device")
    missing = sorted(each.filter(~pl.col("recorded"))["device"])
    return next((name for name in missing if device_kind(name) in _QUEUES), "")


# --- Names with their values as people read them: with the unit, in one line if they nest.


_ENTRIES = 12  # of a nested mapping; a longer one, such as modules, is a count


def grouped(title: str, mapping: Mapping[str, Any]) -> Group:
    """The pairs of a mapping under a title."""
    return Group(title, _pairs(mapping))


def grouped_by_name(
    title: str, mapping: Mapping[str, Fields], called: Mapping[str, str] = MappingProxyType({})
) -> Group:
    """Return a group with a row for each name and what is stated of it; `called` renames some
    keys."""
    rows = []
    for name, fields in mapping.items():
        pairs = ((called.get(key, key), text) for key, text in _pairs(stated(fields)) if text)
        texts = (" ".join(filter(None, pair)) for pair in pairs)
        rows.append((name, ", ".join(texts)))
    return Group(title, tuple(rows))


def _pairs(mapping: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(named_value(str(key), value) for key, value in mapping.items())


def named_value(key: str, value: Any) -> tuple[str, str]:
    """A key without its unit, and its value with it: `("hooks", "1.43 ms")`."""
    for suffix, text in (("_ns", duration), ("_bytes", size), ("share", percent)):
        if key.endswith(suffix) and isinstance(value, (int, float)) and value is not True:
            name = key.removesuffix(suffix) if suffix.startswith("_") else key
            return name.replace("_", " "), text(value)
    if isinstance(value, Mapping) and len(value) > _ENTRIES:
        return key.replace("_", " "), count(len(value))
    return key.replace("_", " "), _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Note):
        return worded_note(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(" ".join(named_value(str(key), part)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(part) for part in value)
    return value if isinstance(value, str) else str(value)


# --- What reports call the commands of devices: their producer's word.
#
# Tables and data have the column `commands` whatever ran. Its heading is *kernels* for GPUs, or
# *events* if the host's launches count too, *nodes* for ONNX Runtime, and *operators* for torch on
# a CPU.


_GPUS = frozenset(("cuda", "rocm", "hip", "xpu", "mps", "gpu"))
_OF_ENGINES = ("tensorrt",)  # their layers and inferences are kernels of several functions
_OF_DEVICES = ("operators", "roles", "blocks", "roofline", "roofline_roles", "split")
_OF_CALLS = ("calls", "submodules")  # what the host launched for them, too


def _labels(noun: Said, of_devices: Said, of_calls: Said, of_rows: Said) -> Mapping[str, Said]:
    return {
        "shapes": noun,
        **dict.fromkeys(_OF_DEVICES, of_devices),
        **dict.fromkeys(_OF_CALLS, of_calls),
        "devices": of_rows,
    }


_EVIDENCE: Mapping[Noun, Mapping[str, Said]] = {
    Noun.KERNELS: {
        "commands": said("device operations"),
        "mean command": said("mean kernel or copy"),
    },
    Noun.NODES: {"commands": said("nodes"), "mean command": said("mean node")},
    Noun.OPERATORS: {"commands": said("operators"), "mean command": said("mean operator")},
    Noun.COMMANDS: {},
}


_SHOWN: Mapping[str, Said] = {  # whatever commands are called
    "least of step": said("min per step"),
    "median of step": said("median per step"),
    "most of step": said("max per step"),
    "least before kernel": said("min before first kernel"),
    "most before kernel": said("max before first kernel"),
    "least gaps": said("min gaps"),
    "most gaps": said("max gaps"),
    "least gap share": said("min gap share"),
    "most gap share": said("max gap share"),
    "drops": said("losses"),
    "worst in": said("where"),
    "worst": said("details"),
}


def evidence_name(name: str, noun: Noun) -> str:
    """The name of a value of a finding's evidence as people read it."""
    return _EVIDENCE[noun].get(name, _SHOWN.get(name, name))


_LABELS: Mapping[Noun, Mapping[str, Said]] = {  # of the column `commands`, by keys of tables
    Noun.KERNELS: _labels(
        said("kernel launches"), said("device operations"), said("events"), said("events")
    ),
    Noun.NODES: _labels(said("nodes"), said("nodes"), said("nodes"), said("nodes + host")),
    Noun.OPERATORS: _labels(
        said("operators run"),
        said("operators run"),
        said("operators run"),
        said("operators + host"),
    ),
    Noun.COMMANDS: {},
}
_ALL: Mapping[Noun, Said] = {
    Noun.KERNELS: said("events"),
    Noun.NODES: said("nodes + host"),
    Noun.OPERATORS: said("operators + host"),
    Noun.COMMANDS: said("commands"),
}
_ON_DEVICES: Mapping[Noun, str] = {
    Noun.KERNELS: "device operations",
    Noun.NODES: "nodes",
    Noun.OPERATORS: "operators",
    Noun.COMMANDS: "commands",
}


def all_events(noun: Noun) -> Said:
    """What all commands of a run are called, those of the host included."""
    return _ALL[noun]


def of_devices(noun: Noun) -> Mapping[str, str]:
    """Return readers' names for counts of the devices' commands: `commands`, `commands outside
    calls`."""
    own = _ON_DEVICES[noun]
    return {"commands": own, "commands outside calls": f"{own} outside calls"}


def on_gpus(analysis: Analysis) -> bool:
    """Whether all accelerators of a run are GPUs, as its producer recorded them."""
    kinds = _kinds(analysis) - {"cpu"}
    return bool(kinds) and kinds <= _GPUS


def noun_of(analysis: Analysis) -> Noun:
    """What the commands of a run are called, by its devices and, on CPUs, by what ran there."""
    run = analysis.run
    if run.producer in _OF_ENGINES:
        return Noun.COMMANDS
    if on_gpus(analysis):
        return Noun.KERNELS
    if _kinds(analysis) != {"cpu"}:
        return Noun.COMMANDS
    if any(submodule.model.endswith(".onnx") for submodule in run.submodules.values()):
        return Noun.NODES
    return Noun.OPERATORS if run.producer == "kineto" or "torch" in run.versions else Noun.COMMANDS


def _kinds(analysis: Analysis) -> set[str]:
    return {device_kind(name) for name in analysis.run.devices}


def with_nouns(part: Part, noun: Noun) -> Part:
    """Return `part` with its findings and table calling commands `noun`."""
    part = replace(part, noun=noun) if part.findings else part
    view = part.table
    label = _LABELS[noun].get(view.key) if view is not None else None
    if view is None or label is None:
        return part
    columns = tuple(
        replace(column, label=label) if column.name == "commands" else column
        for column in view.columns
    )
    return replace(part, table=replace(view, columns=columns))


# --- Title, caveat and recommendation of findings.
#
# A rule declares them beside the function that makes its findings.


class Words(Struct, frozen=True):
    """What a finding says: `title` in one sentence, `caveat`, what misleads or breaks when one
    follows it blindly, `recommendation`, what to do. Plain texts are templates."""

    title: str
    caveat: str
    recommendation: str

    def __post_init__(self) -> None:
        for name, text in asdict(self).items():
            force_setattr(self, name, text if isinstance(text, Said) else Said(text))


class Rule(Struct, frozen=True):
    """A rule: `find` looks at an analysis and returns its findings, `words` what each of them says:
    templates with names of the evidence and of `Where`, or a function that makes them of a finding.
    `change` is what to do about it in at most 72 characters, or a function that makes it; "": the
    whole recommendation. `section` is the key of the section to read next. Without the data in
    `needs` (codes of `Importer.capabilities`) it finds hardly anything. Findings about several
    devices are merged if `merged_by` names the evidence that says how bad each is. Its name is that
    of `find`."""

    find: Callable[[Analysis], Finding | Iterable[Finding] | None]
    words: Words | Callable[[Finding], Words]
    change: str | Callable[[Finding], Said | None] = ""
    section: str = ""
    needs: tuple[str, ...] = ()
    merged_by: str = ""

    @property
    def name(self) -> str:
        return self.find.__name__


@lru_cache
def rules() -> Mapping[str, Rule]:
    """The rules that questions declare as `RULES`, by name."""
    declared = (getattr(module, "RULES", ()) for module in question_modules())
    return MappingProxyType({rule.name: rule for own in declared for rule in own})


def words(finding: Finding) -> Words:
    """Return the texts of a finding; only the name of its rule if that has no texts."""
    rule = rules().get(finding.rule)
    if rule is None:
        return Words(Said(finding.rule.replace("_", " ")), "", "")
    given = texts(finding)
    templates = rule.words if isinstance(rule.words, Words) else rule.words(finding)
    templates = replace(
        templates, recommendation=for_runtime(templates.recommendation, _runtime(finding))
    )
    device = finding.where.device
    found = Words(*(for_device(filled(text, given), device) for text in astuple(templates)))
    gain = gained(finding)
    if gain is None:
        return found
    return replace(found, caveat=joined(" ", [found.caveat, gain] if found.caveat else [gain]))


def change(finding: Finding) -> str:
    """Return what to do about a finding, in one line: what its rule says, else its whole
    recommendation."""
    rule = rules().get(finding.rule)
    advice = rule.change if rule is not None else ""
    text = advice(finding) if callable(advice) else Said(advice)
    if not text:
        return words(finding).recommendation
    return for_device(for_runtime(text, _runtime(finding)), finding.where.device)


def has_other_advice(finding: Finding, runtime: Runtime) -> bool:
    """Whether a finding's advice for `runtime` differs from that for torch."""
    of_it = replace(finding, evidence={**finding.evidence, "runtime": runtime})
    return words(of_it).recommendation != words(finding).recommendation or change(of_it) != change(
        finding
    )


def _runtime(finding: Finding) -> Runtime:
    found = finding.evidence.get("runtime")
    return found if isinstance(found, Runtime) else Runtime.TORCH


_GAINS = ("gain_ns", "gain_low_ns", "gain_high_ns")
_SAVED = (*_GAINS, "saved_ns", "without_them_ns", "to_overlap_ns")


def gained(finding: Finding) -> str | None:
    """Return the sentence about what following the finding gains by replay; None without a
    replay."""
    if "gain_ns" not in finding.evidence:
        return None
    given = {**texts(finding), **_gains(finding)}
    slow = number(finding, "gain_ns") == number(finding, "gain_low_ns")
    template = said(
        "A replay of the run without this work and its launches gains {gain} if the host stays as "
        "slow as recorded, and {other} if it always keeps up."
    )
    if "launching_ns" in given:
        template = said(
            "A replay of the run without this work and its launches gains {gain} if the host stays "
            "as slow as recorded, which took up to {launching_ns} to launch it, and {other} if it "
            "always keeps up."
        )
    other = given["gain_high_ns" if slow else "gain_low_ns"]
    if other == given["gain_ns"]:
        template = said(
            "A replay of the run without this work and its launches gains {gain}, whether the host "
            "stays as slow as recorded or always keeps up."
        )
    return filled(template, {**given, "gain": given["gain_ns"], "other": other})


def _gains(finding: Finding) -> dict[str, str]:
    """The word "nothing" for each gain of a replay that is too small to state."""
    return {name: said("nothing") for name in _GAINS if is_no_gain(finding, name)}


def is_no_gain(finding: Finding, name: str) -> bool:
    """Whether the evidence has a gain of that name and it is too small to state."""
    gain_ns = number(finding, name)
    return name in finding.evidence and is_nothing(gain_ns, _total_ns(finding))


def saving(finding: Finding) -> Said | None:
    """Return what following a finding saves: `"at most 451 ms"`; None if it is unknown, or
    nothing."""
    most_ns = number(finding, "gain_high_ns") if "gain_ns" in finding.evidence else finding.cost_ns
    if most_ns is None or is_nothing(most_ns, _total_ns(finding)):
        return None
    most, low_ns = duration(most_ns), number(finding, "gain_low_ns")
    if "gain_ns" not in finding.evidence or is_nothing(low_ns, _total_ns(finding)):
        return said("at most {time}", time=most)
    low = duration(low_ns)
    return said("{low} to {high}", low=low, high=most) if low != most else said("{time}", time=low)


def _total_ns(finding: Finding) -> float:
    """The end-to-end time of the finding's run, in ns; 0 if its cost is unknown."""
    return (finding.cost_ns or 0) / finding.cost_share if finding.cost_share else 0.0


def texts(finding: Finding) -> dict[str, str]:
    """Return evidence, location and `cost_share` of a finding as readable texts, by name; with
    plain spaces, since titles are in files too."""
    values: dict[str, Value | None] = {
        **asdict(finding.where),
        "cost_share": finding.cost_share,
        **finding.evidence,
    }
    return {name: _spaced(name, value) for name, value in values.items() if value is not None}


def _spaced(name: str, value: Value) -> str:
    text = value_text(name, value)
    return text if isinstance(text, Said) else text.replace("\N{NO-BREAK SPACE}", " ")


def extended(title: str, template: Said, found: Finding) -> str:
    """Fill `template` with the evidence, and its `what` with the title."""
    return filled(template, {"what": title, **texts(found)})


def number(finding: Finding, name: str) -> float:
    """A number of the evidence; 0 if there is none of that name."""
    value = finding.evidence.get(name)
    return value if isinstance(value, (int, float)) else 0


def evidence_pairs(finding: Finding, noun: Noun = Noun.COMMANDS) -> Iterator[tuple[str, str]]:
    """Names and values of the evidence as people read them; `noun` is what commands are called.
    What a replay gains is left to `saving` and `gained`, which stand beside the evidence. Long gaps
    have time and number in one pair: a wait beside them may be mostly in other gaps. If one thing
    is missing, its number and kinds say nothing new."""
    long_gaps = {"gaps", "gap_ns"} <= finding.evidence.keys()
    nothing = {name for name in _SAVED if is_no_gain(finding, name)}
    nothing |= {"saved_share"} if "saved_ns" in nothing else set()
    elsewhere = {"saved_ns", *_GAINS} if "gain_ns" in finding.evidence else set()
    one_loss = finding.evidence.get("drops") == 1
    for key, value in finding.evidence.items():
        if key in nothing | elsewhere or (key in ("drops", "kinds") and one_loss):
            continue
        if long_gaps and key == "gaps":
            time, gaps = number(finding, "gap_ns"), round(number(finding, "gaps"))
            yield said("gaps over 100 µs"), f"{duration(time)} ({count(gaps)})"
        if long_gaps and key in ("gaps", "gap_ns"):
            continue
        if isinstance(value, (Note, tuple, StrEnum)):
            yield evidence_name(key.replace("_", " "), noun), value_text(key, value)
            continue
        name, text = named_value(key, value)
        text = text.replace("_", " ") if key == "kinds" else text  # codes, in one text
        whole = isinstance(value, int) and text == str(value)  # and has no unit
        name = evidence_name(name, noun)
        yield name, count(value) if whole and isinstance(value, int) else text


# --- Texts of a finding about several devices: their names and ranges of values.


_NAMED = 4  # devices, at most


def on_several(found: Finding) -> bool:
    """Whether a finding is about several devices."""
    return "on_devices" in found.evidence


def named_devices(found: Finding) -> Said:
    """Return the devices of a finding: `tpu:0, tpu:1 and tpu:2`, or if they are many `8 devices
    (rocm:0, …, rocm:7)`."""
    names = found.evidence["on_devices"]
    assert isinstance(names, tuple)
    *others, last = map(str, names)
    if len(names) > _NAMED:
        some = {"count": count(len(names)), "first": others[0], "last": last}
        return said("{count} devices ({first}, …, {last})", **some)
    return said("{devices} and {last}", devices=joined(", ", others), last=last)


def value_range(found: Finding, name: str) -> Said | str:
    """`95 % to 97 %`, or one value if both read the same."""
    given = texts(found)
    low, high = given[f"least_{name}"], given[f"most_{name}"]
    return low if low == high else said("{low} to {high}", low=low, high=high)
