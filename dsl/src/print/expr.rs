//! Single expressions, printed from the tree. Parentheses are added where precedence asks for them.

use crate::ast::{Arg, BinOp, Binder, Expr, ExprKind, Range, UnOp};

/// The expression on one line, with spaces around operators.
pub fn print_expr(expr: &Expr) -> String {
    let mut out = String::new();
    print(&mut out, expr, 0);
    out
}

/// Prefix operators bind tighter than `*`, less tightly than `**`.
const PREFIX: u8 = 10;
const POWER: u8 = 11;
const ATOM: u8 = 12;

fn precedence(expr: &Expr) -> u8 {
    match &expr.kind {
        ExprKind::If(..) | ExprKind::Else(..) => 0,
        ExprKind::Binary(op, ..) => op.precedence(),
        ExprKind::Chain(..) => BinOp::Lt.precedence(),
        ExprKind::Unary(..) => PREFIX,
        _ => ATOM,
    }
}

/// Prints an operand of something that binds as tightly as `least`.
fn print(out: &mut String, expr: &Expr, least: u8) {
    if precedence(expr) < least {
        out.push('(');
        print_bare(out, expr);
        out.push(')');
    } else {
        print_bare(out, expr);
    }
}

fn print_bare(out: &mut String, expr: &Expr) {
    match &expr.kind {
        ExprKind::Int(text) | ExprKind::Float(text) => out.push_str(text),
        ExprKind::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        ExprKind::Inf => out.push_str("inf"),
        ExprKind::Nan => out.push_str("nan"),
        ExprKind::Pi => out.push_str("pi"),
        ExprKind::Read { name, index } => {
            out.push_str(&name.text);
            if let Some(index) = index {
                listed(out, "[", index, "]", |out, e| print(out, e, 0));
            }
        }
        ExprKind::Call { lib, name, args } => {
            if let Some(lib) = lib {
                out.push_str(&lib.text);
                out.push('.');
            }
            out.push_str(&name.text);
            listed(out, "(", args, ")", print_arg);
        }
        ExprKind::Fold { name, binders, cond, body } => {
            out.push_str(&name.text);
            out.push('[');
            listed(out, "", binders, "", print_binder);
            if let Some(cond) = cond {
                out.push_str(" where ");
                print(out, cond, 0);
            }
            out.push_str("](");
            print(out, body, 0);
            out.push(')');
        }
        ExprKind::Unary(op, operand) => {
            out.push(if *op == UnOp::Neg { '-' } else { '!' });
            print(out, operand, PREFIX);
        }
        ExprKind::Binary(op, left, right) => print_binary(out, *op, left, right),
        ExprKind::Chain(operands, ops) => print_chain(out, operands, ops),
        ExprKind::If(cond, then, other) => {
            out.push_str("if ");
            print(out, cond, 0);
            out.push_str(" then ");
            print_branch(out, then);
            out.push_str(" else ");
            print_branch(out, other);
        }
        ExprKind::Else(read, default) => {
            print(out, read, ATOM);
            out.push_str(" else ");
            print_branch(out, default);
        }
        ExprKind::Paren(inner) => {
            out.push('(');
            print(out, inner, 0);
            out.push(')');
        }
    }
}

/// A place where `a else b` needs parentheses and `if` does not.
fn print_branch(out: &mut String, expr: &Expr) {
    let least = u8::from(matches!(expr.kind, ExprKind::Else(..)));
    print(out, expr, least);
}

fn print_binary(out: &mut String, op: BinOp, left: &Expr, right: &Expr) {
    let own = op.precedence();
    // `**` groups to the right and takes a prefix operator there; comparisons side by side would be a chain.
    let (least_left, least_right) = match op {
        BinOp::Pow => (POWER + 1, PREFIX),
        _ if own == BinOp::Lt.precedence() => (own + 1, own + 1),
        _ => (own, own + 1),
    };
    print(out, left, least_left);
    out.push(' ');
    out.push_str(op.spelling());
    out.push(' ');
    print(out, right, least_right);
}

fn print_chain(out: &mut String, operands: &[Expr], ops: &[BinOp]) {
    let least = BinOp::Lt.precedence() + 1;
    for (i, operand) in operands.iter().enumerate() {
        if i > 0 {
            out.push(' ');
            out.push_str(ops[i - 1].spelling());
            out.push(' ');
        }
        print(out, operand, least);
    }
}

fn print_arg(out: &mut String, arg: &Arg) {
    match &arg.name {
        Some(name) => {
            out.push_str(&name.text);
            out.push_str(" = ");
            print_branch(out, &arg.value);
        }
        None => print(out, &arg.value, 0),
    }
}

fn print_binder(out: &mut String, binder: &Binder) {
    out.push_str(&binder.name.text);
    if let Some(range) = &binder.range {
        out.push_str(" in ");
        print_range(out, range);
    }
}

fn print_range(out: &mut String, range: &Range) {
    print_branch(out, &range.lo);
    out.push_str(if range.closed { "..=" } else { ".." });
    print_branch(out, &range.hi);
}

fn listed<T>(out: &mut String, open: &str, entries: &[T], close: &str, mut one: impl FnMut(&mut String, &T)) {
    out.push_str(open);
    for (i, entry) in entries.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        one(out, entry);
    }
    out.push_str(close);
}
