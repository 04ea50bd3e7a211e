//! How an operand of the main loop of sm_90a is copied: the order of a sum's terms, a tensor map, and for each coordinate
//! of a copy what it is made of.
//!
//! Terms come in lines: neighbours along the innermost group of fold axes, for each value of the other groups. A group
//! is several axes that are one number in both operands. An operand that is read without bounds in steps that its
//! rows and groups take each as one number is copied in plain boxes. One whose rows walk windows of several dims
//! (the pixels of a convolution's input) is copied in pixels in a row, where what is outside reads as zero.

use super::contract_border::Border;
use super::contract_operand::{Ground, PlainRead};
use super::contract_pattern::{Contraction, Digit};
use super::hopper_index::Index;
use super::hopper_pixels::{self, Window};
use super::hopper_ragged::Ragged;
use crate::ir::graph::{AxisId, Expr, ExprId, Graph, TensorId};
use crate::ir::program::BufferId;
use crate::ir::simt::{Swizzle, TensorMap};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use std::collections::BTreeMap;

/// Bytes of a step's terms.
pub const LINE: u32 = 128;

/// The order of a sum's terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Fold axes that are one number each, outermost first. The last is cut in lines.
    pub groups: Vec<Group>,
    /// Terms of a step, and of a line.
    pub step: i64,
    pub line: i64,
    /// Outer groups of which the batch says how many values there are.
    pub ragged: Vec<Ragged>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Positions among the fold axes, outermost first.
    pub axes: Vec<usize>,
    pub extent: i64,
}

impl Terms {
    fn new(mut groups: Vec<Group>, step: i64) -> Terms {
        if groups.is_empty() {
            groups.push(Group { axes: Vec::new(), extent: 1 });
        }
        // Shorter lines are slower to copy, but short groups waste less with them.
        let with = |line| Terms { groups: groups.clone(), step, line, ragged: Vec::new() };
        let cost = |&(line, by): &(i64, f64)| with(line).steps() as f64 * by;
        let lines = [(step, 1.0), (step / 2, 1.15), (step / 4, 1.4)];
        let best = lines.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        Terms { line: best.map_or(step, |b| b.0), groups, step, ragged: Vec::new() }
    }

    pub fn steps(&self) -> i64 {
        (self.lines() + self.slabs() - 1) / self.slabs()
    }

    pub fn outer(&self) -> &[Group] {
        &self.groups[..self.groups.len() - 1]
    }

    pub fn inner(&self) -> &Group {
        &self.groups[self.groups.len() - 1]
    }

    /// Lines for each value of the outer groups.
    pub fn chunks(&self) -> i64 {
        (self.inner().extent + self.line - 1) / self.line
    }

    pub fn lines(&self) -> i64 {
        self.outer().iter().map(|g| g.extent).product::<i64>() * self.chunks()
    }

    /// Lines of a step.
    pub fn slabs(&self) -> i64 {
        self.step / self.line
    }

    /// Terms with the padding of lines that are not the last.
    pub fn padded(&self) -> i64 {
        if self.outer().is_empty() { self.inner().extent } else { self.lines() * self.line }
    }

    /// Whether every line is whole.
    fn whole(&self) -> bool {
        self.inner().extent % self.line == 0
    }
}

/// What a coordinate is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// The number of a copy's first row.
    Row,
    /// A digit of that row.
    Digit(usize),
    /// The first term of a line within the innermost group.
    Inner,
    /// The value of an outer group.
    Outer(usize),
    /// A digit of the batch.
    Batch(usize),
    /// What the rows of this pass choose.
    Chosen,
    /// A digit of the number of a copy's first row, or of its first term: that number by the first, modulo the second.
    OfRow(i64, i64),
    OfTerm(i64, i64),
}

/// Multiples of parts and a constant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coord {
    pub parts: Vec<(Part, i64)>,
    pub constant: i64,
}

