//! A tuning as one HTML page without anything from outside: times against each setting, a roofline with all candidates,
//! why the winner won, why others were lost, and the winning `tile` block to paste.

use std::collections::BTreeSet;
use std::fmt::Write;

/// What a page shows.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    pub title: String,
    pub device: String,
    pub rows: Vec<Row>,
    /// Index of the winner.
    pub best: Option<usize>,
    pub default: Option<usize>,
    /// What the model alone would take, and the fixed default of each form.
    pub model: Option<usize>,
    pub fixed: Option<usize>,
    /// Rank correlation of the model with the times.
    pub correlation: Option<f64>,
    pub tile_block: String,
    pub notes: Vec<String>,
    /// Left out without compiling: why, and how many.
    pub pruned: Vec<(String, usize)>,
    /// Bytes and products a second that the device can do at most.
    pub peaks: (f64, f64),
}

/// A candidate.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub label: String,
    /// `kernel.block m`, `128`
    pub settings: Vec<(String, String)>,
    pub us: Option<f64>,
    pub spread: (f64, f64),
    pub predicted: f64,
    pub failure: Option<String>,
    pub bytes: f64,
    pub flop: f64,
    /// What the model says its kernels wait for: name and microseconds.
    pub parts: Vec<(String, f64)>,
}

const STYLE: &str = ":root{color-scheme:light dark;--ink:#222;--paper:#fff;--soft:#f4f4f4;--rule:#ddd;--axis:#bbb;--dot:#36c}\
@media (prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#181818;--soft:#242424;--rule:#444;--axis:#666;--dot:#7af}}\
body{font:14px/1.4 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:var(--ink);background:var(--paper)}\
h1{font-size:20px}h2{font-size:16px;margin-top:2em}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;padding:2px 8px;border-bottom:1px solid var(--rule);vertical-align:top;overflow-wrap:anywhere}\
td.n,th.n{text-align:right;white-space:nowrap}\
.legend svg{border:0;margin:0 4px 0 12px;vertical-align:-1px;background:none}pre{background:var(--soft);padding:1em;overflow-x:auto}\
svg{background:var(--soft);border:1px solid var(--rule);margin:4px;max-width:100%}\
.best{fill:#d22}.model{fill:#2a2}.fixed{fill:#a4e}.dot{fill:var(--dot);fill-opacity:.6}.own{fill:#e90}\
text{font:11px sans-serif;fill:var(--ink)}line{stroke:var(--axis)}line.roof{stroke:var(--ink)}";

/// The page: HTML that is well-formed XML as well.
pub fn page(t: &Tuning) -> String {
    let mut s = String::new();
    let title = escape(&t.title);
    let _ = write!(
        s,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>{title}</title><style>{STYLE}</style></head><body>"
    );
    let _ = write!(s, "<h1>{title}</h1><p>{}</p>", escape(&t.device));
    winner(t, &mut s);
    let _ = write!(s, "<h2>Time against each setting</h2><p class=\"legend\">Microseconds.");
    legend(&mut s);
    let _ = write!(s, "</p>");
    for name in setting_names(t) {
        against(t, &name, &mut s);
    }
    let _ = write!(s, "<h2>Roofline</h2>");
    roofline(t, &mut s);
    let _ = write!(s, "<h2>The model beside the times</h2>");
    if let Some(c) = t.correlation {
        let _ = write!(s, "<p>Rank correlation {c:.2}.</p>");
    }
    let points: Vec<_> = timed(t).map(|(i, r, us)| (r.predicted, us, i)).collect();
    scatter(t, &points, ("predicted us", "measured us"), &[], &mut s);
    table(t, &mut s);
    s + "</body></html>\n"
}

/// What a person may have written, as text: markup becomes entities, and what XML does not know a place-holder.
fn escape(text: &str) -> String {
    let known = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c };
    let text: String = text.chars().map(known).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Pixels of a letter of the charts' font, on the wide side.
const LETTER: f64 = 6.5;

