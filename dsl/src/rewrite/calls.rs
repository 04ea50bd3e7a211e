//! Calls of ops, which take whole tensors and are whole right-hand sides: `y[m, n] = rmsnorm(x[m, n], g[n]) * 2`.

use super::array::{Arrays, Names, names_in};
use super::read::F;
use super::{Edit, assignment, rewritten, target, whole};

/// The statement around the byte `at` with its calls of ops as statements of their own.
pub fn hoisted(text: &str, at: usize) -> Option<Edit> {
    rewritten(text, at, |tokens, names, _| {
        let t = target(text, tokens, 0)?;
        let ("=", "", len) = assignment(text, tokens, t.len)? else { return None };
        let (value, _) = whole(text, &tokens[t.len + len..], &names)?;
        let mut hoist = Hoist { names: &names, before: Vec::new() };
        if let F::Call { name, on: None, path, args } = &value {
            let call = hoist.call(name, *path, args)?;
            let mut all = hoist.before;
            all.push(format!("{} = {call}", t.name));
            return Some(all.join("  "));
        }
        let slots = t.slots.clone()?;
        let value = hoist.inside(&value, &slots)?;
        let arrays = Arrays::new(&names, slots.clone(), Vec::new());
        let mut all = hoist.before.clone();
        all.push(format!("{}[{}] = {}", t.name, slots.join(", "), arrays.at(&value, &[])?.0));
        Some(all.join("  "))
    })
}

struct Hoist<'n> {
    names: &'n Names,
    before: Vec<String>,
}

impl Hoist<'_> {
    /// A name for a value that no tensor has.
    fn fresh(&self) -> String {
        let free = |n: &String| {
            !self.names.tensors.contains_key(n) && !self.before.iter().any(|b| b.starts_with(n.as_str()))
        };
        ["t", "u", "v", "w", "t2", "u2"]
            .map(String::from)
            .into_iter()
            .find(free)
            .unwrap_or_else(|| "t3".into())
    }

    /// A call with whole tensors as its arguments.
    fn call(&mut self, name: &str, path: bool, args: &[(Option<String>, F)]) -> Option<String> {
        let mut all = Vec::new();
        for (given, f) in args {
            let text = match f {
                F::Index(base, index) => match &**base {
                    F::Name(n) if self.names.tensors.get(n).is_some_and(|d| d.len() == index.len()) => {
                        n.clone()
                    }
                    _ => return None,
                },
                F::Name(n) => n.clone(),
                F::Call { name, on: None, path, args } => {
                    let inner = self.call(name, *path, args)?;
                    let t = self.fresh();
                    self.before.push(format!("{t} = {inner}"));
                    t
                }
                f => self.local(f)?,
            };
            all.push(given.as_ref().map_or(text.clone(), |n| format!("{n} = {text}")));
        }
        (!path).then(|| format!("{name}({})", all.join(", ")))
    }

    /// An expression as a local of its own; a number stays where it is.
    fn local(&mut self, f: &F) -> Option<String> {
        let arrays = Arrays::new(self.names, Vec::new(), Vec::new());
        let dims = arrays.dims(f)?;
        let mut all = Vec::new();
        names_in(f, &mut all);
        let tensor = all.iter().find(|n| self.names.tensors.get(*n).is_some_and(|d| !d.is_empty()));
        let Some(tensor) = tensor else { return Some(arrays.at(f, &[])?.0) };
        let dtype = self.names.dtypes.get(tensor);
        let free = |n: &&String| !self.names.tensors.contains_key(*n) && !self.names.sizes.contains(n);
        let idx: Vec<String> = match dims.is_empty() {
            true => all.iter().filter(free).cloned().collect(),
            false => dims.iter().map(|d| arrays.letter(d)).collect(),
        };
        let own = if dims.is_empty() { &[][..] } else { &idx[..] };
        let value = arrays.at(f, own)?.0;
        let t = self.fresh();
        let typed = dtype.map_or(t.clone(), |d| format!("{t}: {d}"));
        self.before.push(format!("{typed}[{}] = {value}", idx.join(", ")));
        Some(t)
    }

    /// The expression with reads of results for its calls of ops.
    fn inside(&mut self, f: &F, slots: &[String]) -> Option<F> {
        Some(match f {
            F::Call { name, on: None, path, args } if !self.is_function(f) => {
                let call = self.call(name, *path, args)?;
                let t = self.fresh();
                self.before.push(format!("{t} = {call}"));
                F::Index(Box::new(F::Number(t)), slots.iter().cloned().map(F::Name).collect())
            }
            F::Binary(op, a, b) => {
                F::Binary(op.clone(), self.inside(a, slots)?.into(), self.inside(b, slots)?.into())
            }
            F::Prefix(op, a) => F::Prefix(*op, self.inside(a, slots)?.into()),
            f => f.clone(),
        })
    }

    /// Is the call one of a function of numbers?
    fn is_function(&self, f: &F) -> bool {
        let F::Call { name, .. } = f else { return false };
        Arrays::new(self.names, Vec::new(), Vec::new()).is_known(name)
    }
}