impl Coord {
    pub fn of(part: Part) -> Coord {
        Coord { parts: vec![(part, 1)], constant: 0 }
    }
}

/// How one operand is copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Boxes {
    pub tensor: TensorId,
    /// Where it is, if not at the tensor's home.
    pub buffer: Option<BufferId>,
    /// Whether K (else M or N) is contiguous.
    pub k_major: bool,
    pub map: TensorMap,
    /// The copy's operands: one for each dim, then with pixels the offsets.
    pub coords: Vec<Coord>,
    /// Extents of the rows' digits.
    pub digits: Vec<i64>,
}

impl Boxes {
    /// Copies of a line of terms for all rows of a block.
    pub fn count(&self, rows: u32) -> u32 {
        if self.k_major { 1 } else { rows / 64 }
    }

    /// Rows that are copied for so many of a block: of an operand along its rows whole boxes of 64.
    pub fn copied_rows(&self, rows: u32) -> u32 {
        if self.k_major { rows } else { rows.next_multiple_of(64) }
    }

    /// Whether a block may have rows that are no multiple of 64: the rest of the last box is copied for nothing.
    pub fn cuts(&self) -> bool {
        self.k_major || self.map.pixels.is_none() && self.digits.is_empty()
    }

    /// Whether lines begin in the middle of sectors of 32 bytes: copies then move half as many in a time.
    pub fn straddles(&self) -> bool {
        self.map.pixels.is_none() && self.map.strides.first().is_some_and(|s| s % 32 != 0)
    }

    /// Lines that so many rows are counted as.
    pub fn lines(&self, rows: u32) -> u32 {
        if self.straddles() { 2 * rows } else { rows }
    }

    /// How many values rows choose from, if they choose.
    pub fn choices(&self) -> Option<i64> {
        let at = self.coords.iter().position(|c| c.parts.contains(&(Part::Chosen, 1)))?;
        self.map.dims.get(at).copied()
    }

    /// The number of rows of a block, and how many blocks of a cluster copy a share each, are chosen after all else: shares are of
    /// the rows, or of a line's terms where a copy has 64 rows.
    pub fn with_rows(mut self, block: u32, line: i64, shares: u32) -> Boxes {
        if self.k_major {
            self.map.extent[1] = block / shares;
            self.map.extent[0] = line as u32;
        } else {
            self.map.extent[0] = 64;
            self.map.extent[1] = line as u32 / shares;
        }
        self
    }

    /// Whether so many blocks may copy a share each of so many rows: shares are whole atoms of 8 lines.
    pub fn shared(&self, rows: u32, line: i64, shares: u32) -> bool {
        if self.k_major { rows.is_multiple_of(8 * shares) } else { line % (8 * shares as i64) == 0 }
    }
}

/// A read whose indices are affine, dim by dim.
pub struct Form {
    pub(super) tensor: TensorId,
    dtype: DType,
    pub(super) dims: Vec<Dim>,
    /// Extents of the rows' digits and of the batch's.
    pub(super) rows: Vec<i64>,
    batch: Vec<i64>,
}

pub(super) struct Dim {
    /// Elements.
    pub stride: i64,
    pub size: i64,
    /// Whether the index may be outside.
    pub checked: bool,
    /// Where all axes are at their lowest, from the dim's first element.
    pub constant: i64,
    /// Whether it is what the rows choose.
    pub chosen: bool,
    /// Coefficients by digit of the rows, fold axis, digit of the batch.
    pub rows: BTreeMap<usize, i64>,
    pub k: BTreeMap<usize, i64>,
    pub batch: BTreeMap<usize, i64>,
}

