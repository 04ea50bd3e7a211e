//! Calls on whole arrays: what their results' dims and elements are.

use super::*;

impl Arrays<'_> {
    /// The value a call is about, and the arguments after it.
    fn subject<'a>(&self, on: Option<&'a F>, args: &'a Args) -> Option<(&'a F, Vec<(Option<String>, F)>)> {
        match on {
            Some(f) => Some((f, args.to_vec())),
            None => {
                let at = args.iter().position(|(n, _)| n.is_none())?;
                let mut rest = args.to_vec();
                rest.remove(at);
                Some((&args[at].1, rest))
            }
        }
    }

    /// Which dims a reduction takes; `None`: it is no reduction of this value.
    fn axes(&self, rank: usize, args: &Args, one_based: bool) -> Option<Vec<usize>> {
        let given = named(args, &["axis", "dim", "axes", "dims"]).or_else(|| position(args, 0));
        let one = |f: &F| {
            let n = number(f)?;
            let n = if one_based && n > 0 { n - 1 } else { n };
            let n = if n < 0 { n + rank as i64 } else { n };
            usize::try_from(n).ok().filter(|n| *n < rank)
        };
        match given {
            None => Some((0..rank).collect()),
            Some(F::Name(n)) if n == "None" => Some((0..rank).collect()),
            Some(F::List(all)) => all.iter().map(one).collect(),
            Some(f) => Some(vec![one(f)?]),
        }
    }

    fn keeps(args: &Args) -> bool {
        named(args, &["keepdims", "keepdim"]).is_some_and(|f| *f == F::Number("true".into()))
    }

    /// A reduction by its name here; `var`, `std`, `norm` and `count` are made of folds.
    pub(super) fn reduction(
        &self,
        name: &str,
        on: Option<&F>,
        path: bool,
        args: &Args,
    ) -> Option<&'static str> {
        let ours = match name {
            "sum" | "nansum" | "reduce_sum" => "sum",
            "mean" | "average" | "nanmean" | "reduce_mean" | "avg" => "mean",
            "max" | "amax" | "nanmax" | "reduce_max" => "max",
            "min" | "amin" | "nanmin" | "reduce_min" => "min",
            "prod" | "product" | "reduce_prod" => "prod",
            "any" => "any",
            "all" => "all",
            "argmax" => "argmax",
            "argmin" => "argmin",
            "logsumexp" | "reduce_logsumexp" => "logsumexp",
            "var" => "var",
            "std" => "std",
            "norm" => "norm",
            "count_nonzero" => "count",
            _ => return None,
        };
        // `max(a, b)` is the larger of two.
        let two = on.is_none()
            && matches!(ours, "max" | "min")
            && args.iter().filter(|a| a.0.is_none()).count() > 1;
        let scalar = position(args, 0).is_some_and(|f| self.rank(f) == Some(0));
        (!(two && (!path || scalar))).then_some(ours)
    }

    /// Does a reduction speak of elements, perhaps with its axes as arguments: `sum(x[m, n])`, `sum(n in 0..N, x[m, n])`?
    fn of_elements(&self, on: Option<&F>, args: &Args) -> bool {
        let first = on.or_else(|| position(args, 0));
        first.is_some_and(|f| matches!(f, F::Slice(Some(_), _)) || self.rank(f) == Some(0))
    }

    /// Names of an expression that could be axes and that the left side does not have.
    pub(super) fn free(&self, f: &F) -> Vec<String> {
        let mut all = Vec::new();
        names_in(f, &mut all);
        let known = |n: &String| {
            self.names.tensors.contains_key(n)
                || self.names.sizes.contains(n)
                || self.left.contains(n)
                || n.len() > 2 && n.chars().all(|c| c.is_alphabetic())
        };
        all.retain(|n| !known(n));
        all
    }

    pub(super) fn call_dims(
        &self,
        name: &str,
        on: Option<&F>,
        path: bool,
        args: &Args,
    ) -> Option<Vec<String>> {
        if let Some(spec) = self.spec(name, args) {
            return spec.map(|s| s.out_dims(self));
        }
        if self.reduction(name, on, path, args).is_some() {
            // `sum(n, x[m, n])`, with the axis as an argument.
            if self.of_elements(on, args) {
                return Some(Vec::new());
            }
            let (f, rest) = self.subject(on, args)?;
            let dims = self.dims(f)?;
            let axes = self.axes(dims.len(), &rest, on.is_none() && !path)?;
            let keep = Self::keeps(&rest);
            let kept = dims.iter().enumerate().filter_map(|(i, d)| match axes.contains(&i) {
                true => keep.then(|| "1".to_string()),
                false => Some(d.clone()),
            });
            return Some(kept.collect());
        }
        let (f, rest) = match self.subject(on, args) {
            Some(s) => s,
            None => return self.elementwise(name, on, args).map(|_| Vec::new()),
        };
        Some(match name {
            "matmul" | "dot" | "mm" | "bmm" => self.product_dims(f, position(&rest, 0)?)?,
            "outer" => [self.dims(f)?, self.dims(position(&rest, 0)?)?].concat(),
            "T" | "t" | "mT" => swapped(self.dims(f)?, -2, -1),
            "transpose" | "swapaxes" | "permute" => {
                let dims = self.dims(f)?;
                let order = self.order(dims.len(), &rest)?;
                order.iter().map(|o| dims[*o].clone()).collect()
            }
            "flip" | "flipud" | "roll" | "triu" | "tril" | "sort" | "clone" | "contiguous" | "detach"
            | "cpu" | "copy" | "item" | "cuda" => self.dims(f)?,
            n if ALONG.contains(&n) || n == "log_softmax" => self.dims(f)?,
            "flatten" | "ravel" => vec![self.dims(f)?.iter().fold("1".to_string(), |x, y| times(&x, y))],
            "reshape" | "view" => self.target.clone(),
            "unsqueeze" | "expand_dims" => {
                let mut dims = self.dims(f)?;
                let at = number(position(&rest, 0).or(named(&rest, &["axis", "dim"]))?)?;
                let at = if at < 0 { at + dims.len() as i64 + 1 } else { at };
                dims.insert(usize::try_from(at).ok().filter(|a| *a <= dims.len())?, "1".into());
                dims
            }
            "diag" | "diagonal" => self.dims(f)?.first().cloned().into_iter().collect(),
            "trace" | "len" | "numel" | "size" => Vec::new(),
            "zeros_like" | "ones_like" | "full_like" | "empty_like" => self.dims(f)?,
            "zeros" | "ones" | "full" | "empty" | "eye" | "arange"
                if self.rank(f) == Some(0) || matches!(f, F::List(_)) =>
            {
                self.created(name, args)?
            }
            "concatenate" | "cat" | "concat" => self.target.clone(),
            "take" | "embedding" | "index_select" | "gather" => {
                let (table, ids, axis) = self.gathered(name, f, &rest)?;
                let (mut dims, ids) = (self.dims(table)?, self.dims(ids)?);
                dims.splice(axis..axis + 1, ids);
                dims
            }
            "one_hot" => [self.dims(f)?, self.target.last().cloned().into_iter().collect()].concat(),
            "topk" => {
                let mut dims = self.dims(f)?;
                let k = self.at(position(&rest, 0)?, &[])?.0;
                *dims.last_mut()? = k;
                dims
            }
            _ => {
                let mut all: Vec<&F> = on.into_iter().collect();
                all.extend(args.iter().map(|(_, a)| a).filter(|a| !is_a_dtype(a)));
                let dims = self.broadcast(&all)?;
                let known = self.elementwise(name, on, args).is_some() || is_choice(name);
                return (known || dims.is_empty() && on.is_none() && !path).then_some(dims);
            }
        })
    }

    /// The table, the indices and the axis of a read by index.
    pub(super) fn gathered<'a>(&self, name: &str, f: &'a F, rest: &'a Args) -> Option<(&'a F, &'a F, usize)> {
        let (first, second) = (position(rest, 0)?, position(rest, 1));
        Some(match (name, second) {
            ("embedding", _) => (first, f, 0),
            (_, Some(ids)) if number(first).is_some() => (f, ids, usize::try_from(number(first)?).ok()?),
            _ => {
                let axis = named(rest, &["axis", "dim"]).map_or(Some(0), number)?;
                (f, first, usize::try_from(axis).ok()?)
            }
        })
        .filter(|(t, _, axis)| self.rank(t).is_some_and(|r| *axis < r))
    }

    pub(super) fn created(&self, name: &str, args: &Args) -> Option<Vec<String>> {
        let first = position(args, 0)?;
        let sizes: Vec<&F> = match first {
            F::List(all) => all.iter().collect(),
            _ if matches!(name, "full") => vec![first],
            _ if name == "arange" => {
                args.iter().filter(|a| a.0.is_none()).map(|a| &a.1).next_back().into_iter().collect()
            }
            _ => args.iter().filter(|a| a.0.is_none() && !is_a_dtype(&a.1)).map(|a| &a.1).collect(),
        };
        let mut dims: Vec<String> =
            sizes.into_iter().map(|f| Some(self.at(f, &[])?.0)).collect::<Option<_>>()?;
        if name == "eye" && dims.len() == 1 {
            dims.push(dims[0].clone());
        }
        Some(dims)
    }

    fn order(&self, rank: usize, args: &Args) -> Option<Vec<usize>> {
        let given: Vec<&F> = match position(args, 0) {
            Some(F::List(all)) => all.iter().collect(),
            _ => args.iter().map(|a| &a.1).collect(),
        };
        let one = |f: &&F| {
            let n = number(f)?;
            usize::try_from(if n < 0 { n + rank as i64 } else { n }).ok().filter(|n| *n < rank)
        };
        let given: Vec<usize> = given.iter().map(one).collect::<Option<_>>()?;
        let mut all: Vec<usize> = (0..rank).collect();
        match given[..] {
            [] => all.reverse(),
            [a, b] if rank != 2 || a != b => all.swap(a, b),
            _ if given.len() == rank => all = given,
            _ => return None,
        }
        Some(all)
    }

    /// Is it a function of numbers?
    pub fn is_known(&self, name: &str) -> bool {
        self.elementwise(name, None, &[]).is_some()
    }

    /// The name here of a function of numbers.
    fn elementwise(&self, name: &str, on: Option<&F>, args: &Args) -> Option<String> {
        let known = |w: &str| ELEMENTWISE.contains(&w);
        if known(name) {
            return Some(name.into());
        }
        if let Some(dtype) = foreign::dtype(name).or(foreign::is_like_a_dtype(name).then_some(name)) {
            return Some(dtype.into());
        }
        if matches!(name, "to" | "astype" | "type" | "cast") {
            let dtype = position(args, usize::from(on.is_none()))?;
            return dtype_of(dtype);
        }
        if matches!(name, "square" | "reciprocal" | "mod" | "remainder" | "fmod" | "nan_to_num" | "xor") {
            return Some(name.into());
        }
        let bare = name.rsplit("::").next().unwrap_or(name);
        foreign::renamed_function(bare, &known).filter(|n| known(n))
    }

    pub(super) fn call_at(
        &self,
        name: &str,
        on: Option<&F>,
        path: bool,
        args: &Args,
        idx: &[String],
    ) -> Option<Printed> {
        if let Some(spec) = self.spec(name, args) {
            return spec.and_then(|s| s.at(self, idx));
        }
        if let Some(fold) = self.reduction(name, on, path, args) {
            return self.reduction_at(fold, on, path, args, idx);
        }
        if is_choice(name) {
            let all: Vec<&F> = args.iter().map(|a| &a.1).collect();
            return match (name, on, &all[..]) {
                ("masked_fill", Some(x), [m, v]) => self.choice(m, v, x, idx),
                ("masked_fill", None, [x, m, v]) => self.choice(m, v, x, idx),
                (_, None, [c, a, b]) => self.choice(c, a, b, idx),
                _ => None,
            };
        }
        let (f, rest) = self.subject(on, args)?;
        if ALONG.contains(&name) || name == "log_softmax" {
            return self.along(name, f, &rest, idx);
        }
        let i = |at: usize| idx.get(at).cloned();
        match name {
            "matmul" | "dot" | "mm" | "bmm" => self.product_at(f, position(&rest, 0)?, idx),
            "outer" => {
                let (a, b) = (self.at(f, &[i(0)?])?, self.at(position(&rest, 0)?, &[i(1)?])?);
                Some((format!("{} * {}", within(a, 9), within(b, 10)), 9))
            }
            "T" | "t" | "mT" => self.at(&F::Member(Box::new(f.clone()), "T".into()), idx),
            "transpose" | "swapaxes" | "permute" => {
                let order = self.order(idx.len(), &rest)?;
                let mut inner = idx.to_vec();
                order.iter().enumerate().for_each(|(to, from)| inner[*from] = idx[to].clone());
                self.at(f, &inner)
            }
            "clone" | "contiguous" | "detach" | "cpu" | "copy" | "item" | "cuda" => self.at(f, idx),
            "flip" | "flipud" => {
                let dims = self.dims(f)?;
                let axes = self.axes(dims.len(), &rest, false)?;
                let turned = |(n, i): (usize, &String)| match axes.contains(&n) {
                    true => format!("{} - 1 - {i}", dims[n]),
                    false => i.clone(),
                };
                self.at(f, &idx.iter().enumerate().map(turned).collect::<Vec<_>>())
            }
            "roll" => {
                let by = self.at(position(&rest, 0)?, &[])?.0;
                let axis = idx.len().checked_sub(1)?;
                let mut inner = idx.to_vec();
                inner[axis] = format!("({} - {by}) % {}", idx[axis], self.dims(f)?.get(axis)?);
                self.at(f, &inner)
            }
            "triu" | "tril" => {
                let op = if name == "triu" { ">=" } else { "<=" };
                let n = idx.len();
                let (a, b) = (i(n.checked_sub(2)?)?, i(n - 1)?);
                Some((format!("if {b} {op} {a} then {} else 0", self.at(f, idx)?.0), CHOICE))
            }
            "diag" | "diagonal" => self.at(f, &[i(0)?, i(0)?]),
            "trace" => {
                let k = self.letter(self.dims(f)?.first()?);
                Some((format!("sum[{k}]({})", self.at(f, &[k.clone(), k.clone()])?.0), ATOM))
            }
            "len" | "numel" | "size" => {
                let dims = self.dims(f)?;
                let dims = match number_of(&rest, name) {
                    Some(n) => vec![dims.get(usize::try_from(n).ok()?)?.clone()],
                    None if name == "len" => dims.into_iter().take(1).collect(),
                    None => dims,
                };
                Some((
                    dims.iter().fold("1".to_string(), |x, y| times(&x, y)),
                    if dims.len() == 1 { ATOM } else { 9 },
                ))
            }
            "zeros" | "zeros_like" | "empty" | "empty_like" => Some(("0.0".into(), ATOM)),
            "ones" | "ones_like" => Some(("1.0".into(), ATOM)),
            "full" | "full_like" => self.at(position(&rest, 0).or(named(&rest, &["fill_value"]))?, &[]),
            "arange" => {
                let two = rest.iter().filter(|a| a.0.is_none()).count() > 0;
                let lo = if two { self.at(f, &[])?.0 } else { "0".into() };
                let level = if lo == "0" { ATOM } else { 8 };
                Some((plus(&i(0)?, &lo), level))
            }
            "eye" => Some((format!("if {} == {} then 1 else 0", i(0)?, i(1)?), CHOICE)),
            "unsqueeze" | "expand_dims" => {
                let at = number(position(&rest, 0).or(named(&rest, &["axis", "dim"]))?)?;
                let at = if at < 0 { at + idx.len() as i64 } else { at };
                let mut inner = idx.to_vec();
                let at = usize::try_from(at).ok().filter(|a| *a < inner.len())?;
                inner.remove(at);
                self.at(f, &inner)
            }
            "reshape" | "view" | "flatten" | "ravel" => self.reshaped(f, idx),
            "concatenate" | "cat" | "concat" => self.joined(f, args, &rest, idx),
            "take" | "embedding" | "index_select" | "gather" => {
                let (table, ids, axis) = self.gathered(name, f, &rest)?;
                let n = self.rank(ids)?;
                let inner = self.at(ids, idx.get(axis..axis + n)?)?.0;
                let mut all = idx.to_vec();
                all.splice(axis..axis + n, [inner]);
                self.at(table, &all)
            }
            "one_hot" => {
                let (last, lead) = idx.split_last()?;
                Some((format!("if {} == {last} then 1 else 0", within(self.at(f, lead)?, 4)), CHOICE))
            }
            "sort" | "topk" => self.sorted(name, f, idx),
            _ => self.function_at(name, on, args, idx),
        }
    }

    /// A function of each element.
    fn function_at(&self, name: &str, on: Option<&F>, args: &Args, idx: &[String]) -> Option<Printed> {
        let ours = self.elementwise(name, on, args).unwrap_or_else(|| name.to_string());
        let mut all: Vec<(Option<&str>, &F)> = on.into_iter().map(|f| (None, f)).collect();
        all.extend(args.iter().filter(|(_, a)| !is_a_dtype(a)).map(|(n, a)| (n.as_deref(), a)));
        let at = |k: usize| self.at_last(all.get(k)?.1, idx);
        match ours.as_str() {
            "square" => Some((format!("{} ** 2", within(at(0)?, ATOM)), 11)),
            "reciprocal" => Some((format!("1.0 / {}", within(at(0)?, 10)), 9)),
            "mod" | "remainder" | "fmod" => {
                Some((format!("{} % {}", within(at(0)?, 9), within(at(1)?, 10)), 9))
            }
            "xor" => Some((format!("{} ^ {}", within(at(0)?, 6), within(at(1)?, 6)), 5)),
            "nan_to_num" => {
                let x = at(0)?.0;
                Some((format!("if isnan({x}) then 0 else {x}"), CHOICE))
            }
            "pow" if all.get(1).is_some_and(|a| number(a.1).is_some_and(|n| n > 0)) => {
                Some((format!("{} ** {}", within(at(0)?, ATOM), at(1)?.0), 11))
            }
            "clamp" => {
                let lo = all.iter().find(|a| matches!(a.0, Some("min" | "a_min" | "lo" | "lower")));
                let hi = all.iter().find(|a| matches!(a.0, Some("max" | "a_max" | "hi" | "upper")));
                let text = |f: &F| self.at_last(f, idx).map(|p| p.0);
                let x = at(0)?.0;
                Some(match (lo, hi) {
                    (Some(l), Some(h)) => (format!("clamp({x}, {}, {})", text(l.1)?, text(h.1)?), ATOM),
                    (Some(l), None) => (format!("max({x}, {})", text(l.1)?), ATOM),
                    (None, Some(h)) => (format!("min({x}, {})", text(h.1)?), ATOM),
                    (None, None) => (format!("clamp({x}, {}, {})", at(1)?.0, at(2)?.0), ATOM),
                })
            }
            ours => {
                let one = |(name, f): &(Option<&str>, &F)| {
                    let text = self.at_last(f, idx)?.0;
                    Some(
                        name.filter(|_| self.elementwise(ours, None, &[]).is_none())
                            .map_or(text.clone(), |n| format!("{n} = {text}")),
                    )
                };
                let all: Vec<String> = all.iter().map(one).collect::<Option<_>>()?;
                Some((format!("{ours}({})", all.join(", ")), ATOM))
            }
        }
    }

    /// `x[k / N, k % N]`, and back.
    fn reshaped(&self, f: &F, idx: &[String]) -> Option<Printed> {
        let dims = self.dims(f)?;
        let line = match (idx, &self.target[..]) {
            ([i], _) => i.clone(),
            (_, target) if target.len() == idx.len() => {
                idx.iter().zip(target).fold("0".to_string(), |line, (i, d)| {
                    if line == "0" { i.clone() } else { plus(&times(&line, d), i) }
                })
            }
            _ => return None,
        };
        let line_in =
            |t: &str| if is_word(t) || t.parse::<i64>().is_ok() { t.to_string() } else { format!("({t})") };
        let mut inner = Vec::new();
        let mut step = "1".to_string();
        for (n, d) in dims.iter().enumerate().rev() {
            let part =
                if step == "1" { line.clone() } else { format!("{} / {}", line_in(&line), line_in(&step)) };
            inner.insert(
                0,
                match (n, dims.len()) {
                    (0, 1) => line.clone(),
                    (0, _) => part,
                    _ => format!("{} % {}", line_in(&part).replace("((", "(").replace("))", ")"), line_in(d)),
                },
            );
            step = times(&step, d);
        }
        self.at(f, &inner)
    }

    /// `if n < N then a[m, n] else b[m, n - N]`
    fn joined(&self, f: &F, args: &Args, rest: &Args, idx: &[String]) -> Option<Printed> {
        let (parts, rest): (Vec<&F>, &Args) = match f {
            F::List(all) => (all.iter().collect(), rest),
            _ => (args.iter().filter(|a| a.0.is_none()).map(|a| &a.1).collect(), &[]),
        };
        let axis = named(rest, &["axis", "dim"]).or(position(rest, 0)).map_or(Some(0), number)?;
        let axis = usize::try_from(if axis < 0 { axis + idx.len() as i64 } else { axis }).ok()?;
        let i = idx.get(axis)?;
        let mut begin = "0".to_string();
        let mut text = String::new();
        for (n, part) in parts.iter().enumerate() {
            let mut inner = idx.to_vec();
            if begin != "0" {
                inner[axis] = less(i, &begin);
            }
            let dim = self.dims(part)?.get(axis)?.clone();
            begin = plus(&begin, &dim);
            let value = self.at(part, &inner)?.0;
            text += &match n + 1 == parts.len() {
                true => value,
                false => format!("if {i} < {begin} then {value} else "),
            };
        }
        (parts.len() > 1).then_some((text, CHOICE))
    }

    /// Reads through an order, which is a statement before this one.
    fn sorted(&self, name: &str, f: &F, idx: &[String]) -> Option<Printed> {
        let (last, lead) = idx.split_last()?;
        let dims = self.dims(f)?;
        let k = self.letter(dims.last()?);
        let at: Vec<String> = lead.iter().cloned().chain([k.clone()]).collect();
        let key = within(self.at(f, &at)?, if name == "topk" { 10 } else { 0 });
        let sign = if name == "topk" { "-" } else { "" };
        let before = format!("order[{}] = argsort[{k}]({sign}{key})", at.join(", "));
        if !self.before.borrow().contains(&before) {
            self.before.borrow_mut().push(before);
        }
        let order = format!("order[{}]", [lead, std::slice::from_ref(last)].concat().join(", "));
        let inner: Vec<String> = lead.iter().cloned().chain([order]).collect();
        self.at(f, &inner)
    }

    fn reduction_at(
        &self,
        fold: &str,
        on: Option<&F>,
        path: bool,
        args: &Args,
        idx: &[String],
    ) -> Option<Printed> {
        if self.of_elements(on, args) {
            return self.folded_elements(fold, on, args);
        }
        let (f, rest) = self.subject(on, args)?;
        let dims = self.dims(f)?;
        let axes = self.axes(dims.len(), &rest, on.is_none() && !path)?;
        let keep = Self::keeps(&rest);
        let bound: Vec<(usize, String)> = axes.iter().map(|a| (*a, self.letter(&dims[*a]))).collect();
        let mut outer = idx.iter();
        let inner =
            |letters: &[(usize, String)], outer: &mut std::slice::Iter<String>| -> Option<Vec<String>> {
                (0..dims.len())
                    .map(|d| match letters.iter().find(|(a, _)| *a == d) {
                        Some((_, l)) => {
                            if keep {
                                outer.next()?;
                            }
                            Some(l.clone())
                        }
                        None => outer.next().cloned(),
                    })
                    .collect()
            };
        let all = inner(&bound, &mut outer)?;
        let again: Vec<(usize, String)> = match fold {
            "var" | "std" => bound.iter().map(|(a, _)| (*a, self.letter(""))).collect(),
            _ => Vec::new(),
        };
        let second = if again.is_empty() { Vec::new() } else { inner(&again, &mut idx.iter())? };
        let head = |b: &[(usize, String)]| {
            let one = |(a, l): &(usize, String)| match self.has_plain(f, *a) {
                true => l.clone(),
                false => format!("{l} in 0..{}", dims[*a]),
            };
            b.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let (x, axes) = (self.at(f, &all)?, head(&bound));
        let x = match fold {
            "sum" | "mean" | "prod" if self.is_truth(f) => (format!("i32({})", x.0), ATOM),
            _ => x,
        };
        self.of_folds(fold, x, &axes, || Some((self.at(f, &second)?.0, head(&again))))
    }

    /// Does an axis over this dim of the value stand alone in some index?
    fn has_plain(&self, f: &F, axis: usize) -> bool {
        let Some(dims) = self.dims(f) else { return false };
        let marks: Vec<String> = (0..dims.len()).map(|d| format!("\u{1}{d}")).collect();
        let mark = &marks[axis];
        self.at(f, &marks).is_some_and(|(t, _)| {
            let ends = |rest: &str| rest.trim_start().starts_with([',', ']']);
            t.match_indices(mark.as_str())
                .any(|(at, m)| t[..at].trim_end().ends_with(['[', ',']) && ends(&t[at + m.len()..]))
        })
    }

    /// A fold, or what is made of folds.
    pub(super) fn of_folds(
        &self,
        fold: &str,
        x: Printed,
        axes: &str,
        again: impl FnOnce() -> Option<(String, String)>,
    ) -> Option<Printed> {
        Some(match fold {
            "norm" => (format!("sqrt(sum[{axes}]({} ** 2))", within(x, ATOM)), ATOM),
            "count" => (format!("sum[{axes}](i32({} != 0))", within(x, 4)), ATOM),
            "var" | "std" => {
                let (y, others) = again()?;
                let var = format!("mean[{axes}](({} - mean[{others}]({y})) ** 2)", within(x, 8));
                (if fold == "std" { format!("sqrt({var})") } else { var }, ATOM)
            }
            fold => (format!("{fold}[{axes}]({})", x.0), ATOM),
        })
    }

    /// `sum(x[m, n])`, `sum(n, x[m, n])`, `x[m, n].sum()`: the axes are those that the left side does not have.
    fn folded_elements(&self, fold: &str, on: Option<&F>, args: &Args) -> Option<Printed> {
        let mut all: Vec<&F> = on.into_iter().collect();
        all.extend(args.iter().filter(|a| a.0.is_none()).map(|a| &a.1));
        let mut axes = Vec::new();
        let mut body = None;
        for f in all {
            let ranged = match f {
                F::Slice(Some(axis), [Some(lo), Some(hi), None]) => {
                    Some(format!("{axis} in {}..{}", self.at(lo, &[])?.0, self.at(hi, &[])?.0))
                }
                F::Name(n) if body.is_none() && self.free(f) == [n.clone()] => Some(n.clone()),
                _ => None,
            };
            match ranged {
                Some(axis) => axes.push(axis),
                None if number(f).is_none() || body.is_none() => body = Some(f),
                None => {}
            }
        }
        let body = body?;
        let free = self.free(body);
        if axes.is_empty() {
            axes = free.clone();
        }
        if axes.is_empty() {
            return None;
        }
        let x = self.at(body, &[])?;
        let x = match fold {
            "sum" | "mean" | "prod" if self.is_truth(body) => (format!("i32({})", x.0), ATOM),
            _ => x,
        };
        self.of_folds(fold, x, &axes.join(", "), || {
            let other = self.letter("");
            let [axis] = &free[..] else { return None };
            Some((self.at(&renamed(body, axis, &other), &[])?.0, other))
        })
    }

    /// Softmax, scans and orders keep their axis.
    fn along(&self, name: &str, f: &F, rest: &Args, idx: &[String]) -> Option<Printed> {
        let dims = self.dims(f)?;
        let given = named(rest, &["axis", "dim"]).or_else(|| position(rest, 0)).and_then(number);
        let (axis, inner, rank) = match dims.len() {
            // Of an element: along an axis of the left side.
            0 => {
                let mut names = Vec::new();
                names_in(f, &mut names);
                let own: Vec<&String> = self.left.iter().filter(|l| names.contains(l)).collect();
                let n =
                    given.filter(|g| own.len() == self.left.len() && g.unsigned_abs() as usize <= own.len());
                let at = n.map_or(own.len() as i64 - 1, |n| if n < 0 { n + own.len() as i64 } else { n });
                ((*own.get(usize::try_from(at).ok()?)?).clone(), f.clone(), 0)
            }
            rank => {
                let at = given.unwrap_or(rank as i64 - 1);
                let at = usize::try_from(if at < 0 { at + rank as i64 } else { at }).ok()?;
                (idx.get(at).filter(|i| is_word(i))?.clone(), f.clone(), rank)
            }
        };
        let here = |from: &str, to: &str| match rank {
            0 => self.at(&renamed(&inner, from, to), &[]),
            _ => {
                let idx: Vec<String> =
                    idx.iter().map(|i| if i == from { to.to_string() } else { i.clone() }).collect();
                self.at(&inner, &idx)
            }
        };
        let x = here(&axis, &axis)?;
        if name == "log_softmax" {
            let k = self.letter("");
            return Some((format!("{} - logsumexp[{k}]({})", within(x, 8), here(&axis, &k)?.0), 8));
        }
        Some((format!("{name}[{axis}]({})", x.0), ATOM))
    }
}

fn is_choice(name: &str) -> bool {
    matches!(name, "where" | "select" | "Select" | "if_then_else" | "ifelse" | "masked_fill")
}

/// `x.size(0)`
fn number_of(rest: &Args, name: &str) -> Option<i64> {
    (name == "size").then(|| position(rest, 0).and_then(number)).flatten()
}

fn dtype_of(f: &F) -> Option<String> {
    let word = match f {
        F::Name(n) | F::Member(_, n) | F::Text(n) => n,
        _ => return None,
    };
    foreign::dtype(word).or(foreign::is_like_a_dtype(word).then_some(word.as_str())).map(String::from)
}

fn is_a_dtype(f: &F) -> bool {
    matches!(f, F::Member(..) | F::Name(_) | F::Text(_)) && dtype_of(f).is_some()
}
