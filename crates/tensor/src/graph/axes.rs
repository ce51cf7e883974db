//! Axis arguments.

use std::ops::RangeFull;

/// Axes of a tensor: one (`-1` is the last), several (`[0, 2]`) or all (`..`).
#[derive(Clone, Debug)]
pub enum Axes {
    /// All axes.
    All,
    /// The listed axes; negative ones count from the end.
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
    /// The sorted, non-negative axes of a tensor of this rank.
    pub(crate) fn resolve(&self, rank: usize) -> Result<Vec<usize>, String> {
        let Axes::List(axes) = self else { return Ok((0..rank).collect()) };
        let mut resolved = axes.iter().map(|&a| resolve_axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
        resolved.sort_unstable();
        match resolved.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("axis {} is listed twice", pair[0])),
            None => Ok(resolved),
        }
    }

    /// The shape with these axes at length 1.
    pub(crate) fn keepdim_shape(&self, shape: &[usize]) -> Result<Vec<usize>, String> {
        let mut reduced = shape.to_vec();
        for axis in self.resolve(shape.len())? {
            reduced[axis] = 1;
        }
        Ok(reduced)
    }
}

pub(crate) fn resolve_axis(axis: isize, rank: usize) -> Result<usize, String> {
    let from_start = if axis < 0 { axis + rank as isize } else { axis };
    if (0..rank as isize).contains(&from_start) {
        Ok(from_start as usize)
    } else {
        Err(format!("axis {axis} is out of range for rank {rank}"))
    }
}
