# SPDX-License-Identifier: Apache-2.0
"""Trains a multi-token-prediction layer for the demo model, on the CPU, with the model itself left as it is.

usage: train_demo_mtp.py MODEL CORPUS WORK [--tokens 1000000] [--steps 420] [--seconds 540]
       (needs numpy, torch, tokenizers and transformers 5.17)

MODEL is the checkpoint that train_demo.py wrote, CORPUS what it was trained on (train.txt or train.txt.xz, val.txt).
Two parts, each of which goes on where an earlier call stopped; a call stops after --seconds: call it until it says that
all is done. First the model's hidden rows of --tokens tokens are written to WORK (the model is frozen, so they are
computed once). Then the layer is trained on them for --steps steps: at each position it learns the distribution that
the model itself has one token later, and once more with its own row in place of the model's, as for a second draft.
In the end WORK/checkpoint is MODEL with the tensors `mtp.*`, in bf16.
"""
import argparse
import json
import lzma
import math
import random
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

from train_demo import SPECIAL, Turn, encode, read_text, token_streams

WINDOW, TRUNK_BATCH, BATCH, PEAK_LR, SECOND_DRAFT = 512, 8, 4, 1.0e-3, 0.5


class Norm(nn.Module):
    """RMS norm with weights stored minus 1."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


class Attention(nn.Module):
    """Gated attention as in the model's own layers. `before`: keys and values of an earlier pass, see `forward`."""

    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.q_proj = nn.Linear(hidden, 2 * self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv * self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=False)
        self.q_norm, self.k_norm = Norm(self.dim, eps), Norm(self.dim, eps)
        rope = c["rope_parameters"]
        rotary = int(self.dim * rope["partial_rotary_factor"])
        self.inv_freq = rope["rope_theta"] ** (-torch.arange(0, rotary, 2) / rotary)

    def rotate(self, x, first):
        """Rotates pairs (i, i + rotary/2) of the first rotary dims; x is [batch, heads, rows, dim]."""
        angle = torch.outer(torch.arange(first, first + x.shape[2]).float(), self.inv_freq)
        cos, sin, half = angle.cos(), angle.sin(), len(self.inv_freq)
        a, b = x[..., :half], x[..., half : 2 * half]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)

    def forward(self, x, first=0, before=None):
        """The rows attend to each other. With the keys and values of an earlier pass each attends to the rows before
        it as that pass had them, and to itself: so a second draft sees rows that were computed with the model's own."""
        batch, rows, _ = x.shape
        q, gate = self.q_proj(x).view(batch, rows, self.heads, 2 * self.dim).transpose(1, 2).chunk(2, -1)
        heads = lambda y: y.view(batch, rows, self.kv, self.dim).transpose(1, 2)
        repeat = lambda y: y.repeat_interleave(self.heads // self.kv, 1)
        q = self.rotate(self.q_norm(q), first)
        k, v = self.rotate(self.k_norm(heads(self.k_proj(x))), first), heads(self.v_proj(x)).float()
        if before is None:
            y = F.scaled_dot_product_attention(q, repeat(k), repeat(v), is_causal=True)
        else:
            all_k, all_v = (torch.cat([old, new], 2) for old, new in zip(before, (k, v)))
            at = torch.arange(first, first + rows)
            seen = torch.cat([torch.arange(before[0].shape[2]) < at[:, None], torch.eye(rows, dtype=torch.bool)], 1)
            y = F.scaled_dot_product_attention(q, repeat(all_k), repeat(all_v), attn_mask=seen)
        y = (y * torch.sigmoid(gate.float())).transpose(1, 2).reshape(batch, rows, -1)
        return self.o_proj(y), (k, v)


class Mlp(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(hidden, width, bias=False), nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        experts, width, hidden = c["num_experts"], c["moe_intermediate_size"], c["hidden_size"]
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * width, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, width))


