//! Function signatures, the loop over instances, and declarations of shared and local arrays.

use std::fmt::Write;

use bornite_ir::{Access, Expr, Extent, Function, Kernel, LaunchMode, Scalar, SharedId, Stmt, Type, View};

use super::syntax::c_type;
use super::{Dialect, Printer, names};
use crate::cuda::THREADS_PER_BLOCK;

/// Maximum statically declared shared memory. Beyond it, arrays use dynamic shared memory.
const DECLARED_SHARED_BYTES: usize = 48 << 10;

/// Returns the offset of each shared array in dynamic shared memory and its total size; `None` if
/// arrays are declared statically.
pub(crate) fn dynamic_shared_memory(kernel: &Kernel) -> Option<(Vec<usize>, usize)> {
    let mut total: usize = 0;
    let mut starts = vec![];
    for shared in &kernel.shared {
        total = total.next_multiple_of(shared_align(kernel, shared.ty));
        starts.push(total);
        let elements: usize = shared.dims.iter().map(|dim| dim.extent.resolve(&[]).max(1) as usize).product();
        total = total.saturating_add(elements.saturating_mul(kernel.bytes_of(shared.ty))).next_multiple_of(16);
    }
    (total > DECLARED_SHARED_BYTES).then_some((starts, total))
}

/// Returns the alignment of a shared array in dynamic shared memory: at least 16, to allow 16-byte
/// accesses.
fn shared_align(kernel: &Kernel, ty: Type) -> usize {
    ty.layout(&kernel.structs).align.max(16)
}

impl<'k> Printer<'k> {
    pub(super) fn function(&mut self, n: usize) -> String {
        let function: &'k Function = &self.kernel.functions[n];
        let body = self.print_code(&function.code, 1);
        let params = function
            .params
            .iter()
            .zip(&self.names.arguments[n])
            .map(|(p, name)| format!("{} {name}", self.names.of_type(self.kernel, p.ty)));
        let params = params.collect::<Vec<_>>().join(", ");
        let result = self.names.of_type(self.kernel, function.result);
        let name = &self.names.functions[n];
        format!("{} {result} {name}({params}) {{\n{body}}}\n", self.device())
    }

    /// Prints the kernel's entry function.
    pub(super) fn kernel(&mut self) -> String {
        let kernel = self.kernel;
        let name = names::kernel(kernel);
        let restrict = match (self.restrict, self.dialect) {
            (false, _) => "",
            (true, Dialect::Cpp) => " __restrict",
            (true, Dialect::Cuda(_)) => " __restrict__",
        };
        let views = kernel.params.iter().zip(&self.names.params).map(|(p, name)| {
            let constness = if p.access == Access::Read { "const " } else { "" };
            format!("{constness}{}*{restrict} {name}", self.names.of_type(kernel, p.ty))
        });
        let values = kernel.values.iter().zip(&self.names.values);
        let values = values.map(|(v, name)| format!("{} {name}", self.names.of_type(kernel, v.ty)));
        let (status, code) = if self.checked { ("long long* bn_status", "long long bn_code") } else { ("", "") };
        let all = views.chain([status.into()]).chain(values).chain([code.into()]).filter(|p: &String| !p.is_empty());
        let params = all.collect::<Vec<String>>().join(", ");
        if self.dialect == Dialect::Cpp {
            return self.print_loop_kernel(&name, &params);
        }
        let threads = match kernel.launch {
            LaunchMode::ParallelFor { .. } => THREADS_PER_BLOCK,
            LaunchMode::Blocks { block, .. } => block.iter().product(),
        };
        let mut text = format!("extern \"C\" __global__ void __launch_bounds__({threads})\n{name}({params}) {{\n");
        if let LaunchMode::ParallelFor { count } = kernel.launch {
            // Unsigned, so that incrementing past the end cannot overflow: the grid exceeds the
            // count by less than one block.
            let (counter, suffix) =
                if kernel.index == Scalar::I32 { ("unsigned", "u") } else { ("unsigned long long", "ull") };
            let count = match count {
                Extent::Const(n) => format!("{n}{suffix}"),
                Extent::Value(_) => format!("({counter}){}", self.extent(count)),
            };
            let first = format!("{counter} i_ = ({counter})blockIdx.x * blockDim.x + threadIdx.x");
            if kernel.code.any(&|stmt| matches!(stmt, Stmt::Return(_))) {
                // A `return` must not skip the following instances of a grid-stride loop, so there
                // is none.
                let _ = writeln!(text, "    const {first};\n    if (i_ < {count}) {{");
            } else {
                let step = format!("i_ += ({counter})gridDim.x * blockDim.x");
                let _ = writeln!(text, "    for ({first}; i_ < {count};\n         {step}) {{");
            }
            let _ = writeln!(text, "        const {0} index = ({0})i_;", c_type(kernel.index));
            text += &self.local_arrays(2);
            text += &self.print_code(&kernel.code, 2);
            return text + "    }\n}\n";
        }
        text += &self.shared_arrays();
        text += &self.local_arrays(1);
        text += &self.print_code(&kernel.code, 1);
        text + "}\n"
    }

