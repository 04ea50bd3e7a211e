//! Grouping: which statements share a kernel, and each kernel's form.
//!
//! Statements are taken in order; each joins the latest kernel that may hold it, or starts its own. A statement may
//! join a kernel if everything it depends on is there or before, and the group is one row kernel, one map, a product
//! with what follows it at its points, or small products that share an operand.

use super::facts::{self, Facts};
use super::forms;
use super::{model, rows};
use crate::ir::graph::*;
use crate::ir::plan::*;
use crate::lower::{contract_pattern, reads_before};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Chooses kernels for a graph's statements.
pub fn group(
    g: &Graph,
    force: Option<Form>,
    takes: super::hoist::Takes,
    notes: &mut Vec<String>,
) -> Vec<PlanKernel> {
    let mut pass = Memory::default();
    let kernels = some(g, &mut pass, 0..g.stmts.len(), force, takes, notes);
    let mut names = Names::default();
    kernels
        .into_iter()
        .map(|k| {
            let last = *k.stmts.last().expect("a kernel has statements");
            PlanKernel { name: names.fresh(&last_name(g, &g.stmts[last])), stmts: k.stmts, form: k.form }
        })
        .collect()
}

/// Statements by what they define and evaluate: equal contents, equal answers.
pub type Content = Vec<(Vec<TensorId>, Vec<ExprId>)>;

/// The content of some statements.
pub fn content(g: &Graph, stmts: impl IntoIterator<Item = usize>) -> Content {
    stmts.into_iter().map(|i| &g.stmts[i]).map(|s| (s.targets(), facts::roots(s))).collect()
}

/// What was found out about the expressions of one graph, which may grow.
#[derive(Default)]
pub struct Memory {
    pub facts: Facts,
    fits: FxHashMap<(Form, Form, Content), Result<Form, String>>,
    forms: FxHashMap<Content, Option<Form>>,
    costs: FxHashMap<(Form, Content), f64>,
}

impl Memory {
    /// Microseconds of a kernel in the model.
    pub fn cost(&mut self, g: &Graph, stmts: &[usize], form: Form) -> f64 {
        let key = (form, content(g, stmts.iter().copied()));
        if let Some(&us) = self.costs.get(&key) {
            return us;
        }
        let us = model::kernel(g, &mut self.facts, stmts, form);
        self.costs.insert(key, us);
        us
    }
}

/// Chooses kernels for some of a graph's statements, as if there were no others.
pub fn some(
    g: &Graph,
    memory: &mut Memory,
    stmts: std::ops::Range<usize>,
    force: Option<Form>,
    takes: super::hoist::Takes,
    notes: &mut Vec<String>,
) -> Vec<Group> {
    let mut pass = Pass { g, memory, force, takes, notes, kernels: Vec::new(), home: BTreeMap::new() };
    stmts.for_each(|i| pass.place(i));
    // Those that became part of a later one.
    pass.kernels.retain(|k| !k.stmts.is_empty());
    pass.kernels
}

/// Statements that share a kernel of this form.
pub struct Group {
    pub stmts: Vec<usize>,
    pub form: Form,
}

struct Pass<'a> {
    g: &'a Graph,
    memory: &'a mut Memory,
    force: Option<Form>,
    takes: super::hoist::Takes<'a>,
    notes: &'a mut Vec<String>,
    kernels: Vec<Group>,
    /// The kernel that defines a tensor.
    home: BTreeMap<TensorId, usize>,
}