/// As much of a text as a width holds.
fn fitted(text: &str, width: f64) -> String {
    let room = (width / LETTER).max(1.0) as usize;
    match text.chars().count() <= room {
        true => escape(text),
        false => escape(&(text.chars().take(room - 1).collect::<String>() + "…")),
    }
}

/// What the marks of the charts are.
fn legend(s: &mut String) {
    let marks = [
        ("best", "the winner"),
        ("own", "the forms' own choice"),
        ("model", "the model's choice"),
        ("fixed", "the fixed default"),
        ("dot", "the others"),
    ];
    for (class, what) in marks {
        let _ = write!(s, "<svg width=\"12\" height=\"12\">");
        dot(s, 6.0, 6.0, class, what);
        let _ = write!(s, "</svg>{what}");
    }
}

/// A row of a table.
fn cells(s: &mut String, cells: &[(&str, String)]) {
    *s += "<tr>";
    for (class, text) in cells {
        let _ = match *class {
            "" => write!(s, "<td>{text}</td>"),
            class => write!(s, "<td class=\"{class}\">{text}</td>"),
        };
    }
    *s += "</tr>";
}

fn heads(s: &mut String, names: &[&str]) {
    *s += "<table><tr>";
    // Numbers stand at the right, and their heads with them.
    for n in names {
        let (class, name) = n.strip_prefix('#').map_or(("", *n), |name| (" class=\"n\"", name));
        *s += &format!("<th{class}>{name}</th>");
    }
    *s += "</tr>";
}

fn timed(t: &Tuning) -> impl Iterator<Item = (usize, &Row, f64)> {
    t.rows.iter().enumerate().filter_map(|(i, r)| Some((i, r, r.us?)))
}

fn class(t: &Tuning, i: usize) -> &'static str {
    if t.best == Some(i) {
        "best"
    } else if t.default == Some(i) {
        "own"
    } else if t.model == Some(i) {
        "model"
    } else if t.fixed == Some(i) {
        "fixed"
    } else {
        "dot"
    }
}

/// What won, by how much, and what the model says that it waits for less.
fn winner(t: &Tuning, s: &mut String) {
    let Some(best) = t.best.map(|b| &t.rows[b]) else {
        let _ = write!(s, "<p><b>No configuration could be used.</b></p>");
        return;
    };
    let us = best.us.unwrap_or(0.0);
    let _ = write!(
        s,
        "<p><b>{us:.2} us</b> ({:.2} to {:.2}): {}</p>",
        best.spread.0,
        best.spread.1,
        escape(&best.label)
    );
    let others = [
        ("the forms' own choice", t.default),
        ("the model's choice alone", t.model),
        ("the fixed default of each form", t.fixed),
    ];
    for (what, at) in others {
        let Some(row) = at.map(|i| &t.rows[i]) else { continue };
        let label = escape(&row.label);
        let _ = match row.us {
            Some(before) => write!(
                s,
                "<p>{:.1}% less than {what} ({before:.2} us: {label}).</p>",
                100.0 * (1.0 - us / before.max(1e-9))
            ),
            None => write!(s, "<p>No time for {what}: {}</p>", escape(row.failure.as_deref().unwrap_or(""))),
        };
    }
    if let Some(own) = t.default.map(|d| &t.rows[d]).filter(|r| r.us.is_some()) {
        *s += "<h2>Why it won</h2>";
        heads(s, &["resource, by the model", "#winner, us a wave", "#own choice, us a wave", ""]);
        for (name, part) in &best.parts {
            let other = own.parts.iter().find(|p| p.0 == *name).map_or(0.0, |p| p.1);
            let mark = match *part {
                p if p * 1.05 < other => "less",
                p if p > other * 1.05 => "more",
                _ => "",
            };
            let numbers = [("n", format!("{part:.2}")), ("n", format!("{other:.2}"))];
            cells(s, &[&[("", escape(name))], &numbers[..], &[("", mark.into())]].concat());
        }
        let _ = write!(s, "</table>");
    }
    let _ = write!(s, "<h2>To paste</h2><pre>{}</pre>", escape(&t.tile_block));
    for n in &t.notes {
        let _ = write!(s, "<p>Note: {}</p>", escape(n));
    }
}

