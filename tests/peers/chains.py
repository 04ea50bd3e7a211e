#!/usr/bin/env python3
"""Chains of operators (KernelBench, level 2, as lists of operators and sizes), f32, channels first: ours beside PyTorch, eager.

    python3 chains.py plan|check|time --girih target/release/girih [--only REGEX]

`plan` prints the kernels of each at its size, `check` compares with the definition on the simulator at small odd sizes, `time` times
both on a GPU: PyTorch with its products in f32 and, as `tf32`, with tensor cores; ours as `girih bench` does, with a cold L2.
"""
import argparse, os, re, subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TILE = os.path.join(HERE, "chains.tile")

# id, op, sizes, the same in PyTorch (x, w, b … are the op's parameters)
CASES = [
    ("L2-1", "c1", {'N': 128, 'C': 64, 'H': 128, 'W': 128, 'F': 128},
     'torch.relu(F.conv2d(x,w,b))+e[:,None,None]'),
    ("L2-3", "c3", {'N': 32, 'C': 32, 'D': 16, 'H': 32, 'W': 32, 'F': 64},
     'F.gelu(F.avg_pool3d(F.layer_norm(F.conv_transpose3d(x,w,b,2,1,1)+1.0,(g.shape[0],),g,h),2))'),
    ("L2-5", "c5", {'N': 32, 'C': 64, 'H': 256, 'W': 256, 'F': 64},
     'torch.tanh(F.conv_transpose2d(x,w,b,2)-e[:,None,None])'),
    ("L2-7", "c7", {'N': 64, 'C': 8, 'D': 32, 'H': 64, 'W': 64, 'F': 32},
     'torch.sigmoid(F.gelu(F.leaky_relu(torch.relu(F.conv3d(x,w,b)),.01)))+e[:,None,None,None]'),
    ("L2-9", "c9", {'M': 1024, 'N': 8192, 'K': 8192},
     'torch.relu((F.linear(x,w,b)-2.0)*1.5)'),
    ("L2-11", "c11", {'N': 512, 'C': 64, 'H': 32, 'W': 32, 'F': 128},
     'F.group_norm(F.max_pool2d(torch.tanh(F.batch_norm(F.conv_transpose2d(x,w,b,1,1),None,None,g,h,True)),2),8,g2,h2)'),
    ("L2-13", "c13", {'N': 16, 'C': 16, 'D': 32, 'H': 128, 'W': 128, 'F': 64},
     'torch.tanh(torch.softmax(F.conv_transpose3d(x,w,b,1,1).mean(2)+e[:,None,None],1))*2.0'),
    ("L2-15", "c15", {'N': 16, 'C': 16, 'D': 16, 'H': 32, 'W': 32, 'F': 32},
     '(lambda t:t-t.mean((2,3,4),keepdim=True))(F.batch_norm(F.conv_transpose3d(x,w,b,2,1),None,None,g,h,True))'),
    ("L2-17", "c17", {'N': 128, 'C': 64, 'H': 128, 'W': 128, 'F': 128},
     'F.instance_norm(F.conv2d(x,w,b))/2.0'),
    ("L2-18", "c18", {'M': 1024, 'N': 8192, 'K': 8192},
     'torch.logsumexp(torch.logsumexp(F.linear(x,w,b).sum(1,keepdim=True).max(1,keepdim=True)[0].mean(1,keepdim=True),1,keepdim=True),1,keepdim=True)'),
    ("L2-19", "c19", {'N': 128, 'C': 64, 'H': 256, 'W': 256, 'F': 64},
     'F.group_norm(F.gelu(F.conv_transpose2d(x,w,b)),8,g,h)'),
    ("L2-21", "c21", {'N': 128, 'C': 8, 'H': 256, 'W': 256, 'F': 32},
     'F.group_norm(torch.sigmoid((F.conv2d(x,w,b)+e[:,None,None])*s[:,None,None]),8,g,h)'),
    ("L2-23", "c23", {'N': 128, 'C': 3, 'D': 24, 'H': 32, 'W': 32, 'F': 24},
     'F.group_norm(F.conv3d(x,w,b),8,g,h).mean((1,2,3,4))'),
    ("L2-25", "c25", {'N': 128, 'C': 16, 'H': 256, 'W': 256, 'F': 64},
     'torch.tanh(torch.tanh(torch.min(F.conv2d(x,w,b),1,keepdim=True)[0]))'),
    ("L2-27", "c27", {'N': 1024, 'C': 3, 'D': 16, 'H': 32, 'W': 32, 'F': 16},
     'F.group_norm(F.hardswish(F.conv3d(x,w,b)),4,g,h).mean((2,3,4))'),
    ("L2-29", "c29", {'M': 1024, 'N': 8192, 'K': 8192},
     'F.mish(F.mish(F.linear(x,w,b)))'),
    ("L2-31", "c31", {'N': 128, 'C': 64, 'H': 128, 'W': 128, 'F': 128},
     '(torch.clamp(F.conv2d(x,w,b),max=.5)+e[:,None,None])*2.0'),
    ("L2-33", "c33", {'M': 1024, 'N': 8192, 'K': 8192},
     'F.batch_norm(F.linear(x,w,b)*s,None,None,g,h,True)'),
    ("L2-35", "c35", {'N': 128, 'C': 64, 'H': 128, 'W': 128, 'F': 128},
     'F.mish(F.max_pool2d(F.hardswish(F.conv2d(x,w,b)-.5),2))'),
    ("L2-37", "c37", {'M': 32768, 'N': 4096, 'K': 1024},
     'F.group_norm(F.silu(F.linear(x,w,b))+e,64,g,h)'),
    ("L2-39", "c33", {'M': 16384, 'N': 4096, 'K': 4096},
     'F.batch_norm(F.linear(x,w,b)*s,None,None,g,h,True)'),
    ("L2-41", "c41", {'M': 16384, 'N': 4096, 'K': 4096},
     'torch.relu(F.gelu(F.batch_norm(F.linear(x,w,b),None,None,g,h,True)))'),
    ("L2-43", "c43", {'N': 4, 'C': 32, 'D': 32, 'H': 128, 'W': 128, 'F': 64},
     'torch.relu(torch.logsumexp(F.max_pool3d(F.conv3d(x,w,b,1,1),2),1,keepdim=True))'),
    ("L2-45", "c45", {'M': 16384, 'K': 2048, 'H': 4096, 'N': 1024},
     'torch.logsumexp(F.linear(torch.sigmoid(F.linear(x,w1,b1)),w2,b2),1)'),
    ("L2-47", "c47", {'N': 16, 'C': 32, 'D': 32, 'H': 64, 'W': 64, 'F': 64},
     'torch.tanh(F.mish(F.conv3d(x,w,b)))'),
    ("L2-49", "c49", {'N': 16, 'C': 32, 'D': 16, 'H': 32, 'W': 32, 'F': 64},
     'torch.sigmoid(torch.softmax(F.conv_transpose3d(x,w,b,2,1,1),1))'),
    ("L2-51", "c51", {'M': 2048, 'N': 8192, 'K': 8192},
     'F.gelu(torch.logsumexp((F.linear(x,w,b)-s).mean(1,keepdim=True),1,keepdim=True))+x'),
    ("L2-53", "c53", {'M': 2048, 'N': 8192, 'K': 8192},
     'F.gelu(F.hardtanh(F.linear(x,w,b)*.5,-2.,2.))'),
    ("L2-55", "c55", {'M': 128, 'N': 32768, 'K': 32768},
     'F.max_pool1d(F.linear(x,w,b).unsqueeze(1),2).squeeze(1).sum(1)*.5'),
    ("L2-57", "c57", {'N': 128, 'C': 8, 'H': 128, 'W': 128, 'F': 64},
     '(lambda t:t*torch.clamp((t+3)/6,0,1))(torch.relu(F.conv2d(x,w,b)))'),
    ("L2-59", "c59", {'M': 128, 'N': 32768, 'K': 32768},
     '(lambda t:t*torch.sigmoid(t)*2.0)(F.linear(x,w,b))'),
    ("L2-61", "c61", {'N': 16, 'C': 64, 'D': 32, 'H': 32, 'W': 32, 'F': 128},
     'F.group_norm(torch.relu(F.conv_transpose3d(x,w)),8,g,h)'),
    ("L2-63", "c63", {'M': 1024, 'N': 8192, 'K': 8192},
     'torch.relu(F.linear(x,w,b))/2.0'),
    ("L2-65", "c65", {'N': 128, 'C': 8, 'H': 384, 'W': 384, 'F': 64},
     'torch.sigmoid(F.avg_pool2d(F.conv2d(x,w,b),4)).sum((1,2,3))'),
    ("L2-67", "c67", {'N': 128, 'C': 8, 'H': 256, 'W': 256, 'F': 64},
     'F.adaptive_avg_pool2d(F.gelu(F.conv2d(x,w,b)),1).squeeze(-1).squeeze(-1)'),
    ("L2-69", "c69", {'N': 128, 'C': 8, 'H': 128, 'W': 128, 'F': 64},
     'torch.relu(F.hardswish(F.conv2d(x,w,b)))'),
    ("L2-71", "c71", {'N': 128, 'C': 8, 'H': 128, 'W': 128, 'F': 64},
     'F.leaky_relu(F.conv2d(x,w,b)/2.0,.01)'),
    ("L2-73", "c73", {'N': 128, 'C': 8, 'H': 128, 'W': 128, 'F': 64},
     'F.batch_norm(F.conv2d(x,w,b),None,None,g,h,True)*2.0'),
    ("L2-75", "c75", {'M': 1024, 'N': 8192, 'K': 8192},
     'torch.min(F.group_norm(F.linear(x,w,b),512,g,h),1,keepdim=True)[0]+e[None,:,None,None]'),
    ("L2-77", "c77", {'N': 16, 'C': 64, 'D': 16, 'H': 32, 'W': 32, 'F': 128},
     'F.adaptive_avg_pool3d(F.batch_norm(F.conv_transpose3d(x,w,b)*2.0,None,None,g,h,True),1)'),
    ("L2-79", "c79", {'N': 128, 'C': 3, 'D': 16, 'H': 32, 'W': 32, 'F': 16},
     'torch.max(torch.clamp(F.instance_norm(F.conv3d(x,w,b)*k[:,None,None,None]),-1,1)*k[:,None,None,None],1)[0]'),
    ("L2-80", "c80", {'M': 1024, 'N': 8192, 'K': 8192},
     '(lambda t:F.gelu(t-t.mean(1,keepdim=True)))(F.linear(x,w,b).max(1,keepdim=True)[0])'),
    ("L2-81", "c81", {'M': 1024, 'N': 8192, 'K': 8192},
     'torch.clamp(torch.tanh(torch.clamp((lambda t:t*torch.sigmoid(t))(F.linear(x,w,b))/2,-1,1)),-1,1)'),
    ("L2-83", "c83", {'N': 128, 'C': 3, 'D': 16, 'H': 64, 'W': 64, 'F': 16},
     "F.dropout(torch.clamp(torch.min(F.group_norm(F.conv3d(x,w,b),8,g,h),torch.zeros((),device='cuda')),0,1),.2)"),
    ("L2-85", "c85", {'N': 128, 'C': 8, 'H': 128, 'W': 128, 'F': 64},
     'torch.clamp(F.max_pool2d(F.group_norm(F.conv2d(x,w,b),16,g,h)*s[:,None,None],4),0,1)'),
    ("L2-87", "c87", {'N': 128, 'C': 8, 'H': 256, 'W': 256, 'F': 64},
     'F.mish(F.conv2d(x,w,b)-.5-.2)'),
    ("L2-89", "c89", {'N': 128, 'C': 3, 'D': 16, 'H': 32, 'W': 32, 'F': 16},
     'torch.max(F.silu(torch.softmax(F.max_pool3d(F.conv_transpose3d(x,w,b,2,1,1),2),1)-s[:,None,None,None]),1)[0]'),
    ("L2-91", "c91", {'N': 128, 'C': 64, 'H': 64, 'W': 64, 'F': 128},
     'torch.sigmoid((torch.softmax(F.conv_transpose2d(x,w,b,2,1,1),1)+e[:,None,None])*2.0)'),
    ("L2-93", "c93", {'N': 128, 'C': 64, 'H': 64, 'W': 64, 'F': 128},
     "F.gelu(torch.min(F.conv_transpose2d(x,w,b,2)+.5,torch.zeros((),device='cuda')))*2.0"),
    ("L2-95", "c95", {'M': 1024, 'N': 8192, 'K': 8192},
     'F.hardtanh(F.gelu(torch.tanh((lambda t:torch.sigmoid(t)*t)(F.linear(x,w,b)+e))),-1,1)'),
    ("L2-97", "c97", {'M': 1024, 'N': 8192, 'K': 8192},
     '(lambda t:t*torch.sigmoid(t))((F.batch_norm(F.linear(x,w,b),None,None,g,h,True)+.1)/2.0)'),
    ("L2-99", "c99", {'M': 1024, 'N': 8192, 'K': 8192},
     'torch.softmax(F.gelu(F.linear(x,w,b)),1)'),
    ("L3-mlp", "mlp", {'M': 128, 'A': 16384, 'B': 16384, 'C': 16384, 'D': 8192},
     'F.linear(torch.relu(F.linear(torch.relu(F.linear(x,w1,b1)),w2,b2)),w3,b3)'),
    ("u14", "u14", {'M': 1024, 'N': 8192, 'K': 8192},
     '(x@w.T/2).sum(1,keepdim=True)*1.5'),
    ("u22", "u22", {'M': 1024, 'N': 8192, 'K': 8192},
     '(lambda t:t*F.mish(t))(torch.logsumexp(torch.clamp(F.linear(x,w,b)*4.0,-10,10),1,keepdim=True))'),
    ("u6", "u6", {'N': 128, 'C': 3, 'D': 16, 'H': 32, 'W': 32, 'F': 16},
     'F.max_pool3d(F.max_pool3d(torch.softmax(F.conv3d(x,w,b),1),2),2)'),
    ("u8", "u8_", {'N': 128, 'C': 8, 'D': 16, 'H': 64, 'W': 64, 'F': 16},
     '(F.adaptive_avg_pool3d(F.max_pool3d(F.conv3d(x,w,b)/2.0,2),1)+e[:,None,None,None]).sum(1)'),
    ("u24", "u24", {'N': 128, 'C': 3, 'D': 24, 'H': 32, 'W': 32, 'F': 24},
     'torch.softmax(torch.min(F.conv3d(x,w,b),2)[0],1)'),
    ("u42", "u42", {'N': 16, 'C': 64, 'H': 512, 'W': 512, 'F': 128},
     'torch.logsumexp(F.conv_transpose2d(x,w,b).mean((2,3))+e,1)*10'),
    ("u92", "u92", {'N': 128, 'C': 8, 'H': 128, 'W': 128, 'F': 64},
     '(lambda c:torch.logsumexp(c+F.hardswish(torch.tanh(F.group_norm(c,16,g,h))),1,keepdim=True))(F.conv2d(x,w,b))'),
    ("u98", "u98", {'M': 1024, 'N': 8192, 'K': 8192},
     '(F.gelu(F.avg_pool1d(F.linear(x,w,b).unsqueeze(1),16).squeeze(1))*2.0).max(1)[0]'),
    ("u34", "u34", {'N': 32, 'C': 32, 'D': 16, 'H': 32, 'W': 32, 'F': 64},
     'F.gelu(F.layer_norm(F.conv_transpose3d(x,w,b,2,1),(g.shape[0],),g,h))*2.0'),
    ("u28", "u28", {'M': 1024, 'N': 8192, 'K': 8192},
     '(lambda t:(t+r)*r)(F.layer_norm(F.linear(x,w,b),(r.shape[1],)))'),
]


