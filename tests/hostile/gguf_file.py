"""A GGUF file as a structure that can be written with invalid parts, and mutations of it.

Header counts, lengths and offsets are computed when a file is written, unless an override replaces
them."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SIZES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q",
    F64: "d"}
COUNTS = (0, 1, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
FLOATS = (0.0, -0.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))


class Text(bytes):
    """A string with the length that is written for it."""

    length = None


def put_text(text):
    n = getattr(text, "length", None)
    return struct.pack("<Q", len(text) if n is None else n) + text


class Array:
    def __init__(self, kind, items, count=None):
        self.kind, self.items, self.count = kind, items, count

    def data(self):
        n = len(self.items) if self.count is None else self.count
        return struct.pack("<IQ", self.kind, n) + b"".join(put_value(self.kind, x) for x in self.items)


def put_value(kind, value):
    if isinstance(value, Array):
        return value.data()
    if isinstance(value, bytes):
        return put_text(value) if kind == STRING else value
    code = SIZES.get(kind, "I")
    if code in "fd":
        return struct.pack("<" + code, value)
    size = struct.calcsize(code)
    return (int(value) % (1 << 8 * size)).to_bytes(size, "little")


class File:
    def __init__(self, data):
        """Parses a valid file."""
        self.data, self.at = data, 0
        self.magic, self.version = data[:4], struct.unpack_from("<I", data, 4)[0]
        n_tensors, n_pairs = struct.unpack_from("<QQ", data, 8)
        self.counts = [None, None]  # overrides
        self.at = 24
        self.pairs = [[self.text(), *self.typed()] for _ in range(n_pairs)]
        self.tensors = [[self.text(), self.dims(), *self.take("<IQ")] for _ in range(n_tensors)]
        self.alignment = 32
        start = -(-self.at // 32) * 32
        self.blob, self.extra = data[start:], b""

    def take(self, form):
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def text(self):
        n, = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def dims(self):
        n, = self.take("<I")
        return list(self.take(f"<{n}Q"))

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, n = self.take("<IQ")
            return Array(inner, [self.value(inner) for _ in range(n)])
        return self.take("<" + SIZES[kind])[0]

    def typed(self):
        kind, = self.take("<I")
        return kind, self.value(kind)

    def write(self):
        n = [len(x) if c is None else c for x, c in zip((self.tensors, self.pairs), self.counts)]
        out = [self.magic, struct.pack("<IQQ", self.version, *n)]
        for name, kind, value in self.pairs:
            out += [put_text(name), struct.pack("<I", kind), put_value(kind, value)]
        for name, dims, kind, offset in self.tensors:
            out += [put_text(name), struct.pack("<I", len(dims)), struct.pack(f"<{len(dims)}Q", *dims),
                struct.pack("<IQ", kind, offset)]
        head = b"".join(out)
        gap = -len(head) % max(1, self.alignment)
        return head + bytes(gap) + self.blob + self.extra


def mutate_header(rng, f):
    kind = rng.randrange(4)
    if kind == 0:
        f.magic = rng.choice((b"GGUF"[::-1], b"GGML", b"\0\0\0\0", b"gguf"))
    elif kind == 1:
        f.version = rng.choice((0, 1, 2, 4, 0x03000000, 0xffffffff))
    else:
        i = rng.randrange(2)
        true = len((f.tensors, f.pairs)[i])
        f.counts[i] = rng.choice(COUNTS + (true - 1, true + 1, true * 2))


def number(rng, kind):
    return rng.choice(FLOATS) if kind in (F32, F64) else rng.choice(COUNTS + (-1, 2, 3, 7, 64, 1000))


def mutate_pair(rng, f):
    """Changes the name, the type or the value of one key."""
    pair = rng.choice(f.pairs)
    kind = rng.randrange(8)
    if kind == 0:
        f.pairs.remove(pair)
    elif kind == 1:
        f.pairs.insert(rng.randrange(len(f.pairs) + 1), list(pair))
    elif kind == 2:
        pair[0] = rng.choice((b"", b"\0", b"a" * 70000, pair[0] + b"\xff", rng.choice(f.pairs)[0],
            b"general.alignment", b"split.count", b"tokenizer.ggml.scores"))
    elif kind == 3:
        pair[1] = rng.choice((*range(13), 13, 255, 0xffffffff))
    elif kind == 4:
        pair[1:] = rng.choice((U32, I32, U64, F32, BOOL)), 0
        pair[2] = number(rng, pair[1])
    elif kind == 5:
        pair[1], pair[2] = ARRAY, Array(rng.choice((U8, U32, F32, STRING, ARRAY, 99)), [], rng.choice(COUNTS))
    elif kind == 6:
        pair[1], pair[2] = STRING, rng.choice((b"", b"llama", b"qwen3moe", b"unknown", b"\xff\xfe", b"gpt2",
            b"a\0b", b"\x1b]52;c;AAAA\x07", b"%s%n", b"x" * 100000))
    elif pair[1] in (ARRAY, STRING):
        mutate_vocabulary(rng, f)
    else:
        pair[2] = number(rng, pair[1])


def mutate_vocabulary(rng, f):
    """Changes the tokens, merges, token types or another array."""
    arrays = [p for p in f.pairs if isinstance(p[2], Array)]
    if not arrays:
        return
    a = rng.choice(arrays)[2]
    kind = rng.randrange(7)
    if kind == 0:
        a.count = rng.choice(COUNTS + (len(a.items) - 1, len(a.items) + 1))
    elif kind == 1:
        a.kind = rng.choice((*range(13), 99))
    elif kind == 2:
        del a.items[rng.randrange(len(a.items) + 1):]
    elif kind == 3:
        a.items += a.items[:rng.choice((1, 300, 3000))]
    elif a.items and isinstance(a.items[0], bytes):
        for _ in range(rng.choice((1, 5, 1000))):
            a.items[rng.randrange(len(a.items))] = rng.choice((b"", b" ", b"\xff", b"a b c", b"\0", b"a" * 5000,
                rng.choice(a.items), rng.choice(a.items)[::-1], "ĠĠ ĠĠ".encode(), b"<|im_end|>", b"<0x0A>"))
        if kind == 4:
            text = Text(a.items[0])
            text.length = rng.choice(COUNTS)
            a.items[0] = text
    else:
        for _ in range(rng.choice((1, 5, 1000))):
            if a.items:
                a.items[rng.randrange(len(a.items))] = number(rng, a.kind)


TEMPLATES = (b"{% for m in messages %}{{ m.content }}", b"{{ messages }}", b"{{ 1/0 }}", b"{% endfor %}",
    b"{{ 'a' * 1000000000 }}", b"{% for i in range(1000000000) %}x{% endfor %}", b"{" * 10000, b"\xff{{",
    b"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", b"{{ " + b"(" * 5000 + b")" * 5000 + b" }}",
    b"{% set x = namespace(a=messages) %}{% set x.a = x %}{{ x }}", b"{{ messages[-99999999999999999999] }}",
    b"{{ raise_exception('no') }}", b"{{ ''|format(1,2) }}{{ '%s%n%99999999d' % 1 }}", b"",
    b"{% for m in messages %}{{ m | tojson(indent=99999) }}{% endfor %}")


def mutate_template(rng, f):
    for pair in f.pairs:
        if pair[0] == b"tokenizer.chat_template":
            text = bytearray(pair[2]) if isinstance(pair[2], bytes) else bytearray(b"{{ messages }}")
            if rng.random() < 0.6:
                text = rng.choice(TEMPLATES)
            else:
                for _ in range(rng.choice((1, 3, 20))):
                    at = rng.randrange(len(text) + 1)
                    text[at:at + rng.choice((0, 1, 8))] = rng.choice((b"{%", b"%}", b"}}", b"{{", b"'", b"-", b"(",
                        b"", b"endif", b" if ", b"[", b"|", bytes(text[:rng.randrange(30)]), b"{#"))
            pair[1], pair[2] = STRING, bytes(text)


def mutate_tensor(rng, f):
    if not f.tensors:
        return
    t = rng.choice(f.tensors)
    kind = rng.randrange(8)
    if kind == 0:
        f.tensors.remove(t)
    elif kind == 1:
        f.tensors.append(list(t))
    elif kind == 2:
        t[0] = rng.choice((b"", b"blk.999999.attn_q.weight", b"blk.-1.ffn_up.weight", b"output.weight",
            rng.choice(f.tensors)[0], t[0] + b"\0", b"a" * 70000))
    elif kind == 3:
        t[1] = rng.choice(([], [0], t[1] * 3, t[1][::-1], [1 << 32, 1 << 32], [(1 << 64) - 1], t[1] * 200,
            [x + 1 for x in t[1]], [x // 2 for x in t[1]], [1 << 20, 1 << 20]))
    elif kind == 4 and t[1]:
        t[1][rng.randrange(len(t[1]))] = rng.choice(COUNTS)
    elif kind == 5:
        t[2] = rng.choice((*range(45), 0xffffffff))
    elif kind == 6:
        t[3] = rng.choice(COUNTS + (t[3] + 1, t[3] + 32, len(f.blob), len(f.blob) - 32, 0))
    else:
        other = rng.choice(f.tensors)
        t[1], t[2], t[3] = list(other[1]), other[2], other[3]


def mutate_weights(rng, f):
    """Replaces a part of the weights, also by patterns that are NaN or infinite numbers."""
    blob = bytearray(f.blob)
    at = rng.randrange(len(blob))
    n = rng.choice((1, 64, 4096, len(blob)))
    unit = rng.choice((b"\xff", b"\0", b"\x7f\x80", b"\0\0\xc0\x7f", b"\0\x7c", bytes([rng.randrange(256)])))
    part = (unit * n)[:len(blob) - at]
    blob[at:at + len(part)] = part
    f.blob = bytes(blob)


def mutate_layout(rng, f):
    kind = rng.randrange(4)
    if kind == 0:
        f.pairs.append([b"general.alignment", U32, rng.choice((0, 1, 3, 7, 31, 64, 4096, 1 << 31, (1 << 32) - 1))])
        f.alignment = rng.choice((1, 32, 64, 4096))
    elif kind == 1:
        f.alignment = rng.choice((1, 8, 31, 64))
    elif kind == 2:
        f.extra = bytes(rng.choice((1, 31, 100000)))
    else:
        f.blob = f.blob[:rng.randrange(len(f.blob))]


OPERATORS = {"header": mutate_header, "pair": mutate_pair, "vocabulary": mutate_vocabulary,
    "template": mutate_template, "tensor": mutate_tensor, "weights": mutate_weights, "layout": mutate_layout}


def make(rng, bases):
    """Returns (data, name of the mutation) of one case."""
    data = rng.choice(bases)
    name = rng.choice(sorted(OPERATORS) + ["pair", "tensor", "bytes", "cut"])
    f = File(data)
    if name in OPERATORS:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            OPERATORS[name](rng, f)
        return f.write(), name
    out = bytearray(f.write())
    head = len(out) - len(f.blob)
    if name == "cut":
        return bytes(out[:rng.choice((rng.randrange(len(out)), rng.randrange(head), rng.randrange(64)))]), name
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.choice((rng.randrange(head), rng.randrange(400)))
        out[at] = rng.choice((rng.randrange(256), 0, 255, out[at] ^ 1 << rng.randrange(8)))
    return bytes(out), name