fn setting_names(t: &Tuning) -> BTreeSet<String> {
    t.rows.iter().flat_map(|r| &r.settings).map(|(n, _)| n.clone()).collect()
}

/// Pixels of a chart.
#[derive(Clone, Copy)]
struct Chart {
    width: f64,
    height: f64,
}

/// One of many, and one that has the page's width for itself.
const SMALL: Chart = Chart { width: 340.0, height: 200.0 };
const LARGE: Chart = Chart { width: 640.0, height: 320.0 };
/// Room around the points for what is written there.
const EDGE: f64 = 42.0;

/// Dots over the values of one setting; candidates that leave it to the form stand first.
fn against(t: &Tuning, name: &str, s: &mut String) {
    let of = |r: &Row| r.settings.iter().find(|x| x.0 == name).map_or("own", |x| &x.1).to_string();
    let mut values: Vec<String> = t.rows.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect();
    values.sort_by_key(|v| (v != "own", number(v), v.clone()));
    let (lo, hi) = bounds(timed(t).map(|x| x.2));
    let chart = SMALL;
    let place = |us: f64| chart.height - EDGE - scale(us, lo, hi) * (chart.height - 2.0 * EDGE);
    let step = (chart.width - 2.0 * EDGE) / values.len().max(1) as f64;
    let at = |v: &str| EDGE + step * (values.iter().position(|x| x == v).unwrap_or(0) as f64 + 0.5);
    chart.open(s, name);
    chart.axis(s, lo, hi);
    let every = ((values.len() as f64 * 3.0 * LETTER) / (chart.width - 2.0 * EDGE)).ceil().max(1.0) as usize;
    let room = step * every as f64;
    // Where neighbours would meet, every other one stands a line lower.
    let low = values.iter().any(|v| v.chars().count() as f64 * LETTER > room);
    for (i, v) in values.iter().step_by(every).enumerate() {
        let down = if low && i % 2 == 1 { 12.0 } else { 24.0 };
        let room = if low { 2.0 * room } else { room };
        // A text at the side ends where the chart does.
        let beside = 2.0 * at(v).min(chart.width - at(v));
        label(s, at(v), chart.height - down, &fitted(v, room.min(beside)));
    }
    let dots = timed(t).map(|(i, r, us)| {
        let shift = (i % 7) as f64 - 3.0;
        (at(&of(r)) + shift * 2.0, place(us), i, format!("{} {us:.2} us", r.label))
    });
    draw(t, dots.collect(), s);
    let _ = write!(s, "</svg>");
}

/// What a value is sorted by: its number, also within `swizzle(8)`.
fn number(value: &str) -> i64 {
    let digits: String = value.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(i64::MAX)
}

/// Dots at places, those with a meaning of their own above the others.
fn draw(t: &Tuning, mut dots: Vec<(f64, f64, usize, String)>, s: &mut String) {
    let rank = |i: usize| ["dot", "fixed", "model", "own", "best"].iter().position(|c| *c == class(t, i));
    dots.sort_by_key(|d| (rank(d.2), d.2));
    for (x, y, i, title) in &dots {
        dot(s, *x, *y, class(t, *i), title);
    }
}

impl Chart {
    fn open(self, s: &mut String, title: &str) {
        let Chart { width, height } = self;
        let _ = write!(
            s,
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\"><text x=\"8\" y=\"16\">{}</text>",
            fitted(title, width - 16.0)
        );
    }

    fn axis(self, s: &mut String, lo: f64, hi: f64) {
        for part in [0.0, 0.5, 1.0] {
            let y = self.height - EDGE - part * (self.height - 2.0 * EDGE);
            let v = lo * (hi / lo).powf(part);
            line(s, "axis", [EDGE, y, self.width - 8.0, y]);
            let _ = write!(s, "<text x=\"4\" y=\"{:.0}\">{}</text>", y + 4.0, short(v));
        }
    }
}

/// A text in the middle of a place.
fn label(s: &mut String, x: f64, y: f64, text: &str) {
    let _ = write!(s, "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"middle\">{text}</text>");
}

