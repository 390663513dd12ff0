"""Words that most traces hold, and that therefore get the shortest numbers (1 or 2 wire bytes).

A word's number is its place here, counted from 1. Files that are merged must agree on it: append,
never insert or remove. Readers need none of this, every file defines the numbers it uses.
"""

from __future__ import annotations

__all__ = ["WORDS"]

_STAGES = "encode denoise decode"
_ROLES = (
    "attention qkv_projection mlp norm modulation embedding convolution resample rope residual"
    " data_movement other"
)
_OPERATORS = (  # ONNX and ONNX Runtime's contributed operators
    "MatMul Gemm Add Mul Reshape Transpose LayerNormalization SkipLayerNormalization Softmax"
    " Gelu Conv FusedMatMul FusedConv FusedGemm SimplifiedLayerNormalization BiasGelu FastGelu"
    " QuickGelu MultiHeadAttention Attention InstanceNormalization GroupNormalization"
    " GroupNorm Sigmoid Div Sub Concat Split Slice Gather Unsqueeze Squeeze Expand Cast Shape"
    " Sqrt Pow ReduceMean Tanh Exp Sin Cos Erf Resize Upsample Where Equal Constant"
    " ConstantOfShape Identity Clip Max Min Neg Reciprocal ReduceSum ReduceMax ArgMax Flatten"
    " Pad Range CumSum Tile Trilu Einsum Relu LeakyRelu Swish Mish Silu RMSNormalization"
    " SkipSimplifiedLayerNormalization RotaryEmbedding GroupQueryAttention"
    " PackedMultiHeadAttention NhwcConv NhwcFusedConv ReorderInput ReorderOutput MatMulNBits"
    " MatMulInteger DynamicQuantizeLinear DynamicQuantizeMatMul QuantizeLinear"
    " DequantizeLinear QLinearConv QLinearMatMul QLinearAdd ConvTranspose MaxPool AveragePool"
    " GlobalAveragePool BatchNormalization BiasAdd BiasSplitGelu BiasSoftmax SkipGroupNorm"
    " GatherElements GatherND ScatterND ScatterElements Not And Or Less Greater LessOrEqual"
    " GreaterOrEqual IsNaN TopK Memcpy MemcpyFromHost MemcpyToHost"
)

WORDS = ("", *f"{_STAGES} {_ROLES} {_OPERATORS}".split())
