//! Tensor maps that walk windows (im2col), and operands whose terms are the pixels of such a walk: a convolution's input
//! in the gradient of its filters.
//!
//! There a product's terms are all pixels of the output, a line of them pixels in a row, and a box has 64 channels of
//! each. Rows of the operand are the filter's taps and their channels: which tap a box is of moves its pixels.

use super::contract_pattern::Contraction;
use super::hopper_gather::{Boxes, Coord, Dim, Form, Group, LINE, Part, Terms};
use crate::ir::simt::{Pixels, Swizzle, TensorMap};

/// Channels of a box.
const BOX: i64 = 64;

/// Places along one dim that a walk goes over, windows and all.
pub struct Window {
    pub size: i64,
    /// Elements.
    pub stride: i64,
    /// First place, places, step from one to the next.
    pub lower: i64,
    pub extent: i64,
    pub step: i64,
    /// How far the window moves them.
    pub reach: i64,
    /// The first place of a copy, and how far its window has moved it.
    pub position: Coord,
    pub moved: Coord,
}

/// The map of a walk over windows, outermost first, and the coordinates of its copies. `inner`: the coordinate along the
/// dim that runs and its size; `last`: extent, stride (elements) and coordinate of the dim that has no window.
pub fn map(
    form: &Form,
    offset: i64,
    inner: (Coord, i64),
    windows: &[Window],
    last: (i64, i64, Coord),
) -> Option<(TensorMap, Vec<Coord>)> {
    let (mut dims, mut strides, mut coords) = (vec![inner.1], Vec::new(), vec![inner.0]);
    let mut pixels = Pixels { lower: Vec::new(), upper: Vec::new(), step: Vec::new() };
    let mut offsets = Vec::new();
    let corner: i64 = *[1 << 15, 1 << 7, 1 << 4].get(windows.len().checked_sub(1)?)?;
    for w in windows.iter().rev() {
        let upper = w.lower + w.step * (w.extent - 1) + 1 - w.size;
        let fits = |v: i64| (-corner..corner).contains(&v);
        if !fits(w.lower) || !fits(upper) || w.reach >= 2 * corner || !(1..=8).contains(&w.step) {
            return None;
        }
        dims.push(w.size);
        strides.push(w.stride);
        pixels.lower.push(w.lower as i32);
        pixels.upper.push(upper as i32);
        pixels.step.push(w.step as u32);
        coords.push(w.position.clone());
        offsets.push(w.moved.clone());
    }
    dims.push(last.0);
    strides.push(last.1);
    coords.push(last.2);
    coords.extend(offsets);
    if form.bytes(offset) % 16 != 0 || offset < 0 || !strides.iter().all(|&s| form.steps(s)) {
        return None;
    }
    let strides = strides.iter().map(|&s| form.bytes(s)).collect();
    let mut map = form.map(offset, dims, strides, false, BOX);
    map.swizzle = Swizzle::B128;
    map.extent.truncate(2);
    map.pixels = Some(pixels);
    Some((map, coords))
}

/// All fold axes as one number, in the order of the operand that lies so.
pub fn terms(c: &Contraction, forms: [&Form; 2]) -> Option<Terms> {
    let mut axes: Vec<usize> = (0..c.k.len()).filter(|&i| c.k[i].extent > 1).collect();
    let whole =
        |f: &&Form| f.dims.iter().all(|d| !d.checked && d.k.len() <= 1 && d.k.values().all(|v| *v == 1));
    let leader = forms.into_iter().find(whole)?;
    axes.sort_by_key(|&a| -leader.along_k(a));
    let extent = axes.iter().map(|&a| c.k[a].extent).product();
    let step = LINE as i64 / 2;
    Some(Terms { groups: vec![Group { axes, extent }], step, line: step, ragged: Vec::new() })
}

/// The copies of an operand whose terms are pixels and whose rows are taps and channels.
pub fn boxes(form: &Form, c: &Contraction, terms: &Terms) -> Option<Boxes> {
    let [group] = &terms.groups[..] else { return None };
    let channel = (0..form.rows.len()).rev().find(|&r| form.rows[r] > 1)?;
    if form.rows[channel] % BOX != 0 || form.bytes(1) != 2 {
        return None;
    }
    let (mut offset, mut inner) = (0, None);
    let mut places: Vec<(usize, &Dim)> = Vec::new();
    for d in &form.dims {
        if d.chosen || !d.batch.is_empty() {
            return None;
        }
        let axes: Vec<usize> = d.k.keys().copied().collect();
        match (d.rows.get(&channel), &axes[..]) {
            (Some(1), []) if d.rows.len() == 1 && d.stride == 1 && !d.checked && inner.is_none() => {
                offset += d.constant;
                inner = Some(d);
            }
            (None, []) if d.rows.is_empty() && !d.checked => offset += d.constant * d.stride,
            (None, [a]) if d.rows.len() <= 1 => {
                places.push((group.axes.iter().position(|k| k == a)?, d));
            }
            _ => return None,
        }
    }
    inner?;
    places.sort_by_key(|p| p.0);
    if !places.iter().map(|p| p.0).eq(0..group.axes.len()) {
        return None;
    }
    // Digits of a number, by position: what to divide by, and the modulus.
    let digit = |extents: &[i64], at: usize| (extents[at + 1..].iter().product::<i64>(), extents[at]);
    let pixels: Vec<i64> = group.axes.iter().map(|&a| c.k[a].extent).collect();
    let position = |&(at, d): &(usize, &Dim), lower: i64| {
        let (over, modulus) = digit(&pixels, at);
        // What is beyond the last pixel must be outside.
        let modulus = if at == 0 { i64::MAX } else { modulus };
        let by = d.k.values().next().copied().unwrap_or(0);
        Coord { parts: vec![(Part::OfTerm(over, modulus), by)], constant: lower }
    };
    let windows = |p: &(usize, &Dim)| {
        let (at, d) = *p;
        let mut moved = Coord::default();
        let (mut back, mut reach) = (0, 0);
        for (&r, &by) in &d.rows {
            let (over, modulus) = digit(&form.rows, r);
            back += by.min(0) * (modulus - 1);
            reach += by.abs() * (modulus - 1);
            moved.parts.push((Part::OfRow(over, modulus), by));
        }
        moved.constant = -back;
        let (lower, stride) = (d.constant + back, if d.stride == 0 { form.spare() } else { d.stride });
        let step = d.k.values().next().copied().unwrap_or(1);
        let position = position(p, lower);
        Window { size: d.size, stride, lower, extent: pixels[at], step, reach, position, moved }
    };
    let mut all: Vec<Window> = places.iter().map(windows).collect();
    let mut last = (1, form.spare(), Coord::default());
    let plain = |w: &Window| w.moved.parts.is_empty() && w.step == 1 && w.lower == 0 && w.size == w.extent;
    if all.len() > 1 && plain(&all[0]) {
        let w = all.remove(0);
        last = (w.extent, w.stride, w.position);
    }
    let coord = Coord::of(Part::OfRow(1, form.rows[channel]));
    let (map, coords) = map(form, offset, (coord, form.rows[channel]), &all, last)?;
    Some(Boxes { tensor: form.tensor, buffer: None, k_major: false, map, coords, digits: Vec::new() })
}
