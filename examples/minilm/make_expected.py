#!/usr/bin/env python3
"""How expected.json was made: PyTorch on the CPU in f64, from the files that prepare.py writes. Needs torch and numpy.

    python3 examples/minilm/make_expected.py FOLDER > examples/minilm/expected.json
"""
import json, pathlib, sys
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from prepare import load


def layer(x, mask, w):
    B, T, D = x.shape
    heads = lambda y: y.view(B, T, 12, D // 12).transpose(1, 2)
    q, k, v = (heads(F.linear(x, w["w" + c], w["b" + c])) for c in "qkv")
    a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]).transpose(1, 2).reshape(B, T, D)
    h = F.layer_norm(x + F.linear(a, w["wo"], w["bo"]), (D,), w["g1"], w["c1"], 1e-12)
    f = F.gelu(F.linear(h, w["wi"], w["bi"]))
    return F.layer_norm(h + F.linear(f, w["wd"], w["bd"]), (D,), w["g2"], w["c2"], 1e-12)


def tensors(path):
    t = {k: torch.tensor(v) for k, v in load(pathlib.Path(path).read_bytes()).items()}
    return {k: v.double() if v.is_floating_point() else v.long() for k, v in t.items()}


def main():
    folder = pathlib.Path(sys.argv[1])
    w = tensors(folder / "minilm.safetensors")
    B, T = w["ids"].shape
    mask = torch.arange(T)[None] < w["len"][:, None]
    x = F.layer_norm(w["words"][w["ids"]] + w["places"][:T] + w["kinds"][0], (384,), w["g0"], w["c0"], 1e-12)
    for l in range(6):
        x = layer(x, mask, {k: v[l] for k, v in w.items() if v.dim() and v.shape[0] == 6})
    m = (x * mask[..., None]).sum(1) / w["len"][:, None]
    one = tensors(folder / "layer.safetensors")
    y = layer(one["x"], mask, one) * mask[..., None]
    out = dict(made_with=f"torch {torch.__version__}, f64", embeddings=F.normalize(m, dim=-1).tolist(), layer_first_token=y[:, 0].tolist(), layer_sum=y.sum().item())
    print(json.dumps(out))


if __name__ == "__main__":
    main()