impl Form {
    /// The form of a factor, if all is affine and its memory lies as copies of boxes want it.
    pub fn new(
        ground: &Ground,
        c: &Contraction,
        p: &PlainRead,
        rows: &[Digit],
        borders: &[Border],
    ) -> Option<Form> {
        let t = ground.graph.tensor(p.tensor);
        let border = borders.iter().find(|b| b.tensor == p.tensor);
        if border.is_none() && (ground.home)(p.tensor).align % 16 != 0 {
            return None;
        }
        let strides = border.map_or_else(|| ground.strides(p.tensor), |b| b.strides.clone());
        let inside = |d: usize| border.map_or((t.lo[d], t.dims[d]), |b| b.dims[d]);
        let mut dims = Vec::new();
        for (d, &index) in p.index.iter().enumerate() {
            let checked = border.is_none() && p.checks.iter().any(|x| x.0 == d);
            let (lo, size) = inside(d);
            if strides[d] == 0 && !checked {
                continue;
            }
            let dim = Dim::new(ground, c, rows, index, lo, size, strides[d], checked)?;
            match border.and_then(|b| b.fold.filter(|f| f.0 == d).map(|f| (b, f.1))) {
                None => dims.push(dim),
                Some((b, by)) => dims.extend(dim.folded(by, b.within(), c.k.len() - 1)?),
            }
        }
        let extents = |digits: &[Digit]| digits.iter().map(|d| d.extent).collect();
        let (rows, batch) = (extents(rows), extents(&ground.shape.batch));
        Some(Form { tensor: p.tensor, dtype: t.dtype, dims, rows, batch })
    }

    /// Elements that a step of a fold axis, of a digit of the rows, of one of the batch moves.
    fn along(&self, of: impl Fn(&Dim) -> &BTreeMap<usize, i64>, i: usize) -> i64 {
        self.dims.iter().map(|d| of(d).get(&i).unwrap_or(&0) * d.stride).sum()
    }

    pub(super) fn along_k(&self, axis: usize) -> i64 {
        self.along(|d| &d.k, axis)
    }

    /// Elements that a step of a group moves, if it is one number.
    fn along_group(&self, c: &Contraction, g: &Group) -> Option<i64> {
        let steps: Vec<(i64, i64)> = g.axes.iter().map(|&a| (c.k[a].extent, self.along_k(a))).collect();
        flat_step(&steps)
    }

    fn bounded(&self, axis: usize) -> bool {
        self.dims.iter().any(|d| d.checked && d.k.get(&axis).is_some_and(|v| *v != 0))
    }

    pub(super) fn bytes(&self, elements: i64) -> i64 {
        elements * self.dtype.bits() as i64 / 8
    }

    /// Whether a map can step by so many elements.
    pub(super) fn steps(&self, elements: i64) -> bool {
        let bytes = self.bytes(elements);
        bytes > 0 && bytes % 16 == 0 && bytes < 1 << 40
    }

    /// The first element, and the elements between neighbouring rows, where rows are one number, the terms of the only
    /// fold axis are neighbours, and nothing else moves the operand.
    pub fn rows_of_terms(&self) -> Option<(i64, i64)> {
        let rows: Vec<(i64, i64)> =
            self.rows.iter().enumerate().map(|(i, &n)| (n, self.along(|d| &d.rows, i))).collect();
        let still = (0..self.batch.len()).all(|i| self.along(|d| &d.batch, i) == 0);
        let alone = self.along_k(0) == 1 && still && self.dims.iter().all(|d| !d.checked);
        let pitch = flat_step(&rows)?;
        let pitch = if rows.iter().all(|r| r.0 <= 1) { 0 } else { pitch };
        alone.then(|| (self.dims.iter().map(|d| d.constant * d.stride).sum(), pitch))
    }

    /// The copies of this operand, if there are any that do.
    pub fn boxes(&self, c: &Contraction, terms: &Terms) -> Option<Boxes> {
        self.plain(c, terms).or_else(|| self.pixels(c, terms))
    }

