"""What makers publish of their devices: figures of dense products, without sparsity.

Of a cache's bandwidth AMD alone publishes a figure. NVIDIA's is the most that its multiprocessors
can take from the last-level cache, 64 bytes a clock each at the boost clock (`_l2`), and not known
where that width is not.
"""

from __future__ import annotations

from profiler.analysis.roofline.device_profile import DeviceProfile

__all__ = ["PUBLISHED"]

_TERA = 1e12
_MEBIBYTE = 1 << 20
_L2_WIDTH = 64  # bytes a clock and multiprocessor


def _l2(multiprocessors: int, boost_hz: float) -> float:
    return multiprocessors * _L2_WIDTH * boost_hz


_MI300 = {
    "float64": 163.4 * _TERA,
    "float32": 163.4 * _TERA,
    "float16": 1307.4 * _TERA,
    "bfloat16": 1307.4 * _TERA,
    "float8e4m3fnuz": 2614.9 * _TERA,
    "float8e5m2fnuz": 2614.9 * _TERA,
    "int8": 2614.9 * _TERA,
}
_INFINITY_CACHE = 256 * _MEBIBYTE, 17.2e12
_CDNA3 = (
    "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/white-papers/"
    "amd-cdna-3-white-paper.pdf (cache)"
)
_HOPPER = {
    "float64": 66.9 * _TERA,
    "float32": 66.9 * _TERA,  # torch's default; 494.7 where TF32 is allowed
    "float16": 989.4 * _TERA,
    "bfloat16": 989.4 * _TERA,
    "float8e4m3fn": 1978.9 * _TERA,
    "float8e5m2": 1978.9 * _TERA,
    "int8": 1978.9 * _TERA,
}
_HOPPER_L2 = 50 * _MEBIBYTE, _l2(132, 1.98e9)