def shapes(op, dims):
    """Names and shapes of an op's tensors, from its text."""
    with open(TILE) as f:
        text = re.search(rf"^op {op}\[[^\]]*\]\s*\((.*?)\)\s*->", f.read(), re.M | re.S).group(1)
    found = re.findall(r"(\w+): f32\[([^\]]*)\]", text)
    return {name: [eval(d, dict(dims)) for d in shape.split(",")] for name, shape in found}


def arguments(op, dims):
    given = [f"--dim={n}={v}" for n, v in dims.items()]
    return [TILE, "--op", op, *given] + (["--const", "seed=7"] if op == "c83" else [])


def small(op, dims, n):
    """Sizes that divide nothing; groups have to divide their channels."""
    if "A" in dims:
        return {"M": 9 + n, "A": 35, "B": 40, "C": 33, "D": 20}
    columns = {"c75": 1024, "c37": 128, "u98": 64}.get(op, [67, 128, 512][n])
    channels = 16 if op in ("c85", "u92") else [16, 8, 24][n]
    if "K" in dims:
        sizes = {"M": 19, "N": columns, "K": 37, "H": 70}
    else:
        sizes = {"N": 2, "C": 3, "D": 6, "H": [7, 10, 9][n], "W": [12, 9, 16][n], "F": channels}
    return {k: v for k, v in sizes.items() if k in dims}


