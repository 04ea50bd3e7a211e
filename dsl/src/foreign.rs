//! What people write who come from Python, C or other array languages, and how it is written here: one table for each kind
//! of place. A row is the words, and the advice.

/// Words, and what to write.
type Row = (&'static [&'static str], &'static str);

fn find(rows: &[Row], word: &str) -> Option<&'static str> {
    rows.iter().find(|(words, _)| words.contains(&word)).map(|(_, advice)| *advice)
}

/// Dtypes by the names of other tools.
const DTYPES: &[(&[&str], &str)] = &[
    (&["float64", "double", "fp64", "f8"], "f64"),
    (&["float32", "float", "fp32", "single", "f4"], "f32"),
    (&["float16", "half", "fp16", "__half"], "f16"),
    (&["bfloat16", "bfloat", "__nv_bfloat16"], "bf16"),
    (&["fp8", "float8", "float8_e4m3", "float8_e4m3fn", "e4m3fn", "fp8e4m3", "fp8e4nv"], "e4m3"),
    (&["float8_e5m2", "fp8e5m2", "fp8e5"], "e5m2"),
    (&["int64", "long", "int64_t", "index", "size_t", "usize", "isize"], "i64"),
    (&["int32", "int", "int32_t", "integer", "uint32", "u32", "uint", "unsigned"], "i32"),
    (&["int16", "short", "int16_t", "uint16", "u16"], "i16"),
    (&["int8", "char", "int8_t"], "i8"),
    (&["uint8", "uint8_t", "byte"], "u8"),
    (&["int4"], "i4"),
    (&["uint4"], "u4"),
    (&["bool8", "boolean", "bool_", "Bool", "i1", "int1", "u1"], "bool"),
];

/// Words that stand for an array of any dtype.
const ARRAYS: &[&str] = &[
    "Tensor", "tensor", "Array", "array", "ndarray", "Buffer", "buffer", "ptr", "pointer", "matrix",
    "Matrix", "vector", "Vector", "list", "tuple", "scalar", "str", "string",
];

/// The dtype that is called otherwise elsewhere.
pub fn dtype(word: &str) -> Option<&'static str> {
    find(DTYPES, word)
}

/// Is it a word for a dtype, here or elsewhere?
pub fn is_like_a_dtype(word: &str) -> bool {
    let bits = word.trim_start_matches(['b', 'f', 'i', 'u', 'e', 'm']);
    let ours =
        bits.len() < word.len() && !bits.is_empty() && bits.chars().all(|c| c.is_ascii_digit() || c == 'm');
    ours || word == "bool" || dtype(word).is_some()
}

/// The help for an unknown dtype.
pub fn dtype_help(word: &str, known: &str) -> String {
    match dtype(word) {
        Some(ours) if word.starts_with('u') && !ours.starts_with('u') => {
            format!("there is no unsigned one of this width: write `{ours}`; the dtypes are {known}")
        }
        Some(ours) => format!("it is called `{ours}` here: write `{ours}`; the dtypes are {known}"),
        None if ARRAYS.contains(&word) => {
            format!("a tensor is its dtype with its dims, `x: f32[M, N]`; the dtypes are {known}")
        }
        None => format!("the dtypes are {known}"),
    }
}

