#!/usr/bin/env python3
"""Looks for cliffs: ours beside torch, cold L2, one card.

    python3 sweep.py --girih target/release/girih [--what rows|products] [--part I/N] [--only REGEX] [--compile N] [--out FILE] [--list]

`rows`: row operators over row lengths from 1 to 10 million, at most 200 points. `products`: bf16 products of M, N and K
from 1 to 16384 in all layouts beside cuBLAS, at most 300 points. Prints each point that misses the wish (at least 0.9 of
torch's speed above 20 us, within 1.5 us of it below), then the worst ratio and the geometric mean of each operator.
`--part` takes every Nth point, from the Ith (0-based), for a short time on a card; `--warm N` first compiles all points in N
processes at once, whose times are not kept. `--compile N` times torch.compile as well, on N points spread over the rows.
"""
import argparse, collections, json, math, os, re, subprocess, sys, tempfile

LENGTHS = [1, 2, 3, 8, 31, 32, 100, 128, 1000, 1024, 4096, 5000, 10000, 16384, 32768, 50257, 131072, 262144, 1000003, 10_000_000]
TOTALS = [1 << 14, 1 << 20, 1 << 25]
OPS = [("softmax", "bf16"), ("rowsum", "f32"), ("rmsnorm", "bf16"), ("cumsum", "f32")]


# Sizes of products: small, odd, just beside a tile, and what models have.
SKINNY = [1, 2, 7, 16, 33, 64]
MIDDLE = [100, 127, 128, 200, 257, 512, 768, 1000, 1023]
LARGE = [1536, 2048, 2049, 3000, 4096, 5120, 8192, 11008, 16384]
LAYOUTS = ["nt", "nn", "tt", "tn"]


def rows():
    """(id, kind, arguments): each length at each total, at least one row."""
    for op, dt in OPS:
        for n in LENGTHS:
            rows = sorted({max(1, t // n) for t in TOTALS})
            if n >= 50257:
                rows = sorted({1, max(1, TOTALS[-1] // n)})
            for m in rows[-3:] if n < 4096 else rows[-2:]:
                yield f"{op}_{dt}_{m}x{n}", "rowop", [op, m, n, dt]


def products():
    """Every pair of classes of M, N and K; which member of a class, and the layout, go round."""
    classes, turn = [SKINNY, MIDDLE, LARGE], 0
    for ms in classes:
        for ns in classes:
            for ks in classes:
                # The larger the product, the likelier that someone waits for it.
                for _ in range(4 + 3 * sum(c is LARGE for c in (ms, ns, ks))):
                    turn += 1
                    m, n, k = ms[turn * 7 % len(ms)], ns[turn * 5 % len(ns)], ks[turn * 11 % len(ks)]
                    layout = LAYOUTS[turn % 4]
                    yield f"gemm_{layout}_{m}x{n}x{k}", "gemm", [m, n, k, "bf16", layout]


def ours(girih, todo):
    suite = [{"id": i, "kind": kind, "args": args} for i, kind, args in todo]
    with tempfile.TemporaryDirectory() as d:
        s, o = os.path.join(d, "suite.json"), os.path.join(d, "out.jsonl")
        json.dump(suite, open(s, "w"))
        p = subprocess.run([girih, "bench", "--suite", s, "--no-check", "--out", o], capture_output=True, text=True)
        rows = [json.loads(x) for x in open(o)] if os.path.exists(o) else []
        if len(rows) < len(suite):
            print(f"girih stopped: {p.stderr.strip().splitlines()[-1:]}")
        return {r["id"]: r for r in rows}


def warm(girih, todo, workers):
    """Compiles every point, `workers` at a time, into the cache of kernels."""
    import concurrent.futures as cf
    with cf.ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda w: ours(girih, todo[w::workers]), range(workers)))


def beside_compiled(todo, mine, n, out):
    """Times torch.compile on `n` of the points, spread evenly."""
    import peers
    for i, kind, args in todo[:: max(1, len(todo) // n)][:n] if n else []:
        fns, *_ = getattr(peers, kind)(*args)
        if "compile" not in fns:
            continue
        us, compiled = mine.get(i, {}).get("us"), peers.time_us(peers.compiled(fns["compile"][1]), reps_ms=15, warm_ms=3)
        print(f"{i:36s} ours {us or math.nan:9.1f} us, torch.compile {compiled:9.1f}, {compiled / (us or math.nan):.2f}", flush=True)
        if out:
            print(json.dumps({"id": i, "us": us, "torch.compile": round(compiled, 2)}), file=out, flush=True)


def missed(us, torch_us):
    return us > torch_us / 0.9 if torch_us > 20 else us > torch_us + 1.5


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--girih", default="target/release/girih"); ap.add_argument("--part", default="0/1")
    ap.add_argument("--what", default="rows", choices=["rows", "products"]); ap.add_argument("--warm", type=int, default=0)
    ap.add_argument("--only", default=""); ap.add_argument("--out"); ap.add_argument("--list", action="store_true")
    ap.add_argument("--compile", type=int, default=0)
    a = ap.parse_args()
    part, parts = map(int, a.part.split("/"))
    points = {p[0]: p for p in (rows if a.what == "rows" else products)()}
    todo = [p for p in points.values() if re.search(a.only, p[0])][part::parts]
    if a.list:
        print(*(p[0] for p in todo), sep="\n")
        return
    if a.warm:
        warm(a.girih, todo, a.warm)
    mine = ours(a.girih, todo)
    import peers
    ratios = collections.defaultdict(list)
    out = open(a.out, "w") if a.out else None
    for i, kind, args in todo:
        fns, by, _ = getattr(peers, kind)(*args)
        # As long as ours: the power state that a product reaches depends on it.
        torch_us = peers.time_us(fns["torch" if kind == "rowop" else "cublas"])
        us = mine.get(i, {}).get("us")
        row = {"id": i, "us": us, "torch": round(torch_us, 2), "bytes": by, "error": mine.get(i, {}).get("error")}
        if out:
            print(json.dumps(row), file=out, flush=True)
        if us is None:
            print(f"{i:36s} failed: {row['error']}", flush=True)
            continue
        ratios[i.split("_")[0]].append((torch_us / us, i, missed(us, torch_us)))
        if missed(us, torch_us):
            print(f"{i:36s} ours {us:9.1f} us, torch {torch_us:9.1f}, {torch_us / us:.2f}, {by / us / 1e3:.0f} GB/s", flush=True)
    beside_compiled(todo, mine, a.compile, out)
    for op, all in ratios.items():
        mean = math.exp(sum(math.log(r) for r, *_ in all) / len(all))
        print(f"{op}: {len(all)} points, geometric mean {mean:.2f}, worst {min(all)[0]:.2f} at {min(all)[1]}, {sum(m for *_, m in all)} missed")


if __name__ == "__main__":
    main()