    pub(super) fn map(
        &self,
        offset: i64,
        dims: Vec<i64>,
        strides: Vec<i64>,
        k_major: bool,
        line: i64,
    ) -> TensorMap {
        let swizzle = match self.bytes(line) {
            _ if !k_major => Swizzle::B128,
            128 => Swizzle::B128,
            64 => Swizzle::B64,
            _ => Swizzle::B32,
        };
        let extent = vec![1; dims.len()];
        let offset = self.bytes(offset);
        TensorMap { dtype: self.dtype, offset, dims, strides, extent, swizzle, pixels: None }
    }

    pub(super) fn plain(&self, c: &Contraction, terms: &Terms) -> Option<Boxes> {
        if self.dims.iter().any(|d| d.checked) {
            return None;
        }
        let fixed = self.dims.iter().filter(|d| !d.chosen);
        let mut offset: i64 = fixed.map(|d| d.constant * d.stride).sum();
        let along_k = self.along_group(c, terms.inner())?;
        let rows: Vec<(i64, i64)> =
            self.rows.iter().enumerate().map(|(i, &n)| (n, self.along(|d| &d.rows, i))).collect();
        let along_rows = flat_step(&rows)?;
        let (inner, rows) = (terms.inner().extent, self.rows.iter().product::<i64>());
        let k_major = along_k == 1;
        let (near, pitch) = if k_major { (along_k, along_rows) } else { (along_rows, along_k) };
        // A single line has no neighbour.
        let pitch = if (if k_major { rows } else { inner }) == 1 { self.spare() } else { pitch };
        // Only instructions of 16-bit elements take operands along M or N.
        if near != 1 || !self.steps(pitch) || !k_major && self.dtype.bits() != 16 {
            return None;
        }
        let (mut dims, mut coords) = (vec![inner, rows], vec![Coord::of(Part::Inner), Coord::of(Part::Row)]);
        if !k_major {
            dims.reverse();
            coords.reverse();
        }
        let mut strides = vec![self.bytes(pitch)];
        let mut extra: Vec<(i64, i64, Coord)> = Vec::new();
        let mut moved = |part: Part, size: i64, step: i64| {
            if size <= 1 || step == 0 {
                return;
            }
            let mut coord = Coord::of(part);
            if step < 0 {
                // Backwards: from the last on.
                offset += step * (size - 1);
                coord.parts[0].1 = -1;
                coord.constant = size - 1;
            }
            extra.push((size, step.abs(), coord));
        };
        for (i, g) in terms.outer().iter().enumerate() {
            moved(Part::Outer(i), g.extent, self.along_group(c, g)?);
        }
        for (i, &n) in self.batch.iter().enumerate() {
            moved(Part::Batch(i), n, self.along(|d| &d.batch, i));
        }
        // What no batch reaches is not in the map.
        let one = |a: &Coord, b: &Coord| {
            terms.ragged.is_empty() || self.dims.iter().any(|d| d.moved_by(a, terms) && d.moved_by(b, terms))
        };
        for (size, step, coord) in merged(extra, one) {
            let size =
                self.dims.iter().filter_map(|d| self.places(d, &coord, step, terms)).fold(size, i64::min);
            if !self.steps(step) {
                return None;
            }
            dims.push(size);
            strides.push(self.bytes(step));
            coords.push(coord);
        }
        for d in self.dims.iter().filter(|d| d.chosen) {
            if !self.steps(d.stride) {
                return None;
            }
            dims.push(d.size);
            strides.push(self.bytes(d.stride));
            coords.push(Coord { parts: vec![(Part::Chosen, 1)], constant: d.constant });
        }
        if dims.len() > 5 || offset < 0 || self.bytes(offset) % 16 != 0 {
            return None;
        }
        let map = self.map(offset, dims, strides, k_major, terms.line);
        Some(Boxes { tensor: self.tensor, buffer: None, k_major, map, coords, digits: Vec::new() })
    }

