#!/usr/bin/env python3
"""Looks for cliffs: row operators over row lengths from 1 to 10 million, ours beside torch, cold L2, one card.

    python3 sweep.py --girih target/release/girih [--part I/N] [--only REGEX] [--out FILE] [--list]

At most 200 points. Prints each point that misses the wish (at least 0.9 of torch's speed above 20 us, within 1.5 us of it
below), then the worst ratio of each operator. `--part` takes every Nth point, from the Ith (0-based), for a short time on a card.
"""
import argparse, collections, json, os, re, subprocess, sys, tempfile

LENGTHS = [1, 2, 3, 8, 31, 32, 100, 128, 1000, 1024, 4096, 5000, 10000, 16384, 32768, 50257, 131072, 262144, 1000003, 10_000_000]
TOTALS = [1 << 14, 1 << 20, 1 << 25]
OPS = [("softmax", "bf16"), ("rowsum", "f32"), ("rmsnorm", "bf16"), ("cumsum", "f32")]


def points():
    """(id, op, rows, length, dtype): each length at each total, at least one row."""
    for op, dt in OPS:
        for n in LENGTHS:
            rows = sorted({max(1, t // n) for t in TOTALS})
            if n >= 50257:
                rows = sorted({1, max(1, TOTALS[-1] // n)})
            for m in rows[-3:] if n < 4096 else rows[-2:]:
                yield f"{op}_{dt}_{m}x{n}", op, m, n, dt


def ours(girih, todo):
    suite = [{"id": i, "kind": "rowop", "args": [op, m, n, dt]} for i, op, m, n, dt in todo]
    with tempfile.TemporaryDirectory() as d:
        s, o = os.path.join(d, "suite.json"), os.path.join(d, "out.jsonl")
        json.dump(suite, open(s, "w"))
        p = subprocess.run([girih, "bench", "--suite", s, "--no-check", "--out", o], capture_output=True, text=True)
        rows = [json.loads(x) for x in open(o)] if os.path.exists(o) else []
        if len(rows) < len(suite):
            print(f"girih stopped: {p.stderr.strip().splitlines()[-1:]}")
        return {r["id"]: r for r in rows}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--girih", default="target/release/girih"); ap.add_argument("--part", default="0/1")
    ap.add_argument("--only", default=""); ap.add_argument("--out"); ap.add_argument("--list", action="store_true")
    a = ap.parse_args()
    part, parts = map(int, a.part.split("/"))
    todo = [p for p in points() if re.search(a.only, p[0])][part::parts]
    if a.list:
        print(*(p[0] for p in todo), sep="\n")
        return
    mine = ours(a.girih, todo)
    import peers
    worst = collections.defaultdict(lambda: (9e9, ""))
    out = open(a.out, "w") if a.out else None
    for i, op, m, n, dt in todo:
        fns, by, _ = peers.rowop(op, m, n, dt)
        torch_us = peers.time_us(fns["torch"], reps_ms=15, warm_ms=3)
        us = mine.get(i, {}).get("us")
        row = {"id": i, "us": us, "torch": round(torch_us, 2), "bytes": by, "error": mine.get(i, {}).get("error")}
        if out:
            print(json.dumps(row), file=out, flush=True)
        if us is None:
            print(f"{i:36s} failed: {row['error']}", flush=True)
            continue
        missed = us > torch_us / 0.9 if torch_us > 20 else us > torch_us + 1.5
        worst[op] = min(worst[op], (torch_us / us, i))
        if missed:
            print(f"{i:36s} ours {us:9.1f} us, torch {torch_us:9.1f}, {torch_us / us:.2f}, {by / us / 1e3:.0f} GB/s", flush=True)
    for op, (ratio, i) in worst.items():
        print(f"{op}: worst {ratio:.2f} at {i}")


if __name__ == "__main__":
    main()
