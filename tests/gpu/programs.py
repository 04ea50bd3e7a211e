#!/usr/bin/env python3
"""Runs each operator of tests/programs at its points (`// at: M=1 N=7; M=130 N=70`) on the GPU, results checked.

    tests/gpu/programs.py --girih PATH [--only REGEX] [--jobs N]
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent / "programs"


def points():
    """File, operator, and the assignments of each point."""
    for path in sorted(HERE.glob("*.tile")):
        at = []
        for line in path.read_text().splitlines():
            if line.startswith("// at: "):
                at = [p.split() for p in line[len("// at: "):].split(";")]
            elif line.startswith("op "):
                name = re.match(r"\w+", line[3:]).group()
                yield from ((path, name, p) for p in at)
                at = []


def run(girih, path, op, point):
    words = [w for a in point for w in ("--dim" if a[0].isupper() and a.split("=")[1].isdigit() else "--const", a)]
    command = [girih, "run", str(path), "--op", op, *words, "--device", "cuda", "--check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "no end in 60 s"
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--girih", required=True)
    args.add_argument("--only", default="")
    args.add_argument("--jobs", type=int, default=12)
    args = args.parse_args()
    wanted = [p for p in points() if re.search(args.only, f"{p[0].stem}.{p[1]}")]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for (path, op, point), wrong in zip(wanted, pool.map(lambda p: run(args.girih, *p), wanted)):
            if wrong:
                failed += 1
                print(f"FAIL {path.stem}.{op} {' '.join(point)}\n{wrong}", flush=True)
    print(f"{len(wanted) - failed} right, {failed} wrong")
    sys.exit(failed > 0)


main()
