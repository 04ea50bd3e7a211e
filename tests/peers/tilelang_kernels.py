"""Programs for TileLang's autotuner (`tuners.py`): a product, a softmax over rows, attention. Each function gives what to
run once it is tuned, how far its result is from torch's, and how many configurations the autotuner tries. The spaces are
of the size of Triton's (`triton_kernels.py`) and hold what TileLang's own examples tune: tiles, stages, threads."""
import itertools
import tilelang, tilelang.language as T, torch

DTYPE, SUMS = "bfloat16", "float32"
# A configuration's calls before it is timed, and those that are timed; results are compared after the tuning, as Triton's are.
MEASURE = dict(warmup=3, rep=10, skip_check=True)


def space(fits=lambda c: True, **values):
    """Every choice of the values that fits."""
    all = [dict(zip(values, choice)) for choice in itertools.product(*values.values())]
    return [c for c in all if fits(c)]


def fits_shared(c):
    """Whether the operands' stages fit in a block's shared memory, and the sums in its threads' registers."""
    stages = c["stages"] * (c["bm"] + c["bn"]) * c["bk"] * 2
    return stages + c["bm"] * c["bn"] * 2 <= 227 << 10 and c["bm"] * c["bn"] <= 160 * c["threads"]


MATMUL = space(fits_shared, bm=[128, 256], bn=[128, 256], bk=[32, 64], stages=[2, 3, 4], threads=[128, 256])


@tilelang.autotune(configs=MATMUL, **MEASURE)
@tilelang.jit(out_idx=[-1])
def matmul_program(M, N, K, bm=128, bn=128, bk=64, stages=3, threads=256):
    @T.prim_func
    def program(x: T.Tensor((M, K), DTYPE), w: T.Tensor((N, K), DTYPE), y: T.Tensor((M, N), DTYPE)):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=threads) as (j, i):
            xs = T.alloc_shared((bm, bk), DTYPE)
            ws = T.alloc_shared((bn, bk), DTYPE)
            ys = T.alloc_shared((bm, bn), DTYPE)
            sums = T.alloc_fragment((bm, bn), SUMS)
            T.use_swizzle(panel_size=10)
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=stages):
                T.copy(x[i * bm, k * bk], xs)
                T.copy(w[j * bn, k * bk], ws)
                T.gemm(xs, ws, sums, transpose_B=True)
            T.copy(sums, ys)
            T.copy(ys, y[i * bm, j * bn])

    return program


SOFTMAX = space(lambda c: c["rows"] * 4096 <= 64 * c["threads"], rows=[1, 2, 4, 8], threads=[64, 128, 256, 512])


@tilelang.autotune(configs=SOFTMAX, **MEASURE)
@tilelang.jit(out_idx=[-1])
def softmax_program(M, N, rows=1, threads=256):
    @T.prim_func
    def program(x: T.Tensor((M, N), DTYPE), y: T.Tensor((M, N), DTYPE)):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as i:
            held = T.alloc_fragment((rows, N), DTYPE)
            e = T.alloc_fragment((rows, N), SUMS)
            top = T.alloc_fragment((rows,), SUMS)
            total = T.alloc_fragment((rows,), SUMS)
            T.copy(x[i * rows, 0], held)
            T.copy(held, e)
            T.reduce_max(e, top, dim=1)
            for r, n in T.Parallel(rows, N):
                e[r, n] = T.exp2((e[r, n] - top[r]) * 1.44269504)
            T.reduce_sum(e, total, dim=1)
            for r, n in T.Parallel(rows, N):
                held[r, n] = e[r, n] / total[r]
            T.copy(held, y[i * rows, 0])

    return program


# A warpgroup takes 64 rows; 128 columns of each operand.
ATTENTION = space(lambda c: 2 * c["bm"] == c["threads"] and 2 * c["stages"] * c["bn"] + c["bm"] <= 900,
                  bm=[64, 128], bn=[64, 128], stages=[1, 2, 3, 4], threads=[128, 256])


