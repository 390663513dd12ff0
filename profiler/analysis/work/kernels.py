"""Device kernels that are known by their own name, not by an operator's.

A Triton kernel that torch.compile wrote (`triton_poi_…` pointwise, `triton_red_…` and
`triton_per_…` reductions) takes as pointers what it updates, reads and writes, in that order.
Source: torch's `torch/_inductor/codegen/triton.py` (`in_out_ptr`, `in_ptr`, `out_ptr`).
"""

from __future__ import annotations

from profiler.analysis.work.registry import DoesNotFit, Family, Operation, Work, formula

__all__ = ["triton"]


@formula(prefixes=("triton_poi_", "triton_red_", "triton_per_"))
def triton(op: Operation) -> Work:
    """Each pointer's tensor once: at least that much passes through memory where all of it is
    used. The last is what is written; what is updated in place is counted as read alone. What is
    computed is not in the shapes: FLOPs are not known."""
    if not op.inputs:
        raise DoesNotFit
    *read, written = op.inputs
    out = (written,)
    return Work(Family.KERNEL, written.dtype, None, tuple(read) or out, out)