fn line(s: &mut String, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
    let _ =
        write!(s, "<line class=\"{class}\" x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{x2:.0}\" y2=\"{y2:.0}\"/>");
}

/// A number in five letters.
fn short(v: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let found = units.iter().find(|u| v >= u.0 && v >= 1e4);
    let (v, unit) = found.map_or((v, ""), |u| (v / u.0, u.1));
    if v >= 100.0 { format!("{v:.0}{unit}") } else { format!("{v:.1}{unit}") }
}

fn dot(s: &mut String, x: f64, y: f64, class: &str, title: &str) {
    let r = if class == "dot" { 3 } else { 5 };
    let _ = write!(
        s,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" class=\"{class}\"><title>{}</title></circle>",
        escape(title)
    );
}

/// Ends of a logarithmic axis.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (lo, hi) = values.filter(|v| *v > 0.0).fold((f64::MAX, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
    if hi == 0.0 { (1.0, 10.0) } else { (lo * 0.95, hi * 1.05) }
}

fn scale(v: f64, lo: f64, hi: f64) -> f64 {
    // What is 0 has no place on such an axis: it stands at its end.
    ((v.max(1e-12) / lo).ln() / (hi / lo).ln().max(1e-9)).clamp(0.0, 1.0)
}

fn scatter(
    t: &Tuning,
    points: &[(f64, f64, usize)],
    (xs, ys): (&str, &str),
    roof: &[(f64, f64)],
    s: &mut String,
) {
    let (x0, x1) = bounds(points.iter().map(|p| p.0).chain(roof.iter().map(|r| r.0)));
    let (y0, y1) = bounds(points.iter().map(|p| p.1).chain(roof.iter().map(|r| r.1)));
    let chart = LARGE;
    let px = |x: f64| EDGE + scale(x, x0, x1) * (chart.width - EDGE - 12.0);
    let py = |y: f64| chart.height - EDGE - scale(y, y0, y1) * (chart.height - 2.0 * EDGE);
    chart.open(s, &format!("{ys} over {xs}"));
    chart.axis(s, y0, y1);
    for part in [0.0, 0.5, 1.0] {
        let x = x0 * (x1 / x0).powf(part);
        // The last one would stand beyond the edge.
        label(s, px(x).min(chart.width - 24.0), chart.height - 24.0, &short(x));
    }
    for pair in roof.windows(2) {
        let [(a, b), (c, d)] = [pair[0], pair[1]];
        line(s, "roof", [px(a), py(b), px(c), py(d)]);
    }
    let title = |i: usize| format!("{} {:.2} us", t.rows[i].label, t.rows[i].us.unwrap_or(0.0));
    draw(t, points.iter().map(|&(x, y, i)| (px(x), py(y), i, title(i))).collect(), s);
    let _ = write!(s, "</svg>");
}

/// Operations a second over operations a byte where there are products, else bytes a second over bytes.
fn roofline(t: &Tuning, s: &mut String) {
    let (memory, products) = t.peaks;
    let flops = timed(t).any(|(_, r, _)| r.flop > 0.0);
    if flops {
        let points: Vec<_> = timed(t)
            .filter(|x| x.1.flop > 0.0 && x.1.bytes > 0.0)
            .map(|(i, r, us)| (r.flop / r.bytes, r.flop / us * 1e6, i))
            .collect();
        let (lo, hi) = bounds(points.iter().map(|p| p.0));
        let knee = products / memory;
        let mut roof: Vec<f64> = vec![lo, knee.clamp(lo, hi), hi];
        roof.dedup();
        let roof: Vec<_> = roof.into_iter().map(|x| (x, (x * memory).min(products))).collect();
        scatter(t, &points, ("operations a byte of device memory", "operations a second"), &roof, s);
    } else {
        let points: Vec<_> =
            timed(t).map(|(i, r, us)| (r.bytes.max(1.0), r.bytes.max(1.0) / us * 1e6, i)).collect();
        let (lo, hi) = bounds(points.iter().map(|p| p.0));
        scatter(t, &points, ("bytes", "bytes a second"), &[(lo, memory), (hi, memory)], s);
    }
}

