#!/usr/bin/env python3
"""Looks for cliffs among convolutions: ours beside cuDNN (through PyTorch, benchmark mode), cold L2, one card.

    python3 convs.py --girih target/release/girih [--only REGEX] [--part I/N] [--warm N] [--no-peer | --peer-only] [--out FILE]

Each case is a kind, a layout and its sizes; `last` is channels last on both sides (convs.tile), `first` channels first (the
library's operators). Prints a line a case and marks those below 0.9 of cuDNN's speed.
"""
import argparse, concurrent.futures, json, os, re, subprocess

HERE = os.path.dirname(os.path.abspath(__file__))

# id: kind, N, C, F, places, taps, stride, pad, dilation, groups (or what a transposed one adds at the end)
CASES = {
    "fwd_c3_s2": ("fwd", 32, 3, 32, (224, 224), (3, 3), 2, 1, 1, 1),
    "fwd_c3_patch16": ("fwd", 32, 3, 768, (224, 224), (16, 16), 16, 0, 1, 1),
    "fwd_c4_r5": ("fwd", 32, 4, 64, (112, 112), (5, 5), 1, 2, 1, 1),
    "fwd_c1_r7": ("fwd", 16, 1, 32, (256, 256), (7, 7), 1, 3, 1, 1),
    "fwd_c17_k17": ("fwd", 64, 17, 17, (56, 56), (3, 3), 1, 1, 1, 1),
    "fwd_c100_k100": ("fwd", 32, 100, 100, (28, 28), (3, 3), 1, 1, 1, 1),
    "fwd_c64_k17": ("fwd", 32, 64, 17, (56, 56), (3, 3), 1, 1, 1, 1),
    "fwd_c16_k16": ("fwd", 32, 16, 16, (112, 112), (3, 3), 1, 1, 1, 1),
    "fwd_c32_k64": ("fwd", 32, 32, 64, (112, 112), (3, 3), 1, 1, 1, 1),
    "fwd_s2": ("fwd", 32, 64, 128, (56, 56), (3, 3), 2, 1, 1, 1),
    "fwd_1x1_s2": ("fwd", 64, 256, 512, (28, 28), (1, 1), 2, 0, 1, 1),
    "fwd_1x1_expand": ("fwd", 64, 64, 256, (56, 56), (1, 1), 1, 0, 1, 1),
    "fwd_5x5": ("fwd", 32, 96, 96, (27, 27), (5, 5), 1, 2, 1, 1),
    "fwd_7x7": ("fwd", 16, 64, 64, (56, 56), (7, 7), 1, 3, 1, 1),
    "fwd_2x2_s2": ("fwd", 32, 96, 192, (56, 56), (2, 2), 2, 0, 1, 1),
    "fwd_s3": ("fwd", 32, 64, 64, (57, 57), (3, 3), 3, 0, 1, 1),
    "fwd_dil2": ("fwd", 16, 256, 256, (28, 28), (3, 3), 1, 2, 2, 1),
    "fwd_dil12": ("fwd", 4, 512, 256, (33, 33), (3, 3), 1, 12, 12, 1),
    "fwd_1x7": ("fwd", 32, 192, 192, (17, 17), (1, 7), 1, 0, 1, 1),
    "fwd_n1_7": ("fwd", 1, 512, 512, (7, 7), (3, 3), 1, 1, 1, 1),
    "fwd_n1_14": ("fwd", 1, 256, 256, (14, 14), (3, 3), 1, 1, 1, 1),
    "fwd_n1_56": ("fwd", 1, 64, 64, (56, 56), (3, 3), 1, 1, 1, 1),
    "fwd_n1_512": ("fwd", 1, 32, 32, (512, 512), (3, 3), 1, 1, 1, 1),
    "fwd_1d_k3": ("fwd", 32, 256, 256, (1024,), (3,), 1, 1, 1, 1),
    "fwd_1d_wave": ("fwd", 16, 1, 512, (16000,), (10,), 5, 0, 1, 1),
    "fwd_1d_s2": ("fwd", 16, 512, 512, (3199,), (3,), 2, 0, 1, 1),
    "fwd_3d": ("fwd", 4, 64, 64, (16, 56, 56), (3, 3, 3), 1, 1, 1, 1),
    "fwd_3d_c3": ("fwd", 4, 3, 64, (16, 112, 112), (3, 3, 3), 2, 1, 1, 1),
    # ResNet-50, VGG-16 and a U-Net.
    "net_512_128_1x1": ("fwd", 64, 512, 128, (28, 28), (1, 1), 1, 0, 1, 1),
    "net_128_512_1x1": ("fwd", 64, 128, 512, (28, 28), (1, 1), 1, 0, 1, 1),
    "net_1024_256_1x1": ("fwd", 64, 1024, 256, (14, 14), (1, 1), 1, 0, 1, 1),
    "net_512_2048_1x1": ("fwd", 64, 512, 2048, (7, 7), (1, 1), 1, 0, 1, 1),
    "net_2048_512_1x1": ("fwd", 64, 2048, 512, (7, 7), (1, 1), 1, 0, 1, 1),
    "net_256_512_1x1_s2": ("fwd", 64, 256, 512, (56, 56), (1, 1), 2, 0, 1, 1),
    "net_128_s2": ("fwd", 64, 128, 128, (56, 56), (3, 3), 2, 1, 1, 1),
    "net_512_s2": ("fwd", 64, 512, 512, (14, 14), (3, 3), 2, 1, 1, 1),
    "net_3_64_224": ("fwd", 16, 3, 64, (224, 224), (3, 3), 1, 1, 1, 1),
    "net_64_224": ("fwd", 16, 64, 64, (224, 224), (3, 3), 1, 1, 1, 1),
    "net_128_112": ("fwd", 16, 128, 128, (112, 112), (3, 3), 1, 1, 1, 1),
    "net_512_28": ("fwd", 16, 512, 512, (28, 28), (3, 3), 1, 1, 1, 1),
    "net_1024_32": ("fwd", 4, 1024, 512, (32, 32), (3, 3), 1, 1, 1, 1),
    "grouped_32x8": ("grouped", 32, 256, 256, (28, 28), (3, 3), 1, 1, 1, 32),
    "grouped_32x4": ("grouped", 32, 128, 128, (56, 56), (3, 3), 1, 1, 1, 32),
    "grouped_2": ("grouped", 32, 128, 128, (28, 28), (3, 3), 1, 1, 1, 2),
    "grouped_4x48_s2": ("grouped", 32, 192, 192, (28, 28), (3, 3), 2, 1, 1, 4),
    "depthwise_3": ("depthwise", 64, 128, 128, (56, 56), (3, 3), 1, 1, 1, 128),
    "depthwise_5": ("depthwise", 32, 240, 240, (28, 28), (5, 5), 1, 2, 1, 240),
    "depthwise_7": ("depthwise", 32, 96, 96, (56, 56), (7, 7), 1, 3, 1, 96),
    "depthwise_s2": ("depthwise", 32, 96, 96, (112, 112), (3, 3), 2, 1, 1, 96),
    "transpose_4_s2": ("transpose", 32, 64, 64, (28, 28), (4, 4), 2, 1, 1, 0),
    "transpose_3_s2": ("transpose", 32, 128, 64, (28, 28), (3, 3), 2, 1, 1, 1),
    "transpose_2_s2": ("transpose", 16, 256, 128, (32, 32), (2, 2), 2, 0, 1, 0),
    "grad_x_s1": ("grad_x", 32, 64, 64, (56, 56), (3, 3), 1, 1, 1, 1),
    "grad_x_s2": ("grad_x", 32, 128, 256, (28, 28), (3, 3), 2, 1, 1, 1),
    "grad_w": ("grad_w", 32, 64, 64, (56, 56), (3, 3), 1, 1, 1, 1),
    "grad_w_14": ("grad_w", 64, 256, 256, (14, 14), (3, 3), 1, 1, 1, 1),
    "grad_w_1x1": ("grad_w", 64, 256, 64, (56, 56), (1, 1), 1, 0, 1, 1),
    "grad_w_s2": ("grad_w", 32, 128, 256, (28, 28), (3, 3), 2, 1, 1, 1),
}
# Networks of other kinds, odd sizes and channels that are no powers of two, in the layout that is named; the last is the dtype.
NETS = {
    "convnext_stem": ("last", "fwd", 32, 3, 96, (224, 224), (4, 4), 4, 0, 1, 1, "f16"),
    "convnext_down": ("first", "fwd", 32, 192, 384, (28, 28), (2, 2), 2, 0, 1, 1, "f16"),
    "convnext_7x7": ("first", "depthwise", 32, 384, 384, (14, 14), (7, 7), 1, 3, 1, 384, "bf16"),
    "unet_up": ("first", "transpose", 4, 512, 256, (32, 32), (2, 2), 2, 0, 1, 0, "f16"),
    "unet_1024": ("first", "fwd", 4, 1024, 1024, (16, 16), (3, 3), 1, 1, 1, 1, "bf16"),
    "unet_320": ("last", "fwd", 2, 320, 320, (64, 64), (3, 3), 1, 1, 1, 1, "f16"),
    "unet_960": ("last", "fwd", 2, 960, 640, (32, 32), (3, 3), 1, 1, 1, 1, "bf16"),
    "vae_128": ("last", "fwd", 1, 128, 128, (256, 256), (3, 3), 1, 1, 1, 1, "bf16"),
    "vae_out": ("last", "fwd", 1, 128, 3, (256, 256), (3, 3), 1, 1, 1, 1, "f16"),
    "vae_s2": ("first", "fwd", 2, 128, 128, (128, 128), (3, 3), 2, 1, 1, 1, "f16"),
    "effnet_stem": ("first", "fwd", 64, 3, 40, (150, 150), (3, 3), 2, 1, 1, 1, "f16"),
    "effnet_1x1": ("last", "fwd", 64, 40, 240, (38, 38), (1, 1), 1, 0, 1, 1, "f16"),
    "effnet_squeeze": ("first", "fwd", 64, 672, 112, (14, 14), (1, 1), 1, 0, 1, 1, "f16"),
    "effnet_dw5": ("first", "depthwise", 64, 144, 144, (38, 38), (5, 5), 2, 2, 1, 144, "f16"),
    "resnet_first": ("first", "fwd", 64, 3, 64, (224, 224), (7, 7), 2, 3, 1, 1, "f16"),
    "resnet_14_first": ("first", "fwd", 64, 256, 256, (14, 14), (3, 3), 1, 1, 1, 1, "f16"),
    "resnet_7_first": ("first", "fwd", 64, 512, 512, (7, 7), (3, 3), 1, 1, 1, 1, "f16"),
    "prime_13": ("last", "fwd", 32, 67, 131, (13, 13), (3, 3), 1, 1, 1, 1, "f16"),
    "prime_55": ("first", "fwd", 16, 37, 53, (55, 55), (3, 3), 1, 1, 1, 1, "f16"),
    "odd_27": ("first", "fwd", 32, 96, 256, (27, 27), (5, 5), 1, 2, 1, 1, "f16"),
    "resnext_4x64": ("last", "grouped", 32, 256, 256, (28, 28), (3, 3), 1, 1, 1, 4, "f16"),
    "regnet_16": ("last", "grouped", 32, 224, 224, (28, 28), (3, 3), 1, 1, 1, 14, "f16"),
    "resnext_first": ("first", "grouped", 32, 256, 256, (28, 28), (3, 3), 1, 1, 1, 32, "f16"),
    "wavenet_1d": ("first", "fwd", 8, 128, 256, (8000,), (3,), 1, 8, 8, 1, "f16"),
    "audio_31": ("first", "fwd", 8, 256, 256, (4096,), (31,), 1, 15, 1, 1, "f16"),
    "video_133": ("last", "fwd", 2, 128, 128, (16, 28, 28), (3, 3, 3), 1, 1, 1, 1, "f16"),
    "video_first": ("first", "fwd", 2, 64, 64, (16, 28, 28), (3, 3, 3), 1, 1, 1, 1, "bf16"),
    "f32_last": ("last", "fwd", 32, 64, 64, (56, 56), (3, 3), 1, 1, 1, 1, "f32"),
    "f32_first": ("first", "fwd", 32, 128, 128, (28, 28), (3, 3), 1, 1, 1, 1, "f32"),
    "f32_1x1": ("first", "fwd", 32, 256, 64, (56, 56), (1, 1), 1, 0, 1, 1, "f32"),
    "f32_grad_w": ("first", "grad_w", 32, 64, 64, (28, 28), (3, 3), 1, 1, 1, 1, "f32"),
    "gx_s1_first": ("first", "grad_x", 32, 64, 64, (56, 56), (3, 3), 1, 1, 1, 1, "f16"),
    "gx_1x1_first": ("first", "grad_x", 32, 256, 64, (56, 56), (1, 1), 1, 0, 1, 1, "f16"),
    "gx_1x1_last": ("last", "grad_x", 32, 256, 64, (56, 56), (1, 1), 1, 0, 1, 1, "f16"),
    "gx_1x1_s2_last": ("last", "grad_x", 32, 256, 512, (28, 28), (1, 1), 2, 0, 1, 1, "f16"),
    "gx_odd_s2_last": ("last", "grad_x", 32, 128, 256, (27, 27), (3, 3), 2, 1, 1, 1, "f16"),
    "gx_7x7_last": ("last", "grad_x", 16, 64, 64, (56, 56), (7, 7), 1, 3, 1, 1, "f16"),
    "gx_5x5_s2_first": ("first", "grad_x", 16, 96, 192, (28, 28), (5, 5), 2, 2, 1, 1, "bf16"),
    "gw_1x1_first": ("first", "grad_w", 64, 256, 64, (56, 56), (1, 1), 1, 0, 1, 1, "f16"),
    "gw_s2_first": ("first", "grad_w", 32, 128, 256, (28, 28), (3, 3), 2, 1, 1, 1, "f16"),
    "gw_7x7_last": ("last", "grad_w", 16, 64, 64, (56, 56), (7, 7), 1, 3, 1, 1, "f16"),
    "gw_96_last": ("last", "grad_w", 32, 96, 96, (28, 28), (3, 3), 1, 1, 1, 1, "f16"),
    "gw_c3_last": ("last", "grad_w", 64, 3, 64, (112, 112), (7, 7), 2, 3, 1, 1, "f16"),
    "gw_14_first": ("first", "grad_w", 64, 256, 256, (14, 14), (3, 3), 1, 1, 1, 1, "f16"),
}
FIRST = ["fwd_c3_s2", "fwd_c17_k17", "fwd_s2", "fwd_1x1_expand", "fwd_7x7", "fwd_n1_14", "fwd_1d_k3", "fwd_3d", "grouped_32x8",
         "depthwise_3", "depthwise_7", "transpose_4_s2", "grad_x_s2", "grad_w"]