    /// How many places a coordinate has along a dim, in steps of so many elements, where nothing else moves it.
    fn places(&self, d: &Dim, coord: &Coord, step: i64, terms: &Terms) -> Option<i64> {
        let alone = d.moved_by(coord, terms)
            && d.rows.is_empty()
            && !d.checked
            && d.k.len() + d.batch.len() == coord.parts.len();
        let by = step.checked_div(d.stride).filter(|&n| alone && n > 0)?;
        let mut first = d.constant;
        for (a, v) in &d.k {
            let group = terms.groups.iter().find(|g| g.axes == [*a])?;
            first += v.min(&0) * (group.extent - 1);
        }
        first += d.batch.iter().map(|(b, v)| v.min(&0) * (self.batch[*b] - 1)).sum::<i64>();
        Some((d.size - 1 - first) / by + 1)
    }

    /// A stride for a dim that is never stepped along.
    pub(super) fn spare(&self) -> i64 {
        128 / self.dtype.bits() as i64
    }

    /// Copies of pixels in a row.
    fn pixels(&self, c: &Contraction, terms: &Terms) -> Option<Boxes> {
        if self.along_group(c, terms.inner())? != 1 || self.dims.iter().any(|d| d.chosen) {
            return None;
        }
        let mut w = Walk::new(self, terms);
        for d in &self.dims {
            w.dim(d)?;
        }
        w.boxes()
    }
}

impl Dim {
    #[allow(clippy::too_many_arguments)]
    fn new(
        ground: &Ground,
        c: &Contraction,
        rows: &[Digit],
        index: ExprId,
        lo: i64,
        size: i64,
        stride: i64,
        checked: bool,
    ) -> Option<Dim> {
        let shape = ground.shape;
        if shape.selector.as_ref().is_some_and(|s| s.expr == index) {
            let (rows, k, batch) = Default::default();
            let dim = Dim { stride, size, checked, constant: -lo, chosen: true, rows, k, batch };
            return (!checked).then_some(dim);
        }
        let mut at = Index::of(ground.graph, index)?;
        // Every axis starts at its lowest value.
        let mut constant = at.constant - lo;
        let mut of_terms = BTreeMap::new();
        for (i, k) in c.k.iter().enumerate() {
            let by = at.axes.remove(&k.axis).unwrap_or(0);
            constant += by * k.lo;
            if by != 0 && k.extent > 1 {
                of_terms.insert(i, by);
            }
        }
        let k = of_terms;
        let own = &shape.stmts[c.stmt].axes;
        let digits = |digits: &[Digit]| -> Option<BTreeMap<usize, i64>> {
            let by = digits.iter().map(|d| at.by(own[d.out], d));
            let by = by.collect::<Option<Vec<i64>>>()?;
            Some((0..).zip(by).filter(|&(i, by)| by != 0 && digits[i].extent > 1).collect())
        };
        let (of_rows, batch) = (digits(rows)?, digits(&shape.batch)?);
        for (p, axis) in own.iter().enumerate() {
            constant +=
                at.settle(*axis, &shape.axes[p], rows.iter().chain(&shape.batch).filter(|d| d.out == p))?;
        }
        let rows = of_rows;
        (at.axes.is_empty() && at.quotients.is_empty()).then_some(Dim {
            stride,
            size,
            checked,
            constant,
            chosen: false,
            rows,
            k,
            batch,
        })
    }
}

impl Dim {
    /// Whether all parts of a coordinate move this dim.
    fn moved_by(&self, coord: &Coord, terms: &Terms) -> bool {
        coord.parts.iter().all(|(part, _)| match part {
            Part::Outer(i) => terms.groups[*i].axes.iter().any(|a| self.k.contains_key(a)),
            Part::Batch(i) => self.batch.contains_key(i),
            _ => false,
        })
    }
}

