"""Attention: two products, `q @ kᵀ` and `scores @ v`; the softmax between them is not counted.

Source of the count: `torch.utils.flop_counter.sdpa_flop_count`, but for causal masks, of which it
counts every score: where an operator tells that it has one (`is_causal`), the scores above the
diagonal count nothing, and those on it half, as in the flash-attention package's benchmarks and in
AMD's TraceLens. Other masks, and windows, count as if every score were computed. Scores are no
traffic: these operations keep them on the chip.
"""

from __future__ import annotations

from profiler.analysis.work.registry import DoesNotFit, Family, Operation, Work, formula
from profiler.analysis.work.shapes import Tensor

__all__ = ["heads_first", "multi_head", "onnx_attention", "over_pool", "sequence_first"]

_HEADS_FIRST = (  # [batch, heads, sequence, width]
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_attention_math",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_cudnn_attention_forward",
)
_SEQUENCE_FIRST = (  # [batch, sequence, heads, width]
    "aten::_flash_attention_forward",
    "aten::_efficient_attention_forward",
)
_KERNELS = ("flash_attn::", "flash_attn_3::", "aiter::fmha", "aiter::mha_fwd", "xformers::")


@formula(*_HEADS_FIRST)
def heads_first(op: Operation) -> Work:
    """q, k, v as [batch, heads, sequence, width]. Source: torch's `scaled_dot_product_attention`,
    and its `_cudnn_attention_forward`, which has them in this order, unlike flash's own."""
    return _attention(op, sequence=-2)


@formula(*_SEQUENCE_FIRST, prefixes=_KERNELS)
def sequence_first(op: Operation) -> Work:
    """q, k, v as [batch, sequence, heads, width]. Source: torch's `_flash_attention_forward`,
    the flash-attention package. Packed sequences (three dims) say nothing of their lengths."""
    return _attention(op, sequence=-3)


def _attention(op: Operation, sequence: int) -> Work:
    q, k, v = op.input(0), op.input(1), op.input(2)
    least = 2 if sequence == -2 else 4
    if min(len(t.dims) for t in (q, k, v)) < least or q.dims[-1] != k.dims[-1]:
        raise DoesNotFit
    keys = k.dims[sequence]
    if keys != v.dims[sequence]:
        raise DoesNotFit
    queries = q.dims[sequence]
    twice = _twice_the_scores(queries, keys, op.causal, aligned_last=sequence == -3)
    flops = q.size // (q.dims[-1] * queries) * twice * (q.dims[-1] + v.dims[-1])
    out = q.like(*q.dims[:-1], v.dims[-1])
    return Work(Family.ATTENTION, q.dtype, flops, (q, k, v, *_mask(op, sequence)), (out,))


def _twice_the_scores(queries: int, keys: int, causal: bool, *, aligned_last: bool) -> int:
    """Twice the number of scores of a head. With a causal mask a query has one key more than the
    query ahead of it: the first query has one (torch's `scaled_dot_product_attention`), or the last
    one has all (`aligned_last`; `_flash_attention_forward` and the flash-attention package)."""
    if not causal:
        return 2 * queries * keys
    shorter = min(queries, keys)
    seen_whole = aligned_last == (queries < keys)  # the rectangle beside the triangle
    return shorter * (shorter + 2 * abs(queries - keys) * seen_whole)


@formula("aiter::mha_batch_prefill")
def over_pool(op: Operation) -> Work:
    """`mha_batch_prefill(q[T,H,D], k_pool[P,G,D], v_pool[P,G,D], ends[n+1], ends[n+1], rows[M])`:
    of the pools of keys and values only `rows` are read.

    How the T queries are shared among n sequences is not in the shapes. A sequence has as many keys
    as queries at least, and equal sequences have the fewest scores together: T²/n, with a causal
    mask half of them. Source: aiter's `aiter/ops/mha.py`.
    """
    q, k, v, ends, _, rows = (op.input(index) for index in range(6))
    if len(q.dims) != 3 or len(k.dims) != 3 or len(v.dims) != 3 or ends.size < 2:
        raise DoesNotFit
    queries, heads, width = q.dims
    scores = queries * queries // ((ends.size - 1) * (2 if op.causal else 1))
    flops = 2 * heads * scores * (width + v.dims[-1])
    used = [t.like(min(rows.size, t.dims[0]), *t.dims[1:]) for t in (k, v)]
    out = q.like(queries, heads, v.dims[-1])
    return Work(Family.ATTENTION, q.dtype, flops, (q, *used, ends, rows), (out,))


def _mask(op: Operation, sequence: int) -> tuple[Tensor, ...]:
    """The mask of torch's attention, which `_flash_attention_forward` has none of."""
    return op.inputs[3:4] if sequence == -2 else ()


@formula("MultiHeadAttention", "GroupQueryAttention", "PackedMultiHeadAttention")
def multi_head(op: Operation) -> Work:
    """com.microsoft's attention of projected inputs: q [B,S,hidden], k and v [B,L,hidden].

    Also packed: q [B,S,heads,3,width], or q beside kv [B,L,heads,2,width], or k and v with heads
    first [B,heads,L,width]. Source: onnxruntime's `docs/ContribOperators.md`.
    """
    q = op.input(0)
    if len(q.dims) == 5 and q.dims[3] == 3:
        batch, length, heads, _, width = q.dims
        return _products(op, batch * length, length, heads * width, heads * width)
    if len(q.dims) != 3:
        raise DoesNotFit
    batch, length, hidden = q.dims
    k = op.input(1)
    if k.dims[:1] != (batch,) or len(k.dims) not in (3, 4, 5):
        raise DoesNotFit
    keys = k.dims[2] if len(k.dims) == 4 else k.dims[1]
    out_hidden = op.outputs[0].dims[-1] if op.outputs and op.outputs[0].dims else hidden
    return _products(op, batch * length, keys, hidden, out_hidden)


def _products(op: Operation, queries: int, keys: int, hidden: int, out_hidden: int) -> Work:
    """All `queries` of the batch, `hidden` wide over all heads, against `keys` each."""
    flops = 2 * queries * keys * (hidden + out_hidden)
    return Work(Family.ATTENTION, op.input(0).dtype, flops, op.inputs, op.outputs)


@formula("Attention", "QAttention")
def onnx_attention(op: Operation) -> Work:
    """ONNX's Attention of q, k, v, or com.microsoft's, which projects its input first.

    ONNX (opset 23): q, k, v as [B,S,hidden] or [B,heads,S,width]. com.microsoft: x [B,S,D],
    weights [D,3·hidden] (packed weights are not in the trace), bias [3·hidden] ->
    [B,S,hidden]; its projection counts too. Source: onnx.ai/onnx/operators/onnx__Attention.html;
    onnxruntime's `docs/ContribOperators.md`.
    """
    x, out = op.input(0), op.output
    if len(op.inputs) > 2 and len(op.inputs[1].dims) == len(op.inputs[2].dims) == len(x.dims):
        if len(x.dims) == 4:
            return _attention(op, sequence=-2)
        return multi_head(op)
    if len(x.dims) != 3 or len(out.dims) != 3 or x.dims[:2] != out.dims[:2]:
        raise DoesNotFit
    batch, length, depth = x.dims
    hidden = out.dims[-1]
    flops = 2 * batch * length * depth * 3 * hidden + 4 * batch * length * length * hidden
    shown = any(len(t.dims) == 2 and t.dims[0] == depth for t in op.inputs[1:])
    packed = () if shown else (x.like(depth, 3 * hidden),)
    return Work(Family.ATTENTION, x.dtype, flops, (*op.inputs, *packed), op.outputs)