/// Functions that are only called otherwise.
const FUNCTIONS: &[(&[&str], &str)] = &[
    (&["swish", "SiLU"], "silu"),
    (&["ReLU"], "relu"),
    (&["GELU"], "gelu"),
    (&["gelu_new", "gelu_fast", "gelu_approx", "quick_gelu"], "gelu_tanh"),
    (&["logistic", "expit", "sigm"], "sigmoid"),
    (&["ln", "log_e"], "log"),
    (&["absolute", "fabs", "mag"], "abs"),
    (&["sgn", "signum"], "sign"),
    (&["maximum", "fmax"], "max"),
    (&["minimum", "fmin"], "min"),
    (&["clip", "clamp_", "saturate", "bound"], "clamp"),
    (&["power"], "pow"),
    (&["inverse_sqrt", "inv_sqrt", "frsqrt", "invsqrt"], "rsqrt"),
    (&["arcsin"], "asin"),
    (&["arccos"], "acos"),
    (&["arctan"], "atan"),
    (&["arctan2"], "atan2"),
    (&["rint", "nearbyint", "roundeven"], "round"),
    (&["fix", "truncate"], "trunc"),
    (&["ceiling"], "ceil"),
    (&["ceil_div", "ceildiv", "div_up", "divup", "cdiv_"], "cdiv"),
    (&["is_nan"], "isnan"),
    (&["is_inf"], "isinf"),
    (&["is_finite"], "isfinite"),
    (&["rand", "random"], "uniform"),
    (&["randn", "gaussian"], "normal"),
    (&["randint"], "randbits"),
    (&["fused_multiply_add", "fmad", "mad"], "fma"),
    (&["bitcast"], "bits"),
    (&["total", "reduce_sum", "add_reduce"], "sum"),
    (&["amax", "reduce_max"], "max"),
    (&["amin", "reduce_min"], "min"),
    (&["average", "avg", "reduce_mean"], "mean"),
    (&["product"], "prod"),
    (&["log_sum_exp"], "logsumexp"),
    (&["cum_sum", "prefix_sum", "scan_add"], "cumsum"),
    (&["arg_max"], "argmax"),
    (&["arg_min"], "argmin"),
    (&["arg_sort"], "argsort"),
];

/// What a function is called here that is called `word` elsewhere: `swish`, `expf`, `__expf`.
pub fn renamed_function(word: &str, is_known: &dyn Fn(&str) -> bool) -> Option<String> {
    if let Some(ours) = find(FUNCTIONS, word) {
        return Some(ours.into());
    }
    let bare = word.trim_start_matches("__").trim_start_matches("fast_");
    let shorter = [bare, bare.strip_suffix('f').unwrap_or(bare), bare.strip_prefix('f').unwrap_or(bare)];
    let both = shorter[1].strip_prefix('f').unwrap_or(bare);
    let mut all = shorter.into_iter().chain([both]).filter(|w| *w != word);
    all.find_map(|w| find(FUNCTIONS, w).or(is_known(w).then_some(w)).map(String::from))
}

/// Members of arrays and modules elsewhere: the help for `x.shape`, `math.pi`.
const MEMBERS: &[Row] = &[
    (
        &["shape", "size", "len", "ndim", "numel", "dim"],
        "sizes have names, those of the op's `[M, N]`: write `N`",
    ),
    (&["T", "mT", "transpose", "permute", "t", "swapaxes"], "exchange the indices: `y[j, i] = x[i, j]`"),
    (
        &["astype", "to", "type", "half", "float", "double", "int", "bfloat16", "bool", "long", "cast"],
        "a dtype is written like a function: `f16(x[i])`, `i32(x[i])`",
    ),
    (&["reshape", "view", "flatten", "ravel"], "compute the indices: `y[k] = x[k / N, k % N]`"),
    (&["unsqueeze", "squeeze", "expand", "newaxis"], "leave the axis out where a tensor has none: `b[n]`"),
    (
        &["contiguous", "clone", "copy", "detach", "item", "cpu", "cuda", "data"],
        "leave it out: a tensor is read as it is, `x[i]`",
    ),
    (
        &[
            "sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin", "softmax", "cumsum",
            "argsort",
        ],
        "folds name their axes: `sum[k](x[k])`",
    ),
    (&["pi"], "it has no prefix: write `pi`"),
    (&["inf", "infty", "infinity"], "it has no prefix: write `inf`"),
    (&["nan"], "it has no prefix: write `nan`"),
    (&["e"], "write `exp(1.0)`"),
    (&["x", "y", "z"], "blocks and threads are the compiler's: `y[i] = …` speaks of every i"),
];

/// The help for a name after a dot.
pub fn member(word: &str) -> Option<&'static str> {
    find(MEMBERS, word)
}

