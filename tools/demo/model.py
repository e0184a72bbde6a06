"""The demo model: a small decoder with the qwen3 architecture.

RMSNorm, GQA with QK-norm, RoPE (NeoX pairing: first half with second half of a head), SwiGLU, and an
output matrix tied to the embedding.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    n_vocab: int = 3072
    n_embd: int = 256
    n_layer: int = 6
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    n_ff: int = 768
    n_ctx: int = 1024
    rope_base: float = 10000.0
    norm_eps: float = 1e-6

    def as_dict(self):
        return asdict(self)


def rms_norm(x, weight, eps):
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * scale).to(x.dtype) * weight.to(x.dtype)


def rope_table(config, n, device=None):
    """RoPE tables cos and sin, each [n, head_dim/2]."""
    half = config.head_dim // 2
    inv = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(n, dtype=torch.float64), inv)
    return angle.cos().float().to(device), angle.sin().float().to(device)


def rope(x, cos, sin):
    """Applies RoPE to x [batch, n, heads, head_dim]; pairs are (i, i + head_dim/2)."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[None, :, None, :].to(x.dtype), sin[None, :, None, :].to(x.dtype)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attention(q, k, v, parts=4):
    """Causal attention; q [batch, n, heads, head_dim], k and v with fewer heads (GQA). Queries are
    processed in parts, and scores of keys after a part are not computed: on a CPU several times as
    fast as PyTorch's implementation."""
    batch, n, n_head, d = q.shape
    n_kv, groups = k.shape[2], n_head // k.shape[2]
    q = q.reshape(batch, n, n_kv, groups, d).permute(0, 2, 3, 1, 4)
    k, v = k.permute(0, 2, 3, 1), v.permute(0, 2, 1, 3)
    size, out = -(-n // parts), []
    for begin in range(0, n, size):
        end = min(begin + size, n)
        rows = q[:, :, :, begin:end].reshape(batch, n_kv, -1, d)
        scores = (rows @ k[..., :end]).float() * d**-0.5
        seen = torch.ones(end - begin, end, dtype=torch.bool).tril(begin).repeat(groups, 1)
        weights = scores.masked_fill(~seen, -1e30).softmax(-1).to(v.dtype)
        out.append((weights @ v[:, :, :end]).reshape(batch, n_kv, groups, end - begin, d))
    return torch.cat(out, 3).permute(0, 3, 1, 2, 4).reshape(batch, n, n_head * d)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        n_q, n_kv = c.n_head * c.head_dim, c.n_head_kv * c.head_dim
        self.attn_norm = nn.Parameter(torch.ones(c.n_embd))
        self.attn_q = nn.Parameter(torch.empty(n_q, c.n_embd))
        self.attn_k = nn.Parameter(torch.empty(n_kv, c.n_embd))
        self.attn_v = nn.Parameter(torch.empty(n_kv, c.n_embd))
        self.attn_q_norm = nn.Parameter(torch.ones(c.head_dim))
        self.attn_k_norm = nn.Parameter(torch.ones(c.head_dim))
        self.attn_output = nn.Parameter(torch.empty(c.n_embd, n_q))
        self.ffn_norm = nn.Parameter(torch.ones(c.n_embd))
        self.ffn_gate = nn.Parameter(torch.empty(c.n_ff, c.n_embd))
        self.ffn_up = nn.Parameter(torch.empty(c.n_ff, c.n_embd))
        self.ffn_down = nn.Parameter(torch.empty(c.n_embd, c.n_ff))
        self.c = c

    def project(self, x, cos, sin):
        """q, k and v of x [batch, n, n_embd], each [batch, n, heads, head_dim]."""
        c, shape = self.c, x.shape[:2]
        h = rms_norm(x, self.attn_norm, c.norm_eps)
        w = torch.cat((self.attn_q, self.attn_k, self.attn_v)).to(h.dtype)
        n_q, n_kv = c.n_head * c.head_dim, c.n_head_kv * c.head_dim
        q, k, v = F.linear(h, w).split((n_q, n_kv, n_kv), dim=-1)
        q, k, v = (t.reshape(*shape, -1, c.head_dim) for t in (q, k, v))
        q = rope(rms_norm(q, self.attn_q_norm, c.norm_eps), cos, sin)
        k = rope(rms_norm(k, self.attn_k_norm, c.norm_eps), cos, sin)
        return q, k, v

    def attend(self, x, cos, sin):
        y = attention(*self.project(x, cos, sin))
        return x + F.linear(y, self.attn_output.to(x.dtype))

    def feed(self, x):
        h = rms_norm(x, self.ffn_norm, self.c.norm_eps)
        w = torch.cat((self.ffn_gate, self.ffn_up)).to(h.dtype)
        gate, up = F.linear(h, w).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.ffn_down.to(x.dtype))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embd = nn.Parameter(torch.empty(config.n_vocab, config.n_embd))
        self.blk = nn.ModuleList(Layer(config) for _ in range(config.n_layer))
        self.output_norm = nn.Parameter(torch.ones(config.n_embd))
        cos, sin = rope_table(config, config.n_ctx)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.reset()

    def reset(self):
        for name, p in self.named_parameters():
            if p.dim() == 1:
                continue
            into_residual = name.endswith(("attn_output", "ffn_down"))
            scale = 0.02 if name == "token_embd" else p.shape[1] ** -0.5
            if into_residual:
                scale *= (2 * self.config.n_layer) ** -0.5
            nn.init.normal_(p, std=scale)

    def n_params(self):
        return sum(p.numel() for p in self.parameters())

    def hidden(self, tokens, dtype=torch.float32, at=None):
        """Final hidden states of tokens [batch, n]: [batch, n, n_embd], or [len(at), n_embd] for the
        indices `at` of the flattened tokens."""
        n, last = tokens.shape[1], self.blk[-1]
        x = F.embedding(tokens, self.token_embd).to(dtype)
        for layer in self.blk:
            x = layer.attend(x, self.cos[:n], self.sin[:n])
            if layer is last and at is not None:
                x = x.flatten(0, 1)[at]
            x = layer.feed(x)
        return rms_norm(x, self.output_norm, self.config.norm_eps)

    def compile(self):
        """Compiles the layers. Layers of equal shape share the compiled code; the feed-forward part of the
        last layer has a dynamic number of rows."""
        for layer in self.blk:
            is_last = layer is self.blk[-1]
            layer.attend = torch.compile(layer.attend, dynamic=False)
            layer.feed = torch.compile(layer.feed, dynamic=is_last)

    def logits(self, tokens, dtype=torch.float32):
        x = self.hidden(tokens, dtype)
        return F.linear(x, self.token_embd.to(dtype))

    def loss(self, tokens, targets, dtype=torch.float32):
        """Mean cross entropy over targets >= 0; no logits are computed for the others."""
        at = (targets.flatten() >= 0).nonzero().squeeze(1)
        x = self.hidden(tokens, dtype, at)
        logits = F.linear(x, self.token_embd.to(dtype)).float()
        return F.cross_entropy(logits, targets.flatten()[at])
