//! Kernel categories that the generator draws from.

macro_rules! categories {
    ($($variant:ident $name:literal $about:literal;)*) => {
        /// Kernel category.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Category {
            $(#[doc = $about] $variant,)*
        }

        impl Category {
            /// Every category, in the order in which row indices cycle through them.
            pub const ALL: &[Category] = &[$(Category::$variant,)*];

            /// Name in rows and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Category::$variant => $name,)* }
            }

            /// One-line description of the category.
            pub fn about(self) -> &'static str {
                match self { $(Category::$variant => $about,)* }
            }
        }
    };
}

categories! {
    Arithmetic "arithmetic" "Sums, products and quotients of elements.";
    Math "math" "Nested mathematical functions.";
    Vector "vector" "Vectors of two to four components.";
    Matrix "matrix" "Small matrices, one per thread.";
    ControlFlow "control_flow" "Branches, loops, early exits.";
    Atomic "atomic" "Updates of elements that many threads share.";
    Nested "nested" "Loops within loops and branches within loops.";
    ExpressionTree "expression_tree" "Deep expressions over several arrays.";
    ScalarParam "scalar_param" "Scalars passed by value.";
    Reduction "reduction" "Reductions of many elements to one.";
    Scan "scan" "Running sums, products and extremes.";
    Stencil "stencil" "Elements and their neighbours along a line.";
    GridTwo "grid_2d" "Two-dimensional grids of threads.";
    GridThree "grid_3d" "Three-dimensional grids of threads.";
    GatherScatter "gather_scatter" "Elements read or written through indices.";
    Histogram "histogram" "Counts of values in bins.";
    SharedMemory "shared_memory" "Tiles that the threads of a block share.";
    WarpShuffle "warp_shuffle" "Values exchanged between the lanes of a warp.";
    TiledMatmul "tiled_matmul" "Products of matrices through tiles.";
    Struct "struct" "Arrays of structs.";
    IntegerBits "integer_bits" "Shifts, masks, hashes and counts of bits.";
    HalfPrecision "half_precision" "16-bit floats, computed in 32 bits or in 16.";
    RandomNumbers "random_numbers" "Random numbers generated in the kernel.";
    Functions "functions" "Kernels that call device functions.";
    Physics "physics" "Steps of simulations.";
    Image "image" "Pixels and their neighbourhoods.";
    MlOps "ml_ops" "Building blocks of neural networks.";
}

impl Category {
    /// Returns the category with this name.
    pub fn from_name(name: &str) -> Option<Category> {
        Category::ALL.iter().copied().find(|category| category.name() == name)
    }
}
