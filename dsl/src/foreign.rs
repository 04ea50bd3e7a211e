//! What people write who come from Python, C or other array languages, and how it is written here.

/// Members of arrays elsewhere: the help for `x.shape`.
pub fn member(word: &str) -> Option<&'static str> {
    Some(match word {
        "shape" | "size" | "len" => "sizes have names, those of the op's `[M, N]`: write `N`",
        "T" | "mT" | "transpose" | "permute" | "t" => "exchange the indices: `y[j, i] = x[i, j]`",
        "astype" | "to" | "type" | "half" | "float" | "double" | "int" => {
            "a dtype is written like a function: `f16(x[i])`, `i32(x[i])`"
        }
        "reshape" | "view" | "flatten" => "compute the indices: `y[k] = x[k / N, k % N]`",
        "sum" | "mean" | "max" | "min" | "prod" | "any" | "all" | "argmax" | "argmin" | "softmax" => {
            "folds name their axes: `sum[k](x[k])`"
        }
        _ => return None,
    })
}

/// Functions of array libraries elsewhere: the help for `dot(a, b)`.
pub fn function(word: &str) -> Option<&'static str> {
    Some(match word {
        "dot" | "matmul" | "einsum" | "mm" | "bmm" | "tensordot" | "inner" => {
            "products are written out: `y[i, j] = sum[k](a[i, k] * b[k, j])`"
        }
        "load" | "store" => "tensors are read by index, `x[i]`, and stored by statements, `y[i] = …`",
        "program_id" | "thread_id" | "block_id" | "num_programs" => {
            "blocks and threads are the compiler's: `y[i] = …` speaks of every i, and a `tile` block says how they share the work"
        }
        "arange" | "linspace" | "iota" | "range" => {
            "an axis is its own value: `y[i] = i`, and a range is `i in 0..N`"
        }
        "zeros" | "ones" | "full" | "empty" | "zeros_like" | "ones_like" | "full_like" => {
            "nothing is allocated: define it, `y[i] = 0`"
        }
        "transpose" | "permute" | "swapaxes" => "exchange the indices: `y[j, i] = x[i, j]`",
        "reshape" | "view" | "flatten" | "ravel" => "compute the indices: `y[k] = x[k / N, k % N]`",
        "broadcast_to" | "expand" | "expand_dims" | "unsqueeze" | "squeeze" => {
            "leave the axis out where a tensor has none: `b[n]`"
        }
        "concat" | "concatenate" | "cat" | "stack" => {
            "choose by index: `y[i] = if i < A then a[i] else b[i - A]`"
        }
        "sort" | "sorted" => "read through the order: `order[j] = argsort[j](x[j])`, then `x[order[j]]`",
        "topk" => "sort by `order[j] = argsort[j](-x[j])`, then read the first ones: `x[order[k]]`",
        "std" | "var" => "write it out: `mean[k]((x[k] - m) ** 2)` with `m = mean[k](x[k])` above",
        "maximum" => "of two numbers: `max(a, b)`",
        "minimum" => "of two numbers: `min(a, b)`",
        "power" => "write `a ** b`",
        "clip" => "write `clamp(x, lo, hi)`",
        "not" => "write `!`",
        "float" => "casts are dtypes: `f32(x)`",
        "int" => "casts are dtypes: `i32(x)`",
        _ => return None,
    })
}

/// Settings by the names of other tools.
pub fn setting(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    Some(match word.as_str() {
        "num_warps" => "write `warps = 4`",
        "num_stages" | "pipeline" => "write `stages = 3`",
        "num_threads" | "blockdim" | "block_dim" => "write `threads = 256`",
        "num_ctas" => "write `cluster m = 2`",
        "group_m" | "group_size_m" => "write `order = swizzle(8)`",
        "split_k" => "write `split k = 4`",
        w if w.starts_with("block_") || w.starts_with("tile_") || w == "tile" => {
            "tiles are written with the op's axes: `block m = 128, n = 64`, and `step k = 32` for an axis that is summed"
        }
        _ => return None,
    })
}
