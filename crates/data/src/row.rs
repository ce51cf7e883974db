//! A dataset row: the texts of a program, the recipe of its inputs, and metadata. `files/record.rs`
//! turns it into columns; this module knows nothing of files.

use std::collections::BTreeSet;

use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;

use crate::coverage::{atomic, operator};
use crate::program::{CudaForm, ExprKind, Program, ProgramStmt, c, python};
use crate::verify::{Level, Rejection};
use crate::{Category, inputs};

/// Value of each size parameter in the launch that a row's IR is lowered for.
const IR_SIZE: u32 = 1000;

/// A row of a dataset.
#[derive(Clone, Debug)]
pub struct Row {
    /// The seed of the dataset.
    pub seed: u64,
    /// Row number within the dataset.
    pub index: u64,
    /// The kernel's name, in all texts.
    pub name: String,
    /// The kind of kernel.
    pub category: Category,
    /// One-sentence description of the kernel.
    pub description: String,
    /// Python source in the dialect of Warp.
    pub source: String,
    /// Kernel IR lowered from the CUDA text for a launch over 1000 elements (clamped to the
    /// kernel's size limits).
    pub ir: String,
    /// Standalone CUDA C++.
    pub cuda: String,
    /// C++ of the source for a CPU.
    pub cpp: String,
    /// Recipe for generating the inputs, one line per parameter.
    pub inputs: String,
    /// Threads per block when launching the CUDA text.
    pub block: [u32; 3],
    /// Names of the operators and functions used in the source.
    pub ops: Vec<&'static str>,
    /// Names of the types used in the source.
    pub types: Vec<&'static str>,
    /// Weighted count of operations and statements.
    pub complexity: u32,
    /// Difficulty from 1 to 5.
    pub difficulty: u8,
    /// Level at which the row was verified.
    pub level: Level,
    /// Program from which all texts were printed.
    pub program: Program,
}

/// Formats a row's id from the dataset's seed and the row number.
pub fn id(seed: u64, index: u64) -> String {
    format!("{seed:016x}-{index:08}")
}

/// Generates the row of an index, from any category.
pub fn generate(seed: u64, index: u64) -> Result<Row, Rejection> {
    generate_in(seed, index, Category::ALL)
}

/// Generates the row of an index, from one of the given categories.
pub fn generate_in(seed: u64, index: u64, categories: &[Category]) -> Result<Row, Rejection> {
    let category = crate::generate::category(seed, index, categories);
    let program = crate::generate::program(seed, index, category);
    Row::new(seed, index, category, program)
}

impl Row {
    /// Prints and lowers a program. Fails if the CUDA front end rejects the printed text, since the
    /// IR is lowered from it.
    pub fn new(seed: u64, index: u64, category: Category, program: Program) -> Result<Row, Rejection> {
        let (source, cuda, cpp) = (python::print(&program), c::cuda(&program), c::host(&program));
        let module = CudaModule::parse("kernel.cu", &cuda).map_err(|e| Rejection::Cuda(e.to_string()))?;
        let sizes: Vec<u32> = program.sizes.iter().map(|size| IR_SIZE.clamp(size.min, size.max)).collect();
        let lowered = module.kernel(&program.name, &request(&program, &sizes));
        let ir = lowered.map_err(|e| Rejection::Cuda(e.to_string()))?.kernel.to_string();
        let (ops, types) = (ops(&program), types(&program));
        let complexity = complexity(&program);
        let difficulty = difficulty(&program, complexity);
        Ok(Row {
            seed,
            index,
            name: program.name.clone(),
            category,
            description: program.doc.clone(),
            source,
            ir,
            cuda,
            cpp,
            inputs: inputs::recipe(&program),
            block: program.block(),
            ops,
            types,
            complexity,
            difficulty,
            level: Level::Types,
            program,
        })
    }

    /// Row id: seed and row number.
    pub fn id(&self) -> String {
        id(self.seed, self.index)
    }
}

