//! The kinds of kernels that are made.

macro_rules! categories {
    ($($variant:ident $name:literal $about:literal;)*) => {
        /// A kind of kernel.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Category {
            $(#[doc = $about] $variant,)*
        }

        impl Category {
            /// Every category, in the order in which indices take their turns.
            pub const ALL: &[Category] = &[$(Category::$variant,)*];

            /// The name in rows and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Category::$variant => $name,)* }
            }

            /// What the kernels have in common.
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
    Matrix "matrix" "Small matrices, one a thread.";
    ControlFlow "control_flow" "Branches, loops, early ends.";
    Atomic "atomic" "Updates of elements that many threads share.";
    Nested "nested" "Loops within loops and branches within loops.";
    ExpressionTree "expression_tree" "Deep expressions over several arrays.";
    ScalarParam "scalar_param" "Numbers passed by value.";
    Reduction "reduction" "Many elements become one.";
    Scan "scan" "Running sums, products and extremes.";
    Stencil "stencil" "Elements and their neighbours along a line.";
    GridTwo "grid_2d" "Two-dimensional grids of threads.";
    GridThree "grid_3d" "Three-dimensional grids of threads.";
    GatherScatter "gather_scatter" "Elements found through indices.";
    Histogram "histogram" "Counts of values in bins.";
    SharedMemory "shared_memory" "Tiles that the threads of a block share.";
    WarpShuffle "warp_shuffle" "Values handed from lane to lane.";
    TiledMatmul "tiled_matmul" "Products of matrices through tiles.";
    Struct "struct" "Arrays of structs.";
    IntegerBits "integer_bits" "Shifts, masks, hashes and counts of bits.";
    HalfPrecision "half_precision" "16-bit floats, computed in 32 bits or in 16.";
    RandomNumbers "random_numbers" "Random numbers made in the kernel.";
    Functions "functions" "Kernels that call functions.";
    Physics "physics" "Steps of simulations.";
    Image "image" "Pixels and their neighbourhoods.";
    MlOps "ml_ops" "Parts of neural networks.";
}

impl Category {
    /// The category of that name.
    pub fn named(name: &str) -> Option<Category> {
        Category::ALL.iter().copied().find(|category| category.name() == name)
    }
}