class Moe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.top_k = c["num_experts_per_tok"]
        self.gate = nn.Linear(c["hidden_size"], c["num_experts"], bias=False)
        self.experts = Experts(c)
        self.shared_expert = Mlp(c["hidden_size"], c["shared_expert_intermediate_size"])
        self.shared_expert_gate = nn.Linear(c["hidden_size"], 1, bias=False)

    def forward(self, x):
        """The output, and how unevenly the experts are used: 1 is even."""
        flat = x.reshape(-1, x.shape[-1])
        shares = self.gate(flat).float().softmax(-1)
        top, index = shares.topk(self.top_k, -1)
        top = top / top.sum(-1, keepdim=True)
        y = torch.sigmoid(self.shared_expert_gate(flat)) * self.shared_expert(flat)
        used = F.one_hot(index, shares.shape[1]).sum(1).float().mean(0) / self.top_k
        for e, (first, second) in enumerate(zip(self.experts.gate_up_proj.unbind(), self.experts.down_proj.unbind())):
            row, place = (index == e).nonzero(as_tuple=True)
            gate, up = F.linear(flat[row], first).chunk(2, -1)
            out = F.linear(F.silu(gate) * up, second)
            y = y.index_add(0, row, (out * top[row, place, None]).to(y.dtype))
        return y.view_as(x), shares.shape[1] * (used * shares.mean(0)).sum()


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = Moe(c)

    def forward(self, x, first, before):
        mixed, kv = self.self_attn(self.input_layernorm(x), first, before)
        x = x + mixed
        y, balance = self.mlp(self.post_attention_layernorm(x))
        return x + y, kv, balance


class Mtp(nn.Module):
    """Parameters have the names of the checkpoint's tensors, without `mtp.`."""

    def __init__(self, c):
        super().__init__()
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = Norm(hidden, eps), Norm(hidden, eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([Layer(c)])
        self.norm = Norm(hidden, eps)

    def start_from(self, trunk, last):
        """The model's last layer of this kind is a better beginning than random numbers."""
        own = self.state_dict()
        at = f"model.layers.{last}."
        each = lambda kind, e: trunk[f"{at}mlp.experts.{e}.{kind}_proj.weight"].float()
        count = len(own["layers.0.mlp.experts.down_proj"])
        for name in own:
            if name.endswith("experts.gate_up_proj"):
                own[name] = torch.stack([torch.cat([each("gate", e), each("up", e)]) for e in range(count)])
            elif name.endswith("experts.down_proj"):
                own[name] = torch.stack([each("down", e) for e in range(count)])
            elif name.startswith("layers.0."):
                own[name] = trunk[at + name[9:]].float()
        own["norm.weight"] = trunk["model.norm.weight"].float()
        identity = torch.eye(own["fc.weight"].shape[0])
        own["fc.weight"] = torch.cat([identity, identity], 1) * 0.5
        self.load_state_dict(own)

    def forward(self, embedded, hidden, first=0, before=None):
        """Rows of `embedded` are of the token after the position whose row `hidden` has."""
        both = torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1)
        x, kv, balance = self.layers[0](self.fc(both).float(), first, before)
        return self.norm(x), kv, balance


