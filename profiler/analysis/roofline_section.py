"""The report section on the roofline: operators far from the device's peak, data types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

import numpy as np
import polars as pl

from profiler.analysis.commands import is_accelerator, times_recorded
from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.document import Fact, Figure, Part, SectionGroup, SectionKind
from profiler.analysis.finding_text import (
    Rule,
    Words,
    calls_of,
    end_to_end_ns,
    number,
    scaled,
    share,
    whole_of,
)
from profiler.analysis.flop_shapes import Family, parse_shapes
from profiler.analysis.flops import product_sizes, tiled_sizes, work_of
from profiler.analysis.fusion import FUSIONS
from profiler.analysis.health import busy_unknown
from profiler.analysis.operators_section import operator_parts
from profiler.analysis.result import Analysis, Effect, Finding, ReportInput
from profiler.analysis.roles import kind_cells, kind_roles, role_parts
from profiler.analysis.roofline import ROOFLINE, ROOFLINE_ROLES, Bound, kind_bounds
from profiler.analysis.runtime import is_rocm
from profiler.analysis.table_text import Sentences, roofline_sentence, table, with_rates
from profiler.run.columns import GIGABYTES, TFLOPS, col
from profiler.run.intervals import Codes, Stretches, union_by
from profiler.run.launches import device_work, streams_of
from profiler.text import Said, Value, duration, filled, joined, percent, said, sentence
from profiler.trace.manifest_fields import Device


class PeakSource(StrEnum):
    """The source of a device's peaks."""

    MEASURED = "measured"
    PUBLISHED = "published"


class Tf32(StrEnum):
    """Whether products of float32 are computed in TF32, by the names of most kernels; none: the GPU
    has neither it nor bfloat16."""

    NONE = "none"
    OFF = "off"
    ON = "on"
    UNKNOWN = "unknown"


# --- Rules about what the device could do: launches, kernels far from the roofline, types.


_LAUNCHES = 0.30  # of the submodule's device time
_OF_RUN = 0.05
_FAR = 0.25  # of the roofline: good kernels reach half of published peaks
_SLOW = 0.10  # of end to end
_TILE, _LARGE_TILE = 64, 128
_MANY_ODD, _MOSTLY = 0.1, 0.5  # of the time of a role
_UNKNOWN = 0.2  # of the time: if more is unknown, the row has no roofline
_FASTER = 1.5  # peak of 16 bits / peak of float32
_SINGLE, _HALF = r"\bfloat(32)?\[", r"(float16|half)\["  # as producers call them
_TF32_FASTER = 2.0  # peak of 16 bits / peak of TF32, of all devices that have both
# Names of float32 kernels of NVIDIA's libraries: in TF32, on GPUs that have it, and others.
_IN_TF32 = r"tf32|(^|_)s1688(gemm|fprop|dgrad|wgrad|cudnn)"
_HAS_TF32 = r"(ampere|ada|hopper|blackwell|sm_?(8|9|1[0-2])\d|cutlass\d*_(8|9|1[0-2])\d)_"
_IN_SIMT = (
    r"(^|simt_|maxwell_|volta_|turing_|ampere_)(sgemm|scudnn)_(largek|winograd_|\d)|simt_sfprop|"
    r"_f32f32_f32f32_f32_|(implicit_convolve_sgemm|[dw]grad\w*_engine|winograd_nonfused::\w+)<float"
)
# GPUs whose tensor cores take float16 alone (Volta and Turing), as drivers call them.
_HALF_ALONE = r"\bG?V100\b|\bV100S|\bT4G?\b|\bTITAN (V|RTX)\b|\bQuadro RTX|\bRTX 20[678]0\b"
_PRODUCTS = ("attention", "qkv_projection", "mlp", "convolution", "matmul")