/// Calls that have no function of that kind here: the help for `dot(a, b)`.
const CALLS: &[Row] = &[
    (
        &["dot", "matmul", "einsum", "mm", "bmm", "tensordot", "inner", "mma", "gemm"],
        "products are written out: `y[i, j] = sum[k](a[i, k] * b[k, j])`",
    ),
    (&["outer"], "write it out: `y[i, j] = a[i] * b[j]`"),
    (&["load", "store", "ldg"], "tensors are read by index, `x[i]`, and stored by statements, `y[i] = …`"),
    (
        &[
            "program_id",
            "thread_id",
            "block_id",
            "num_programs",
            "__syncthreads",
            "syncthreads",
            "barrier",
            "debug_barrier",
        ],
        "blocks and threads are the compiler's: `y[i] = …` speaks of every i, and a `tile` block says how they share the work",
    ),
    (
        &["arange", "linspace", "iota", "range", "indices", "meshgrid"],
        "an axis is its own value: `y[i] = i`, and a range is `i in 0..N`",
    ),
    (
        &[
            "zeros",
            "ones",
            "full",
            "empty",
            "zeros_like",
            "ones_like",
            "full_like",
            "empty_like",
            "alloc",
            "malloc",
        ],
        "nothing is allocated: define it, `y[i] = 0`",
    ),
    (&["transpose", "permute", "swapaxes", "trans"], "exchange the indices: `y[j, i] = x[i, j]`"),
    (&["reshape", "view", "flatten", "ravel"], "compute the indices: `y[k] = x[k / N, k % N]`"),
    (
        &["broadcast_to", "broadcast", "expand", "expand_dims", "unsqueeze", "squeeze", "repeat", "tile"],
        "leave the axis out where a tensor has none: `b[n]`",
    ),
    (
        &["concat", "concatenate", "cat", "stack", "hstack", "vstack"],
        "choose by index: `y[i] = if i < A then a[i] else b[i - A]`",
    ),
    (
        &["split", "chunk", "unbind"],
        "read each part by index: `a[m, n in 0..N/2] = x[m, n]`, `b[m, n in 0..N/2] = x[m, n + N/2]`",
    ),
    (&["sort", "sorted"], "read through the order: `order[j] = argsort[j](x[j])`, then `x[order[j]]`"),
    (&["topk"], "sort by `order[j] = argsort[j](-x[j])`, then read the first ones: `x[order[k]]`"),
    (&["std", "var"], "write it out: `mean[k]((x[k] - m) ** 2)` with `m = mean[k](x[k])` above"),
    (&["norm"], "write it out: `sqrt(sum[k](x[k] ** 2))`"),
    (&["square", "sqr"], "write `x ** 2`"),
    (&["cube"], "write `x ** 3`"),
    (&["reciprocal", "recip", "rcp", "__frcp_rn"], "write `1.0 / x`"),
    (&["mod", "fmod", "remainder"], "write `a % b`"),
    (
        &["divide", "true_divide", "floor_divide", "floordiv", "div", "fdiv"],
        "write `a / b`, which rounds integers down",
    ),
    (&["add"], "write `a + b`"),
    (&["sub", "subtract"], "write `a - b`"),
    (&["mul", "multiply"], "write `a * b`"),
    (&["neg", "negative"], "write `-a`"),
    (&["logical_and"], "write `a && b`"),
    (&["logical_or"], "write `a || b`"),
    (&["logical_not", "not"], "write `!`"),
    (
        &["select", "ifelse", "cond", "if_else", "iif", "where_", "ternary"],
        "a choice is written `if c then a else b`",
    ),
    (&["masked_fill"], "a choice is written `if mask[i] then v else x[i]`"),
    (&["len", "size", "numel", "shape"], "sizes have names, those of the op's `[M, N]`: write `N`"),
    (
        &["gather", "take", "index_select", "take_along_axis", "take_along_dim", "lookup"],
        "read by index: `y[t, d] = x[ids[t], d]`",
    ),
    (
        &["scatter", "scatter_add", "atomic_add", "atomicAdd", "index_add", "index_put"],
        "write an update: `y[ids[i]] += x[i]`",
    ),
    (&["atomic_max", "atomicMax", "scatter_max"], "write an update: `y[ids[i]] max= x[i]`"),
    (&["bincount", "histogram", "histc"], "write an update: `y[ids[i]] += 1` (its dim is a size of the op)"),
    (&["roll"], "compute the index: `y[i] = x[(i - 1) % N]`"),
    (&["flip", "reverse"], "compute the index: `y[i] = x[N - 1 - i]`"),
    (&["pad"], "give the read a default: `(x[i - 1] else 0)`"),
    (&["tril"], "choose by index: `y[i, j] = if j <= i then x[i, j] else 0`"),
    (&["triu"], "choose by index: `y[i, j] = if j >= i then x[i, j] else 0`"),
    (&["eye", "identity"], "choose by index: `y[i, j] = if i == j then 1 else 0`"),
    (&["one_hot"], "choose by index: `y[t, v] = if ids[t] == v then 1 else 0`"),
    (&["diag", "diagonal"], "read the diagonal: `y[i] = x[i, i]`"),
    (&["trace"], "sum the diagonal: `sum[i](x[i, i])`"),
    (
        &["assert", "static_assert", "check"],
        "what sizes must meet stands after the results: `where N % 4 == 0`",
    ),
    (
        &["print", "printf", "device_print"],
        "nothing is printed: make it a result, `-> (y: f32[N], t: f32[N])`",
    ),
    (&["logaddexp"], "write `max(a, b) + log1p(exp(-abs(a - b)))`"),
    (&["lerp"], "write `a + t * (b - a)`"),
    (&["hypot"], "write `sqrt(a * a + b * b)`"),
    (&["count_nonzero"], "write `sum[k](i32(x[k] != 0))`"),
    (&["nonzero", "unique", "compress"], "a result's dims are sizes: give a padded result and a count"),
    (&["map", "vmap", "vectorize", "apply"], "a statement speaks of every point: `y[i] = f(x[i])`"),
];