impl Dim {
    /// The dim as groups of `by` places, and the place within one, which is a fold axis of its own: `within` elements a
    /// step.
    fn folded(self, by: i64, within: i64, axis: usize) -> Option<[Dim; 2]> {
        let whole = self.constant % by == 0
            && self.rows.values().all(|v| v % by == 0)
            && self.k.values().all(|v| *v == 1)
            && self.batch.is_empty();
        if !whole {
            return None;
        }
        let rows = self.rows.into_iter().map(|(i, v)| (i, v / by)).collect();
        let groups =
            Dim { size: self.size / by, constant: self.constant / by, rows, batch: BTreeMap::new(), ..self };
        let (rows, batch) = Default::default();
        let k = BTreeMap::from([(axis, 1)]);
        let inner =
            Dim { stride: within, size: by, checked: false, constant: 0, chosen: false, rows, k, batch };
        Some([groups, inner])
    }
}

/// Places along one dim of the map that rows walk.
struct Place {
    size: i64,
    /// Elements.
    stride: i64,
    /// First place, places, step from one to the next.
    lower: i64,
    extent: i64,
    step: i64,
    digits: Vec<usize>,
    /// What moves all of them: an outer group or a digit of the batch, by how much, and its extent.
    moves: Vec<(Part, i64, i64)>,
}

impl Place {
    /// Whether it is no more than a count of elements.
    fn plain(&self) -> bool {
        self.moves.is_empty() && self.step == 1 && self.lower == 0 && self.size == self.extent
    }
}

/// Makes a map of pixels.
struct Walk<'x> {
    form: &'x Form,
    terms: &'x Terms,
    /// Elements.
    offset: i64,
    inner: Coord,
    inner_size: i64,
    places: Vec<Place>,
    /// Batch digits that have a dim of their own: number, stride.
    batch: Vec<(usize, i64)>,
}