PUBLISHED: tuple[DeviceProfile, ...] = (
    DeviceProfile(
        hardware="AMD Instinct MI300X",
        peak_flops=_MI300,
        memory_bandwidth=5.3e12,
        launch_ns=None,
        source="https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html, " + _CDNA3,
        measured=False,
        matches=("mi300x",),
        cache_bytes=_INFINITY_CACHE[0],
        cache_bandwidth=_INFINITY_CACHE[1],
    ),
    DeviceProfile(
        hardware="AMD Instinct MI325X",
        peak_flops=_MI300,
        memory_bandwidth=6.0e12,
        launch_ns=None,
        source="https://www.amd.com/en/products/accelerators/instinct/mi300/mi325x.html, " + _CDNA3,
        measured=False,
        matches=("mi325x",),
        cache_bytes=_INFINITY_CACHE[0],
        cache_bandwidth=_INFINITY_CACHE[1],
    ),
    DeviceProfile(
        hardware="NVIDIA H100 SXM",
        peak_flops=_HOPPER,
        memory_bandwidth=3.35e12,
        launch_ns=None,
        source="https://www.nvidia.com/en-us/data-center/h100/ (figures there with sparsity)",
        measured=False,
        matches=("h100",),
        excludes=("pcie", "nvl", "h100l", "mig"),
        cache_bytes=_HOPPER_L2[0],
        cache_bandwidth=_HOPPER_L2[1],
    ),
    DeviceProfile(
        hardware="NVIDIA H200 SXM",
        peak_flops=_HOPPER,
        memory_bandwidth=4.8e12,
        launch_ns=None,
        source="https://www.nvidia.com/en-us/data-center/h200/ (figures there with sparsity)",
        measured=False,
        matches=("h200",),
        excludes=("nvl", "gh200", "mig"),
        cache_bytes=_HOPPER_L2[0],
        cache_bandwidth=_HOPPER_L2[1],
    ),
    DeviceProfile(
        hardware="NVIDIA B200",
        peak_flops={
            "float64": 40 * _TERA,
            "float32": 80 * _TERA,  # torch's default; 1100 where TF32 is allowed
            "float16": 2250 * _TERA,
            "bfloat16": 2250 * _TERA,
            "float8e4m3fn": 4500 * _TERA,
            "float8e5m2": 4500 * _TERA,
            "int8": 4500 * _TERA,
        },
        memory_bandwidth=8.0e12,
        launch_ns=None,
        source="https://resources.nvidia.com/en-us-blackwell-architecture (HGX B200; some figures "
        "there with sparsity), https://docs.nvidia.com/cuda/blackwell-tuning-guide/ (cache)",
        measured=False,
        matches=("b200",),
        excludes=("gb200", "mig"),
        cache_bytes=126 * _MEBIBYTE,
    ),
    DeviceProfile(
        hardware="NVIDIA L40S",
        peak_flops={
            "float32": 91.6 * _TERA,  # torch's default; 183 where TF32 is allowed
            "float16": 366.4 * _TERA,
            "bfloat16": 366.4 * _TERA,
            "float8e4m3fn": 733 * _TERA,
            "float8e5m2": 733 * _TERA,
            "int8": 733 * _TERA,
        },
        memory_bandwidth=864e9,
        launch_ns=None,
        source="https://www.nvidia.com/en-us/data-center/l40s/ (16 bits: half of its figure with "
        "sparsity, 733; its own of 362.05 is lower)",
        measured=False,
        matches=("l40s",),
        cache_bytes=96 * _MEBIBYTE,
        cache_bandwidth=_l2(142, 2.52e9),
    ),
    DeviceProfile(
        hardware="NVIDIA GeForce RTX 4090",
        peak_flops={
            "float32": 82.6 * _TERA,
            "float16": 330.3 * _TERA,  # summed in float16; in float32 165.2, as torch does
            "bfloat16": 165.2 * _TERA,
            "float8e4m3fn": 660.6 * _TERA,  # summed in float16; in float32 330.3
            "float8e5m2": 660.6 * _TERA,
            "int8": 660.6 * _TERA,
        },
        memory_bandwidth=1008e9,
        launch_ns=None,
        source="https://images.nvidia.com/aem-dam/Solutions/geforce/ada/"
        "nvidia-ada-gpu-architecture.pdf",
        measured=False,
        matches=("rtx 4090",),
        excludes=("laptop", "4090 d"),
        cache_bytes=72 * _MEBIBYTE,
        cache_bandwidth=_l2(128, 2.52e9),
    ),
    DeviceProfile(
        hardware="NVIDIA GeForce RTX 5090",
        peak_flops={
            "float32": 104.8 * _TERA,
            "float16": 419.2 * _TERA,  # summed in float16; in float32 209.5, as torch does
            "bfloat16": 209.5 * _TERA,
            "float8e4m3fn": 838.0 * _TERA,  # summed in float16; in float32 419
            "float8e5m2": 838.0 * _TERA,
            "int8": 838.0 * _TERA,
        },
        memory_bandwidth=1792e9,
        launch_ns=None,
        source="https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/"
        "nvidia-rtx-blackwell-gpu-architecture.pdf",
        measured=False,
        matches=("rtx 5090",),
        excludes=("laptop", "5090 d"),
        cache_bytes=96 * _MEBIBYTE,
        cache_bandwidth=_l2(170, 2.407e9),
    ),
    DeviceProfile(
        hardware="RBLN ATOM",
        peak_flops={"float16": 32 * _TERA, "int8": 128 * _TERA},
        memory_bandwidth=None,  # no source that could be read says it
        launch_ns=None,
        source="https://ascii.jp/elem/000/004/379/4379440/",
        measured=False,
        matches=("rbln-ca02", "rbln-ca12", "rbln-ca22"),
    ),
    DeviceProfile(
        hardware="RBLN Rebel100",
        peak_flops={
            "float16": 1000 * _TERA,
            "float8e4m3fn": 2000 * _TERA,
            "float8e5m2": 2000 * _TERA,
        },
        memory_bandwidth=4.8e12,
        launch_ns=None,
        source="https://docs.rbln.ai/v0.12.0/software/profiler/architecture.html (memory), "
        "https://www.tomshardware.com/tech-industry/semiconductors/isscc-2026-rebellions-ucie-rebel-100",
        measured=False,
        matches=("rbln-cr", "rebel100"),
    ),
)
