//! Extraction of the kernels: which values are stored, by search.
//!
//! A state is the graph's statements: what they define is stored, anything else is computed where it is read. Moves lead
//! from one to another: a stored local goes into its readers, a value inside statements becomes a definition, or, once
//! those gain nothing more, a value is spelled in another way of its class or read where a statement stores it
//! (`classes`). Candidates of the second kind are reductions, roundings, values with several uses and values that do
//! not change along some axis of the loops around them. After a move the statements it touched are put in order by
//! `hoist` (a form must take what stands there), and the kernels around are grouped and costed by `model` before
//! and after; what gains stays. Single moves are tried until none gains, then pairs of neighbouring ones.
//!
//! The search starts from what `inline` and `hoist` chose and keeps only gains, so it is never worse in the model. It
//! is deterministic, its limits are counts, and costs are remembered by the kernel's roots: for a big program only the
//! kernels around a move are looked at.

use super::classes::{Change, Classes};
use super::facts::{self, Facts};
use super::group::{self, Content};
use super::hoist::{self, Takes};
use super::inline::{self, Readers, Wishes};
use super::{candidates, shape};
use crate::ir::graph::*;
use crate::lower::fold_pattern;
use crate::vocab::dtype::Ty;
use girih_dsl::ast::Span;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Rounds over all candidates.
const ROUNDS: usize = 4;
/// Pairs of candidates that are tried in all.
const PAIRS: usize = 64;
/// Statements that are looked at around a move.
const WINDOW: usize = 48;
/// Statements before and after those that a move touches that may change kernels with them.
const MARGIN: usize = 2;
/// Values inside one statement that may become definitions.
const INSIDE: usize = 6;
/// What a move must gain: microseconds, and a part of the kernels around.
const GAIN: (f64, f64) = (0.1, 0.01);

/// Searches for a better set of stored values; says for each candidate what the model gives both ways. `names` are
/// those of the program's definitions by where their values stand in the source.
pub fn choose(
    g: &mut Graph,
    wishes: &Wishes,
    takes: Takes,
    names: &BTreeMap<Span, String>,
    chain: bool,
    notes: &mut Vec<String>,
) -> bool {
    let mut s = Search::new(g, wishes, takes, names, chain);
    let changed = s.run();
    let verdicts = std::mem::take(&mut s.verdicts);
    for (name, text) in verdicts {
        let same = [format!("{name} is stored: "), format!("{name} is computed where it is read: ")];
        let computed = text.starts_with(&same[1]);
        let recomputed =
            |n: &String| n.contains(" us of recomputation against ") || computed && n.starts_with(&same[0]);
        notes.retain(|n| !(recomputed(n) && same.iter().any(|s| n.starts_with(s))));
        notes.push(text);
    }
    changed
}

/// The statements after each move that is legal, those that cost least first; the graph's own stay as they are.
pub fn neighbours(
    g: &mut Graph,
    wishes: &Wishes,
    takes: Takes,
    names: &BTreeMap<Span, String>,
    chain: bool,
) -> Vec<Vec<Stmt>> {
    /// Moves that are looked at in full.
    const MOST: usize = 16;
    let mut s = Search::new(g, wishes, takes, names, chain);
    let inside = s.inside();
    let mut moves = s.moves(&inside);
    if s.g.tiles.is_empty() {
        let changes = Classes::of(s.g).changes(s.g, &mut s.memory.facts);
        moves.extend(changes.into_iter().map(Move::Spell));
    }
    let trials = moves.iter().filter_map(|m| s.trial(&[m], &inside).ok());
    let mut trials: Vec<Trial> = trials.filter(|t| t.after.is_finite()).collect();
    trials.sort_by(|a, b| (a.after - a.before).total_cmp(&(b.after - b.before)));
    let after = |t: Trial| {
        let mut stmts = s.g.stmts.clone();
        stmts.splice(t.around, t.stmts);
        stmts
    };
    trials.into_iter().take(MOST).map(after).collect()
}

