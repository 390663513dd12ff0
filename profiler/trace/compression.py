"""Compressed traces: `.gz` files, and deflate or Zstandard packets.

Unpacked size is limited to 256 times the file's size plus 4 MiB, and to 8 GiB (`--max-unpacked`).
Data ahead of damage is kept. Perfetto reads Zstandard from v58 on; older versions skip such packets
silently. `WORDS` numbers common words: append to it only, because merged files must agree.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar, cast, get_args

from profiler.errors import InputError, MissingPackageError
from profiler.files import MAX_UNPACKED, opened, size_of
from profiler.text import parse_size
from profiler.trace import schema

# --- Packed traces: `.gz` files, and packets inside packets.
#
# A packed file of a few bytes can claim to hold any amount. All that a file unpacks to, in all its
# layers together, is bounded before it is there: to 256 times the file's size and 4 MiB, far beyond
# what traces compress to, and to 8 GiB, or 1 GiB if it has to be in memory as a whole. Of what is
# damaged, everything ahead of the damage is kept.


_FACTOR = 256
_LEAST = 1 << 22  # bytes that may always be unpacked
_MOST = 8 << 30  # bytes of a file, unpacked
_MOST_IN_MEMORY = 1 << 30
_PIECE = 1 << 20  # bytes unpacked at a time
_BEGUN = b"\x0a"  # a packet that starts and never ends: the core counts it as damaged


def is_gzip(data: memoryview) -> bool:
    """Whether `data` starts as a `.gz` file does."""
    return bytes(data[:2]) == b"\x1f\x8b"


# Text alone behind the line feed, from a brace or bracket on.
_PACKET = re.compile(rb"\n(?!\s*[{\[][\s -\xff]*\Z)")


def begins_with_packet(head: bytes) -> bool:
    """Whether a file with this start is a Perfetto trace. A line feed begins every one, and the
    JSON of some programs."""
    return _PACKET.match(head) is not None


def may_unpack_to(size: int, *, in_memory: bool = False) -> int:
    """The most bytes to which a file of `size` bytes may unpack. Raises InputError if the limit in
    the environment is not a size."""
    text = os.environ.get(MAX_UNPACKED, "")
    asked = parse_size(text)
    if text and asked is None:
        raise InputError(f"--max-unpacked ({MAX_UNPACKED}) {text!r:.40} is no size: write 16GiB")
    usual = _MOST_IN_MEMORY if in_memory else _MOST
    return min(size * _FACTOR + _LEAST, asked or usual)


def too_small(where: str) -> InputError:
    """The error for a file that unpacks to more than `may_unpack_to` allows."""
    return InputError(
        f"{where} unpacks to more than {_FACTOR} times its size, or than {_MOST >> 30} GiB "
        f"({_MOST_IN_MEMORY >> 30} GiB of a format that is read at once): it is no trace of a "
        "profiler, or `--max-unpacked SIZE` has to allow it"
    )


def not_a_trace(where: str) -> InputError:
    """The error for a file, `where`, without any packet."""
    return InputError(
        f"{where} is not a Perfetto trace: give a .pb written by a tracer, or convert another "
        "profiler's trace (.json, .json.gz) with `profile-sd3 import`"
    )


def zstandard() -> Any | None:
    """Python's own module for Zstandard (3.14), else the package `zstandard`, else None."""
    for name in ("compression.zstd", "zstandard"):
        with suppress(ImportError):
            return import_module(name)
    return None


