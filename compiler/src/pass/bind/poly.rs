//! Polynomials over sizes and const parameters: how two dims are compared without their numbers.
//!
//! `/` and `%` are opaque, but for exact divisions by constants.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    Var(String),
    /// A function of polynomials: `/`, `%`, `min` and so on.
    Fun(String, Vec<Poly>),
}

/// Σ coefficient · product of atoms (sorted). No zero coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Poly(BTreeMap<Vec<Atom>, i64>);

impl Poly {
    pub fn constant(c: i64) -> Poly {
        let mut p = Poly::default();
        p.put(Vec::new(), c);
        p
    }

    pub fn var(name: impl Into<String>) -> Poly {
        Poly::atom(Atom::Var(name.into()))
    }

    pub fn fun(name: &str, args: Vec<Poly>) -> Poly {
        Poly::atom(Atom::Fun(name.into(), args))
    }

    fn atom(a: Atom) -> Poly {
        Poly(BTreeMap::from([(vec![a], 1)]))
    }

    fn put(&mut self, key: Vec<Atom>, c: i64) {
        let now = self.0.remove(&key).unwrap_or(0).wrapping_add(c);
        if now != 0 {
            self.0.insert(key, now);
        }
    }

    pub fn as_const(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Vec::new() as &Vec<Atom>).copied(),
            _ => None,
        }
    }

    /// The variable, if it is one alone.
    pub fn as_var(&self) -> Option<&str> {
        match self.0.iter().next() {
            Some((key, 1)) if self.0.len() == 1 => match key.as_slice() {
                [Atom::Var(v)] => Some(v),
                _ => None,
            },
            _ => None,
        }
    }

    /// Other than 0 for all sizes from 1 on: terms of one sign, made of nothing but sizes.
    pub fn is_never_zero(&self, is_size: &dyn Fn(&str) -> bool) -> bool {
        let sizes = |key: &Vec<Atom>| key.iter().all(|a| matches!(a, Atom::Var(v) if is_size(v)));
        let signs = self.0.values().map(|c| c.signum());
        !self.0.is_empty()
            && self.0.keys().all(sizes)
            && signs.sum::<i64>().unsigned_abs() as usize == self.0.len()
    }

    /// Has it terms, and only such as are added? Of sizes from 1 up it is then more than 0.
    pub fn is_a_sum(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|c| *c > 0)
    }

    pub fn add(&self, o: &Poly) -> Poly {
        let mut out = self.clone();
        o.0.iter().for_each(|(k, &c)| out.put(k.clone(), c));
        out
    }

    pub fn neg(&self) -> Poly {
        Poly(self.0.iter().map(|(k, c)| (k.clone(), c.wrapping_neg())).collect())
    }

    pub fn sub(&self, o: &Poly) -> Poly {
        self.add(&o.neg())
    }

    /// Products of many terms become opaque, so that silly input stays cheap.
    pub fn mul(&self, o: &Poly) -> Poly {
        if self.0.len() * o.0.len() > 256 {
            return Poly::fun("*", vec![self.clone(), o.clone()]);
        }
        let mut out = Poly::default();
        for (a, &x) in &self.0 {
            for (b, &y) in &o.0 {
                let mut key: Vec<Atom> = a.iter().chain(b).cloned().collect();
                key.sort();
                out.put(key, x.wrapping_mul(y));
            }
        }
        out
    }

    pub fn div(&self, o: &Poly) -> Poly {
        match o.as_const() {
            Some(1) => self.clone(),
            Some(c) if c != 0 && self.0.values().all(|v| v % c == 0) => {
                Poly(self.0.iter().map(|(k, v)| (k.clone(), v / c)).collect())
            }
            _ => Poly::fun("/", vec![self.clone(), o.clone()]),
        }
    }

    /// Every variable replaced by what `f` gives for it.
    pub fn map_vars(&self, f: &dyn Fn(&str) -> Option<Poly>) -> Poly {
        let mut out = Poly::default();
        for (key, &c) in &self.0 {
            let mut product = Poly::constant(c);
            for atom in key {
                let factor = match atom {
                    Atom::Var(v) => f(v).unwrap_or_else(|| Poly::var(v.clone())),
                    Atom::Fun(n, args) if n == "/" => args[0].map_vars(f).div(&args[1].map_vars(f)),
                    Atom::Fun(n, args) => Poly::fun(n, args.iter().map(|a| a.map_vars(f)).collect()),
                };
                product = product.mul(&factor);
            }
            out = out.add(&product);
        }
        out
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Var(v) => write!(f, "{v}"),
            Atom::Fun(op, args) if args.len() == 2 && !op.starts_with(char::is_alphabetic) => {
                write!(f, "{}{op}{}", Factor(&args[0]), Factor(&args[1]))
            }
            Atom::Fun(name, args) => {
                let args: Vec<String> = args.iter().map(Poly::to_string).collect();
                write!(f, "{name}({})", args.join(", "))
            }
        }
    }
}

/// A polynomial as an operand: in parentheses if it is a sum.
struct Factor<'a>(&'a Poly);

impl fmt::Display for Factor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simple = self.0.as_const().is_some() || self.0.as_var().is_some();
        if simple { write!(f, "{}", self.0) } else { write!(f, "({})", self.0) }
    }
}

impl fmt::Display for Poly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "0");
        }
        // The constant comes last, as people write it.
        let (consts, terms): (Vec<_>, Vec<_>) = self.0.iter().partition(|(k, _)| k.is_empty());
        for (i, (key, &c)) in terms.into_iter().chain(consts).enumerate() {
            match (i, c < 0) {
                (0, true) => write!(f, "-")?,
                (0, false) => {}
                (_, true) => write!(f, " - ")?,
                (_, false) => write!(f, " + ")?,
            }
            let size = c.unsigned_abs();
            if key.is_empty() {
                write!(f, "{size}")?;
                continue;
            }
            if size != 1 {
                write!(f, "{size}*")?;
            }
            let atoms: Vec<String> = key.iter().map(Atom::to_string).collect();
            write!(f, "{}", atoms.join("*"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_dims_are_equal() {
        let (h, p) = (Poly::var("H"), Poly::var("pad"));
        let a = h.add(&p).add(&p).sub(&Poly::constant(2));
        let b = Poly::constant(-2).add(&p.mul(&Poly::constant(2))).add(&h);
        assert_eq!(a, b);
        assert_eq!(a.to_string(), "H + 2*pad - 2");
        assert_eq!(h.mul(&p), p.mul(&h));
        assert_ne!(h.div(&p), p.div(&h));
        assert_eq!(h.mul(&Poly::constant(2)).div(&Poly::constant(2)), h);
        let size = |v: &str| v == "H";
        assert!(h.neg().is_never_zero(&size) && Poly::constant(3).add(&h).is_never_zero(&size));
        assert!(!h.sub(&Poly::constant(64)).is_never_zero(&size) && !p.is_never_zero(&size));
        assert!(!Poly::default().is_never_zero(&size));
    }
}
