#!/usr/bin/env python3
"""Runs the encoder through girih and compares with PyTorch's embeddings (expected.json).

    python3 examples/minilm/run.py [--girih target/release/girih] [--device sim|ref|cuda] [--part layer|all] [--folder .girih/minilm]

Exits 0 if the cosine similarity of every compared row is at least 0.9999.
"""
import argparse, json, pathlib, subprocess, sys
import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
from prepare import load


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--girih", default="target/release/girih")
    a.add_argument("--device", default="auto")
    a.add_argument("--part", choices=("layer", "all"), default="all")
    a.add_argument("--folder", default=".girih/minilm")
    args = a.parse_args()
    folder = pathlib.Path(args.folder)
    if not (folder / "minilm.safetensors").exists():
        subprocess.run([sys.executable, str(HERE / "prepare.py"), "--folder", args.folder], check=True)
    op, name = ("encoder_layer", "layer") if args.part == "layer" else ("minilm", "minilm")
    out = folder / f"{name}.out.safetensors"
    cmd = [args.girih, "run", str(HERE / "minilm.tile"), "--op", op, "--dim", "H=12", "--input-file", str(folder / f"{name}.safetensors"),
           "--output-file", str(out), "--device", args.device]
    print(" ".join(cmd), flush=True)
    if subprocess.run(cmd).returncode:
        return 1
    y, want = load(out.read_bytes())["y"].astype(np.float64), json.loads((HERE / "expected.json").read_text())
    got, ref = (y[:, 0], want["layer_first_token"]) if args.part == "layer" else (y, want["embeddings"])
    cosines = [cosine(g, np.array(r)) for g, r in zip(got, ref)]
    print("cosine similarity with PyTorch (f64), a row a sentence:", ", ".join(f"{c:.8f}" for c in cosines))
    if args.part == "all":
        print("similarity between the sentences:", np.array2string(y @ y.T, precision=3).replace("\n", " "))
    return 0 if min(cosines) >= 0.9999 else 1


if __name__ == "__main__":
    sys.exit(main())
