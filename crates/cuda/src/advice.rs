//! How to launch a common kind of kernel over a given size on a given device, and why so.

use crate::occupancy::{Resources, occupancy};
use crate::{DeviceInfo, Error, Geometry, Occupancy, Result};

/// A kind of kernel, with its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Template {
    /// One result an element, over a grid that strides.
    Elementwise {
        /// Elements.
        elements: u64,
        /// Bytes an element.
        element_bytes: u32,
    },
    /// One result a row.
    Reduction {
        /// Rows.
        rows: u64,
        /// Elements a row.
        columns: u64,
    },
    /// A product of m × k by k × n through square tiles in shared memory, one thread an element of the tile.
    Matmul {
        /// Rows of the result.
        m: u64,
        /// Columns of the result.
        n: u64,
        /// Length of the sums.
        k: u64,
        /// Bytes an element.
        element_bytes: u32,
    },
}

impl Template {
    /// A template by the name and size that people give: `elementwise` takes 1 number, `reduction` 1 or 2 (rows,
    /// columns), `matmul` 3 (m, n, k). Elements are f32.
    pub fn parse(name: &str, size: &[u64]) -> Result<Template> {
        let bad = |what: &str| Err(Error::BadLaunch { kernel: name.into(), what: what.into() });
        match (name, size) {
            ("elementwise" | "vector_add", &[elements]) => Ok(Template::Elementwise { elements, element_bytes: 4 }),
            ("reduction", &[columns]) => Ok(Template::Reduction { rows: 1, columns }),
            ("reduction", &[rows, columns]) => Ok(Template::Reduction { rows, columns }),
            ("matmul" | "matrix_multiply", &[m, n, k]) => Ok(Template::Matmul { m, n, k, element_bytes: 4 }),
            ("elementwise" | "vector_add", _) => bad("an elementwise size is one number"),
            ("reduction", _) => bad("a reduction's size is its columns, or rows and columns"),
            ("matmul" | "matrix_multiply", _) => bad("a product's size is m, n and k"),
            _ => bad("no such template; there are elementwise, reduction and matmul"),
        }
    }
}

/// A launch, and what to expect of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// The launch.
    pub geometry: Geometry,
    /// Elements that each thread takes at a time.
    pub elements_a_thread: u32,
    /// How full a multiprocessor gets.
    pub occupancy: Occupancy,
    /// The reasons, in a sentence or two.
    pub why: String,
}

/// Registers that such kernels take, as compiled for sm_90: enough to judge by before there is a kernel.
const USUAL: Resources =
    Resources { registers: 32, static_shared_bytes: 0, spill_bytes: 0, max_threads_per_block: 1024 };

/// Threads a block that fill every generation since 7.5 (its multiprocessors hold 1024, 1536 or 2048).
const USUAL_BLOCK: u64 = 256;

/// Advises how to launch; pass what the kernel takes where that is known ([`crate::Function::resources`]).
pub fn advise(info: &DeviceInfo, template: Template, kernel: Option<Resources>) -> Advice {
    let kernel = kernel.unwrap_or(USUAL);
    match template {
        Template::Elementwise { elements, element_bytes } => elementwise(info, elements, element_bytes, kernel),
        Template::Reduction { rows, columns } => reduction(info, rows, columns, kernel),
        Template::Matmul { m, n, k, element_bytes } => matmul(info, [m, n, k], element_bytes, kernel),
    }
}

/// Threads a block so that there is a block for every multiprocessor, as far as there is work.
fn spread(info: &DeviceInfo, threads: u64, kernel: Resources) -> u64 {
    let mut block = USUAL_BLOCK.min(u64::from(kernel.max_threads_per_block.max(32)));
    while block > 32 && threads.div_ceil(block) < u64::from(info.multiprocessors) {
        block /= 2;
    }
    block
}

fn elementwise(info: &DeviceInfo, elements: u64, element_bytes: u32, kernel: Resources) -> Advice {
    let sms = u64::from(info.multiprocessors);
    let wide = u64::from(16 / element_bytes.clamp(1, 16));
    // Wide accesses need the same bytes with fewer threads; where there are too few threads they only slow things down.
    let vector = if elements / wide.max(1) >= sms * u64::from(info.max_threads_per_multiprocessor) { wide } else { 1 };
    let threads = elements.div_ceil(vector).max(1);
    let block = spread(info, threads, kernel);
    let occupancy = occupancy(info, block as u32, kernel, 0);
    let resident = sms * u64::from(occupancy.blocks.max(1));
    let needed = threads.div_ceil(block);
    let grid = needed.min(resident).min(u64::from(info.max_grid_dim[0]));
    let why = if needed <= grid {
        format!("{needed} blocks of {block} cover {elements} elements, {vector} a thread, in one go")
    } else {
        format!(
            "{grid} blocks of {block} are all that the {sms} multiprocessors hold at once ({} each); each thread takes \
             {vector} element(s) at a time, 16 bytes where it can, and strides over the rest",
            occupancy.blocks
        )
    };
    advice([grid, 1, 1], [block, 1, 1], 0, vector, occupancy, why)
}