ALL = {f"last_{i}": ("last", *c) for i, c in CASES.items()} | {f"first_{i}": ("first", *CASES[i]) for i in FIRST}
ALL = {i: (*c, "f16") for i, c in ALL.items()} | {f"net_{i}": c for i, c in NETS.items()}
NAMES = {1: ["L"], 2: ["H", "W"], 3: ["D", "H", "W"]}
TAPS = {1: ["R"], 2: ["R", "S"], 3: ["A", "R", "S"]}
LIBRARY = {"fwd": "conv{}d", "grouped": "conv2d_grouped", "depthwise": "conv2d_depthwise", "transpose": "conv_transpose2d",
           "grad_x": "conv2d_grad_x", "grad_w": "conv2d_grad_w"}


def results(places, taps, st, pad, dil):
    return [(n + 2 * pad - dil * (r - 1) - 1) // st + 1 for n, r in zip(places, taps)]


def command(girih, what, case):
    """`girih WHAT` for a case."""
    layout, kind, n, c, f, places, taps, st, pad, dil, last, dt = case
    rank = len(places)
    dims = {"N": n, "C": c, "F": f} | dict(zip(NAMES[rank], places)) | dict(zip(TAPS[rank], taps))
    if kind == "depthwise":
        del dims["F"]
    if kind.startswith("grad"):
        dims |= dict(zip("PQ", results(places, taps, st, pad, dil)))
    consts = {"T": dt, "pad": pad}
    if layout == "last":
        path, op = os.path.join(HERE, "convs.tile"), kind + str(rank)
        consts["st"] = st
        names = {"fwd": ["dil"], "grouped": ["dil", "groups"], "depthwise": ["dil"], "transpose": ["more"]}
    else:
        path, op = os.path.join(HERE, "../../dsl/std/conv.tile"), LIBRARY[kind].format(rank)
        consts["stride"] = st
        names = {"fwd": ["dil"] if rank < 3 else [], "grouped": ["groups"], "transpose": ["outpad"]}
    consts |= {k: dil if k == "dil" else last for k in names.get(kind, [])}
    args = [f"--dim={k}={v}" for k, v in dims.items()] + [f"--const={k}={v}" for k, v in consts.items()]
    return [girih, *what, path, "--op", op, *args]


def ours(girih, case):
    p = subprocess.run(command(girih, ["bench"], case), capture_output=True, text=True)
    found = re.search(r"([\d.]+) us .*TFLOP/s\s+(\S+)", p.stdout)
    return (float(found[1]), found[2]) if found else (None, (p.stderr.strip().splitlines() or ["nothing"])[-1])


def peer(case):
    """What cuDNN does for a case, as a function without arguments."""
    import peers, torch
    import torch.nn.functional as F
    layout, kind, n, c, f, places, taps, st, pad, dil, last, dt = case
    rank = len(places)
    torch.backends.cudnn.benchmark = True
    # Ours are as good as f32 multiply-adds; PyTorch's default is not.
    torch.backends.cudnn.allow_tf32 = False
    lay = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}[rank]
    form = lay if layout == "last" else torch.contiguous_format
    groups = last if kind in ("grouped", "depthwise") else 1
    rand = lambda *s: peers.randn(*s, dt=dt).to(memory_format=form)
    x = rand(n, c, *places)
    if kind == "transpose":
        w = rand(c, f, *taps)
        return lambda: F.conv_transpose2d(x, w, stride=st, padding=pad, output_padding=last)
    w = rand(f, c // groups, *taps)
    if kind.startswith("grad"):
        dy = rand(n, f, *results(places, taps, st, pad, dil))
        mask = [kind == "grad_x", kind == "grad_w", False]
        back = torch.ops.aten.convolution_backward
        return lambda: back(dy, x, w, None, [st] * rank, [pad] * rank, [dil] * rank, False, [0] * rank, groups, mask)
    run = [F.conv1d, F.conv2d, F.conv3d][rank - 1]
    return lambda: run(x, w, stride=st, padding=pad, dilation=dil, groups=groups)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--girih", default="target/release/girih"); ap.add_argument("--only", default="")
    ap.add_argument("--part", default="0/1"); ap.add_argument("--warm", type=int, default=0); ap.add_argument("--out")
    ap.add_argument("--no-peer", action="store_true"); ap.add_argument("--peer-only", action="store_true")
    a = ap.parse_args()
    part, parts = map(int, a.part.split("/"))
    todo = [i for i in ALL if re.search(a.only, i)][part::parts]
    pool = concurrent.futures.ThreadPoolExecutor(max(1, a.warm))
    # Fills the cache of compiled kernels; these times are not kept.
    warm = a.warm and not a.peer_only
    list(pool.map(lambda i: ours(a.girih, ALL[i]), todo if warm else []))
    theirs = {}
    if not a.no_peer:
        import peers
        for i in todo:
            theirs[i] = peers.time_us(peer(ALL[i]), reps_ms=6, warm_ms=2)
            if a.peer_only:
                print(f"{i:28s} cudnn {theirs[i]:9.1f}", flush=True)
    out = open(a.out, "w") if a.out else None
    for i in todo if not a.peer_only else []:
        us, form = ours(a.girih, ALL[i])
        t = theirs.get(i)
        ratio = f"cudnn {t:9.1f} {t / us:6.2f}{' <' if t / us < 0.9 else ''}" if t and us else ""
        print(f"{i:28s} {us or 'failed'} {form} {ratio}", flush=True)
        if out:
            print(json.dumps({"id": i, "us": us, "form": form, "cudnn": t}), file=out, flush=True)


if __name__ == "__main__":
    main()
