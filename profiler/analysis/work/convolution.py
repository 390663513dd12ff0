"""Convolutions: 2·(C_in/groups)·kernel operations an element of the result.

Source of the count: `torch.utils.flop_counter.conv_flop_count`; a weight has C_in/groups channels,
so groups need not be known. Padding counts as if it were data.
"""

from __future__ import annotations

from math import prod

from profiler.analysis.work.registry import DoesNotFit, Family, Operation, Work, formula

__all__ = ["convolution", "transposed"]

_ATEN = (
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::convolution",
    "aten::_convolution",
    "aten::cudnn_convolution",
    "aten::cudnn_convolution_relu",
    "aten::cudnn_convolution_add_relu",
    "aten::miopen_convolution",
    "aten::mkldnn_convolution",
    "aten::_slow_conv2d_forward",
    "aten::thnn_conv2d",
    "aten::slow_conv3d",
    "aten::conv_depthwise3d",
    "aten::_conv_depthwise2d",
    "aten::miopen_depthwise_convolution",
    "aten::convolution_overrideable",
)


_TENSORRT = ("Convolution", "CaskConvolution", "CudnnConvolution", "CublasConvolution")


@formula("Conv", "FusedConv", "NhwcConv", "NhwcFusedConv", "ConvInteger", *_TENSORRT, *_ATEN)
def convolution(op: Operation) -> Work:
    """`Conv(x[N,C,…], w[M,C/g,k…], b[M]) -> y[N,M,…]`.

    Without the result (stride and padding are not in the shapes) the work is not known. NHWC
    kernels have the channels last in x and y alone. Source:
    onnx.ai/onnx/operators/onnx__Conv.html, torch.nn.functional.conv2d.
    """
    x, weight, out = op.input(0), op.input(1), op.output
    if len(weight.dims) != len(x.dims) or len(x.dims) < 3 or len(out.dims) != len(x.dims):
        raise DoesNotFit
    flops = 2 * out.size * prod(weight.dims[1:])
    return Work(Family.CONVOLUTION, x.dtype, flops, op.inputs, op.outputs)


@formula(
    "ConvTranspose",
    "Deconvolution",
    "CaskDeconvolution",
    "aten::conv_transpose1d",
    "aten::conv_transpose2d",
    "aten::conv_transpose3d",
    "aten::miopen_convolution_transpose",
    "aten::cudnn_convolution_transpose",
)
def transposed(op: Operation) -> Work:
    """`ConvTranspose(x[N,C,…], w[C,M/g,k…])`: every element of x meets M/g·k weights.

    Source: `torch.utils.flop_counter.conv_flop_count(transposed=True)`.
    """
    x, weight = op.input(0), op.input(1)
    if len(weight.dims) != len(x.dims) or len(x.dims) < 3:
        raise DoesNotFit
    flops = 2 * x.size * prod(weight.dims[1:])
    return Work(Family.CONVOLUTION, x.dtype, flops, op.inputs, op.outputs)