    /// Prints the shared-memory declarations: static arrays, or references into dynamic shared
    /// memory if they do not fit.
    fn shared_arrays(&self) -> String {
        let (kernel, mut text) = (self.kernel, String::new());
        let dynamic = dynamic_shared_memory(kernel);
        if dynamic.is_some() {
            let align = kernel.shared.iter().map(|shared| shared_align(kernel, shared.ty)).max().unwrap_or(16);
            let _ = writeln!(text, "    extern __shared__ __align__({align}) unsigned char bn_shared[];");
        }
        for (n, shared) in kernel.shared.iter().enumerate() {
            let sizes: String = shared.dims.iter().map(|dim| format!("[{}]", dim.extent.resolve(&[]).max(1))).collect();
            let (ty, name) = (self.names.of_type(kernel, shared.ty), &self.names.shared[n]);
            // A float array is aligned to one float only.
            let align = if self.is_wide(SharedId(n as u32).into()) { "__align__(16) " } else { "" };
            let _ = match &dynamic {
                Some((starts, _)) => {
                    writeln!(text, "    {ty} (&{name}){sizes} = *({ty} (*){sizes})(bn_shared + {});", starts[n])
                }
                None => writeln!(text, "    __shared__ {align}{ty} {name}{sizes};"),
            };
        }
        text
    }

    /// Prints the declarations of local arrays.
    fn local_arrays(&self, depth: usize) -> String {
        let mut text = String::new();
        for (n, array) in self.kernel.local_arrays.iter().enumerate() {
            let sizes: String = array.dims.iter().map(|dim| format!("[{}]", dim.extent.resolve(&[]).max(1))).collect();
            let (ty, name) = (self.names.of_type(self.kernel, array.ty), &self.names.local_arrays[n]);
            let _ = writeln!(text, "{}{ty} {name}{sizes};", "    ".repeat(depth));
        }
        text
    }

    /// Returns true if the kernel accesses several elements of a view at once.
    fn is_wide(&self, view: View) -> bool {
        let code = &self.kernel.code;
        let own = |found: &View| *found == view;
        let loads = |expr: &Expr| matches!(expr, Expr::Load { view, width: 2.., .. } if own(view));
        let stores = |stmt: &Stmt| match stmt {
            Stmt::Store { view, indices, value } => {
                let viewed = self.kernel.view(*view);
                own(view) && viewed.component_index(indices).is_none() && code.ty(*value) != viewed.ty
            }
            _ => false,
        };
        code.exprs.iter().any(loads) || code.any(&stores)
    }

    /// Prints the kernel as a loop over all instances.
    fn print_loop_kernel(&mut self, name: &str, params: &str) -> String {
        let kernel = self.kernel;
        let mut text = format!("extern \"C\" void {name}({params}) {{\n");
        let returns = kernel.code.any(&|stmt| matches!(stmt, Stmt::Return(_)));
        let (count, coordinates) = match kernel.launch {
            LaunchMode::ParallelFor { count } => {
                (self.extent(count), format!("        const {0} index = ({0})task_index;\n", c_type(kernel.index)))
            }
            LaunchMode::Blocks { grid, block } => {
                let split = |of: [u32; 3], from: &str| {
                    let [x, y, _] = of.map(|n| n.max(1));
                    let (plane, row) = (x as u64 * y as u64, x);
                    format!(
                        "{{(unsigned)({from} % {row}), (unsigned)({from} / {row} % {y}), (unsigned)({from} / {plane})}}"
                    )
                };
                let threads: u32 = block.iter().product();
                let mut coordinates = String::new();
                for (name, value) in [
                    ("threadIdx", split(block, &format!("(task_index % {threads})"))),
                    ("blockIdx", split(grid, &format!("(task_index / {threads})"))),
                    ("blockDim", format!("{{{}, {}, {}}}", block[0], block[1], block[2])),
                    ("gridDim", format!("{{{}, {}, {}}}", grid[0], grid[1], grid[2])),
                ] {
                    let _ = writeln!(coordinates, "        const struct {{ unsigned x, y, z; }} {name} = {value};");
                }
                (kernel.launch.count(&[]).to_string(), coordinates)
            }
        };
        let _ = writeln!(text, "    for (long long task_index = 0; task_index < {count}; ++task_index) {{");
        text += &coordinates;
        // A return ends one instance, not the loop.
        let (open, close) = if returns { ("        [&] {\n", "        }();\n") } else { ("", "") };
        text += open;
        let depth = if returns { 3 } else { 2 };
        text += &self.local_arrays(depth);
        text += &self.print_code(&kernel.code, depth);
        text + close + "    }\n}\n"
    }
}