def launch_bound(analysis: Analysis) -> Iterator[Finding]:
    """Commands of a submodule are so short that launching them is what takes time."""
    total = end_to_end_ns(analysis)
    rows = _without_launches(analysis).drop_nulls("submodule")
    bound = (pl.col("bound") == Bound.LAUNCH.value) & pl.col("launch").is_not_null()
    of = rows.group_by("submodule", "device", maintain_order=True).agg(
        pl.col("total_ns", "commands", "work_ns", "saved_ns").filter(bound).sum(),
        all_ns=pl.col("total_ns").sum(),
        roles=pl.col("role").filter(bound).str.join(", "),
    )
    sums = ("total_ns", "commands", "work_ns", "saved_ns", "all_ns")
    for row in scaled(analysis, of, *sums).to_dicts():
        part = share(row["total_ns"], row["all_ns"])
        if part < _LAUNCHES or share(row["total_ns"], total) < _OF_RUN:
            continue
        yield Finding(
            rule="launch_bound",
            evidence={
                "total_ns": round(row["total_ns"]),
                "device_time_share": part,
                "run_share": share(row["total_ns"], total),
                "without_launches_ns": round(row["work_ns"]),
                "commands": round(row["commands"]),
                "roles": row["roles"],
            },
            where=calls_of(analysis, row["submodule"], device=row["device"]),
            cost_ns=round(row["saved_ns"]),
            effect=Effect((row["submodule"],), row["saved_ns"], row["commands"]),
        )


def _without_launches(analysis: Analysis) -> pl.DataFrame:
    """The roofline of roles with `work_ns`, the min time that the known work takes in however few
    commands, and `saved_ns`, how much longer its commands took."""
    rows = analysis.roofline_roles
    profiles = [analysis.device_profiles.get(device or "") for device in rows["device"]]
    rates = pl.DataFrame(
        {
            "peak": [max(p.peak_flops.values(), default=None) if p else None for p in profiles],
            "bandwidth": [p.memory_bandwidth if p else None for p in profiles],
            "launch": [p.launch_ns if p else None for p in profiles],
        },
        schema=dict.fromkeys(("peak", "bandwidth", "launch"), pl.Float64),
    )
    roofline = pl.max_horizontal(
        pl.col("flops") / pl.col("peak"), pl.col("bytes") / pl.col("bandwidth")
    )
    known = pl.when(pl.col("of_roofline") > 0).then(pl.col("roofline_ns") + pl.col("excess_ns"))
    work = pl.min_horizontal(1e9 * roofline, known).fill_null(0.0)
    return rows.hstack(rates).with_columns(work_ns=work, saved_ns=(known - work).fill_null(0.0))


_LAUNCH_BOUND = Rule(
    launch_bound,
    Words(
        title="{device_time_share} of the device time of {submodule} is launch-bound",
        caveat="The minimum time of a command was measured on an idle machine. Recording lengthens "
        "short commands most.",
        recommendation="Launch fewer, larger commands: fuse, batch prompts and branches, generate "
        "larger images. CUDA graphs do not help here: they help where the host is the limit.",
    ),
    "Launch fewer, larger commands: fuse, batch prompts and branches",
    needs=("shapes",),
)


def slow_products(analysis: Analysis) -> Iterator[Finding]:
    """Products and attention reach a small part of what the accelerator can compute."""
    total = end_to_end_ns(analysis)
    rows = analysis.roofline_roles.filter(
        pl.col("submodule").is_not_null(),
        pl.col("role").is_in(_PRODUCTS),
        pl.col("bound") == Bound.COMPUTE.value,
        pl.col("of_roofline").is_between(0, _FAR, closed="none"),
        pl.col("unknown_ns") <= _UNKNOWN * pl.col("total_ns"),
    )
    sums = ("total_ns", "roofline_ns", "excess_ns", "commands")
    for row in scaled(analysis, rows, *sums).to_dicts():
        profile = analysis.device_profiles.get(row["device"] or "")
        part = share(row["total_ns"], total)
        if not is_accelerator(row["device"]) or profile is None or part < _SLOW:
            continue
        units = analysis.run.devices.get(row["device"], Device()).compute_units or 0
        odd, few = _odd_and_few(analysis, row["submodule"], row["role"], units)
        yield Finding(
            rule="slow_products",
            evidence={
                "role": row["role"],
                "total_ns": round(row["total_ns"]),
                "run_share": part,
                "of_roofline_share": row["of_roofline"],
                "roofline_ns": round(row["roofline_ns"]),
                "commands": round(row["commands"]),
                "odd_sizes_share": odd,
                **({"few_tiles_share": few, "compute_units": units} if few else {}),
                "hardware": profile.hardware,
                "roofline": PeakSource.MEASURED if profile.measured else PeakSource.PUBLISHED,
            },
            where=calls_of(analysis, row["submodule"], device=row["device"]),
            cost_ns=round(row["excess_ns"]),
            effect=Effect((row["submodule"],), row["excess_ns"]),
        )


