"""`profile-sd3 benchmark-device`: measure what this machine's devices can do at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import tell
from profiler.errors import InputError, OutputError

if TYPE_CHECKING:
    from profiler.analysis.device_profiles import DeviceProfile
    from profiler.pipelines.benchmark import DeviceRates


_SLOWER = 0.95  # of what fewer cores reach: less is how measurements scatter
_CPU, _TORCH = "cpu", ("cuda", "rocm")


@cli_options
class BenchmarkDeviceOptions:
    """Options of `profile-sd3 benchmark-device`."""

    device: list[str] = opt(
        "NAME  cpu (with all cores, and with half of them as two CPU devices have), or cuda:0; may "
        "be repeated.  [default: cpu]"
    )
    out: Path | None = opt(
        "FILE  Where to write; profiles of other devices in it stay.  [default: "
        "traces/device_profiles.json, if analyze looks for it]"
    )
    seconds: float = opt(
        "N  Seconds for each rate that is measured.", default=1.0, min=0.01, max=60
    )


def benchmark_device(options: BenchmarkDeviceOptions) -> None:
    """Measure peak matrix product, copy and launch rates.

    `analyze` holds runs against them. Measure while nothing else runs.
    """
    from profiler.analysis.device_profiles import FILE_NAME, profiles_text, read_profiles
    from profiler.files import write_atomically

    path = options.out or Path("traces") / FILE_NAME
    names = list(dict.fromkeys(options.device or [_CPU]))
    kept = read_profiles(path) if path.is_file() else ()
    measured = [profile for name in names for profile in _measure(name, options.seconds)]
    places = {(profile.device, profile.cores) for profile in measured}
    others = [profile for profile in kept if (profile.device, profile.cores) not in places]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, profiles_text([*others, *measured]).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write {path} ({reason}): give another with --out") from error
    for profile in measured:
        tell(_line(profile))
    tell(f"wrote {path}")
    for sentence in doubts([*others, *measured]):
        tell(f"warning: {sentence}", err=True)


def doubts(profiles: Sequence[DeviceProfile]) -> Iterator[str]:
    """Yield implausible rates: more cores of a device that are slower than fewer."""
    of_cores = sorted((p for p in profiles if p.cores), key=lambda p: (p.device, p.cores or 0))
    for few, many in combinations(of_cores, 2):
        if few.device != many.device or few.hardware != many.hardware:
            continue
        rates: list[tuple[str, str, float | None, float | None]] = [
            (f"{dtype} products", "GFLOP/s", few.peak_flops.get(dtype), rate)
            for dtype, rate in many.peak_flops.items()
        ]
        rates.append(("copies", "GB/s", few.memory_bandwidth, many.memory_bandwidth))
        for what, unit, less, more in rates:
            if less and more and more < _SLOWER * less:
                yield (
                    f"{what} on {many.device} are slower with {many.cores} cores than with "
                    f"{few.cores} ({more / 1e9:,.1f} against {less / 1e9:,.1f} {unit}): "
                    "something else ran meanwhile; measure again on a machine at rest"
                )


def _measure(name: str, seconds: float) -> list[DeviceProfile]:
    from profiler.pipelines.benchmark import ACCELERATOR_EFFORT, Effort, measure_torch

    kind, _, index = name.partition(":")
    if name == _CPU:
        return _measure_cpu(seconds)
    if kind not in _TORCH or not index.isdigit() or len(index) > 4:
        raise InputError(f"{name!r} is no device that can be measured: give cpu or cuda:0")
    effort = Effort(seconds, ACCELERATOR_EFFORT.size, ACCELERATOR_EFFORT.copy_bytes)
    return [_profile(name, None, measure_torch(f"cuda:{index}", effort))]


def _measure_cpu(seconds: float) -> list[DeviceProfile]:
    """Measure all cores, as one CPU device has them, and the half that each of two has."""
    from profiler.errors import require
    from profiler.pipelines.benchmark import DEFAULT_EFFORT, Effort, measure_cpu
    from profiler.pipelines.model_folder import Placement

    require("run", "measuring cpu", "onnxruntime")

    effort = Effort(seconds, DEFAULT_EFFORT.size, DEFAULT_EFFORT.copy_bytes)
    found: dict[int, DeviceProfile] = {}
    for devices in (["cpu:0"], ["cpu:0", "cpu:1"]):
        placement = Placement.plan(devices)
        cores = len(placement.of("cpu:0").cores)
        if cores not in found:
            found[cores] = _profile(_CPU, cores, measure_cpu(placement, "cpu:0", effort))
    return [*found.values()]


def _profile(device: str, cores: int | None, rates: DeviceRates) -> DeviceProfile:
    from profiler.analysis.device_profiles import DeviceProfile

    return DeviceProfile(
        hardware=rates.hardware,
        peak_flops={dtype: float(round(rate)) for dtype, rate in rates.peak_flops.items()},
        memory_bandwidth=float(round(rates.memory_bandwidth)),
        launch_ns=round(rates.launch_ns, 1),
        source=rates.method,
        measured=True,
        device=device,
        cores=cores,
    )


def _line(profile: DeviceProfile) -> str:
    peaks = ", ".join(f"{name} {rate / 1e9:,.1f}" for name, rate in profile.peak_flops.items())
    cores = "" if profile.cores is None else f" with {profile.cores} cores"
    bandwidth = (profile.memory_bandwidth or 0) / 1e9
    return (
        f"{profile.device}{cores} ({profile.hardware}): GFLOP/s {peaks}; memory {bandwidth:,.1f} "
        f"GB/s; a command takes {(profile.launch_ns or 0) / 1e3:.2f} µs at least"
    )


SUBCOMMAND = Subcommand(benchmark_device, place=90, about_runs=True, advanced=True)