class Unpacker:
    """Unpacks one file of `size` bytes and the compressed packets in it, within a common limit.

    Raises InputError if the limit is exceeded, MissingPackageError if Zstandard cannot be unpacked
    here.
    """

    def __init__(self, size: int, where: str) -> None:
        self._left = may_unpack_to(size, in_memory=True)
        self._where = where

    def gunzip(self, data: memoryview) -> tuple[bytes, str]:
        """The content of a `.gz` file of one or more members, and why it ends early ("" if it is
        complete). Raises InputError if not even its start can be read."""
        failure = ""
        parts: list[bytes] = []
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            try:
                for part in self._bounded(file.read1):
                    parts.append(part)  # noqa: PERF402  # what came ahead of an error is kept
            except (OSError, EOFError, zlib.error) as error:
                failure = str(error) or type(error).__name__
        if failure and not parts:
            raise InputError(f"{self._where} is no whole .gz file ({failure}): copy it again")
        return b"".join(parts), failure

    def __call__(self, how: str, data: bytes) -> bytes | None:
        """The packets in `data`, which is packed by `how` ("deflate" or "zstd"); None if not
        even their start can be read."""
        read, failure = self._zstd(data) if how == "zstd" else (_inflater(data), zlib.error)
        parts: list[bytes] = []
        try:
            for part in self._bounded(read):
                parts.append(part)  # noqa: PERF402  # what came ahead of an error is kept
        except (failure, EOFError):
            if not parts:
                return None
            parts.append(_BEGUN)
        return b"".join(parts)

    def _bounded(self, read: Callable[[int], bytes]) -> Iterator[bytes]:
        while part := read(_PIECE):
            self._left -= len(part)
            if self._left < 0:
                raise too_small(self._where)
            yield part

    def _zstd(self, data: bytes) -> tuple[Callable[[int], bytes], type[Exception]]:
        """A function that reads `data`, and the exception that it raises for damage."""
        module = zstandard()
        if module is None:
            raise MissingPackageError(
                f"{self._where} is packed with Zstandard: use Python 3.14 or "
                "`pip install zstandard`"
            )
        if hasattr(module, "ZstdFile"):
            return module.ZstdFile(io.BytesIO(data)).read, module.ZstdError
        return _zstd_reader(module, data), module.ZstdError


def _inflater(data: bytes) -> Callable[[int], bytes]:
    """A function that reads zlib's format piece by piece; it raises EOFError if the data is cut."""
    stream = zlib.decompressobj()
    rest = data

    def read(size: int) -> bytes:
        nonlocal rest
        if stream.eof:
            return b""
        part = stream.decompress(rest, size)
        rest = stream.unconsumed_tail
        if not part and not stream.eof:
            raise EOFError
        return part

    return read


def _zstd_reader(module: Any, data: bytes) -> Callable[[int], bytes]:
    """A function that reads Zstandard piece by piece; EOFError if a frame has less than it
    states."""
    stream = module.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    read_so_far = 0

    def read(size: int) -> bytes:
        nonlocal read_so_far
        part = bytes(stream.read(size))
        read_so_far += len(part)
        if not part and read_so_far < module.frame_content_size(data):
            raise EOFError
        return part

    return read


# --- Compressed packets: deflate or Zstandard over many packets at a time.


Compression = Literal["none", "deflate", "zstd"]
COMPRESSIONS: Final[tuple[str, ...]] = get_args(Compression)

# Higher levels of either take several times as long for a few per cent: `benchmarks/trace.py`.
_DEFLATE_LEVEL = 4
_ZSTD_LEVEL = 3
_PACKED_AT_A_TIME = 1 << 20  # bytes, at least: enough for Zstandard to find earlier steps
_FIELDS = {"deflate": 50, "zstd": 133}  # of TracePacket


def compressed(chunks: Iterable[bytes], how: Compression) -> Iterator[bytes]:
    """`chunks` of whole packets, compressed by `how`. Raises InputError if that is not possible
    here."""
    check_compression(how)
    if how == "none":
        return iter(chunks)
    deflate = how == "deflate"
    compress = partial(zlib.compress, level=_DEFLATE_LEVEL) if deflate else _zstd()
    packed = ((_FIELDS[how], compress(chunk)) for chunk in _gathered(chunks))
    return (schema.serialized((1, schema.serialized(field))) for field in packed)


def check_compression(how: str) -> Compression:
    """`how`, if it can be used here. Raises InputError if it cannot."""
    if how not in COMPRESSIONS:
        raise InputError(f"no compression is called {how!r}: use {', '.join(COMPRESSIONS)}")
    if how == "zstd":
        _zstd()
    return cast("Compression", how)


def _gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= _PACKED_AT_A_TIME:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _zstd() -> Callable[[bytes], bytes]:
    module = zstandard()
    if module is None:
        raise InputError(
            "Zstandard needs Python 3.14 or `pip install zstandard`: install it, or use deflate"
        )
    return lambda data: bytes(module.compress(data, level=_ZSTD_LEVEL))


# --- Packets of a trace file one by one, as messages: for `profile-sd3 dump`, which shows them all,
# and `profile-sd3 view`, whose UI does not read those packed with Zstandard.
#
# A `Trace` is nothing but its packets, one length-delimited field after another, so a file that was
# cut keeps every packet before the cut.


_LIMIT = (1 << 31) - 1  # protobuf's own limit for one message
_PACKET_TAG = 0x0A  # field 1, length-delimited