def read_corpus(folder):
    """A tenth of each book, from a random place."""
    if not (folder / "train.txt").exists():
        whole = lzma.open(folder / "train.txt.xz", "rt", encoding="utf8").read()
    else:
        whole = read_text(folder / "train.txt")
    parts = []
    for document in whole.split("<|endoftext|>"):
        paragraphs = document.strip().split("\n\n")
        size = max(12, len(paragraphs) // 10)
        start = random.randrange(max(1, len(paragraphs) - size))
        parts.append("\n\n".join(p for p in paragraphs[start : start + size] if not p.strip("- ") == ""))
    return parts


def prepare(args, tok):
    """The windows of token ids to train on, an eighth of them conversations, and those to measure with."""
    path = args.work / "windows.npy"
    if not path.exists():
        random.seed(1)
        plain, chats = token_streams(tok, Turn(tok), read_corpus(args.corpus))
        cut = lambda s: s[: len(s) // WINDOW * WINDOW].reshape(-1, WINDOW)
        plain, chats = (np.random.default_rng(1).permutation(cut(s)) for s in (plain, chats))
        count = args.tokens // WINDOW
        chats = chats[: count // 8]
        windows = np.concatenate([plain[: count - len(chats)], chats])
        val = cut(np.array(encode(tok, [read_text(args.corpus / "val.txt")])[0], np.uint16))
        np.save(args.work / "val.npy", val[:16])
        np.save(path, np.random.default_rng(2).permutation(windows))
    return np.load(args.work / "val.npy"), np.load(path)


class Stopwatch:
    def __init__(self, seconds):
        self.end = time.time() + seconds

    def over(self):
        return time.time() > self.end


@torch.no_grad()
def make_rows(args, windows, val, clock):
    """Writes the trunk's rows after its final norm. Returns whether all are there."""
    from transformers import AutoModelForCausalLM  # takes seconds, and training does not need it

    path, all_windows = args.work / "rows.bin", np.concatenate([val, windows])
    done = path.stat().st_size // (WINDOW * args.hidden * 2) if path.exists() else 0
    if done == len(all_windows):
        return True
    trunk = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).model.eval()
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.seek(done * WINDOW * args.hidden * 2)
        file.truncate()
        while done < len(all_windows) and not clock.over():
            ids = torch.from_numpy(all_windows[done : done + TRUNK_BATCH].astype(np.int64))
            with torch.autocast("cpu", torch.bfloat16):
                rows = trunk(input_ids=ids, use_cache=False).last_hidden_state
            rows.to(torch.bfloat16).view(torch.int16).numpy().tofile(file)
            done += len(ids)
            if done % (TRUNK_BATCH * 32) == 0:
                print(f"rows of {done} of {len(all_windows)} windows", flush=True)
    return done == len(all_windows)


class Data:
    """Windows with their hidden rows."""

    def __init__(self, args, windows, val, trunk):
        shape = (len(val) + len(windows), WINDOW, args.hidden)
        self.rows = np.memmap(args.work / "rows.bin", np.int16, "r", shape=shape)
        self.ids = np.concatenate([val, windows]).astype(np.int64)
        self.embed, self.head = trunk["model.embed_tokens.weight"].float(), trunk["lm_head.weight"].float()

    def batch(self, at):
        ids = torch.from_numpy(self.ids[at])
        return ids, torch.from_numpy(np.array(self.rows[at])).view(torch.bfloat16).float()

    def logits(self, rows):
        return F.linear(rows, self.head).float()


def drafts(mtp, data, ids, hidden, depth, share=1):
    """Of each depth: logits of a draft and of the model for the same token [batch, rows, vocab], the token's place,
    and the balance of experts. Draft d of position p is for the token p + 1 + d. `share`: logits of so many of the
    positions, chosen at random, which take most of the time."""
    embedded = F.embedding(ids, data.embed)
    row, before, last = hidden, None, ids.shape[1]
    for d in range(1, depth + 1):
        # The row of position q = p + d - 1 has the token of q + 1, and the hidden row of q; after the first depth the
        # layer's own row of q - 1 stands for that.
        count = last - d - 1
        row, kv, balance = mtp(embedded[:, d : d + count], row[:, :count], d - 1, before)
        before = kv if d == 1 else before
        at = slice(None) if share == 1 else torch.randperm(count)[: int(count * share)]
        yield data.logits(row[:, at]), data.logits(hidden[:, d : d + count][:, at]), d + 1, balance


@torch.no_grad()
def measure(mtp, data, val_count):
    """On held-out text, of each of three drafts: the loss, what it is above the model's own, how often the most likely
    token is the model's, and the mass that both distributions share."""
    sums = np.zeros((3, 4))
    for at in range(0, val_count, BATCH):
        ids, hidden = data.batch(slice(at, min(at + BATCH, val_count)))
        for d, (ours, theirs, place, _) in enumerate(drafts(mtp, data, ids, hidden, 3)):
            p, q = theirs.log_softmax(-1), ours.log_softmax(-1)
            token = ids[:, place : place + q.shape[1], None]
            sums[d] += [-q.gather(2, token).mean() * len(ids), (p.exp() * (p - q)).sum(-1).mean() * len(ids),
                        (p.argmax(-1) == q.argmax(-1)).float().mean() * len(ids),
                        torch.minimum(p.exp(), q.exp()).sum(-1).mean() * len(ids)]
    return sums / val_count


def report(text, figures):
    each = ", ".join(f"draft {i + 1}: loss {a:.4f} KL {b:.4f} top-1 {c:.4f} overlap {d:.4f}"
                     for i, (a, b, c, d) in enumerate(figures))
    print(f"{text} held out: {each}", flush=True)


def learning_rate(step, steps):
    """Warm-up over 50 steps, then a cosine down to 2% of the peak."""
    return PEAK_LR * min(1, (step + 1) / 50) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def train(args, data, val_count, mtp, clock):
    """Returns whether all steps are done."""
    groups = [{"params": [p for p in mtp.parameters() if p.ndim >= 2], "weight_decay": 0.05},
              {"params": [p for p in mtp.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.95))
    step, saved = 0, args.work / "training.pt"
    if saved.exists():
        state = torch.load(saved)
        mtp.load_state_dict(state["mtp"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    count = len(data.ids) - val_count
    per_epoch = count // BATCH
    while step < args.steps and not clock.over():
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps)
        order = np.random.default_rng(step // per_epoch).permutation(count) + val_count
        at = order[step % per_epoch * BATCH :][:BATCH]
        ids, hidden = data.batch(np.sort(at))
        loss = 0
        with torch.autocast("cpu", torch.bfloat16):
            for d, (ours, theirs, _, balance) in enumerate(drafts(mtp, data, ids, hidden, 2, share=1 / 4)):
                wanted = theirs.detach().softmax(-1)
                each = -(wanted * ours.log_softmax(-1)).sum(-1).mean()
                loss = loss + (1 if d == 0 else SECOND_DRAFT) * (each + 0.01 * balance)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(mtp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} balance {balance.item():.3f}", flush=True)
        step += 1
    torch.save({"mtp": mtp.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, saved)
    report(f"step {step}", measure(mtp, data, val_count))
    return step == args.steps


def save(args, mtp):
    """MODEL with the layer's tensors in a file of their own."""
    out = args.work / "checkpoint"
    shutil.copytree(args.model, out, dirs_exist_ok=True, copy_function=shutil.copyfile)
    out.chmod(0o755)
    tensors = {f"mtp.{name}": t.to(torch.bfloat16).contiguous() for name, t in mtp.state_dict().items()}
    save_file(tensors, out / "mtp.safetensors", metadata={"format": "pt"})
    index = json.loads((out / "model.safetensors.index.json").read_text())
    own_bytes = sum(2 * t.numel() for t in tensors.values())
    index["weight_map"] |= {name: "mtp.safetensors" for name in tensors}
    index["metadata"]["total_size"] = index["metadata"].get("total_size", 0) + own_bytes
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    config = json.loads((out / "config.json").read_text()) | {"mtp_num_hidden_layers": 1}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path, help="folder for what is kept between calls; made if absent")
    parser.add_argument("--tokens", type=int, default=1000000, help="to train on (default 1000000)")
    parser.add_argument("--steps", type=int, default=420, help=f"of {BATCH} windows (default 420)")
    parser.add_argument("--seconds", type=float, default=540, help="time for one call (default 540)")
    args = parser.parse_args()
    clock = Stopwatch(args.seconds)
    args.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    config = json.loads((args.model / "config.json").read_text())
    args.hidden = config["hidden_size"]
    tok = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    if tok.token_to_id(SPECIAL[0]) is None:
        raise SystemExit(f"{args.model}: its tokenizer is not the demo model's")
    val, windows = prepare(args, tok)
    if not make_rows(args, windows, val, clock):
        return print("not all rows are there: call again")
    trunk = {k: v for path in sorted(args.model.glob("*.safetensors")) for k, v in load_file(path).items()}
    mtp = Mtp(config)
    mtp.start_from(trunk, config["num_hidden_layers"] - 1)
    print(f"{sum(p.numel() for p in mtp.parameters())} parameters", flush=True)
    if not train(args, Data(args, windows, val, trunk), len(val), mtp, clock):
        return print("not all steps are done: call again")
    save(args, mtp)
    print("all is done")


if __name__ == "__main__":
    main()