/// The help for a call of an array library.
pub fn function(word: &str) -> Option<String> {
    if let Some(help) = find(CALLS, word) {
        return Some(help.into());
    }
    dtype(word).map(|d| format!("casts are dtypes: write `{d}(x)`"))
}

/// Names of values elsewhere.
const VALUES: &[(&[&str], &str)] = &[
    (&["True", "TRUE"], "true"),
    (&["False", "FALSE"], "false"),
    (&["INFINITY", "Infinity", "infinity", "INF", "Inf", "HUGE_VAL", "infty"], "inf"),
    (&["NAN", "NaN", "Nan"], "nan"),
    (&["PI", "M_PI", "Pi"], "pi"),
];

const ABSENT: &[Row] = &[
    (
        &["None", "null", "NULL", "nullptr", "nil"],
        "a value is always there: write a number such as 0, or write two ops",
    ),
    (&["Ellipsis", "newaxis"], "every axis is written: `x[i, j]`"),
    (
        &["threadIdx", "blockIdx", "blockDim", "gridDim", "tid", "pid"],
        "blocks and threads are the compiler's: `y[i] = …` speaks of every i",
    ),
    (&["end"], "the last index is the size less one: write `N - 1`"),
    (&["self"], "an op has its parameters only: name it there, `x: f32[N]`"),
    (&["M_E"], "write `exp(1.0)`"),
    (&["FLT_MAX", "FLT_MIN", "FLT_EPSILON", "DBL_MAX"], "write the number, such as 3.4e38, or `inf`"),
    (&["lambda"], "functions stand beside the op: `fn f(x) = …`"),
];

/// The word for a value that is called otherwise elsewhere.
pub fn value(word: &str) -> Option<&'static str> {
    find(VALUES, word)
}

/// The help for a name of other languages that no value has here.
pub fn absent(word: &str) -> Option<&'static str> {
    find(ABSENT, word)
}

/// The folds and the maps along an axis that there are without any import.
const FOLDS: [&str; 16] = [
    "sum",
    "prod",
    "max",
    "min",
    "any",
    "all",
    "argmax",
    "argmin",
    "mean",
    "logsumexp",
    "softmax",
    "cumsum",
    "cumprod",
    "cummax",
    "cummin",
    "argsort",
];

/// Is it the name of a fold, or of a map along an axis?
pub fn is_fold(word: &str) -> bool {
    FOLDS.contains(&word)
}

/// Operators that are words elsewhere.
const OPERATORS: &[(&[&str], &str)] =
    &[(&["and"], "&&"), (&["or"], "||"), (&["not"], "!"), (&["is"], "=="), (&["xor"], "^"), (&["mod"], "%")];

/// The operator that is a word elsewhere.
pub fn operator(word: &str) -> Option<&'static str> {
    find(OPERATORS, word)
}