/// Launch request for a program's CUDA text at the given sizes.
pub fn request(program: &Program, sizes: &[u32]) -> LaunchRequest {
    let mut request = LaunchRequest::new(program.blocks(sizes), program.block());
    for array in &program.arrays {
        let elements: u64 = array.shape.iter().map(|size| size.eval(sizes) as u64).product();
        request = request.length(&array.name, elements);
    }
    request
}

fn ops(program: &Program) -> Vec<&'static str> {
    let mut ops = BTreeSet::new();
    program.each_expr(&mut |e| {
        ops.extend(match &e.kind {
            ExprKind::Binary(op, _) => Some(operator(*op)),
            ExprKind::Unary(crate::program::UnaryOp::Neg, _) => Some("neg"),
            ExprKind::Unary(..) => Some("not"),
            ExprKind::Call(builtin, _) => Some(builtin.name()),
            ExprKind::Where(_) => Some("where"),
            ExprKind::Cast(_) => Some("cast"),
            ExprKind::Function(..) => Some("call"),
            _ => None,
        });
    });
    program.each_stmt(&mut |stmt| {
        ops.extend(match stmt {
            ProgramStmt::Update(_, op, _) => Some(operator(*op)),
            ProgramStmt::If(..) => Some("if"),
            ProgramStmt::For(..) => Some("for"),
            ProgramStmt::While(..) => Some("while"),
            ProgramStmt::Atomic(update, ..) => Some(atomic(*update)),
            ProgramStmt::Draw(_, _, None) => Some("randf"),
            ProgramStmt::Draw(..) => Some("randi"),
            _ => None,
        });
    });
    if let CudaForm::Block(block) = &program.form {
        ops.insert(block.kind);
    }
    ops.into_iter().collect()
}

fn types(program: &Program) -> Vec<&'static str> {
    let mut types = BTreeSet::new();
    let bodies = program.functions.iter().map(|f| &f.body).chain([&program.body]);
    let vars = bodies.flat_map(|body| body.vars.iter().map(|var| var.ty));
    let mut exprs = vec![];
    program.each_expr(&mut |e| exprs.push(e.ty));
    for ty in program.arrays.iter().map(|array| array.ty).chain(vars).chain(exprs) {
        types.extend(ty.scalars(&program.structs).into_iter().map(|scalar| scalar.name()));
        match ty {
            crate::program::Ty::Vector(..) => drop(types.insert("vector")),
            crate::program::Ty::Matrix(..) => drop(types.insert("matrix")),
            crate::program::Ty::Struct(_) => drop(types.insert("struct")),
            crate::program::Ty::Scalar(_) => {}
        }
    }
    types.into_iter().collect()
}

/// Operation count, weighted by the kind of statement or expression.
fn complexity(program: &Program) -> u32 {
    let mut operations = 0;
    program.each_expr(&mut |e| {
        operations += match e.kind {
            ExprKind::Call(..) | ExprKind::Function(..) | ExprKind::Where(_) => 2,
            ExprKind::Binary(..) | ExprKind::Unary(..) | ExprKind::Load(..) => 1,
            _ => 0,
        }
    });
    program.each_stmt(&mut |stmt| {
        operations += match stmt {
            ProgramStmt::If(..) => 3,
            ProgramStmt::For(..) | ProgramStmt::While(..) => 5,
            ProgramStmt::Atomic(..) => 4,
            _ => 1,
        }
    });
    let cooperative = if let CudaForm::Block(block) = &program.form { block.text.lines().count() as u32 } else { 0 };
    operations + cooperative
}

fn difficulty(program: &Program, complexity: u32) -> u8 {
    let cooperative = matches!(program.form, CudaForm::Block(_)) as u8;
    let size = match complexity {
        0..=11 => 1,
        12..=24 => 2,
        25..=45 => 3,
        _ => 4,
    };
    (size + cooperative).min(5)
}
