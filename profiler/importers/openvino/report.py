"""What benchmark_app reports of its inferences, beside the counters of layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from profiler.importers.head import content_of, head_of
from profiler.trace.manifest_fields import Setting

__all__ = ["COUNTERS", "Report", "is_report", "milliseconds", "report_beside"]

COUNTERS = ("average_counters_report", "detailed_counters_report", "sort_counters_report")
_REPORT = b"Command line parameters"
_LARGEST_MS = 1e9
_LARGEST = 64 << 20  # bytes
_LATENCY, _REQUESTS = "latency_(ms)", "number_of_parallel_infer_requests"
_FIGURES = {
    "total_number_of_iterations": "iterations",
    _LATENCY: "median_latency_ms",
    "avg_latency": "mean_latency_ms",
    "min_latency": "min_latency_ms",
    "max_latency": "max_latency_ms",
    "throughput": "throughput_per_s",
    "first_inference_time_(ms)": "first_inference_ms",
    _REQUESTS: "infer_requests",
    "batch_size": "batch_size",
    "precision": "precision",
    "API": "api",
}


def is_report(head: bytes) -> bool:
    """Whether a file that begins so is a report."""
    return head.startswith(_REPORT)


def report_beside(path: Path) -> Path | None:
    """`benchmark_report.csv` of the inferences whose counters `path` has; None where it is not
    there."""
    beside = path.with_name("benchmark_report.csv")
    for ending in COUNTERS:
        if ending in path.name:
            beside = path.with_name(path.name.replace(ending, "report").removesuffix(".gz"))
            break
    if beside == path or not beside.is_file() or not is_report(head_of(beside)):
        return None
    return beside


def milliseconds(text: str) -> float | None:
    """A time, None where it is none: `nan` and what is below 0 or above 11 days, too."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < _LARGEST_MS else None


@dataclass(frozen=True, slots=True)
class Report:
    """Its values by their keys, with `_` for spaces; none where there is no report."""

    values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def beside(cls, path: Path) -> Report:
        """The report of the inferences whose counters `path` has."""
        found = report_beside(path)
        if found is None:
            return cls()
        text = content_of(found, _LARGEST).decode("utf-8", "replace")
        pairs = (row for line in text.splitlines() if len(row := line.split(";")) == 2)
        return cls({key.strip().replace(" ", "_"): value.strip() for key, value in pairs})

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def device(self) -> str:
        """The target device, "" where not told."""
        return self.values.get("target_device", "")[:200]

    @property
    def model(self) -> str:
        """The file of the model, "" where not told."""
        return Path(self.values.get("-m", "")).name[:200]

    @property
    def latency_ns(self) -> int:
        """The median latency of an inference, 0 where not told, or where several ran at once: each
        of these waits for others."""
        if self.values.get(_REQUESTS, "1") != "1":
            return 0
        return round((milliseconds(self.values.get(_LATENCY, "")) or 0) * 1e6)

    def settings(self) -> dict[str, Setting]:
        """Its figures, under the names that settings have."""
        found: dict[str, Setting] = {}
        for key, name in _FIGURES.items():
            if key in self.values:
                number = milliseconds(self.values[key])
                whole = number is not None and number == int(number)
                text = self.values[key][:200]
                found[name] = text if number is None else int(number) if whole else number
        return found