def run(girih, *args, limit=600):
    r = subprocess.run([girih, *args], capture_output=True, text=True, timeout=limit)
    return r.returncode, r.stdout + r.stderr


def plan(girih, name, op, dims, _):
    _, text = run(girih, "why", *arguments(op, dims))
    lines = text.splitlines() or [""]
    kernels = [m.group(1) for m in (re.match(r"\d+ (\S+ \(\w+\))", l) for l in lines) if m]
    print(name, op, lines[0], "|", ", ".join(kernels), flush=True)


def check(girih, name, op, dims, _):
    for n in range(3):
        sizes = small(op, dims, n)
        rc, text = run(girih, "run", *arguments(op, sizes), "--device", "sim", "--check")
        said = [l.strip() for l in text.splitlines() if "check" in l or "error" in l]
        print("ok  " if rc == 0 else "FAIL", name, op, sizes, said or text[-300:], flush=True)


def torch_times(op, dims, text):
    import torch
    import torch.nn.functional as F

    given = {n: torch.randn(s, device="cuda") * 0.1 for n, s in shapes(op, dims).items()}
    names = {"torch": torch, "F": F, "G": 4 if op == "c27" else 8, **given}

    def once():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y = eval(text, names)
        end.record()
        torch.cuda.synchronize()
        del y
        return start.elapsed_time(end) * 1e3

    found = {}
    for tf32, key in [(False, "torch"), (True, "tf32")]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        once()
        found[key] = sorted(once() for _ in range(3))[1]
    return found


def time(girih, name, op, dims, text):
    import torch

    try:
        found = torch_times(op, dims, text)
    except RuntimeError as e:
        found = {"peer": str(e)[:80]}
    torch.cuda.empty_cache()
    _, said = run(girih, "bench", *arguments(op, dims), "--no-check", limit=60)
    ours = re.search(r"([\d.]+) us .*?TFLOP/s +(.*)", said)
    if not ours:
        print(name, op, found, said[-300:], flush=True)
        return
    us = float(ours.group(1))
    ratio = f"{found['torch'] / us:.2f}" if "torch" in found else "-"
    peers = " ".join(f"{k} {v:.0f}" if isinstance(v, float) else v for k, v in found.items())
    print(f"{name} {op} ours {us:.0f} us, {peers}; {ratio} times PyTorch's speed; {ours.group(2)}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("mode", choices=["plan", "check", "time"])
    p.add_argument("--girih", default="girih")
    p.add_argument("--only", default=".")
    a = p.parse_args()
    for case in CASES:
        if re.search(a.only, case[0]):
            {"plan": plan, "check": check, "time": time}[a.mode](a.girih, *case)
