//! E00xx: text and grammar.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0001",
        title: "file too long",
        text: "A `.tile` file may have 16 MiB. Split a longer one and import the parts:

    import \"layers.tile\"
    import \"losses.tile\"
",
    },
    Code {
        code: "E0002",
        title: "character without a meaning",
        text: "The text has a character that no word of the language starts with. Names may use any letters of Unicode; operators and
brackets are ASCII. Statements need no separator, so there is no `;`. A byte order mark is refused: save the file as
plain UTF-8.

wrong:
    y[i] = x[i] × 2;

right:
    y[i] = x[i] * 2
",
    },
    Code {
        code: "E0003",
        title: "text without its closing quote",
        text: "Texts stand only after `import`, between two `\"` on one line.

wrong:
    import \"layers.tile

right:
    import \"layers.tile\"
",
    },
    Code {
        code: "E0004",
        title: "malformed number",
        text: "A float has digits on both sides of its point, so that `0..N` needs no spaces. Numbers take no suffix: the type of a
literal comes from what it meets, and a cast gives any other. Exponents are decimal digits with a sign or none.

wrong:
    y[i] = .5 * x[i] + 1. + 2f32

right:
    y[i] = 0.5 * x[i] + 1.0 + 2.0
",
    },
    Code {
        code: "E0005",
        title: "unexpected word",
        text: "The grammar expects something else here. The message names what was found and what may stand there. White space only
separates words, so the true cause may stand a little before: an operator without its operand, for example.

wrong:
    y[i] = x[i] +
    z[i] = x[i]

right:
    y[i] = x[i] + 1
    z[i] = x[i]
",
    },
    Code {
        code: "E0006",
        title: "bracket not closed, or closed by another",
        text: "Each `(`, `[` and `{` is closed by its own partner. The message shows where the bracket was opened.

wrong:
    y[i] = (x[i] + 1
    z[i] = x[i]]

right:
    y[i] = (x[i] + 1)
    z[i] = x[i]
",
    },
    Code {
        code: "E0007",
        title: "reserved word as a name",
        text: "The words `if then else where in inout true false inf nan pi` are never names. All other words are: a tensor may be
called `op`, `max`, `for` or `int`.

wrong:
    op f[N](in: f32[N]) -> (y: f32[N]) { y[i] = in[i] }

right:
    op f[N](x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }
",
    },
    Code {
        code: "E0008",
        title: "operator or construct of another language",
        text: "The text uses a spelling that other languages have. The message says how it is written here: `&&` for `and`, `||` for
`or`, `!` for `not`, `**` for powers, `//` starts a comment (integer `/` rounds down already), `if c then a else b` for
`c ? a : b`, `x[i] = x[i] - e` for `-=`.

wrong:
    y[i] = x[i] > 0 and x[i] < 1 ? 1.0 : 0.0

right:
    y[i] = if x[i] > 0 && x[i] < 1 then 1.0 else 0.0
",
    },
    Code {
        code: "E0009",
        title: "`if` inside an operand",
        text: "`if c then a else b` reaches as far as it can. As an operand of an operator it stands in parentheses, so that the reader
sees where it ends.

wrong:
    y[i] = 1 + if x[i] > 0 then x[i] else 0

right:
    y[i] = 1 + (if x[i] > 0 then x[i] else 0)
",
    },
    Code {
        code: "E0010",
        title: "`else` after something that is not one read",
        text: "`(x[i-1] else 0)` is the value of x[i-1], or 0 where the index is outside x. It therefore follows one indexed read: not
an expression, a call, or a bare name.

wrong:
    y[i] = (x[i-1] + x[i+1] else 0)

right:
    y[i] = (x[i-1] else 0) + (x[i+1] else 0)
",
    },
    Code {
        code: "E0011",
        title: "nested too deep",
        text: "Brackets, `if`s, prefix operators and powers may nest 64 deep, together. Give an inner part a name:

wrong:
    y[i] = f(f(f( … 65 times … x[i] … )))

right:
    a[i] = f(f(f(x[i])))
    y[i] = f(f(f(a[i])))
",
    },
    Code {
        code: "E0012",
        title: "expression too long",
        text: "An expression may be 256 operators deep; `a + b + c` is two deep. A longer one is a fold over an axis, or several
definitions.

wrong:
    y[i] = x[i, 0] + x[i, 1] + … + x[i, 999]

right:
    y[i] = sum[k](x[i, k])
",
    },
    Code {
        code: "E0013",
        title: "comparisons chained both ways",
        text: "`0 <= j < N` means `0 <= j && j < N`. All comparisons of a chain go one way (`<` and `<=`, or `>` and `>=`; `==` goes with
both), so that it reads as an order. `!=` cannot be chained.

wrong:
    y[i] = f32(a[i] < b[i] > c[i])

right:
    y[i] = f32(a[i] < b[i] && b[i] > c[i])
",
    },
    Code {
        code: "E0014",
        title: "integer too large",
        text: "The numbers of `tile` and `profile` fit 64 bits.

wrong:
    profile f N = 99999999999999999999

right:
    profile f N = 1073741824
",
    },
    Code {
        code: "E0015",
        title: "empty list or missing part",
        text: "Something must stand between the brackets: a `fn` has at least one parameter, a fold binds at least one axis, a list has at
least one entry, results in `-> ( … )` are at least one.

wrong:
    y[i] = sum[](x[i, k])

right:
    y[i] = sum[k](x[i, k])
",
    },
];
