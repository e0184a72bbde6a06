#!/usr/bin/env python3
"""Trains the demo model on dialogues that are generated during training (rows.py, generate.py).

No dialogue is used twice, and none has a held-out turn. Matrices are updated with Muon
(orthogonalised momentum), all other parameters with Adam. A checkpoint contains the complete state:
a call with the same --out continues the training, also with a different --steps.
"""

import argparse
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import export
from model import Config, Model
from rows import Batches
from tokenizer import Tokenizer


def orthogonal(m):
    """Newton-Schulz iteration: moves all singular values of m [batch, rows, cols] close to 1."""
    x = m.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(4):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.mT if tall else x).float()


def sum_up(tensor):
    """All-reduce: sums the tensor over all processes in place."""
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


class Muon:
    """Muon optimiser for matrices. Matrices of equal shape are stacked and distributed over the
    processes."""

    def __init__(self, params, mine, momentum=0.95, decay=0.02):
        self.mine, self.momentum, self.decay = mine, momentum, decay
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.state = {shape: torch.zeros(len(g), *shape) for shape, g in self.groups.items()}

    @torch.no_grad()
    def step(self, lr):
        for shape, group in self.groups.items():
            grad = torch.stack([p.grad for p in group])
            v = self.state[shape].mul_(self.momentum).add_(grad, alpha=1 - self.momentum)
            update = torch.zeros_like(v)
            update[self.mine] = orthogonal(grad.lerp(v, self.momentum)[self.mine])
            sum_up(update).mul_(max(1, shape[0] / shape[1]) ** 0.5)
            for p, u in zip(group, update):
                p.mul_(1 - lr * self.decay).sub_(u, alpha=lr)


def grow(model, tokenizer, old, old_tokenizer, after):
    """Initialises the model from a smaller one: copies its layers, inserts layers with zero output after
    layer `after`, and copies embeddings. A new token gets the mean of the old tokens that spell it."""
    n_new = len(model.blk) - len(old.blk)
    source = dict(old.named_parameters())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.startswith("blk."):
                _, i, rest = name.split(".", 2)
                i = int(i)
                if after < i <= after + n_new:
                    if rest in ("attn_output", "ffn_down"):
                        p.zero_()
                    continue
                name = f"blk.{i - n_new if i > after else i}.{rest}"
            if name != "token_embd":
                p.copy_(source[name])
        for i, token in enumerate(tokenizer.tokens):
            ids = [old_tokenizer.id.get(token)]
            if ids[0] is None:
                ids = old_tokenizer.encode(tokenizer.decode([i])) if i > 255 else [i]
            model.token_embd[i] = old.token_embd[ids].mean(0)


class Trainer:
    def __init__(self, config, tokenizer, rank=0, n_ranks=1):
        self.tokenizer = tokenizer
        self.model = Model(config)
        self.average = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        matrices = [
            p for n, p in self.model.named_parameters() if p.dim() == 2 and n != "token_embd"
        ]
        others = [p for n, p in self.model.named_parameters() if p.dim() == 1 or n == "token_embd"]
        self.muon = Muon(matrices, slice(rank, None, n_ranks))
        self.adam = torch.optim.AdamW(others, lr=1.0, betas=(0.9, 0.98), weight_decay=0.0)
        self.step = 0

    def learn(self, inputs, targets, scale, args):
        loss = self.model.loss(inputs, targets, torch.bfloat16)
        loss.backward()
        for p in self.model.parameters():
            sum_up(p.grad).div_(args.processes)
        for group in self.adam.param_groups:
            group["lr"] = args.lr_adam * scale
        self.adam.step()
        self.muon.step(args.lr_muon * scale)
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        keep = min(args.average, self.step / (self.step + 10))
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                self.average[name].lerp_(p, 1 - keep)
        return loss.item()

    def save(self, path):
        state = {
            "config": self.model.config.as_dict(),
            "merges": self.tokenizer.merges,
            "marks": self.tokenizer.marks,
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average,
            "muon": self.muon.state,
            "adam": self.adam.state_dict(),
        }
        torch.save(state, path + ".new")
        os.replace(path + ".new", path)

    @classmethod
    def load(cls, path, rank=0, n_ranks=1):
        state = torch.load(path, weights_only=True)
        tokenizer = Tokenizer(state["merges"], state["marks"])
        t = cls(Config(**state["config"]), tokenizer, rank, n_ranks)
        t.model.load_state_dict(state["model"])
        t.average = state["average"]
        t.muon.state = state["muon"]
        t.adam.load_state_dict(state["adam"])
        t.step = state["step"]
        return t