def file_bytes(path: Path) -> bytes:
    """The content of a trace file, unpacked if it is a `.gz`. Raises InputError if it cannot be
    read."""
    try:
        with opened(path) as file:
            size = size_of(file)
            if size == 0:
                raise InputError(f"{path} is empty: record or copy it again")
            if size > _LIMIT:
                raise InputError(
                    f"{path} is larger than 2 GiB: read the call files one by one instead"
                )
            data = file.read(size)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    with memoryview(data) as view:
        return Unpacker(size, str(path)).gunzip(view)[0] if is_gzip(view) else data


def decoded_packets(data: bytes, where: str = "the trace") -> Iterator[tuple[int, Any]]:
    """Yield each whole packet with the offset after it, up to the first cut or damaged one.

    The packets in a compressed packet follow it, with the same offset.
    """
    unpacker = Unpacker(len(data), where)
    for offset, packet in _frames(data):
        yield offset, packet
        for how, field in (("deflate", "compressed_packets"), ("zstd", "zstd_compressed_packets")):
            if packet.HasField(field):
                unpacked = unpacker(how, getattr(packet, field))
                yield from ((offset, inner) for _, inner in _frames(unpacked or b""))


def holds_zstd(data: bytes) -> bool:
    """Whether the first packet of a trace is packed with Zstandard; then all are. `data` is the
    start of the trace."""
    if not data or data[0] != _PACKET_TAG:
        return False
    payload = next((at for at in range(1, min(11, len(data))) if data[at] < 0x80), len(data)) + 1
    tag = bytes([_FIELDS["zstd"] << 3 & 0x7F | 2 | 0x80, _FIELDS["zstd"] >> 4])
    return data[payload : payload + 2] == tag


def without_zstd(data: bytes, where: str = "the trace") -> Iterator[bytes]:
    """Yield the packets of a trace in pieces, with Zstandard packets unpacked."""
    unpacker = Unpacker(len(data), where)
    begin = 0
    for end, packet in _frames(data):
        if packet.HasField("zstd_compressed_packets"):
            yield unpacker("zstd", packet.zstd_compressed_packets) or b""
        else:
            yield data[begin:end]
        begin = end


def _frames(data: bytes) -> Iterator[tuple[int, Any]]:
    from google.protobuf.message import DecodeError

    offset = 0
    while (frame := _frame(data, offset)) is not None:
        begin, offset = frame
        try:
            packet = schema.TracePacket.FromString(data[begin:offset])
        except DecodeError:
            return
        yield offset, packet


def _frame(data: bytes, offset: int) -> tuple[int, int] | None:
    """Start and end of the payload of the packet at `offset`, None if there is no whole one."""
    if offset >= len(data) or data[offset] != _PACKET_TAG:
        return None
    length = shift = 0
    for cursor in range(offset + 1, min(offset + 6, len(data))):
        length |= (data[cursor] & 0x7F) << shift
        if data[cursor] < 0x80:
            begin = cursor + 1
            return (begin, begin + length) if begin + length <= len(data) else None
        shift += 7
    return None


# --- Words that most traces hold, and that therefore get the shortest numbers (1 or 2 wire bytes).
#
# A word's number is its place here, counted from 1. Files that are merged must agree on it: append,
# never insert or remove. Readers need none of this, every file defines the numbers it uses.


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


# --- A list that only grows, of which all but the latest entries are kept packed in memory.
#
# entries = Packed[CallEntry]()
# entries.append(entry)
# list(entries)            # unpacked, one piece at a time


_ENTRIES = 256  # entries; one of some numbers and repeated texts takes 30 bytes then
_FAST = 1  # of compression: fast

_Entry = TypeVar("_Entry")


class Packed(Generic[_Entry]):
    """A list of entries in order. If packing is interrupted, some may be in it twice."""

    def __init__(self, piece: int = _ENTRIES) -> None:
        self._piece = piece
        self._packed: list[bytes] = []
        self._latest: list[_Entry] = []

    def append(self, entry: _Entry) -> None:
        """Add an entry, which must not change any more."""
        self._latest.append(entry)
        if len(self._latest) >= self._piece:
            self._packed.append(pack(self._latest))
            self._latest = []

    def __iter__(self) -> Iterator[_Entry]:
        """Yield all entries; those that were packed are copies."""
        for piece in self._packed:
            yield from unpack(piece)
        yield from self._latest


def pack(entries: Any) -> bytes:
    """Serialize objects for this process; shared objects stay shared."""
    return zlib.compress(pickle.dumps(entries, pickle.HIGHEST_PROTOCOL), _FAST)


def unpack(packed: bytes) -> Any:
    """The objects that were given to `pack`."""
    return pickle.loads(zlib.decompress(packed))  # noqa: S301 - it has never left this process
