//! The e-graph's rules: aligned tables, one row each, the algebra above each row, and appliers for what patterns
//! cannot say (axis sets). Each rule is marked with what it may do to a value.
//!
//! No associativity, no commutativity: the factor applier walks a product once instead, and index arithmetic stays
//! out altogether.

pub mod analysis;
pub mod folds;
pub mod scalar;
pub mod term;

use analysis::Facts;
use egg::{EGraph, Id, Pattern, Rewrite, Subst, Var};
use term::Term;

pub type Graph = EGraph<Term, Facts>;
pub type Rule = Rewrite<Term, Facts>;

/// What a rule may do to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Bit for bit the same, NaN and the sign of zero too.
    Exact,
    /// The same sums, products or folds in another order, or what LANGUAGE.md section 8 names beside it.
    Reassociates,
    /// Other roundings: only where the user asks for it.
    Relaxed,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Reassociates => "reassociates",
            Class::Relaxed => "relaxed",
        }
    }
}

/// When a rule applies, beyond its pattern: what is known of the variables it binds.
pub type When = fn(&Known<'_>) -> bool;

/// One row of a table.
pub struct Row {
    pub name: &'static str,
    pub class: Class,
    pub from: &'static str,
    pub to: &'static str,
    pub when: When,
}

/// What is known of a match.
pub struct Known<'a> {
    pub graph: &'a Graph,
    subst: &'a Subst,
}

impl Known<'_> {
    /// The class that a variable (`"?a"`) stands for.
    pub fn id(&self, var: &str) -> Id {
        let var: Var = var.parse().expect("rules name their own variables");
        self.subst[var]
    }

    pub fn facts(&self, var: &str) -> &analysis::Known {
        &self.graph[self.id(var)].data
    }
}

/// A row as a rewrite.
fn rewrite(row: &Row) -> Rule {
    let from: Pattern<Term> = row.from.parse().expect("patterns of the tables parse (tested)");
    let to: Pattern<Term> = row.to.parse().expect("patterns of the tables parse (tested)");
    let when = row.when;
    let check = move |graph: &mut Graph, _: Id, subst: &Subst| when(&Known { graph, subst });
    let applier = egg::ConditionalApplier { condition: check, applier: to };
    Rewrite::new(row.name, from, applier).expect("right sides use the variables of the left (tested)")
}

/// All rules up to a class.
pub fn rules(most: Class) -> Vec<Rule> {
    let rows = scalar::TABLE.iter().filter(|r| r.class <= most).map(rewrite);
    rows.chain(folds::rules(most)).collect()
}

/// All rules up to a class, with those that only show that values are equal: the e-graph of the search for stored
/// values, which asks the model what each spelling costs.
pub fn rules_of_search(most: Class) -> Vec<Rule> {
    let orders = scalar::ORDERS.iter().filter(|r| r.class <= most).map(rewrite);
    rules(most).into_iter().chain(orders).chain(folds::rules_of_search(most)).collect()
}

/// Names and classes of all rules, for reports and tests.
pub fn classes() -> Vec<(&'static str, Class)> {
    let scalars = scalar::TABLE.iter().chain(&scalar::ORDERS).map(|r| (r.name, r.class));
    scalars.chain(folds::TABLE.iter().chain(&folds::ORDERS).map(|r| (r.name, r.class))).collect()
}

/// Saturates within limits of nodes and iterations, not of time, so that every run does the same. Gives the number of iterations.
pub fn saturate(graph: &mut Graph, rules: &[Rule], limits: Limits) -> usize {
    for i in 0..limits.iterations {
        let before = (graph.total_number_of_nodes(), graph.number_of_classes());
        let matches: Vec<_> = rules.iter().map(|r| r.search(graph)).collect();
        for (rule, found) in rules.iter().zip(&matches) {
            rule.apply(graph, found);
            if graph.total_number_of_nodes() > limits.nodes {
                rebuild(graph);
                return i + 1;
            }
        }
        rebuild(graph);
        if before == (graph.total_number_of_nodes(), graph.number_of_classes()) {
            return i + 1;
        }
    }
    limits.iterations
}

/// Restores congruence. egg times this for its log, with a clock whose calibration takes milliseconds; a clock that stands
/// still needs none.
pub fn rebuild(graph: &mut Graph) {
    let (still, _) = quanta::Clock::mock();
    quanta::with_clock(&still, || graph.rebuild());
}

/// How far saturation goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub nodes: usize,
    pub iterations: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { nodes: 20_000, iterations: 8 }
    }
}

#[cfg(test)]
mod tests;