def _odd_and_few(analysis: Analysis, submodule: str, role: str, units: int) -> tuple[float, float]:
    """How much of the time of a submodule's role has a size that is no multiple of 64, and how much
    is of products with fewer tiles than the device has compute units."""
    rows = analysis.kinds.table.with_columns(role=analysis.kind_roles["role"].cast(pl.String))
    rows = rows.filter(pl.col("submodule") == submodule, pl.col("role") == role)
    whole = odd = few = 0
    for op_type, text, took in rows.select("op_type", "shapes", "total_ns").iter_rows():
        shapes = parse_shapes(text)
        work = work_of(op_type, shapes)
        if shapes is None or work is None:
            continue
        whole += took
        odd += took * any(size % _TILE for size in tiled_sizes(op_type, shapes, work))
        sizes = product_sizes(shapes, work) if work.family is Family.MATMUL else None
        if sizes is not None:
            batch, m, _, n = sizes
            few += took * (batch * -(-m // _LARGE_TILE) * -(-n // _LARGE_TILE) < units)
    return share(odd, whole), share(few, whole)


_ADVICE: Mapping[str, tuple[Said, Said]] = {  # in a sentence, and in one line
    "attention": (said("Try another attention backend."), said("Try another attention backend")),
    "odd attention": (
        said("Try another attention backend, and lengths and head sizes that are multiples of 64."),
        said("Try another attention backend; lengths in multiples of 64"),
    ),
    "products": (
        said("Try another kernel (GEMM tuning such as TunableOp or max-autotune)."),
        said("Tune its kernels: TunableOp, max-autotune"),
    ),
    "odd products": (
        said(
            "Try another kernel (GEMM tuning such as TunableOp or max-autotune), and sizes that "
            "are multiples of 64."
        ),
        said("Tune its kernels: TunableOp, max-autotune; sizes in multiples of 64"),
    ),
    "few tiles": (
        said(
            "Most of these products have fewer tiles of 128×128 than the device has compute units "
            "({compute_units}): compute several as one (Q, K and V; branches; requests), or try "
            "kernels that split K (TunableOp, max-autotune, stream-K)."
        ),
        said("Larger products (Q, K, V as one), or kernels that split K"),
    ),
}


def is_attention(found: Finding) -> bool:
    """Whether a finding is of the role attention, whose kernels no tuning of products changes."""
    return found.evidence.get("role") == "attention"


def _slow_products(found: Finding) -> Words:
    return Words(
        title="{role} of {submodule} reaches {of_roofline_share} of its roofline on {device}",
        caveat="No kernel reaches the published peak: half of it is good. Clocks fall under load, "
        "and small or odd sizes reach less with any kernel.",
        recommendation=_ADVICE[_sizes(found)][0],
    )


def _sizes(found: Finding) -> str:
    """What may slow its kernels: sizes that are even, odd, or of few tiles."""
    odd = number(found, "odd_sizes_share") >= _MANY_ODD
    if is_attention(found):
        return "odd attention" if odd else "attention"
    few = number(found, "few_tiles_share") >= _MOSTLY
    return "few tiles" if few else "odd products" if odd else "products"


def single_precision(analysis: Analysis) -> Iterator[Finding]:
    """Products run in float32 on an accelerator that computes 16 bits faster, or TF32."""
    devices = dict(analysis.submodules.select("submodule", "device").iter_rows())
    if not any(map(is_accelerator, devices.values())):
        return
    known = analysis.inputs.run.info.devices
    shapes, kernel = pl.col("shapes"), pl.col("kernel").cast(pl.String).fill_null("")
    by_shapes = (shapes.str.contains(_SINGLE) & ~shapes.str.contains(_HALF)).fill_null(value=False)
    tf32, simt = kernel.str.contains(_IN_TF32), kernel.str.contains(_IN_SIMT)
    took = pl.col("total_ns")
    kinds = analysis.kinds.table.select("kind", "submodule", "category", "shapes")
    roles = analysis.kind_roles.select("kind", pl.col("role").cast(pl.String))
    rows = (
        kind_cells(analysis.inputs)  # an operator of many shapes runs many kernels
        .join(kinds, on="kind", maintain_order="left")
        .join(roles, on="kind", maintain_order="left")
        .filter(pl.col("role").is_in(_PRODUCTS), pl.col("category") == "compute")
        .filter(by_shapes | simt)
        .drop_nulls("submodule")
        .group_by("submodule", maintain_order=True)
        .agg(
            pl.col("total_ns", "commands").sum(),
            roles=pl.col("role").unique(maintain_order=True).str.join(", "),
            tf32_ns=took.filter(tf32).sum(),
            simt_ns=took.filter(simt & ~tf32).sum(),
            has_tf32=kernel.str.contains(_HAS_TF32).any(),
        )
    )
    for row in scaled(analysis, rows, "total_ns", "commands", "tf32_ns", "simt_ns").to_dicts():
        device, took_ns = devices.get(row["submodule"]), row["total_ns"]
        total = whole_of(analysis, row["submodule"])
        half_alone = _takes_half_alone(known.get(device or ""))
        half = "float16" if half_alone else "bfloat16"
        faster = _faster(analysis.device_profiles.get(device or ""), half)
        off, on = (2 * row[name] > took_ns for name in ("simt_ns", "tf32_ns"))
        enough = off and row["has_tf32"] if faster is None else faster >= _FASTER
        enough = enough or half_alone
        if not is_accelerator(device) or not enough or share(took_ns, total) < _OF_RUN:
            continue
        evidence: dict[str, Value] = {
            "total_ns": round(took_ns),
            "run_share": share(took_ns, total),
            "commands": round(row["commands"]),
            "roles": row["roles"],
        }
        if half_alone:
            evidence["tf32"] = Tf32.NONE
        elif not is_rocm(device):
            evidence["tf32"] = Tf32.OFF if off else Tf32.ON if on else Tf32.UNKNOWN
        where, cost, effect = calls_of(analysis, row["submodule"], device=device), None, None
        if faster is not None:
            evidence["peak_ratio"] = round(_TF32_FASTER if on else faster, 2)
            saved = took_ns - row["tf32_ns"] / _TF32_FASTER - (took_ns - row["tf32_ns"]) / faster
            cost, effect = round(saved), Effect((row["submodule"],), saved)
        yield Finding("single_precision", evidence, where, cost_ns=cost, effect=effect)


def _takes_half_alone(device: Device | None) -> bool:
    """Whether a GPU's tensor cores take float16 and neither TF32 nor bfloat16."""
    return device is not None and re.search(_HALF_ALONE, device.hardware) is not None


def _faster(profile: DeviceProfile | None, half: str) -> float | None:
    """The peak of a 16-bit type over that of float32; None if not known."""
    if profile is None:
        return None
    single, of_half = profile.peak("float32"), profile.peak(half)
    return of_half / single if single and of_half else None


def _single_precision(found: Finding) -> Words:
    tf32 = found.evidence.get("tf32")
    title = said("{submodule} computes products in float32 on {device}: {run_share} of the run")
    if tf32 == Tf32.ON:
        title = said("{submodule} computes products in TF32 on {device}: {run_share} of the run")
    if tf32 == Tf32.NONE:
        return Words(title, caveat=_NO_TF32, recommendation=_IN_HALF)
    if _without_tf32(found):
        other_type = said("Load the model in bfloat16 (torch_dtype=torch.bfloat16).")
        return Words(title, caveat=_OVERFLOWS, recommendation=other_type)
    return Words(
        title=title,
        caveat=_ROUNDS if tf32 == Tf32.OFF else _MAY_BE_ON,
        recommendation="Load the model in bfloat16 (torch_dtype=torch.bfloat16), or allow TF32 "
        "(torch.set_float32_matmul_precision('high')).",
    )


_IN_HALF = said(
    "Compute products in float16 (torch.autocast('cuda', dtype=torch.float16), or "
    "torch_dtype=torch.float16): this GPU's tensor cores take that, and no float32."
)
_NO_TF32 = said(
    "This GPU has neither TF32 nor bfloat16. T5 and some VAEs overflow in float16: leave these in "
    "float32; in training, scale the loss (torch.amp.GradScaler)."
)
_OVERFLOWS = said(
    "T5 and some VAEs overflow in float16: take bfloat16, which rounds to 8 bits, and compare "
    "images."
)
_ROUNDS = said(
    "Its kernels compute in float32 without tensor cores: TF32 is off. TF32 rounds the factors of "
    "products to 11 bits, bfloat16 all values to 8: results change slightly, so compare images. T5 "
    "and some VAEs overflow in float16."
)
_MAY_BE_ON = said(
    "TF32 may be on already, which this trace does not show. T5 and some VAEs overflow in float16: "
    "take bfloat16, and compare images."
)


def _without_tf32(found: Finding) -> bool:
    """Whether TF32 is no advice: it is on, or the GPU is AMD's, for which torch ignores it."""
    return found.evidence.get("tf32") in (None, Tf32.ON)


def _single_precision_change(found: Finding) -> Said:
    if found.evidence.get("tf32") == Tf32.NONE:
        return said("Compute products in float16 (torch.autocast)")
    if _without_tf32(found):
        return said("Load the model in bfloat16")
    return said("Load the model in bfloat16, or allow TF32")


RULES = (
    _LAUNCH_BOUND,
    Rule(
        slow_products,
        _slow_products,
        lambda found: _ADVICE[_sizes(found)][1],
        section="roofline",
        needs=("shapes",),
    ),
    Rule(single_precision, _single_precision, _single_precision_change, needs=("shapes",)),
)


# --- What part of a device's peaks the whole run uses.


_KNOWN = 0.5  # of the device time: below it nothing is said of the run
_NEARLY = 0.99  # of the device time: below it shares are lower bounds


def peak_facts(analysis: Analysis) -> Iterator[Fact]:
    """What share of its FLOP/s and of its memory's bandwidth the device with the most work uses
    from the start to the end of the run; nothing if that is known for less than half of its work.
    An operator counts with the time that it takes at the peak, at most its own."""
    elapsed = analysis.accounting.wall_ns or analysis.accounting.end_to_end_ns
    if not elapsed or analysis.run.selection:
        return
    own = pl.col("total_ns")
    devices = (
        kind_bounds(analysis.inputs)
        .group_by("device")
        .agg(
            own.sum(),
            known_ns=own.filter(pl.col("memory_ns").is_not_null()).sum(),
            **{
                name: pl.min_horizontal(name, own).filter(pl.col(name).is_not_null()).sum()
                for name in ("compute_ns", "memory_ns")
            },
        )
        .sort("total_ns", "device", descending=[True, False], nulls_last=True)
    )
    if devices.is_empty():
        return
    row = devices.row(0, named=True)
    if row["device"] in busy_unknown(analysis.inputs.run.info.health):
        return
    shares = [row[name] / elapsed for name in ("compute_ns", "memory_ns")]
    if row["known_ns"] < _KNOWN * row["total_ns"] or not 0 < max(shares) <= 1:
        return
    compute, memory = map(percent, shares)
    if row["known_ns"] < _NEARLY * row["total_ns"]:
        compute, memory = (said("at least {share}", share=one) for one in (compute, memory))
    name = said("Peak use") if len(devices) == 1 else said("Peak of {device}", device=row["device"])
    yield Fact(
        name,
        said("compute {share}", share=compute),
        said("memory bandwidth {share}, over the whole run", share=memory),
    )


# --- Operators, what they are for, how they stand against the roofline of their device, and
# fusions.


_HELD = 100  # rows of a table
_LARGE, _MOST = 0.05, 3  # of the run, and how many: roles without which a time is given
_RATE_COLUMNS = (
    "device total_ns roofline_ns of_roofline excess_ns bound",
    col(
        "rate",
        TFLOPS,
        "FLOPs / time, of commands whose FLOPs are known",
        label="compute",
        importance=3,
        hide_if_zero=True,
    ),
    col(
        "bandwidth",
        GIGABYTES,
        "bytes / time, of commands whose bytes are known",
        label="memory",
        importance=3,
    ),
    "flops_per_byte wait_ns unknown_ns commands",
)
_NO_SHAPES = said(
    "There is no roofline: the trace has no shapes of operators, so their FLOPs are unknown."
)
_FUSIONS = "what op_types submodule device chains total_ns saved_bytes saved_ns layer"


def _parts(of: ReportInput) -> Iterator[Part]:
    """Operators, roles, and bounds if any FLOP or byte of the run is known."""
    yield from operator_parts(of)
    yield from role_parts(of)
    yield from _without_roles(of.analysis)
    if _known(of.analysis):
        yield from _bounds(of)
    elif _without_shapes(of.analysis):
        yield Part(lead=_NO_SHAPES, always=True)
    yield Part(
        said("What fusing would save at most, by bytes"),
        table=table(
            "fusions",
            "chains",
            _FUSIONS,
            FUSIONS,
            of.analysis.fusions,
            shown=of.rows(10),
            held=_HELD,
            search=True,
        ),
        folded=True,
    )


_ROLE_OF = ("submodule", "role")
_BESIDE = 0.1  # of a role's time, in which other work ran


def _without_roles(analysis: Analysis) -> Iterator[Part]:
    """Yield how long the run would take at least without the work of each of its largest roles:
    work that takes no time gains no more than its own time, and other work of a stream stays."""
    elapsed = end_to_end_ns(analysis)
    if not elapsed or busy_unknown(analysis.inputs.run.info.health):
        return
    rows = analysis.roles.drop_nulls("submodule").filter(pl.col("role") != "other")
    if len(analysis.devices) > 1:  # at one time on several devices a role takes its time once
        rows = rows.join(_unions(analysis, rows), on=["submodule", "role"])
        rows = rows.with_columns(pl.min_horizontal("total_ns", "union_ns").alias("total_ns"))
    large = (
        scaled(analysis, rows.select("submodule", "role", "total_ns"), "total_ns")
        .filter(pl.col("total_ns").is_between(_LARGE * elapsed, elapsed, closed="left"))
        .with_columns(rest_ns=elapsed - pl.col("total_ns"))
    )
    others = pl.Series("others_ns", _other_work(analysis, large), dtype=pl.Float64)
    large = (
        large.with_columns(rest_ns=pl.max_horizontal("rest_ns", others))
        .filter(pl.col("rest_ns") <= (1 - _LARGE) * elapsed)
        .sort("rest_ns", maintain_order=True)
        .head(_MOST)
    )
    beside = _beside(analysis, large)
    bounds_of = []
    for (submodule, role, total_ns, rest_ns), part in zip(large.iter_rows(), beside, strict=True):
        template = said("{rest} without {role} of {submodule} ({times}×)")
        if part > _BESIDE:
            template = said(
                "{rest} without {role} of {submodule} ({times}×; other work ran beside {beside} of "
                "it)"
            )
        values = {
            "rest": duration(rest_ns),
            "role": role,
            "submodule": submodule,
            "times": f"{elapsed / rest_ns:.2f}",
            "beside": duration(part * total_ns),
        }
        bounds_of.append(filled(template, values))
    if bounds_of:
        least = said("if it took no time, the run would take at least {bounds}")
        lead = sentence(filled(least, {"bounds": joined(", ", bounds_of)}))
        title = said("What faster kernels of a role could gain at most")
        yield Part(title, lead=lead, always=True)


def _unions(analysis: Analysis, roles: pl.DataFrame) -> pl.DataFrame:
    """Return how long any device worked for each submodule and role: `union_ns`."""
    place = _place_of_commands(analysis, roles)
    commands = analysis.inputs.commands
    unions = union_by(commands.start, commands.end, place, len(roles))
    return roles.select(_ROLE_OF).with_columns(union_ns=pl.Series(unions))


def _beside(analysis: Analysis, roles: pl.DataFrame) -> list[float]:
    """Return in what share of the time of each submodule and role other work ran on devices; 0 if
    the times of commands were not recorded."""
    if not times_recorded(analysis.inputs.run.info):
        return [0.0] * len(roles)
    place, commands = _place_of_commands(analysis, roles), analysis.inputs.commands
    works = device_work(commands.category)
    found = []
    for number in range(len(roles)):
        own, others = (
            Stretches.union(commands.start[rows], commands.end[rows])
            for rows in (place == number, works & (place != number))
        )
        found.append(own.both(others).length / max(own.length, 1))
    return found


def _other_work(analysis: Analysis, roles: pl.DataFrame) -> list[int]:
    """Return for each submodule and role the time of the other work on the stream that has most of
    it, without collectives: these may only wait for the role's work on another device. 0 if the
    times of commands were not recorded."""
    of, commands = analysis.inputs, analysis.inputs.commands
    start, end = commands.start, commands.end
    if not len(roles) or not times_recorded(of.run.info):
        return [0] * len(roles)
    works = device_work(commands.category) & (of.axis.counted.within(start, end) == end - start)
    works &= (of.frame["category"] != "collective").to_numpy()
    stream = np.full(len(start), -1, dtype=np.int64)
    stream[works] = streams_of(of.frame, np.flatnonzero(works))
    number = int(stream.max(initial=-1)) + 1
    whole, place = union_by(start, end, stream, number), _place_of_commands(analysis, roles)
    code = np.where((place >= 0) & works, place * number + stream, -1)
    own = union_by(start, end, code, len(roles) * number).reshape(len(roles), number)
    return [int(others) for others in (whole - own).max(axis=1, initial=0)]


def _place_of_commands(analysis: Analysis, roles: pl.DataFrame) -> Codes:
    """Return the row in `roles` of each command, -1 for none."""
    of = analysis.inputs
    code = pl.int_range(pl.len(), dtype=pl.Int64).alias("code")
    codes = roles.select(pl.col(_ROLE_OF).cast(pl.String), code)
    kinds = of.kinds.table.select(
        pl.col("submodule").cast(pl.String), kind_roles(of)["role"].cast(pl.String)
    )
    of_kind = kinds.join(codes, on=_ROLE_OF, how="left", maintain_order="left")["code"]
    return of_kind.fill_null(-1).to_numpy()[of.kinds.of_command]


def _known(analysis: Analysis) -> bool:
    """Whether FLOPs or bytes of the run are known. A trace without shapes has only those of copies:
    then they must be known for most of its time."""
    rows = analysis.roofline
    known = rows["flops"].is_not_null() | rows["bytes"].is_not_null()
    if not _without_shapes(analysis) or (rows["flops"] > 0).any():
        return bool(known.any())
    return bool(known.any() and rows.filter(known)["total_ns"].sum() >= rows["total_ns"].sum() / 2)


def _without_shapes(analysis: Analysis) -> bool:
    capabilities = analysis.inputs.run.info.capabilities
    return bool(capabilities) and "shapes" not in capabilities


def _bounds(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    roles, operators = with_rates(analysis.roofline_roles), with_rates(analysis.roofline)
    known = roofline_sentence(operators, roles, analysis.device_profiles)
    yield Part(
        said("Roles against the roofline, by total time"),
        lead=sentence(known.changed(lambda text: text.replace("`", ""))),
        figure=roofline_figure(analysis),
        table=table(
            "roofline_roles",
            "roles against the roofline",
            ("role submodule", *_RATE_COLUMNS),
            ROOFLINE_ROLES,
            roles,
            shown=of.rows(10),
            search=True,
            sort="total_ns",
        ),
    )
    yield Part(
        said("Operators against the roofline, by total time"),
        table=table(
            "roofline",
            "operators against the roofline",
            ("layer submodule op_types", *_RATE_COLUMNS),
            ROOFLINE,
            operators,
            shown=of.rows(10),
            held=_HELD,
            search=True,
            sort="total_ns",
        ),
        folded=True,
    )


def roofline_figure(analysis: Analysis) -> Figure:
    """Return the figure of roles by FLOPs per byte and rate, below the roofs of their devices."""
    used = analysis.roofline["device"].unique().drop_nulls().sort().to_list()
    data = (analysis.roofline_roles, analysis.device_profiles, used)
    return Figure("roofline", "roofline", data)


SECTION = SectionKind(
    "roofline",
    60,
    said("Operators and roofline"),
    _parts,
    tables=(
        "operators",
        "partitioning",
        "roles",
        "blocks",
        "roofline",
        "roofline_roles",
        "fusions",
    ),
    group=SectionGroup.DEVICE,
)


def bounds(analysis: Analysis) -> pl.DataFrame:
    """Return what bounds each operator, by which the timeline colours commands."""
    return analysis.roofline


SENTENCES: Sentences = {
    Bound: {
        Bound.COMPUTE: "compute-bound",
        Bound.MEMORY: "memory-bound",
        Bound.LAUNCH: "launch-bound",
        Bound.OVERHEAD: "overhead-bound",
        Bound.HOST: "host-bound",
    }
}