/// Microseconds of all kernels of a graph.
pub fn total(g: &Graph, takes: Takes) -> f64 {
    let mut memory = group::Memory::default();
    let kernels = group::some(g, &mut memory, 0..g.stmts.len(), None, takes, &mut Vec::new());
    kernels.iter().map(|k| memory.cost(g, &k.stmts, k.form)).sum()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Move {
    /// Store this local no more.
    Inline(TensorId),
    /// Store the values of this shape.
    Store(String),
    /// Compute what this product's weights come from where the product is made (`cascade`).
    Chain(TensorId),
    /// Write a class in another way wherever it stands, or read the tensor that holds it (`classes`).
    Spell(Vec<Change>),
}

impl Move {
    /// Does it need classes to be found?
    fn is_of_classes(&self) -> bool {
        matches!(self, Move::Spell(_) | Move::Store(_))
    }
}

/// A value inside statements that could be stored.
#[derive(Default)]
struct Inside {
    /// Statements, by their first target, the expression in each, and its free axes in one order for all.
    places: Vec<(TensorId, ExprId, Vec<AxisId>)>,
}

struct Search<'a> {
    g: &'a mut Graph,
    memory: group::Memory,
    wishes: &'a Wishes,
    takes: Takes<'a>,
    names: &'a BTreeMap<Span, String>,
    hoisted: hoist::Known,
    lifted: BTreeMap<String, (TensorId, Stmt)>,
    windows: FxHashMap<Content, f64>,
    /// Costs after a move from a window's content.
    tried: FxHashMap<(Move, Content), f64>,
    /// What is said of each candidate.
    verdicts: BTreeMap<String, String>,
    /// Where the statements stand and who reads what: of `g` as it is between trials.
    at: FxHashMap<TensorId, usize>,
    readers: Readers,
    /// Products may be chained.
    chain: bool,
    /// Once the statements as they stand offer nothing more: what they are equal to.
    classes: Option<Classes>,
    changes: Option<Vec<Vec<Change>>>,
}

/// Costs of the kernels around a move before it and after, and the statements that take the place of those around.
struct Trial {
    before: f64,
    after: f64,
    around: Range<usize>,
    stmts: Vec<Stmt>,
}

impl Trial {
    fn gains(&self) -> bool {
        self.before - self.after > GAIN.0.max(self.before * GAIN.1)
    }
}

