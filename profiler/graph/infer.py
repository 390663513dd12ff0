"""Types and shapes that ONNX infers, given to the values that lack them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir

__all__ = ["infer_types", "quiet"]


def infer_types(model: ir.Model) -> None:
    """Infer types and shapes where values of the main graph have no type; what cannot be inferred
    stays unknown."""
    from onnx_ir.passes.common import ShapeInferencePass

    if all(output.dtype is not None for node in model.graph for output in node.outputs):
        return
    with quiet():
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


@contextmanager
def quiet() -> Iterator[None]:
    """Without onnx_ir's warnings on stderr: faults of a model are told as findings."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