fn reduction(info: &DeviceInfo, rows: u64, columns: u64, kernel: Resources) -> Advice {
    let sms = u64::from(info.multiprocessors);
    let warp = u64::from(info.warp_size.max(1));
    let most_grid = u64::from(info.max_grid_dim[0]);
    if rows <= 1 {
        let mut advice = elementwise(info, columns, 4, kernel);
        // Each block leaves one partial result; a second launch of one block adds those in order.
        advice.why += &format!(
            "; each block leaves one partial sum, and one block then adds the {} in order",
            advice.geometry.grid[0]
        );
        return advice;
    }
    let (block, rows_a_block, reason) = if columns <= 1024 && rows >= sms {
        let block = USUAL_BLOCK.min(u64::from(kernel.max_threads_per_block.max(32)));
        (block, (block / warp).max(1), "a warp a row needs no shared memory and no barrier")
    } else {
        // Four elements a thread at least, so that a thread has something to add before the block does.
        let block =
            (columns / 4).next_power_of_two().clamp(warp, u64::from(kernel.max_threads_per_block.clamp(32, 1024)));
        (block, 1, "a block a row: rows are long, or too few for a warp each to fill the device")
    };
    let shared = if rows_a_block == 1 { (block / warp * 4) as u32 } else { 0 };
    let occupancy = occupancy(info, block as u32, kernel, shared);
    let grid = rows.div_ceil(rows_a_block).min(most_grid);
    let each = columns.div_ceil(if rows_a_block == 1 { block } else { warp }).max(1);
    let why = format!("{reason}; {rows} rows are {grid} blocks, {each} element(s) of a row a thread");
    advice([grid, 1, 1], [block, 1, 1], shared, each, occupancy, why)
}

fn matmul(info: &DeviceInfo, [m, n, k]: [u64; 3], element_bytes: u32, kernel: Resources) -> Advice {
    let sms = u64::from(info.multiprocessors);
    let candidates = [32u64, 16, 8].map(|tile| {
        let grid = [n.div_ceil(tile).max(1), m.div_ceil(tile).max(1)];
        let shared = 2 * (tile * tile) as u32 * element_bytes;
        (tile, grid, shared, occupancy(info, (tile * tile) as u32, kernel, shared))
    });
    // A large tile reads each input fewer times (k/tile each), but only counts if there is a tile for everyone and
    // threads fill the multiprocessors.
    let worth = |(tile, grid, _, full): &(u64, [u64; 2], u32, Occupancy)| {
        let busy = ((grid[0] * grid[1]) as f64 / sms as f64).min(1.0);
        let inside = (m * n) as f64 / (grid[0] * grid[1] * tile * tile) as f64;
        busy * full.share * inside.max(f64::MIN_POSITIVE) * (*tile as f64).sqrt()
    };
    let best = candidates.into_iter().max_by(|a, b| worth(a).total_cmp(&worth(b))).unwrap_or(candidates[2]);
    let (tile, [gx, gy], shared, occupancy) = best;
    let why = format!(
        "tiles of {tile}x{tile} make {} blocks for {sms} multiprocessors and read each input {} times instead of {}; \
         a library's kernel with tensor cores is faster where one may be called",
        gx * gy,
        if k == 0 { 0 } else { n.max(m).div_ceil(tile) },
        n.max(m)
    );
    advice([gx, gy, 1], [tile, tile, 1], shared, 1, occupancy, why)
}