def scale_at(step, done, args):
    """Learning-rate factor: linear warm-up, constant, linear decay to 0. `done` is the progress, 0 to 1."""
    left = (1 - done) / args.cooldown if args.cooldown else 1.0
    return min((step + 1) / args.warmup, 1.0, max(left, 0.0))


def part_done(step, began, args):
    """Progress (0 to 1) in steps or in time of this call; equal in all processes."""
    done = (time.time() - began) / (60 * args.minutes) if args.minutes else step / args.steps
    return sum_up(torch.tensor(done)).item() / args.processes


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--tokenizer", required=True, help="merges written by tokenizer.py")
    p.add_argument("--out", required=True, help="checkpoint; training continues if it exists")
    p.add_argument("--grow", metavar="GGUF", help="initialise from a smaller demo model")
    p.add_argument("--steps", type=int, default=8000)
    p.add_argument("--minutes", type=float, help="duration of this call, instead of --steps")
    p.add_argument("--tokens", type=int, default=4096, help="tokens per step, all processes together")
    p.add_argument("--seed", default="train")
    p.add_argument("--lr-muon", type=float, default=0.02)
    p.add_argument("--lr-adam", type=float, default=0.003)
    p.add_argument("--warmup", type=int, default=100, help="warm-up steps")
    p.add_argument("--cooldown", type=float, default=0.4, help="share of steps with decay")
    p.add_argument(
        "--average", type=float, default=0.995, help="decay of the running average of the weights"
    )
    p.add_argument("--processes", type=int, default=os.cpu_count(), help="each with one thread")
    p.add_argument("--save-every", type=int, default=250, help="steps between checkpoints")
    p.add_argument("--compile", action="store_true", help="use torch.compile: faster; requires a C++ compiler")
    return p.parse_args()


def run(rank, args):
    """Training process (data parallel): computes its rows of each step; all processes have the same
    weights."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if args.processes > 1:
        dist.init_process_group("gloo", "file://" + args.meet, rank=rank, world_size=args.processes)
    if os.path.exists(args.out):
        trainer = Trainer.load(args.out, rank, args.processes)
    else:
        trainer = Trainer(Config(), Tokenizer.load(args.tokenizer), rank, args.processes)
        if args.grow:
            grow(trainer.model, trainer.tokenizer, *export.model_of_gguf(args.grow), after=2)
            trainer.average = {k: v.detach().clone() for k, v in trainer.model.named_parameters()}
    if rank == 0:
        print(f"{trainer.model.n_params()} parameters, from step {trainer.step}", flush=True)
    if args.compile:
        trainer.model.compile()
    n_tokens = args.tokens // args.processes
    batches = Batches(trainer.tokenizer, args.seed, trainer.step, rank, n_tokens)
    losses, began, shown = [], time.time(), time.time()
    while (done := part_done(trainer.step, began, args)) < 1:
        losses.append(trainer.learn(*batches.next(), scale_at(trainer.step, done, args), args))
        if rank == 0 and trainer.step % args.save_every == 0:
            trainer.save(args.out)
        if rank == 0 and trainer.step % 50 == 0:
            rate = args.tokens * len(losses) / (time.time() - shown)
            loss = sum(losses) / len(losses)
            print(f"step {trainer.step} loss {loss:.4f} {rate:.0f} tokens/s", flush=True)
            losses, shown = [], time.time()
    if rank == 0:
        trainer.save(args.out)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        args.meet = os.path.join(folder, "meet")
        if args.processes > 1:
            torch.multiprocessing.spawn(run, (args,), args.processes)
        else:
            run(0, args)


if __name__ == "__main__":
    sys.exit(main())