/// Every candidate, the fastest first, then those without a time.
fn table(t: &Tuning, s: &mut String) {
    let mut order: Vec<usize> = (0..t.rows.len()).collect();
    order.sort_by(|&a, &b| {
        let us = |i: usize| t.rows[i].us.unwrap_or(f64::INFINITY);
        us(a).total_cmp(&us(b)).then(a.cmp(&b))
    });
    let best = t.best.map(|b| &t.rows[b]);
    *s += "<h2>All candidates</h2>";
    heads(s, &["#us", "#predicted", "settings", "why not"]);
    for r in order.into_iter().map(|i| &t.rows[i]) {
        let us = r.us.map_or("-".into(), |v| format!("{v:.2}"));
        cells(
            s,
            &[
                ("n", us),
                ("n", format!("{:.2}", r.predicted)),
                ("", escape(&r.label)),
                ("", why_not(r, best)),
            ],
        );
    }
    *s += "</table>";
    if !t.pruned.is_empty() {
        *s += "<h2>Left out without compiling</h2>";
        heads(s, &["#points", "why"]);
        for (why, n) in &t.pruned {
            cells(s, &[("n", n.to_string()), ("", escape(why))]);
        }
        *s += "</table>";
    }
}

/// What a candidate lost by: its failure, or how much slower it is and what the model says that it waits for more than the winner.
fn why_not(r: &Row, best: Option<&Row>) -> String {
    if let Some(f) = &r.failure {
        return escape(f);
    }
    let (Some(us), Some((best, winner))) = (r.us, best.and_then(|b| Some((b, b.us?)))) else {
        return String::new();
    };
    if us <= winner {
        return String::new();
    }
    let more = |(name, part): &(String, f64)| {
        let other = best.parts.iter().find(|p| p.0 == *name).map_or(0.0, |p| p.1);
        (part > &(other * 1.1)).then(|| (part - other, name.clone()))
    };
    let most = r.parts.iter().filter_map(more).max_by(|a, b| a.0.total_cmp(&b.0));
    let most = most.map_or(String::new(), |(_, name)| format!(", more for {}", escape(&name)));
    format!("{:.1}% slower{most}", 100.0 * (us / winner - 1.0))
}

/// Spearman's rank correlation; `None` for fewer than three pairs, or where one side is all alike.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let a = ranks(pairs.iter().map(|p| p.0).collect());
    let b = ranks(pairs.iter().map(|p| p.1).collect());
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let sum = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(p, q)| (p - mean) * (q - mean)).sum::<f64>();
    let (va, vb) = (sum(&a, &a), sum(&b, &b));
    (va > 0.0 && vb > 0.0).then(|| sum(&a, &b) / (va * vb).sqrt())
}