impl Pass<'_> {
    fn place(&mut self, i: usize) {
        let s = &self.g.stmts[i];
        let Some(form) = self.form(s, i) else { return };
        let kernel = match self.join(i, form) {
            Some((k, form)) => {
                self.kernels[k].stmts.push(i);
                self.kernels[k].form = form;
                k
            }
            None => {
                self.kernels.push(Group { stmts: vec![i], form });
                self.kernels.len() - 1
            }
        };
        for t in s.targets() {
            self.home.insert(t, kernel);
        }
        self.take_in(i, kernel);
    }

    /// Row kernels whose values this statement's row kernel reads become part of it, where that costs less: they look at
    /// the same rows, which are then read once.
    fn take_in(&mut self, i: usize, k: usize) {
        if self.force.is_some() || self.kernels[k].form != Form::Row {
            return;
        }
        let reads = self.memory.facts.stmt_reads(self.g, &self.g.stmts[i]);
        let homes: BTreeSet<usize> = reads.iter().filter_map(|t| self.home.get(t)).copied().collect();
        for earlier in homes.into_iter().filter(|&e| e < k) {
            if self.kernels[earlier].form != Form::Row || !self.may_wait(earlier, k) {
                continue;
            }
            let mut all = [&self.kernels[earlier].stmts[..], &self.kernels[k].stmts[..]].concat();
            all.sort_unstable();
            if self.same_rows(&all, i, earlier).is_err() {
                continue;
            }
            let apart: f64 = [earlier, k]
                .map(|k| {
                    let stmts = self.kernels[k].stmts.clone();
                    self.memory.cost(self.g, &stmts, Form::Row)
                })
                .iter()
                .sum();
            if self.memory.cost(self.g, &all, Form::Row) < apart {
                self.kernels[earlier].stmts.clear();
                all.iter().flat_map(|&s| self.g.stmts[s].targets()).for_each(|t| {
                    self.home.insert(t, k);
                });
                self.kernels[k].stmts = all;
            }
        }
    }

    /// May a kernel run as late as another: does nothing between read what it makes, or write over what it reads?
    fn may_wait(&mut self, earlier: usize, k: usize) -> bool {
        let made: BTreeSet<TensorId> =
            self.kernels[earlier].stmts.iter().flat_map(|&s| self.g.stmts[s].targets()).collect();
        let between: Vec<usize> =
            self.kernels[earlier + 1..=k].iter().flat_map(|k| k.stmts.clone()).collect();
        let own = self.kernels[k].stmts.clone();
        between.into_iter().all(|s| {
            let stmt = &self.g.stmts[s];
            let fresh = |t: &TensorId| {
                let t = self.g.tensor(*t);
                t.version == 0 && matches!(t.role, Role::Local | Role::Result)
            };
            let reads = self.memory.facts.stmt_reads(self.g, stmt);
            (own.contains(&s) || !reads.iter().any(|t| made.contains(t))) && stmt.targets().iter().all(fresh)
        })
    }

    fn form(&mut self, s: &Stmt, i: usize) -> Option<Form> {
        let key = content(self.g, [i]);
        if let Some(&form) = self.memory.forms.get(&key) {
            return form;
        }
        let form = self.form_of(s, i);
        self.memory.forms.insert(key, form);
        form
    }

    fn form_of(&mut self, s: &Stmt, i: usize) -> Option<Form> {
        let Stmt::Define(d) = s else { return forms::of_stmt(self.g, &mut self.memory.facts, s, self.force) };
        Some(forms::of_define(self.g, &mut self.memory.facts, i, d, self.force, (self.takes)(self.g, d)))
    }

    /// The kernel that statement `i` may join, and its form then.
    fn join(&mut self, i: usize, form: Form) -> Option<(usize, Form)> {
        if !matches!(form, Form::Map | Form::Row | Form::Contract) {
            return None;
        }
        let reads = self.memory.facts.stmt_reads(self.g, &self.g.stmts[i]);
        let first = reads.iter().filter_map(|t| self.home.get(t)).max().copied().unwrap_or(0);
        for k in (first..self.kernels.len()).rev() {
            if self.kernels[k].stmts.is_empty() {
                continue;
            }
            match self.fits(i, form, k) {
                Ok(form) => return Some((k, form)),
                Err(why) if self.shares(i, k) => self.note_apart(i, k, &why),
                Err(_) => {}
            }
        }
        None
    }

    fn note_apart(&mut self, i: usize, k: usize, why: &str) {
        let other = *self.kernels[k].stmts.last().expect("a kernel has statements");
        let (a, b) = (last_name(self.g, &self.g.stmts[i]), last_name(self.g, &self.g.stmts[other]));
        self.notes.push(format!("{a} and {b} are two kernels: {why}"));
    }

    fn fits(&mut self, i: usize, form: Form, k: usize) -> Result<Form, String> {
        let all = self.kernels[k].stmts.iter().copied().chain([i]);
        let key = (self.kernels[k].form, form, content(self.g, all));
        if let Some(known) = self.memory.fits.get(&key) {
            return known.clone();
        }
        let fits = self.fits_new(i, form, k);
        self.memory.fits.insert(key, fits.clone());
        fits
    }

    fn fits_new(&mut self, i: usize, form: Form, k: usize) -> Result<Form, String> {
        let mut stmts = self.kernels[k].stmts.clone();
        stmts.push(i);
        match (self.kernels[k].form, form) {
            (Form::Map, Form::Map) => match self.same_map(i, k) {
                Err(_) if self.reduces(&stmts) => self.same_rows(&stmts, i, k).map(|_| Form::Row),
                other => other.map(|_| Form::Map),
            },
            (Form::Row, Form::Row | Form::Map) | (Form::Map, Form::Row) => {
                self.same_rows(&stmts, i, k).map(|_| Form::Row)
            }
            // A map at the product's own points is part of its epilogue.
            (Form::Contract, Form::Map) if self.shares(i, k) => {
                contract_pattern::joins(self.g, &stmts).map(|_| Form::Contract)
            }
            (Form::Scan, Form::Map) => self.after_scan(&stmts).map(|_| Form::Scan),
            (Form::Contract, Form::Contract) if self.shares(i, k) => {
                self.siblings(&stmts, i, k).map(|_| Form::Contract)
            }
            (other, _) => {
                Err(format!("{} is a {} kernel", last_name(self.g, &self.g.stmts[stmts[0]]), other.name()))
            }
        }
    }

    /// Products over the same points that share an operand: one kernel, if its launch is worth more than the registers
    /// that their sums then share.
    fn siblings(&mut self, stmts: &[usize], i: usize, k: usize) -> Result<(), String> {
        const MOST: usize = 4;
        if self.force.is_some() || stmts.len() > MOST {
            return Err("a contract kernel of its own".into());
        }
        let reads = self.memory.facts.stmt_reads(self.g, &self.g.stmts[i]);
        if self.kernels[k].stmts.iter().any(|&s| self.g.stmts[s].targets().iter().any(|t| reads.contains(t)))
        {
            return Err("one reads what the other writes".into());
        }
        contract_pattern::joins(self.g, stmts)?;
        let one = self.memory.cost(self.g, stmts, Form::Contract);
        let earlier = self.kernels[k].stmts.clone();
        let two = self.memory.cost(self.g, &earlier, Form::Contract)
            + self.memory.cost(self.g, &[i], Form::Contract);
        if one >= two {
            return Err(format!(
                "{two:.1} us in two against {one:.1} us in one, where their sums share registers"
            ));
        }
        Ok(())
    }

    fn reduces(&mut self, stmts: &[usize]) -> bool {
        stmts
            .iter()
            .flat_map(|&s| facts::roots(&self.g.stmts[s]))
            .any(|e| self.memory.facts.has_fold(self.g, e))
    }

    /// A map at the points of a scan that reads it, and what else the kernel defines, only there.
    fn after_scan(&mut self, stmts: &[usize]) -> Result<(), String> {
        let (&last, before) = stmts.split_last().ok_or("nothing to join")?;
        let Stmt::Define(d) = &self.g.stmts[last] else { return Err("not a map".into()) };
        let written: BTreeSet<TensorId> = before.iter().flat_map(|&s| self.g.stmts[s].targets()).collect();
        let Some((target, along, backwards)) = before.iter().find_map(|&s| match &self.g.stmts[s] {
            Stmt::Scan(s) => Some((s.target, s.along, false)),
            Stmt::Recur(r) => {
                let step = r.steps.first()?;
                Some((r.members.first()?.target, *step.position.first()?, step.descending))
            }
            _ => None,
        }) else {
            return Err("no scan".into());
        };
        let shape = |t: TensorId| (&self.g.tensor(t).dims, &self.g.tensor(t).lo);
        if shape(target) != shape(d.target) {
            return Err("they have different points".into());
        }
        if self.reduces(&[last]) {
            return Err("one has a loop of its own".into());
        }
        let reads = crate::lower::index::reads(self.g, &self.g.stmts[last]);
        let own: Vec<_> = reads.iter().filter(|(_, r)| written.contains(&r.tensor)).collect();
        let near = |r: &Read| {
            let before = r.tensor == target && reads_before(self.g, r, &d.axes, along, backwards);
            before || crate::lower::reads_at(self.g, r, &d.axes)
        };
        if own.is_empty() || !own.iter().all(|(_, r)| near(r)) {
            return Err("it is read elsewhere than at the point or before it".into());
        }
        Ok(())
    }

    /// Elementwise statements over the same points that share an input and do not read each other.
    fn same_map(&mut self, i: usize, k: usize) -> Result<(), String> {
        const MOST: usize = 8;
        const FEW: f64 = 65536.0;
        if self.kernels[k].stmts.len() >= MOST {
            return Err("enough in one kernel".into());
        }
        // What a launch costs is worth saving only where there are few points.
        let points = facts::volume(self.g, &super::sites::stmt_axes(&self.g.stmts[i]));
        if !self.shares(i, k) && (points > FEW || self.force.is_some()) {
            return Err("nothing in common".into());
        }
        let ranges = |s: usize| -> Vec<_> {
            super::sites::stmt_axes(&self.g.stmts[s]).iter().map(|&a| self.g.axis_range(a)).collect()
        };
        let stmts = self.kernels[k].stmts.clone();
        if stmts.iter().any(|&s| ranges(s) != ranges(i)) {
            return Err("they have different points".into());
        }
        let reads = self.memory.facts.stmt_reads(self.g, &self.g.stmts[i]);
        let written: BTreeSet<TensorId> = stmts.iter().flat_map(|&s| self.g.stmts[s].targets()).collect();
        // What it reads of them is at hand at its own point only.
        let at_point = |r: &Read| match &self.g.stmts[i] {
            Stmt::Define(d) => crate::lower::reads_at(self.g, r, &d.axes),
            _ => false,
        };
        let theirs = crate::lower::index::reads(self.g, &self.g.stmts[i]);
        if reads.iter().any(|t| written.contains(t))
            && !theirs.iter().filter(|(_, r)| written.contains(&r.tensor)).all(|(_, r)| at_point(r))
        {
            return Err("one reads what the other writes".into());
        }
        if stmts
            .iter()
            .chain([&i])
            .any(|&s| facts::roots(&self.g.stmts[s]).iter().any(|&e| self.memory.facts.has_fold(self.g, e)))
        {
            return Err("one has a loop of its own".into());
        }
        Ok(())
    }

    fn same_rows(&mut self, stmts: &[usize], i: usize, k: usize) -> Result<(), String> {
        /// Statements of one row kernel: what more of them keep in registers does not fit.
        const MOST: usize = 16;
        if stmts.len() > MOST {
            return Err("enough in one kernel".into());
        }
        if !self.shares(i, k) {
            return Err("nothing in common".into());
        }
        let rows = rows::analyse(self.g, &mut self.memory.facts, stmts)?;
        let points = rows::row_points(self.g, &rows);
        if !rows::keep_busy(self.g, &mut self.memory.facts, &rows) {
            return Err(format!("{} rows of {points} points leave most of the device idle", rows.count()));
        }
        Ok(())
    }

    /// Do they read a tensor in common, or one what the other defines?
    fn shares(&mut self, i: usize, k: usize) -> bool {
        let ours = self.memory.facts.stmt_reads(self.g, &self.g.stmts[i]);
        let stmts = self.kernels[k].stmts.clone();
        stmts.into_iter().any(|s| {
            let theirs = self.memory.facts.stmt_reads(self.g, &self.g.stmts[s]);
            let big = |t: &&TensorId| !self.g.tensor(**t).dims.is_empty();
            ours.iter().filter(big).any(|t| theirs.contains(t))
                || self.g.stmts[s].targets().iter().any(|t| ours.contains(t))
        })
    }
}

/// The name of a statement's last target.
pub fn last_name(g: &Graph, s: &Stmt) -> String {
    s.targets().last().map_or_else(String::new, |&t| g.tensor(t).name.clone())
}

/// Hands out kernel names, each once.
#[derive(Default)]
pub struct Names {
    used: BTreeSet<String>,
}

impl Names {
    pub fn fresh(&mut self, wish: &str) -> String {
        let mut name = wish.to_string();
        let mut n = 1;
        while !self.used.insert(name.clone()) {
            n += 1;
            name = format!("{wish}_{n}");
        }
        name
    }
}
