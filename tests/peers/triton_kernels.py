"""Kernels for Triton's autotuner (`tuners.py`): a product, a softmax over rows, attention. Each function gives what to
run, how far its result is from torch's, and how many configurations the autotuner tries."""
import torch, triton, triton.language as tl

MATMUL = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "G": 8}, num_warps=w, num_stages=s)
    for bm, bn, w in [(128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 128, 4), (64, 256, 4), (256, 64, 4)]
    for bk in (32, 64)
    for s in (3, 4)
]


@triton.autotune(configs=MATMUL, key=["M", "N", "K"])
@triton.jit
def matmul_kernel(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = G * tiles_n
    first = pid // group * G
    rows = min(tiles_m - first, G)
    m0, n0 = (first + pid % group % rows) * BM, pid % group // rows * BN
    m, n, k = m0 + tl.arange(0, BM), n0 + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        a = tl.load(x + m[:, None] * K + (k0 + k)[None, :], mask=(m[:, None] < M) & ((k0 + k)[None, :] < K), other=0.0)
        b = tl.load(w + n[None, :] * K + (k0 + k)[:, None], mask=(n[None, :] < N) & ((k0 + k)[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(y + m[:, None] * N + n[None, :], acc.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def far(got, want):
    return round(((got.float() - want.float()).abs().mean() / want.float().abs().mean()).item(), 5)


def matmul(d):
    M, N, K = d["M"], d["N"], d["K"]
    x = torch.randn(M, K, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(N, K, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
    run = lambda: matmul_kernel[lambda c: (triton.cdiv(M, c["BM"]) * triton.cdiv(N, c["BN"]),)](x, w, y, M, N, K)
    return run, lambda: far(y, x @ w.T), len(MATMUL)


SOFTMAX = [triton.Config({"R": r}, num_warps=w) for r in (1, 2, 4, 8) for w in (1, 2, 4, 8, 16)]


@triton.autotune(configs=SOFTMAX, key=["M", "N"])
@triton.jit
def softmax_kernel(x, y, M, N, B: tl.constexpr, R: tl.constexpr):
    m = tl.program_id(0) * R + tl.arange(0, R)
    n = tl.arange(0, B)
    inside = (m[:, None] < M) & (n[None, :] < N)
    v = tl.load(x + m[:, None].to(tl.int64) * N + n[None, :], mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + m[:, None].to(tl.int64) * N + n[None, :], (e / tl.sum(e, 1)[:, None]).to(y.dtype.element_ty), mask=inside)


def softmax(d):
    M, N = d["M"], d["N"]
    x = torch.randn(M, N, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    run = lambda: softmax_kernel[lambda c: (triton.cdiv(M, c["R"]),)](x, y, M, N, B=triton.next_power_of_2(N))
    return run, lambda: far(y, torch.softmax(x, -1)), len(SOFTMAX)


ATTENTION = [
    triton.Config({"BM": bm, "BN": bn}, num_warps=w, num_stages=s)
    for bm in (64, 128) for bn in (64, 128) for w in (4, 8) for s in (2, 3)
]


@triton.autotune(configs=ATTENTION, key=["S", "L"])
@triton.jit
def attention_kernel(q, k, v, o, scale, S, L, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i, head = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1).to(tl.int64)
    d, j = tl.arange(0, D), tl.arange(0, BN)
    qs = tl.load(q + head * S * D + i[:, None] * D + d[None, :], mask=i[:, None] < S, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for j0 in range(0, L, BN):
        ks = tl.load(k + head * L * D + (j0 + j)[None, :] * D + d[:, None], mask=(j0 + j)[None, :] < L, other=0.0)
        s = tl.where((j0 + j)[None, :] < L, tl.dot(qs, ks) * (scale * 1.44269504), -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        factor = tl.exp2(top - new)
        total = total * factor + tl.sum(p, 1)
        vs = tl.load(v + head * L * D + (j0 + j)[:, None] * D + d[None, :], mask=(j0 + j)[:, None] < L, other=0.0)
        acc = tl.dot(p.to(vs.dtype), vs, acc * factor[:, None])
        top = new
    tl.store(o + head * S * D + i[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty), mask=i[:, None] < S)


def attention(d):
    B, H, S, L, D = d["B"], d["H"], d["S"], d["L"], d["D"]
    q = torch.randn(B, H, S, D, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(B, H, L, D, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    o = torch.empty_like(q)
    run = lambda: attention_kernel[lambda c: (triton.cdiv(S, c["BM"]), B * H)](q, k, v, o, D ** -0.5, S, L, D)
    check = lambda: far(o, torch.nn.functional.scaled_dot_product_attention(q, k, v))
    return run, check, len(ATTENTION)


def winner(name):
    return str(dict(matmul=matmul_kernel, softmax=softmax_kernel, attention=attention_kernel)[name].best_config)
