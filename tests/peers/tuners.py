#!/usr/bin/env python3
"""Autotuners beside each other: seconds to tune one operator, and microseconds of what was found.

    tests/peers/tuners.py --girih target/release/girih [--only matmul,softmax,attention] [--budget 20s] [--seconds 25]

Triton's and TileLang's autotuners over spaces of their own for each operator, `girih tune` with an empty cache, and again
with the compiled code cached but no record. Each result is compared with the definition by torch before it counts. A line
of JSON for each run, with the seconds that the peers' imports took apart. Needs a CUDA GPU and torch; Triton; and for
TileLang its package (`pip install tilelang`) and the `nvcc` that it compiles with. `--tuners` says which are run.
"""
import argparse, json, os, pathlib, re, shutil, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
KINDS = HERE.parent.parent / "src/bench/kinds.tile"
OPS = {
    "matmul": ["gemm_nt", dict(M=8192, N=8192, K=8192), dict(T="bf16")],
    "softmax": ["softmax", dict(M=65536, N=4096), dict(T="bf16")],
    "attention": ["attention", dict(B=4, H=16, G=1, S=4096, L=4096, D=128), dict(T="bf16", causal="false")],
}


def girih(args, name, cache, more):
    op, dims, consts = OPS[name]
    words = [args.girih, "tune", str(KINDS), "--op", op, "--device", "cuda:0"]
    words += [w for k, v in dims.items() for w in ("--dim", f"{k}={v}")]
    words += [w for k, v in consts.items() for w in ("--const", f"{k}={v}")]
    start = time.monotonic()
    run = subprocess.run(words + more, capture_output=True, text=True, env={**os.environ, "GIRIH_CACHE": cache})
    took = time.monotonic() - start
    best = re.search(r"best ([\d.]+) us", run.stdout)
    beside = {name: re.search(rf"([\d.]+) us \(\S+\) {words}", run.stdout)
              for name, words in [("untuned_us", "untuned"), ("model_us", "the model's"), ("fixed_us", "the fixed")]}
    counts = re.search(r"(\d+) points looked at, (\d+) pruned, (\d+) measured, (\d+) failed", run.stdout)
    row = dict(seconds=round(took, 2), us=best and float(best[1]))
    row.update({name: found and float(found[1]) for name, found in beside.items()})
    row["measured"] = counts and int(counts[3])
    row["failed"] = counts and int(counts[4])
    told = [l.strip() for l in run.stdout.splitlines()[2:] if not re.match(r"\s+[\d.]+ us \(", l)]
    row["winner"] = told[0] if told else (run.stdout + run.stderr)[-300:]
    return row


def triton_tuner(name):
    import triton_kernels as kernels
    run, check, count = getattr(kernels, name)(OPS[name][1])
    return run, check, count, lambda: kernels.winner(name)


def tilelang_tuner(name):
    import logging
    import tilelang_kernels as kernels
    logging.getLogger("tilelang.autotuner.tuner").setLevel(logging.ERROR)
    tuned = getattr(kernels, name)(OPS[name][1])
    return tuned, tuned.error, tuned.configurations, tuned.winner


def peer_row(tuner, name):
    import torch
    start = time.monotonic()
    run, check, count, winner = tuner(name)
    torch.cuda.synchronize()
    imports, start = time.monotonic() - start, time.monotonic()
    run()
    torch.cuda.synchronize()
    took = time.monotonic() - start
    error = check()
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(21):
        flush.zero_()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        run()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3)
    return dict(seconds=round(took, 2), us=round(sorted(times)[len(times) // 2], 2), configurations=count, error=error,
                winner=winner(), imports=round(imports, 2))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--girih", default="target/release/girih")
    p.add_argument("--only", default=",".join(OPS))
    p.add_argument("--budget", default="60s")
    p.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so many")
    p.add_argument("--exhaustive", type=int, help="compare with an exhaustive search of so many configurations")
    p.add_argument("--tuners", default="girih,triton,tilelang", help="which of these, with commas between")
    args = p.parse_args()
    args.girih = os.path.abspath(args.girih)
    tuners = args.tuners.split(",")
    sys.path.insert(0, str(HERE))
    # The peers' own caches start empty, and what they write stays out of the folder at hand.
    work = tempfile.mkdtemp()
    os.environ.update(TRITON_CACHE_DIR=work + "/triton", TILELANG_CACHE_DIR=work + "/tilelang")
    os.chdir(work)
    begin = time.monotonic()
    for name in args.only.split(","):
        def say(who, make):
            if time.monotonic() - begin > args.seconds:
                return
            try:
                row = make()
            except Exception as e:  # what failed is a row, too
                row = dict(failed_with=f"{type(e).__name__}: {e}"[:300])
            print(json.dumps(dict(op=name, tuner=who, **row)), flush=True)
        cache = tempfile.mkdtemp()
        if "girih" in tuners:
            say("girih, empty cache", lambda: girih(args, name, cache, ["--budget", args.budget]))
            say("girih, compiled code cached", lambda: girih(args, name, cache, ["--budget", args.budget, "--force"]))
        if "girih" in tuners and args.exhaustive:
            say("girih, exhaustive", lambda: girih(args, name, cache, ["--exhaustive", str(args.exhaustive), "--budget", args.budget, "--force"]))
        if "triton" in tuners:
            say("triton", lambda: peer_row(triton_tuner, name))
        if "tilelang" in tuners:
            say("tilelang", lambda: peer_row(tilelang_tuner, name))
        shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
