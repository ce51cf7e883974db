//! Naming axes.

use std::ops::RangeFull;

/// Which axes: one (`-1` is the last), several (`[0, 2]`), or all (`..`).
#[derive(Clone, Debug)]
pub enum Axes {
    /// All of them.
    All,
    /// These; negative ones count from the end.
    List(Vec<isize>),
}

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Axes {
        Axes::All
    }
}

impl From<isize> for Axes {
    fn from(axis: isize) -> Axes {
        Axes::List(vec![axis])
    }
}

impl<const N: usize> From<[isize; N]> for Axes {
    fn from(axes: [isize; N]) -> Axes {
        Axes::List(axes.to_vec())
    }
}

impl From<&[isize]> for Axes {
    fn from(axes: &[isize]) -> Axes {
        Axes::List(axes.to_vec())
    }
}

impl Axes {
    /// Sorted axes of a tensor of that rank.
    pub(crate) fn resolve(&self, rank: usize) -> Result<Vec<usize>, String> {
        let Axes::List(axes) = self else { return Ok((0..rank).collect()) };
        let mut resolved = axes.iter().map(|&a| resolve_axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
        resolved.sort_unstable();
        match resolved.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("axis {} is named twice", pair[0])),
            None => Ok(resolved),
        }
    }

    /// A shape with these axes at length 1.
    pub(crate) fn kept(&self, shape: &[usize]) -> Result<Vec<usize>, String> {
        let mut kept = shape.to_vec();
        for axis in self.resolve(shape.len())? {
            kept[axis] = 1;
        }
        Ok(kept)
    }
}

pub(crate) fn resolve_axis(axis: isize, rank: usize) -> Result<usize, String> {
    let from_start = if axis < 0 { axis + rank as isize } else { axis };
    if (0..rank as isize).contains(&from_start) {
        Ok(from_start as usize)
    } else {
        Err(format!("there is no axis {axis} among {rank}"))
    }
}