@tilelang.autotune(configs=ATTENTION, **MEASURE)
@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def attention_program(heads, S, L, D, bm=128, bn=128, stages=2, threads=256):
    scale = D ** -0.5 * 1.44269504

    @T.prim_func
    def program(
        q: T.Tensor((heads, S, D), DTYPE),
        k: T.Tensor((heads, L, D), DTYPE),
        v: T.Tensor((heads, L, D), DTYPE),
        o: T.Tensor((heads, S, D), DTYPE),
    ):
        with T.Kernel(T.ceildiv(S, bm), heads, threads=threads) as (i, h):
            qs = T.alloc_shared((bm, D), DTYPE)
            ks = T.alloc_shared((bn, D), DTYPE)
            vs = T.alloc_shared((bn, D), DTYPE)
            os = T.alloc_shared((bm, D), DTYPE)
            scores = T.alloc_fragment((bm, bn), SUMS)
            weights = T.alloc_fragment((bm, bn), DTYPE)
            sums = T.alloc_fragment((bm, D), SUMS)
            top = T.alloc_fragment((bm,), SUMS)
            before = T.alloc_fragment((bm,), SUMS)
            factor = T.alloc_fragment((bm,), SUMS)
            part = T.alloc_fragment((bm,), SUMS)
            total = T.alloc_fragment((bm,), SUMS)
            T.copy(q[h, i * bm : (i + 1) * bm, :], qs)
            T.fill(sums, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity(SUMS))
            for j in T.Pipelined(T.ceildiv(L, bn), num_stages=stages):
                T.copy(k[h, j * bn : (j + 1) * bn, :], ks)
                T.clear(scores)
                T.gemm(qs, ks, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for r in T.Parallel(bm):
                    factor[r] = T.exp2((before[r] - top[r]) * scale)
                for r, c in T.Parallel(bm, bn):
                    scores[r, c] = T.exp2(scores[r, c] * scale - top[r] * scale)
                T.reduce_sum(scores, part, dim=1)
                for r in T.Parallel(bm):
                    total[r] = total[r] * factor[r] + part[r]
                T.copy(scores, weights)
                for r, c in T.Parallel(bm, D):
                    sums[r, c] *= factor[r]
                T.copy(v[h, j * bn : (j + 1) * bn, :], vs)
                T.gemm(weights, vs, sums, policy=T.GemmWarpPolicy.FullRow)
            for r, c in T.Parallel(bm, D):
                sums[r, c] /= total[r]
            T.copy(sums, os)
            T.copy(os, o[h, i * bm : (i + 1) * bm, :])

    return program


def far(got, want):
    return round(((got.float() - want.float()).abs().mean() / want.float().abs().mean()).item(), 5)


class Tuned:
    """A program that is tuned when it is first called, with inputs that stay."""

    def __init__(self, program, sizes, inputs, right, configurations):
        self.program, self.sizes, self.inputs, self.right = program, sizes, inputs, right
        self.configurations, self.kernel, self.result = configurations, None, None

    def __call__(self):
        if self.kernel is None:
            self.kernel = self.program(*self.sizes)
        self.result = self.kernel(*self.inputs)

    def error(self):
        return far(self.result, self.right(*self.inputs))

    def winner(self):
        return str(getattr(self.kernel, "config", None))


def random(*dims):
    return torch.randn(*dims, device="cuda", dtype=torch.bfloat16)


def matmul(d):
    M, N, K = d["M"], d["N"], d["K"]
    return Tuned(matmul_program, (M, N, K), (random(M, K), random(N, K)), lambda x, w: x @ w.T, len(MATMUL))


def softmax(d):
    M, N = d["M"], d["N"]
    return Tuned(softmax_program, (M, N), (random(M, N),), lambda x: torch.softmax(x, -1), len(SOFTMAX))


def attention(d):
    heads, S, L, D = d["B"] * d["H"], d["S"], d["L"], d["D"]
    right = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    return Tuned(attention_program, (heads, S, L, D), (random(heads, S, D), random(heads, L, D), random(heads, L, D)), right, len(ATTENTION))
