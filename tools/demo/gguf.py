"""Writer and reader for the subset of GGUF version 3 that the demo model uses.

Layout, little-endian: "GGUF", u32 version, u64 number of tensors, u64 number of key-value pairs; the
pairs; for each tensor its name, u32 number of dimensions, u64 sizes (fastest first), u32 type, u64
offset; then the data, which starts at a multiple of 32 bytes, as does each tensor.
"""

import struct

import numpy as np

F32, Q8_0 = 0, 8
U32, FLOAT, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
I32 = 5
ALIGN = 32
BLOCK = 32

_SIMPLE = {U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}


def quantise_q8_0(m):
    """Quantises matrix rows to Q8_0 blocks: a half-precision scale and 32 signed bytes."""
    x = np.ascontiguousarray(m, dtype=np.float32).reshape(-1, BLOCK)
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    q = x * inverse
    q = np.trunc(q + np.copysign(np.float32(0.5), q)).astype(np.int8)  # halves away from zero
    out = np.empty((len(x), 2 + BLOCK), dtype=np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8)
    out[:, 2:] = q.view(np.uint8)
    return out.tobytes()


def dequantise_q8_0(raw, shape):
    blocks = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 2 + BLOCK)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].copy().view(np.int8).astype(np.float32) * scale).reshape(shape)


def _string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind, value):
    if kind == STRING:
        return _string(value)
    if kind == ARRAY:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(_value(of, item) for item in items)
    return struct.pack(_SIMPLE[kind], value)


def _padding(n):
    return b"\0" * (-n % ALIGN)


def write(path, pairs, tensors):
    """pairs: [(key, kind, value)], where the value of an array is (kind, items);
    tensors: [(name, float32 array, F32 or Q8_0)]."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(_string(k) + struct.pack("<I", kind) + _value(kind, v) for k, kind, v in pairs)
    data = bytearray()
    for name, array, kind in tensors:
        head += _string(name) + struct.pack("<I", array.ndim)
        head += struct.pack(f"<{array.ndim}Q", *reversed(array.shape)) + struct.pack(
            "<IQ", kind, len(data)
        )
        raw = quantise_q8_0(array) if kind == Q8_0 else array.astype("<f4").tobytes()
        data += raw + _padding(len(raw))
    with open(path, "wb") as f:
        f.write(head + _padding(len(head)) + data)


class _Cursor:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def unpack(self, layout):
        value = struct.unpack_from(layout, self.raw, self.at)
        self.at += struct.calcsize(layout)
        return value[0]

    def string(self):
        n = self.unpack("<Q")
        self.at += n
        return self.raw[self.at - n : self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, n = self.unpack("<I"), self.unpack("<Q")
            return [self.value(of) for _ in range(n)]
        return self.unpack(_SIMPLE[kind])


def read(path):
    """Reads a file written by write(): ({key: value}, {name: float32 array})."""
    with open(path, "rb") as f:
        c = _Cursor(f.read())
    if c.raw[:4] != b"GGUF":
        raise ValueError(f"{path}: not a GGUF file")
    c.at = 4
    version, n_tensors, n_pairs = c.unpack("<I"), c.unpack("<Q"), c.unpack("<Q")
    if version != 3:
        raise ValueError(f"{path}: version {version}, expected 3")
    pairs = {}
    for _ in range(n_pairs):
        key = c.string()
        pairs[key] = c.value(c.unpack("<I"))
    table = []
    for _ in range(n_tensors):
        name = c.string()
        shape = [c.unpack("<Q") for _ in range(c.unpack("<I"))][::-1]
        table.append((name, shape, c.unpack("<I"), c.unpack("<Q")))
    base = c.at + len(_padding(c.at))
    tensors = {}
    for name, shape, kind, offset in table:
        n = int(np.prod(shape))
        size = n // BLOCK * (2 + BLOCK) if kind == Q8_0 else 4 * n
        raw = c.raw[base + offset : base + offset + size]
        tensors[name] = (
            dequantise_q8_0(raw, shape)
            if kind == Q8_0
            else np.frombuffer(raw, "<f4").reshape(shape)
        )
    return pairs, tensors