impl<'x> Walk<'x> {
    fn new(form: &'x Form, terms: &'x Terms) -> Walk<'x> {
        let (inner, inner_size) = (Coord::of(Part::Inner), terms.inner().extent);
        Walk { form, terms, offset: 0, inner, inner_size, places: Vec::new(), batch: Vec::new() }
    }

    fn dim(&mut self, d: &Dim) -> Option<()> {
        let inside = |&(a, _): &(&usize, &i64)| self.terms.inner().axes.contains(a);
        let inner = d.k.iter().any(|k| inside(&k));
        if d.checked && inner {
            return None;
        }
        let mut moves: Vec<(Part, i64, i64)> = Vec::new();
        for (a, &by) in d.k.iter().filter(|k| !inside(k)) {
            // A group of several axes is one number, which one dim does not show.
            let group = self.terms.outer().iter().position(|g| g.axes == [*a])?;
            moves.push((Part::Outer(group), by, self.terms.groups[group].extent));
        }
        for (&b, &by) in &d.batch {
            let n = self.form.batch[b];
            if d.checked || !moves.is_empty() {
                // A window's own place, which the batch moves too.
                moves.push((Part::Batch(b), by, n));
            } else if d.stride == 1 && self.terms.whole() && d.rows.is_empty() {
                self.inner.parts.push((Part::Batch(b), by));
                self.inner_size += by * (n - 1);
            } else {
                self.batch.push((b, by * d.stride));
            }
        }
        if moves.is_empty() && !d.checked {
            self.offset += d.constant * d.stride;
            for (&r, &by) in &d.rows {
                let extent = self.form.rows[r];
                let stride = by * d.stride;
                let digits = vec![r];
                self.places.push(Place {
                    size: extent,
                    stride,
                    lower: 0,
                    extent,
                    step: 1,
                    digits,
                    moves: vec![],
                });
            }
            return Some(());
        }
        let back: i64 = moves.iter().map(|&(_, by, n)| by.min(0) * (n - 1)).sum();
        let (digits, step, extent) = match d.rows.iter().collect::<Vec<_>>()[..] {
            [] => (vec![], 1, 1),
            [(&r, &by)] => (vec![r], by, self.form.rows[r]),
            _ => return None,
        };
        let stride = if d.stride == 0 { self.form.spare() } else { d.stride };
        self.places.push(Place {
            size: d.size,
            stride,
            lower: d.constant + back,
            extent,
            step,
            digits,
            moves,
        });
        Some(())
    }

    fn boxes(mut self) -> Option<Boxes> {
        // Outermost digits first; what has none stands outermost of all.
        self.places.sort_by_key(|p| p.digits.first().map_or(-1, |&d| d as i64));
        let digits: Vec<usize> = self.places.iter().flat_map(|p| p.digits.clone()).collect();
        let long: Vec<usize> = (0..self.form.rows.len()).filter(|&r| self.form.rows[r] > 1).collect();
        if digits != long {
            return None;
        }
        let places = joined(std::mem::take(&mut self.places));
        let mut places = &places[..];
        // The last dim of the map has no window.
        let mut last = (1, self.form.spare(), Coord::default());
        match (&self.batch[..], places.first()) {
            ([(b, stride)], _) => last = (self.form.batch[*b], *stride, Coord::of(Part::Batch(*b))),
            ([], Some(p)) if p.plain() && places.len() > 1 => {
                last = (p.extent, p.stride, self.position(p));
                places = &places[1..];
            }
            ([], _) => {}
            _ => return None,
        }
        if !(1..=3).contains(&places.len()) {
            return None;
        }
        self.finish(places, last)
    }

    /// The place of a copy's first row along some dim of the map.
    fn position(&self, p: &Place) -> Coord {
        let mut by = p.step;
        let mut parts = Vec::new();
        for &d in p.digits.iter().rev() {
            parts.push((Part::Digit(d), by));
            by *= self.form.rows[d];
        }
        Coord { parts, constant: p.lower }
    }

    fn finish(self, places: &[Place], last: (i64, i64, Coord)) -> Option<Boxes> {
        let form = self.form;
        let window = |p: &Place| {
            let reach = p.moves.iter().map(|&(_, by, n)| by.abs() * (n - 1)).sum();
            let (position, moved) = (self.position(p), self.moved(p));
            let Place { size, stride, lower, extent, step, .. } = *p;
            Window { size, stride, lower, extent, step, reach, position, moved }
        };
        let windows: Vec<Window> = places.iter().map(window).collect();
        let batch = self.inner.parts.iter().all(|p| form.steps(p.1) || p.0 == Part::Inner);
        let inner = (self.inner.clone(), self.inner_size);
        let found = batch.then(|| hopper_pixels::map(form, self.offset, inner, &windows, last)).flatten();
        let (mut map, coords) = found?;
        map.swizzle = form.map(0, Vec::new(), Vec::new(), true, self.terms.line).swizzle;
        let (tensor, digits) = (form.tensor, form.rows.clone());
        Some(Boxes { tensor, buffer: None, k_major: true, map, coords, digits })
    }

    /// The offset of a copy along one dim: never negative.
    fn moved(&self, p: &Place) -> Coord {
        let constant = p.moves.iter().map(|&(_, by, n)| -by.min(0) * (n - 1)).sum();
        Coord { parts: p.moves.iter().map(|&(part, by, _)| (part, by)).collect(), constant }
    }
}

/// Neighbours that are one count of elements, as one place.
fn joined(places: Vec<Place>) -> Vec<Place> {
    let mut out: Vec<Place> = Vec::new();
    for p in places {
        match out.last_mut() {
            Some(o) if o.plain() && p.plain() && o.stride == p.stride * p.extent => {
                o.stride = p.stride;
                o.extent *= p.extent;
                o.size = o.extent;
                o.digits.extend(p.digits);
            }
            _ => out.push(p),
        }
    }
    out
}

