//! `einsum("mk,kn->mn", a, b)`, `rearrange(x, "b (h d) -> b h d")` and their like.

use super::array::{Arrays, Printed};
use super::read::F;
use std::collections::BTreeMap;

/// Axes by name: of each operand, of the result; several in one dim are in parentheses.
pub struct Spec {
    operands: Vec<(F, Vec<Vec<String>>)>,
    out: Vec<Vec<String>>,
    fold: &'static str,
    sizes: BTreeMap<String, String>,
}

/// `b (h d)`, or the letters of `mk`.
fn dims(text: &str, letters: bool) -> Option<Vec<Vec<String>>> {
    if letters {
        return text
            .trim()
            .chars()
            .map(|c| c.is_alphabetic().then(|| vec![c.to_lowercase().collect()]))
            .collect();
    }
    let mut out: Vec<Vec<String>> = Vec::new();
    let mut group = false;
    for word in text.replace('(', " ( ").replace(')', " ) ").split_whitespace() {
        match word {
            "(" => {
                group = true;
                out.push(Vec::new());
            }
            ")" => group = false,
            "1" => out.push(Vec::new()),
            w if !w.chars().all(|c| c.is_alphanumeric() || c == '_') => return None,
            w if group => out.last_mut()?.push(w.to_lowercase()),
            w => out.push(vec![w.to_lowercase()]),
        }
    }
    Some(out)
}

fn product(parts: &[String]) -> String {
    match parts {
        [] => "1".into(),
        [one] => one.clone(),
        all => all.join("*"),
    }
}

impl Arrays<'_> {
    /// The specification of a call that has one; `Some(None)` if it cannot be read.
    pub fn spec(&self, name: &str, args: &[(Option<String>, F)]) -> Option<Option<Spec>> {
        let letters = match name {
            "einsum" => true,
            "rearrange" | "reduce" | "repeat" => false,
            _ => return None,
        };
        let texts: Vec<&String> =
            args.iter().filter_map(|(_, f)| if let F::Text(t) = f { Some(t) } else { None }).collect();
        let text = texts.first().copied().filter(|t| t.contains("->"))?;
        Some(self.spec_of(text, letters, texts.get(1).map(|t| t.as_str()), args))
    }

    fn spec_of(
        &self,
        text: &str,
        letters: bool,
        fold: Option<&str>,
        args: &[(Option<String>, F)],
    ) -> Option<Spec> {
        let (from, to) = text.split_once("->")?;
        let values: Vec<F> = args
            .iter()
            .filter(|(n, f)| n.is_none() && !matches!(f, F::Text(_)))
            .map(|(_, f)| f.clone())
            .collect();
        let parts: Vec<Vec<Vec<String>>> =
            from.split(',').map(|p| dims(p, letters)).collect::<Option<_>>()?;
        if parts.len() != values.len() {
            return None;
        }
        let fold = match fold {
            None | Some("sum") => "sum",
            Some("mean") => "mean",
            Some("max") => "max",
            Some("min") => "min",
            Some("prod") => "prod",
            _ => return None,
        };
        let out = dims(to, letters)?;
        let mut sizes = BTreeMap::new();
        for (name, f) in args {
            if let (Some(name), Some((text, _))) = (name, self.at(f, &[])) {
                sizes.insert(name.to_lowercase(), text);
            }
        }
        let operands: Vec<(F, Vec<Vec<String>>)> = values.into_iter().zip(parts).collect();
        let known = operands.iter().filter_map(|(f, p)| Some((self.dims(f)?, p))).collect::<Vec<_>>();
        let target = (self.target.clone(), &out);
        for (have, groups) in known.iter().map(|(h, g)| (h, *g)).chain([(&target.0, target.1)]) {
            if have.len() != groups.len() {
                continue;
            }
            for (dim, group) in have.iter().zip(groups) {
                if let [one] = &group[..] {
                    sizes.entry(one.clone()).or_insert(dim.clone());
                }
            }
        }
        let fits = operands.iter().all(|(f, p)| self.dims(f).is_some_and(|d| d.len() == p.len()));
        fits.then_some(Spec { operands, out, fold, sizes })
    }
}

impl Spec {
    fn size(&self, name: &str) -> Option<String> {
        self.sizes.get(name).cloned()
    }

    pub fn out_dims(&self, _arrays: &Arrays) -> Vec<String> {
        let one = |g: &Vec<String>| {
            product(&g.iter().map(|n| self.size(n).unwrap_or_else(|| "?".into())).collect::<Vec<_>>())
        };
        self.out.iter().map(one).collect()
    }

    /// What each axis is at an index of the result.
    fn values(&self, idx: &[String]) -> Option<BTreeMap<String, String>> {
        let mut values = BTreeMap::new();
        for (group, i) in self.out.iter().zip(idx) {
            let sizes: Vec<Option<String>> = group.iter().map(|n| self.size(n)).collect();
            for (n, name) in group.iter().enumerate() {
                let after: Option<Vec<String>> = sizes[n + 1..].iter().cloned().collect();
                let inner = product(&after?);
                let inner = if inner.contains('*') { format!("({inner})") } else { inner };
                let whole = if inner == "1" { i.clone() } else { format!("{i} / {inner}") };
                let part = if n == 0 { whole } else { format!("{whole} % {}", sizes[n].clone()?) };
                values.insert(name.clone(), part);
            }
        }
        Some(values)
    }

    pub fn at(&self, arrays: &Arrays, idx: &[String]) -> Option<Printed> {
        let mut values = self.values(idx)?;
        let mut folded = Vec::new();
        let all = self.operands.iter().flat_map(|(_, p)| p.iter().flatten());
        for name in all {
            if !values.contains_key(name) {
                let letter = arrays.letter(&self.size(name).unwrap_or_default());
                let plain = self.operands.iter().any(|(_, p)| p.contains(&vec![name.clone()]));
                folded.push(match plain {
                    true => letter.clone(),
                    false => format!("{letter} in 0..{}", self.size(name)?),
                });
                values.insert(name.clone(), letter);
            }
        }
        let mut factors = Vec::new();
        for (f, parts) in &self.operands {
            let one = |group: &Vec<String>| {
                let mut text = String::new();
                for (n, name) in group.iter().enumerate() {
                    let value = values.get(name)?;
                    text = match n {
                        0 => value.clone(),
                        _ => {
                            let line = if text.contains(' ') { format!("({text})") } else { text };
                            format!("{line}*{} + {value}", self.size(name)?)
                        }
                    };
                }
                Some(if group.is_empty() { "0".to_string() } else { text })
            };
            let inner: Vec<String> = parts.iter().map(one).collect::<Option<_>>()?;
            factors.push(arrays.at(f, &inner)?.0);
        }
        let value = factors.join(" * ");
        Some(match folded.is_empty() {
            true => (value, if factors.len() > 1 { 9 } else { 12 }),
            false => (format!("{}[{}]({value})", self.fold, folded.join(", ")), 12),
        })
    }
}