/// Words that start a statement in other languages.
const STATEMENTS: &[Row] = &[
    (&["for"], "axes take the place of loops: `y[i] = …` defines y for every i, `sum[k](…)` runs over k"),
    (
        &["while", "loop", "do"],
        "a recurrence has a fixed length: `h: f32[t in 0..T] = if … then … else (h[t-1] else h0)`",
    ),
    (&["return", "yield"], "results are named in `-> (y: f32[N])` and defined by `y[i] = …`"),
    (
        &["let", "var", "val", "auto", "mut", "local", "global", "set"],
        "a definition needs no word before its name: `t[i] = …`",
    ),
    (
        &["const", "constexpr", "static"],
        "inside an op a definition needs no word: `t = 3.0`; a `const` stands beside the op",
    ),
    (
        &["shared", "__shared__"],
        "memory is the compiler's: define a local, `t[i] = …`, and `tile` blocks may say `store = {t}`",
    ),
    (&["def", "fn", "func", "function"], "functions stand beside the op: `fn f(x) = …`"),
    (&["pass", "break", "continue"], "statements are definitions: `y[i] = …`"),
    (&["print", "printf"], "nothing is printed: make it a result, `-> (y: f32[N], t: f32[N])`"),
    (&["assert"], "what sizes must meet stands after the results: `where N % 4 == 0`"),
    (&["import", "from", "using"], "`import nn` stands at the top of the file"),
    (
        &["with", "try", "switch", "match", "case"],
        "statements are definitions, a choice is `if c then a else b`",
    ),
];

/// Is it a word that starts a statement in other languages?
pub fn is_statement(word: &str) -> bool {
    statement(word).is_some()
}

/// The help for a word that starts a statement in other languages.
pub fn statement(word: &str) -> Option<&'static str> {
    find(STATEMENTS, word).or(is_like_a_dtype(word).then_some(
        "a definition needs no word before its name; its dtype, if it is to be rounded, comes after it: `t: f32[i] = …`",
    ))
}

/// Words that start an item in other languages.
const ITEMS: &[Row] = &[
    (
        &[
            "def",
            "func",
            "function",
            "kernel",
            "void",
            "struct",
            "class",
            "__global__",
            "template",
            "pub",
            "proc",
            "async",
            "extern",
        ],
        "an operator is written `op name[N](x: f32[N]) -> (y: f32[N]) { … }`",
    ),
    (&["let", "var", "static", "constexpr"], "a constant is written `const name = …`"),
    (&["from"], "`import nn` brings all its names; functions such as exp need no import"),
    (&["as"], "a library keeps its name: write `import nn` alone; functions such as exp need no import"),
    (
        &["where"],
        "conditions on sizes stand before the `{` of the op: `-> (y: f32[N]) where N % 4 == 0 { … }`",
    ),
    (&["return"], "results are named in `-> (y: f32[N])` and defined by `y[i] = …`"),
    (&["schedule", "autotune", "config"], "a schedule is written `tile name { block m = 128 }`"),
];

/// The help for a word that starts an item in other languages.
pub fn item(word: &str) -> Option<&'static str> {
    find(ITEMS, word)
}

/// Libraries of other languages.
const LIBRARIES: &[&str] = &[
    "torch",
    "numpy",
    "np",
    "math",
    "triton",
    "tl",
    "jax",
    "jnp",
    "cuda",
    "cupy",
    "cp",
    "tf",
    "tensorflow",
    "F",
    "scipy",
    "sp",
    "numba",
    "cute",
    "std",
];

/// Is it a library of another language?
pub fn is_library(word: &str) -> bool {
    LIBRARIES.contains(&word)
}

/// Words before a parameter's name elsewhere.
const PARAMETERS: &[Row] = &[
    (
        &["out", "output", "ref", "mut", "result"],
        "what an op gives stands after it, `-> (y: f32[N])`; what it changes is `inout y: f32[N]`",
    ),
    (&["const", "constexpr", "static"], "the word stands before the dtype: `k: const i32 = 4`"),
    (
        &["tensor", "var", "input", "global", "device"],
        "a parameter needs no word before its name: `x: f32[N]`",
    ),
];

/// The help for a word before the name of a parameter.
pub fn parameter(word: &str) -> Option<&'static str> {
    find(PARAMETERS, word)
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