/// Coordinates with extents and steps, the longest steps first; those that are one number as one.
fn merged(mut extra: Vec<(i64, i64, Coord)>, may: impl Fn(&Coord, &Coord) -> bool) -> Vec<(i64, i64, Coord)> {
    extra.sort_by_key(|e| -e.1);
    let mut out: Vec<(i64, i64, Coord)> = Vec::new();
    for (extent, step, coord) in extra {
        match out.last_mut() {
            Some(last) if last.1 == step * extent && may(&last.2, &coord) => {
                last.0 *= extent;
                last.1 = step;
                last.2.parts.iter_mut().for_each(|p| p.1 *= extent);
                last.2.parts.extend(coord.parts);
                last.2.constant = last.2.constant * extent + coord.constant;
            }
            _ => out.push((extent, step, coord)),
        }
    }
    out
}

/// The order of terms that suits both operands, if one lies along K, that one's own.
pub fn terms(c: &Contraction, forms: [&Form; 2]) -> Terms {
    let mut axes: Vec<usize> = (0..c.k.len()).filter(|&i| c.k[i].extent > 1).collect();
    let near = |f: &&Form| axes.iter().any(|&a| f.along_k(a) == 1);
    let leader = forms.into_iter().find(near).unwrap_or(forms[0]);
    axes.sort_by_key(|&a| -leader.along_k(a).abs());
    let mut groups: Vec<Group> = Vec::new();
    for &a in &axes {
        let extent = c.k[a].extent;
        let joins = |g: &Group| {
            let last = g.axes[g.axes.len() - 1];
            forms
                .iter()
                .all(|f| f.along_k(last) == f.along_k(a) * extent && !f.bounded(last) && !f.bounded(a))
        };
        match groups.last_mut() {
            Some(g) if joins(g) => {
                g.axes.push(a);
                g.extent *= extent;
            }
            _ => groups.push(Group { axes: vec![a], extent }),
        }
    }
    Terms::new(groups, (LINE * 8 / forms[0].dtype.bits()) as i64)
}

/// The step of one number made of all digits (extent, step), if there is one.
pub fn flat_step(digits: &[(i64, i64)]) -> Option<i64> {
    let mut expected = None;
    let mut inner = None;
    for &(extent, step) in digits.iter().rev().filter(|d| d.0 > 1) {
        if expected.is_some_and(|e| e != step) {
            return None;
        }
        inner = inner.or(Some(step));
        expected = Some(step * extent);
    }
    Some(inner.unwrap_or(1))
}

/// An index: what each axis adds, and the rest.
pub(super) struct Affine {
    pub axes: BTreeMap<AxisId, i64>,
    pub constant: i64,
}

pub(super) fn affine(g: &Graph, id: ExprId) -> Option<Affine> {
    let constant = |v: i64| Some(Affine { axes: BTreeMap::new(), constant: v });
    let scaled = |mut a: Affine, by: i64| {
        a.axes.values_mut().for_each(|v| *v *= by);
        a.constant *= by;
        a
    };
    match g.expr(id) {
        Expr::Axis(a) => Some(Affine { axes: BTreeMap::from([(*a, 1)]), constant: 0 }),
        Expr::Lit(Value::I64(v)) => constant(*v),
        Expr::Lit(Value::I32(v)) => constant(*v as i64),
        Expr::Cast(a) if g.ty(*a).is_int() && g.ty(id).is_int() => affine(g, *a),
        Expr::Call(Func::Neg, a) => Some(scaled(affine(g, a[0])?, -1)),
        Expr::Call(f @ (Func::Add | Func::Sub), a) => {
            let mut sum = affine(g, a[0])?;
            let other = scaled(affine(g, a[1])?, if *f == Func::Sub { -1 } else { 1 });
            sum.constant += other.constant;
            for (axis, by) in other.axes {
                *sum.axes.entry(axis).or_insert(0) += by;
            }
            Some(sum)
        }
        Expr::Call(Func::Mul, a) => {
            let (x, y) = (affine(g, a[0])?, affine(g, a[1])?);
            match (x.axes.is_empty(), y.axes.is_empty()) {
                (true, _) => Some(scaled(y, x.constant)),
                (_, true) => Some(scaled(x, y.constant)),
                _ => None,
            }
        }
        _ => None,
    }
}