/// The rank of each value, from 0; equal values share the mean of theirs.
fn ranks(values: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut i = 0;
    while i < order.len() {
        let equal = order[i..].iter().take_while(|&&o| values[o] == values[order[i]]).count();
        for &o in &order[i..i + equal] {
            ranks[o] = i as f64 + (equal as f64 - 1.0) / 2.0;
        }
        i += equal;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_correlate() {
        let up = [(1.0, 10.0), (2.0, 20.0), (3.0, 21.0)];
        assert_eq!(rank_correlation(&up), Some(1.0));
        let down = [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)];
        assert_eq!(rank_correlation(&down), Some(-1.0));
        assert_eq!(rank_correlation(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert!(rank_correlation(&[(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]).unwrap() > 0.8);
    }

    #[test]
    fn a_page_is_whole_and_loads_nothing() {
        let row = |m: &str, us| Row {
            label: format!("block m = {m} <b>"),
            settings: vec![("y.block m".into(), m.into())],
            us,
            predicted: 3.0,
            bytes: 100.0,
            flop: 1000.0,
            failure: us.is_none().then(|| "spills".to_string()),
            parts: vec![("y: L2 cache".into(), us.unwrap_or(0.0))],
            ..Row::default()
        };
        let t = Tuning {
            title: "f".into(),
            rows: vec![row("16", Some(4.0)), row("32", Some(2.0)), row("64", None)],
            best: Some(1),
            default: Some(0),
            peaks: (4e12, 8e14),
            ..Tuning::default()
        };
        let text = page(&t);
        assert!(text.contains("2.00 us") && text.contains("50.0% less") && text.contains("spills"), "{text}");
        assert!(!text.contains("http") && !text.contains("src=") && !text.contains("= 16 <b>"), "{text}");
        assert!(text.contains("more for y: L2 cache"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
        for t in [t, crowded(), Tuning::default()] {
            let text = page(&t);
            well_formed(&text);
            inside(&text);
        }
    }

    /// Long names, many values, and markup in all texts.
    fn crowded() -> Tuning {
        let row = |i: usize| Row {
            label: format!("y.block m = {i} & <i>\"x\"</i> \u{1}"),
            settings: vec![
                (
                    format!("a kernel with a very long name.block {}", "m".repeat(60)),
                    format!("swizzle({i}00000)"),
                ),
                ("y.stages".into(), (i % 5).to_string()),
            ],
            us: (i % 7 != 3).then_some(1.5f64.powi(i as i32)),
            predicted: 0.001 * i as f64,
            bytes: 1e9 * i as f64,
            flop: 1e12,
            failure: (i % 7 == 3).then(|| "<&>".to_string()),
            ..Row::default()
        };
        let rows = (0..40).map(row).collect();
        let pruned = vec![("a < b & c".to_string(), 4)];
        Tuning {
            rows,
            best: Some(0),
            default: Some(5),
            model: Some(6),
            fixed: Some(7),
            pruned,
            peaks: (4e12, 8e14),
            ..Tuning::default()
        }
    }

    /// Every tag is closed in order, every attribute stands in quotes, no markup is left in texts.
    fn well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = page.strip_prefix("<!doctype html>").expect("it begins so").trim_end();
        while let Some(at) = rest.find('<') {
            assert!(!rest[..at].contains('>'), "{}", &rest[..at]);
            let end = at + rest[at..].find('>').expect("a tag ends");
            let tag = &rest[at + 1..end];
            assert!(!tag.contains('<'), "{tag}");
            let name = tag.split([' ', '/']).next().unwrap();
            match tag.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed), "{tag}"),
                None if tag.ends_with('/') => {}
                None => open.push(name),
            }
            assert_eq!(tag.matches('=').count() * 2, tag.matches('"').count(), "{tag}");
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
    }

    /// What charts hold lies inside of them, texts with their width.
    fn inside(page: &str) {
        let number = |tag: &str, name: &str| {
            let from = tag.split(&format!(" {name}=\"")).nth(1)?;
            from.split('"').next()?.parse::<f64>().ok()
        };
        let mut shapes = 0;
        for part in page.split("<svg").skip(1) {
            let chart = part.split("</svg>").next().unwrap();
            let [width, height] = ["width", "height"].map(|n| number(chart, n).expect("a size"));
            for tag in chart.split('<').skip(1) {
                for (names, most) in [(["x", "x1", "x2", "cx"], width), (["y", "y1", "y2", "cy"], height)] {
                    for n in names.iter().filter_map(|n| number(tag, n)) {
                        assert!((0.0..=most).contains(&n), "{tag}");
                        shapes += 1;
                    }
                }
                if let (true, Some(x)) = (tag.starts_with("text"), number(tag, "x")) {
                    let text = tag.split('>').nth(1).unwrap();
                    let letters = text
                        .replace("&quot;", "q")
                        .replace("&lt;", "q")
                        .replace("&gt;", "q")
                        .replace("&amp;", "q");
                    let wide = letters.chars().count() as f64 * LETTER;
                    let half = tag.contains("middle");
                    let (from, to) = if half { (x - wide / 2.0, x + wide / 2.0) } else { (x, x + wide) };
                    assert!(from >= -LETTER && to <= width + LETTER, "{tag}");
                }
            }
        }
        assert!(shapes > 10, "{shapes}");
    }
}