impl<'a> Search<'a> {
    fn new(
        g: &'a mut Graph,
        wishes: &'a Wishes,
        takes: Takes<'a>,
        names: &'a BTreeMap<Span, String>,
        chain: bool,
    ) -> Search<'a> {
        let mut s = Search {
            at: FxHashMap::default(),
            readers: Readers::of(g, &mut Facts::default()),
            chain,
            g,
            memory: group::Memory::default(),
            wishes,
            takes,
            names,
            hoisted: hoist::Known::default(),
            lifted: BTreeMap::new(),
            windows: FxHashMap::default(),
            tried: FxHashMap::default(),
            verdicts: BTreeMap::new(),
            classes: None,
            changes: None,
        };
        s.look();
        s
    }

    /// First with the statements as they stand, then with what else their classes hold.
    fn run(&mut self) -> bool {
        let mut changed = self.settle();
        if !self.g.tiles.is_empty() {
            return changed;
        }
        for _ in 0..ROUNDS {
            self.classes = Some(Classes::of(self.g));
            self.changes = None;
            if !self.settle() {
                break;
            }
            changed = true;
        }
        changed
    }

    /// Rounds until nothing gains.
    fn settle(&mut self) -> bool {
        let mut changed = false;
        for _ in 0..ROUNDS {
            let singles = self.singles();
            let more = singles || self.pairs();
            changed |= more;
            // Classes speak of the statements as they were.
            if !more || self.classes.is_some() {
                break;
            }
        }
        changed
    }

    /// Tries each candidate alone; keeps what gains.
    fn singles(&mut self) -> bool {
        let mut changed = false;
        let inside = self.inside();
        for m in self.moves(&inside) {
            let name = self.title(&m, &inside);
            match self.trial(&[&m], &inside) {
                Ok(t) => {
                    let gains = self.is_worth(&m, &t);
                    self.say(&m, name, &t, gains);
                    if gains {
                        self.accept(t);
                        changed = true;
                    }
                }
                Err(why) => {
                    if let Move::Chain(_) = m
                        && why != fold_pattern::NO_FOLD
                    {
                        let text = format!("{name} is a kernel apart from what it is made of: {why}");
                        self.verdicts.entry(format!("{name} chained")).or_insert(text);
                    }
                    if let Move::Inline(_) = m {
                        self.verdicts.entry(name.clone()).or_insert(format!("{name} is stored: {why}"));
                    }
                }
            }
        }
        changed
    }

    fn say(&mut self, m: &Move, name: String, t: &Trial, gains: bool) {
        if let Move::Chain(_) = m {
            let how = if gains { "one kernel with" } else { "a kernel apart from" };
            let text = format!(
                "{name} is {how} what its weights come from: {:.1} us chained, {:.1} us apart",
                t.after, t.before
            );
            self.verdicts.insert(format!("{name} chained"), text);
            return;
        }
        if let Move::Spell(changes) = m {
            if gains {
                let text = self.told(&name, changes, t);
                self.verdicts.insert(format!("{name} spelled"), text);
            }
            return;
        }
        let stored = matches!(m, Move::Inline(_)) != gains;
        let (with, without) =
            if matches!(m, Move::Inline(_)) { (t.before, t.after) } else { (t.after, t.before) };
        let how = if stored { "stored" } else { "computed where it is read" };
        let text =
            format!("{name} is {how}: its kernels take {with:.1} us if it is stored, {without:.1} us if not");
        self.verdicts.insert(name, text);
    }

    /// What a change to an equal value is, and what it is worth.
    fn told(&mut self, name: &str, changes: &[Change], t: &Trial) -> String {
        let worth = format!("its kernels take {:.1} us, {:.1} us as it stood", t.after, t.before);
        let rules = super::classes::rules_of(self.g, &changes[0]).join(", ");
        let by = if rules.is_empty() { rules } else { format!(" by {rules}") };
        match self.g.expr(changes[0].2) {
            Expr::Read(r) => {
                let from = &self.g.tensor(r.tensor).name;
                format!("{name} is what {from} holds{by}, and is read there: {worth}")
            }
            _ => {
                let (_, from, to) = changes[0];
                let now = self.memory.facts.reads(self.g, to);
                let before = self.memory.facts.reads(self.g, from);
                let gone = before.difference(&now).map(|&t| self.g.tensor(t).name.as_str());
                let gone = gone.collect::<Vec<_>>().join(", ");
                let gone = if gone.is_empty() { gone } else { format!(", without {gone}") };
                format!("{name} is made in another way{by}{gone}: {worth}")
            }
        }
    }

    /// Tries pairs of candidates that meet in a statement.
    fn pairs(&mut self) -> bool {
        let inside = self.inside();
        let moves = self.moves(&inside);
        let touched: Vec<BTreeSet<TensorId>> = moves.iter().map(|m| self.touches(m, &inside)).collect();
        let mut tried = 0;
        for i in 0..moves.len() {
            for j in i + 1..moves.len() {
                // Without classes in it, a pair was tried before.
                let known = self.classes.is_some() && !moves[i].is_of_classes() && !moves[j].is_of_classes();
                if known || touched[i].is_disjoint(&touched[j]) {
                    continue;
                }
                tried += 1;
                if tried > PAIRS {
                    return false;
                }
                let Ok(t) = self.trial(&[&moves[i], &moves[j]], &inside) else { continue };
                if t.gains() {
                    for m in [&moves[i], &moves[j]] {
                        let name = self.title(m, &inside);
                        self.say(m, name, &t, true);
                    }
                    self.accept(t);
                    return true;
                }
            }
        }
        false
    }

    fn title(&self, m: &Move, inside: &BTreeMap<String, Inside>) -> String {
        match m {
            Move::Inline(t) | Move::Chain(t) => self.g.tensor(*t).name.clone(),
            Move::Spell(changes) => {
                let (target, from, _) = changes[0];
                let whole = |s: &Stmt| facts::roots(s).contains(&from);
                match self.at.get(&target).is_some_and(|&i| whole(&self.g.stmts[i])) {
                    true => self.g.tensor(target).name.clone(),
                    false => self.value_name(target, from),
                }
            }
            Move::Store(key) => self.name_of(&inside[key]),
        }
    }

    /// The name that the program gives a value, or one made of the reader's.
    fn name_of(&self, v: &Inside) -> String {
        self.value_name(v.places[0].0, v.places[0].1)
    }

    fn value_name(&self, target: TensorId, e: ExprId) -> String {
        if let Some(name) = self.names.get(&self.g.span(e)) {
            return name.clone();
        }
        let word = match self.g.expr(e) {
            Expr::Fold(Fold { combine: Combine::Builtin(m), .. }) => m.name(),
            Expr::Call(f, _) => f.row().name,
            Expr::Round(d, ..) => d.name(),
            _ => "part",
        };
        format!("{}.{word}", self.g.tensor(target).name)
    }

    fn moves(&mut self, inside: &BTreeMap<String, Inside>) -> Vec<Move> {
        let mut moves = Vec::new();
        if let Some(classes) = &mut self.classes {
            let (g, facts) = (&mut *self.g, &mut self.memory.facts);
            let changes = self.changes.get_or_insert_with(|| classes.changes(g, facts));
            moves.extend(changes.iter().cloned().map(Move::Spell));
        }
        for s in &self.g.stmts {
            if let Stmt::Define(d) = s
                && self.g.tensor(d.target).role == Role::Local
            {
                moves.push(Move::Inline(d.target));
            }
        }
        moves.extend(inside.keys().map(|k| Move::Store(k.clone())));
        if self.chain && self.wishes.store.is_empty() {
            for s in &self.g.stmts {
                if let Stmt::Define(d) = s
                    && inline::is_product_of_matrix(self.g, &mut self.memory.facts, d.value)
                {
                    moves.push(Move::Chain(d.target));
                }
            }
        }
        moves
    }

    fn accept(&mut self, t: Trial) {
        self.g.stmts.splice(t.around, t.stmts);
        inline::drop_unread(self.g, &mut self.memory.facts, &BTreeSet::new());
        self.look();
    }

    /// Notes where everything stands.
    fn look(&mut self) {
        let stmts = self.g.stmts.iter().enumerate();
        self.at = stmts.flat_map(|(i, s)| s.targets().into_iter().map(move |t| (t, i))).collect();
        self.readers = Readers::of(self.g, &mut self.memory.facts);
    }

    /// Where a tensor is defined among the statements at hand.
    fn position(&self, t: TensorId) -> Option<usize> {
        self.g.stmts.iter().position(|s| s.targets().contains(&t))
    }

    /// Statements, by target, that a move changes.
    fn touches(&mut self, m: &Move, inside: &BTreeMap<String, Inside>) -> BTreeSet<TensorId> {
        match m {
            Move::Store(key) => inside[key].places.iter().map(|p| p.0).collect(),
            // With what is read no more.
            Move::Spell(changes) => {
                let mut touched: BTreeSet<TensorId> = changes.iter().map(|c| c.0).collect();
                for (_, from, to) in changes {
                    let now = self.memory.facts.reads(self.g, *to);
                    let before = self.memory.facts.reads(self.g, *from);
                    touched
                        .extend(before.difference(&now).filter(|t| self.g.tensor(**t).role == Role::Local));
                }
                let copies = changes.iter().filter(|c| self.is_copy(c)).map(|c| c.0);
                let readers: Vec<usize> = copies.flat_map(|t| self.readers.readers(t)).collect();
                touched.extend(readers.into_iter().flat_map(|i| self.g.stmts[i].targets()));
                touched
            }
            // With the values that may go into it.
            Move::Chain(t) => self.above(*t).into_iter().chain([*t]).collect(),
            Move::Inline(t) => {
                let readers = self.readers.readers(*t);
                readers.into_iter().flat_map(|i| self.g.stmts[i].targets()).chain([*t]).collect()
            }
        }
    }

    /// Locals that a statement reads, and that those read, a few steps up.
    fn above(&mut self, t: TensorId) -> Vec<TensorId> {
        const UP: usize = 4;
        let mut found = vec![t];
        for _ in 0..UP {
            let reads = |t: &TensorId, s: &mut Self| match s.at.get(t) {
                Some(&i) => s.memory.facts.stmt_reads(s.g, &s.g.stmts[i]),
                None => BTreeSet::new(),
            };
            let next: BTreeSet<TensorId> = found.clone().iter().flat_map(|t| reads(t, self)).collect();
            let local = |t: &TensorId| self.g.tensor(*t).role == Role::Local && self.at.contains_key(t);
            let new: Vec<TensorId> = next.into_iter().filter(|t| local(t) && !found.contains(t)).collect();
            if new.is_empty() {
                break;
            }
            found.extend(new);
        }
        found.remove(0);
        found
    }

    /// Whether a statement holds a fold, or reads a local that does.
    fn is_of_folds(&mut self, i: usize) -> bool {
        let Stmt::Define(d) = self.g.stmts[i].clone() else { return true };
        if self.memory.facts.has_fold(self.g, d.value) {
            return true;
        }
        let reads = self.memory.facts.stmt_reads(self.g, &self.g.stmts[i]);
        (0..i).rev().any(|j| {
            let made = self.g.stmts[j].targets().iter().any(|t| reads.contains(t));
            made && self.is_of_folds(j)
        })
    }

    /// Puts the weights of a product, and what they come from, into it, until it is a chain of two products.
    fn chain(&mut self, t: TensorId) -> Result<Vec<TensorId>, String> {
        const STEPS: usize = 8;
        let mut why = "its weights are not those of a cascade".to_string();
        for step in 0..STEPS {
            let at = self.position(t).ok_or("it is not there")?;
            let Stmt::Define(d) = self.g.stmts[at].clone() else { break };
            match self.memory.facts.chain(self.g, &d) {
                // It is one already.
                Ok(_) if step == 0 => return Err(fold_pattern::NO_FOLD.into()),
                Ok(_) => return Ok(vec![t]),
                Err(e) => why = e,
            }
            let reads = self.memory.facts.stmt_reads(self.g, &self.g.stmts[at]);
            let local = |s: &Stmt| match s {
                Stmt::Define(d) => self.g.tensor(d.target).role == Role::Local && reads.contains(&d.target),
                _ => false,
            };
            // The last of them is nearest. Matrices are read as they are stored.
            let from: Vec<usize> = (0..at).rev().filter(|&i| local(&self.g.stmts[i])).collect();
            let Some(from) = from.into_iter().find(|&i| self.is_of_folds(i)) else { break };
            inline::put_in_one(self.g, &mut self.memory.facts, from, at)?;
        }
        Err(why)
    }

    /// What the kernels around would cost after these moves; the graph's statements stay as they are. Only the
    /// statements around are looked at: a move changes no others.
    fn trial(&mut self, moves: &[&Move], inside: &BTreeMap<String, Inside>) -> Result<Trial, String> {
        if !moves.iter().all(|m| self.is_ready(m)) {
            return Err("what it reads is there no more".into());
        }
        let touched: BTreeSet<TensorId> = moves.iter().flat_map(|m| self.touches(m, inside)).collect();
        let at: Vec<usize> = touched.iter().filter_map(|t| self.at.get(t).copied()).collect();
        let (Some(&lo), Some(&hi)) = (at.iter().min(), at.iter().max()) else {
            return Err("nothing reads it".into());
        };
        let around = lo.saturating_sub(MARGIN)..(hi + 1 + MARGIN).min(self.g.stmts.len());
        if around.len() > WINDOW {
            return Err("it is read far from where it is made".into());
        }
        let content = group::content(self.g, around.clone());
        let before = self.window(around.clone());
        if let [m] = moves
            && let Some(&after) = self.tried.get(&((*m).clone(), content.clone()))
        {
            let t = Trial { before, after, around: around.clone(), stmts: Vec::new() };
            if !self.is_worth(m, &t) {
                return Ok(t);
            }
        }
        let part = self.g.stmts[around.clone()].to_vec();
        let all = std::mem::replace(&mut self.g.stmts, part);
        let done = self.apply_all(moves, inside, &around);
        let after = if done.is_ok() { self.window(0..self.g.stmts.len()) } else { f64::INFINITY };
        let stmts = std::mem::replace(&mut self.g.stmts, all);
        done?;
        if let [m] = moves {
            self.tried.insert(((*m).clone(), content), after);
        }
        Ok(Trial { before, after, around, stmts })
    }

    /// Makes moves where the graph's statements are only those around.
    fn apply_all(
        &mut self,
        moves: &[&Move],
        inside: &BTreeMap<String, Inside>,
        around: &Range<usize>,
    ) -> Result<(), String> {
        let far = |readers: &Readers, t: TensorId| readers.readers(t).iter().any(|j| !around.contains(j));
        for m in moves {
            let kept: BTreeSet<TensorId> = self.g.stmts.iter().flat_map(Stmt::targets).collect();
            let kept = kept.into_iter().filter(|&t| far(&self.readers, t)).collect();
            self.apply(m, inside, &kept)?;
        }
        // What is defined before already is not defined again; what comes after is too far.
        let elsewhere = |s: &Stmt| s.targets().iter().find_map(|t| self.at.get(t)).copied();
        let places: Vec<Option<usize>> = self.g.stmts.iter().map(elsewhere).collect();
        if places.iter().flatten().any(|&i| i >= around.end) {
            return Err("it is made far from where it is read".into());
        }
        let mut places = places.into_iter();
        self.g.stmts.retain(|_| places.next().flatten().is_none_or(|i| i >= around.start));
        Ok(())
    }

    fn apply(
        &mut self,
        m: &Move,
        inside: &BTreeMap<String, Inside>,
        kept: &BTreeSet<TensorId>,
    ) -> Result<(), String> {
        let changed = match m {
            Move::Inline(t) => {
                let i = self.position(*t).ok_or("it is not stored")?;
                inline::put_in(self.g, &mut self.memory.facts, i, self.wishes)?
            }
            Move::Store(key) => self.store(key, &inside[key])?,
            Move::Spell(changes) => self.spell(changes)?,
            Move::Chain(t) => {
                self.chain(*t)?;
                inline::drop_unread(self.g, &mut self.memory.facts, kept);
                return Ok(());
            }
        };
        for t in changed.into_iter().collect::<BTreeSet<_>>() {
            let Some(i) = self.position(t) else { continue };
            let notes = &mut Vec::new();
            let (facts, known) = (&mut self.memory.facts, &mut self.hoisted);
            let mut pass = hoist::Pass { g: self.g, facts, takes: self.takes, notes, known };
            if let Move::Spell(_) = m {
                // What is left may be a product with its epilogue.
                pass.products_inside(i);
            }
            let Some(i) = self.position(t) else { continue };
            let (facts, known) = (&mut self.memory.facts, &mut self.hoisted);
            hoist::Pass { g: self.g, facts, takes: self.takes, notes, known }.over(i, i + 1);
        }
        inline::drop_unread(self.g, &mut self.memory.facts, kept);
        Ok(())
    }

    /// Is what a move wants read stored before it is read?
    fn is_ready(&mut self, m: &Move) -> bool {
        let Move::Spell(changes) = m else { return true };
        changes.iter().all(|(t, _, to)| {
            let Some(&reader) = self.at.get(t) else { return true };
            let reads = self.memory.facts.reads(self.g, *to);
            let made = |t: &&TensorId| matches!(self.g.tensor(**t).role, Role::Local | Role::Result);
            reads.iter().filter(made).all(|r| self.at.get(r).is_some_and(|&i| i < reader))
        })
    }

    /// Does a move gain, or only read what is stored instead of making it again? That is worth it even where the model sees
    /// nothing in it.
    fn is_worth(&self, m: &Move, t: &Trial) -> bool {
        let read = |c: &Change| matches!(self.g.expr(c.2), Expr::Read(_));
        let reads = matches!(m, Move::Spell(changes) if changes.iter().all(read));
        t.gains() || reads && t.after <= t.before
    }

    /// Does a change make a local that only repeats a tensor?
    fn is_copy(&self, (t, from, to): &Change) -> bool {
        let whole = |s: &Stmt| matches!(s, Stmt::Define(d) if d.target == *t && d.value == *from);
        let defines = self.at.get(t).is_some_and(|&i| whole(&self.g.stmts[i]));
        defines && self.g.tensor(*t).role == Role::Local && matches!(self.g.expr(*to), Expr::Read(_))
    }

    /// Puts other expressions in the place of equal ones.
    fn spell(&mut self, changes: &[Change]) -> Result<Vec<TensorId>, String> {
        let mut changed = Vec::new();
        for (t, from, to) in changes {
            let Some(i) = self.position(*t) else { continue };
            let mut s = self.g.stmts[i].clone();
            if !facts::roots(&s).into_iter().any(|r| inline::below(self.g, r).contains(from)) {
                continue;
            }
            let mut subst = super::subst::Subst::of_exprs([(*from, *to)]);
            facts::map_roots(&mut s, &mut |e| subst.apply(self.g, e));
            let copy = matches!(&s, Stmt::Define(d) if matches!(self.g.expr(d.value), Expr::Read(_)));
            self.g.stmts[i] = s;
            changed.push(*t);
            if copy && self.g.tensor(*t).role == Role::Local {
                // What cannot go into its readers stays a copy.
                changed.extend(
                    inline::put_in(self.g, &mut self.memory.facts, i, self.wishes).unwrap_or_default(),
                );
            }
        }
        if changed.is_empty() { Err("it is there no more".into()) } else { Ok(changed) }
    }

    /// Makes a value inside statements a definition before the first of them.
    fn store(&mut self, key: &str, v: &Inside) -> Result<Vec<TensorId>, String> {
        let mut places: Vec<(usize, ExprId, &[AxisId])> = Vec::new();
        for (t, e, free) in &v.places {
            let Some(i) = self.position(*t) else { continue };
            if facts::roots(&self.g.stmts[i]).into_iter().any(|r| inline::below(self.g, r).contains(e)) {
                places.push((i, *e, free));
            }
        }
        let first = places.iter().map(|p| p.0).min().ok_or("it is there no more")?;
        let (tensor, stmt) = match self.lifted.get(key) {
            Some(made) => made.clone(),
            None => {
                let name = self.name_of(v);
                let made = hoist::define(self.g, name, v.places[0].1, &v.places[0].2);
                self.lifted.insert(key.to_string(), made.clone());
                made
            }
        };
        let mut changed = vec![tensor];
        for (i, e, free) in places {
            let read = hoist::read_at(self.g, tensor, e, free);
            let mut s = self.g.stmts[i].clone();
            let mut subst = super::subst::Subst::of_exprs([(e, read)]);
            facts::map_roots(&mut s, &mut |e| subst.apply(self.g, e));
            changed.extend(s.targets());
            self.g.stmts[i] = s;
        }
        hoist::place(self.g, first, &stmt);
        Ok(changed)
    }

    /// Microseconds of these statements' kernels.
    fn window(&mut self, range: Range<usize>) -> f64 {
        let content = group::content(self.g, range.clone());
        if let Some(&us) = self.windows.get(&content) {
            return us;
        }
        let kernels = group::some(self.g, &mut self.memory, range, None, self.takes, &mut Vec::new());
        let us = kernels.iter().map(|k| self.memory.cost(self.g, &k.stmts, k.form)).sum();
        self.windows.insert(content, us);
        us
    }

    /// The values inside statements that are worth a trial, by shape.
    fn inside(&mut self) -> BTreeMap<String, Inside> {
        let mut found: BTreeMap<String, Inside> = BTreeMap::new();
        // What a tile block wants computed where it is read must not come back as a definition, nor must parts of it.
        if !self.wishes.inline.is_empty() {
            return found;
        }
        let mut gain: FxHashMap<String, f64> = FxHashMap::default();
        let mut shapes: FxHashMap<String, BTreeSet<String>> = FxHashMap::default();
        for i in 0..self.g.stmts.len() {
            let s = self.g.stmts[i].clone();
            if matches!(s, Stmt::Recur(_) | Stmt::Table { .. }) {
                continue;
            }
            for (e, us) in self.inside_one(&s) {
                let (key, shape, free) = self.key(&s, e);
                shapes.entry(key.clone()).or_default().insert(shape);
                *gain.entry(key.clone()).or_default() += us;
                found.entry(key).or_default().places.push((s.targets()[0], e, free));
            }
        }
        // What is spelled in one way was tried before.
        found.retain(|key, _| self.classes.is_none() || shapes[key].len() > 1);
        // Storing costs a launch or a pass more: what takes less in all cannot gain.
        found.retain(|key, v| gain[key] > 0.5 || v.places.len() > 1 && gain[key] > 0.1);
        found
    }

    /// What a value is called, equal for equal values, how it is spelled, and its free axes in an order that is the same
    /// for equal values.
    fn key(&mut self, s: &Stmt, e: ExprId) -> (String, String, Vec<AxisId>) {
        let free = candidates::appearing(self.g, &mut self.memory.facts, e);
        let shape = shape::key(self.g, e, &free);
        if let (Some(classes), Stmt::Define(d)) = (&mut self.classes, s)
            && let Some((key, free)) = classes.key_at(self.g, d, e)
        {
            return (key, shape, free);
        }
        (shape.clone(), shape, free)
    }

    /// Candidates of one statement, with the most that storing each can gain.
    fn inside_one(&mut self, s: &Stmt) -> Vec<(ExprId, f64)> {
        let roots = facts::roots(s);
        let all = candidates::of(self.g, &mut self.memory.facts, s);
        let mut found: Vec<(ExprId, f64)> = all.into_iter().filter(|(e, _)| !roots.contains(e)).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        found.retain(|(e, _)| self.may_store(*e));
        found.truncate(INSIDE);
        found
    }

    fn may_store(&mut self, e: ExprId) -> bool {
        const MOST_BYTES: f64 = 4e9;
        let free: Vec<AxisId> = self.memory.facts.free(self.g, e).iter().copied().collect();
        let ranged = free.iter().all(|&a| self.g.axis_range(a).is_some());
        ranged
            && self.g.ty(e) != Ty::Bool
            && !self.memory.facts.reads(self.g, e).is_empty()
            && facts::volume(self.g, &free) * 8.0 < MOST_BYTES
            && self.memory.facts.speculable(self.g, e)
    }
}