fn advice(
    grid: [u64; 3],
    block: [u64; 3],
    shared_bytes: u32,
    elements_a_thread: u64,
    occupancy: Occupancy,
    why: String,
) -> Advice {
    let narrow = |sizes: [u64; 3]| sizes.map(|size| size.clamp(1, i32::MAX as u64) as u32);
    let geometry = Geometry { shared_bytes, ..Geometry::new(narrow(grid), narrow(block)) };
    Advice { geometry, elements_a_thread: elements_a_thread.min(u64::from(u32::MAX)) as u32, occupancy, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::tests::{h200, rtx3060};

    fn covered(advice: &Advice) -> u64 {
        let geometry = &advice.geometry;
        (0..3).map(|axis| u64::from(geometry.grid[axis]) * u64::from(geometry.block[axis])).product()
    }

    #[test]
    fn every_advice_can_be_launched_and_covers_the_work() {
        let sizes = [0, 1, 7, 31, 32, 1000, 1024, 4096, 65_536, 1_000_000, 100_000_000, 10_000_000_000];
        for info in [h200(0), rtx3060(0)] {
            let mut templates = vec![];
            for &a in &sizes {
                templates.push(Template::Elementwise { elements: a, element_bytes: 4 });
                templates.push(Template::Elementwise { elements: a, element_bytes: 2 });
                for &b in &sizes[..9] {
                    templates.push(Template::Reduction { rows: a.min(1 << 31), columns: b });
                    templates.push(Template::Matmul { m: a.min(65_536), n: b, k: 512, element_bytes: 4 });
                }
            }
            for template in templates {
                let advice = advise(&info, template, None);
                let Geometry { grid, block, shared_bytes, .. } = advice.geometry;
                let threads: u32 = block.iter().product();
                assert!((1..=info.max_threads_per_block).contains(&threads), "{template:?}: {advice:?}");
                assert!((0..3).all(|n| (1..=info.max_block_dim[n]).contains(&block[n])), "{template:?}: {advice:?}");
                assert!((0..3).all(|n| (1..=info.max_grid_dim[n]).contains(&grid[n])), "{template:?}: {advice:?}");
                assert!(shared_bytes <= info.shared_bytes_per_block);
                assert!(advice.occupancy.blocks > 0 && advice.occupancy.share <= 1.0 && !advice.why.is_empty());
                match template {
                    Template::Matmul { m, n, .. } => {
                        assert!(u64::from(grid[0] * block[0]) >= n && u64::from(grid[1] * block[1]) >= m)
                    }
                    Template::Reduction { rows, .. } if rows > 1 => {
                        assert!(covered(&advice) >= rows, "{template:?}: {advice:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn sizes_change_the_advice_as_they_should() {
        let (big, small) = (h200(0), rtx3060(0));
        let large = advise(&big, Template::Elementwise { elements: 100_000_000, element_bytes: 4 }, None);
        assert_eq!((large.geometry.grid[0], large.geometry.block[0]), (132 * 8, 256));
        assert_eq!((large.elements_a_thread, large.occupancy.share), (4, 1.0));
        let tiny = advise(&big, Template::Elementwise { elements: 1000, element_bytes: 4 }, None);
        assert_eq!((tiny.geometry.block[0], tiny.geometry.grid[0], tiny.elements_a_thread), (32, 32, 1));
        let heavy = Resources { registers: 128, max_threads_per_block: 512, ..Resources::default() };
        let heavy = advise(&big, Template::Elementwise { elements: 100_000_000, element_bytes: 4 }, Some(heavy));
        assert_eq!(heavy.geometry.grid[0], 132 * 2, "registers allow two blocks");

        let square = Template::Matmul { m: 1024, n: 1024, k: 1024, element_bytes: 4 };
        assert_eq!(advise(&big, square, None).geometry.block, [32, 32, 1]);
        // One block of 1024 threads leaves a third of 1536 empty.
        assert_eq!(advise(&small, square, None).geometry.block, [16, 16, 1]);
        let few = Template::Matmul { m: 64, n: 64, k: 1024, element_bytes: 4 };
        assert_eq!(advise(&big, few, None).geometry.block, [8, 8, 1], "more tiles, for there are few");

        let rows = advise(&big, Template::Reduction { rows: 65_536, columns: 768 }, None);
        assert_eq!((rows.geometry.block[0], rows.geometry.grid[0]), (256, 8192));
        let long = advise(&big, Template::Reduction { rows: 64, columns: 50_304 }, None);
        assert_eq!((long.geometry.block[0], long.geometry.grid[0]), (1024, 64));
    }

    #[test]
    fn names_and_sizes_as_people_give_them() {
        assert_eq!(
            Template::parse("matrix_multiply", &[1024, 512, 256]).unwrap(),
            Template::Matmul { m: 1024, n: 512, k: 256, element_bytes: 4 }
        );
        assert!(Template::parse("reduction", &[4, 5]).is_ok());
        for (name, size) in [("conv", &[1][..]), ("matmul", &[1, 2]), ("elementwise", &[])] {
            let text = Template::parse(name, size).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }
}
