"""Runs that are inferences of one model, one after the other: each is a sample of the whole.

    trtexec: 747 inferences, and the averages of their layers in a call of their own
    ONNX Runtime: 20 times `model_run`

How many there are was the recorder's choice: they are compared one by one, and not as the time that
all took together. The layers of TensorRT are the work of the inferences beside them, which have
none of their own; the time of their call is no inference's.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from profiler.analysis.comparison.details import Details
from profiler.trace.events import NO_STEP

__all__ = ["AVERAGED", "are_inferences", "layers_apart", "whole_calls", "with_layers"]

AVERAGED = "tensorrt"
"""The producer whose layers are averages, apart from its inferences."""
_PRODUCERS = (AVERAGED, "onnxruntime")
_SUFFIX = ".layers"


def are_inferences(producer: str, calls: pl.DataFrame) -> bool:
    """Whether every one of a run's calls is all that was asked of it: those of one model, whose
    producer knows of nothing around it."""
    if producer not in _PRODUCERS or (calls["step"] != NO_STEP).any():
        return False
    names = calls["submodule"].cast(pl.String)
    return names.n_unique() - len(layers_apart(names)) == 1


def layers_apart(submodules: pl.Series) -> tuple[str, ...]:
    """The submodules that are the layers of others."""
    names = {*submodules}
    return tuple(sorted(one for one in names if _engine_of(one) in names - {one}))


def with_layers(
    calls: pl.DataFrame, work: pl.DataFrame, details: Details
) -> tuple[pl.DataFrame, pl.DataFrame, Details]:
    """Frames of a `Measurement` of what TensorRT did: layers are the work of their engine."""
    steady = calls.with_columns(first=pl.col("first") & ~_averages(calls))
    apart = layers_apart(calls["submodule"])
    if not apart:
        return steady, work, details
    engines = [_engine_of(one) for one in apart]
    engine = pl.col("submodule").is_in(engines)
    shown = pl.col("submodule").str.strip_suffix(_SUFFIX)
    joined = steady.with_columns(
        submodule=shown,
        value_ns=pl.when(~pl.col("submodule").is_in(apart)).then("value_ns"),
        traced=pl.col("traced") & ~engine,
        total_ns=pl.when(engine).then(0.0).otherwise("total_ns"),
    )
    own = {_engine_of(name): details.samples.get(name, 0) for name in apart}
    found = replace(
        details,
        layers=details.layers.filter(~engine).with_columns(shown),
        operations=details.operations.filter(~engine).with_columns(shown),
        samples={**details.samples, **own},
    )
    return joined, work.filter(~engine).with_columns(shown), found


def whole_calls(calls: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Spans (`measure.SPAN`, as `spans` are) of which each call is a whole, of one stage."""
    timed = calls.drop_nulls("value_ns")
    levels = [
        timed.select(
            "pipeline",
            "step",
            "value_ns",
            level=pl.lit(level),
            part=pl.lit(""),
            stage=pl.col("stage") if level == "stage" else pl.lit(None, pl.String),
        )
        for level in ("end_to_end", "stage")
    ]
    found = pl.concat(levels)
    return found.select(pl.col(name).cast(dtype) for name, dtype in spans.schema.items())


def _averages(calls: pl.DataFrame) -> pl.Series:
    """Whether a call is the averages of layers: no first one, nor any other. Where these are all
    there is, every submodule has one."""
    names = calls["submodule"]
    apart = [*names] if names.n_unique() == len(names) else layers_apart(names)
    return names.is_in(apart)


def _engine_of(submodule: str) -> str:
    """The submodule whose layers these are."""
    return submodule.removesuffix(_SUFFIX)
