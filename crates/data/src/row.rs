//! A row: a program's texts, what its inputs are, and what is known of it.

use std::collections::BTreeSet;

use bornite_lang::Request;
use bornite_lang::cuda::Module;

use crate::coverage::{atomic, operator};
use crate::program::{Form, Kind, Program, Stmt, c, python};
use crate::verify::{Level, Rejected};
use crate::{Category, inputs};

/// Elements along each size parameter in the launch that a row's IR is made for.
const IR_SIZE: u32 = 1000;

/// A row of a dataset.
#[derive(Clone, Debug)]
pub struct Row {
    /// The seed of the dataset.
    pub seed: u64,
    /// The row's number.
    pub index: u64,
    /// The kernel's name, in all texts.
    pub name: String,
    /// The kind of kernel.
    pub category: Category,
    /// What it does, in a sentence.
    pub description: String,
    /// Python source in the dialect of Warp.
    pub source: String,
    /// Kernel IR of the CUDA text, made for a launch over 1000 elements (less where the kernel is for fewer).
    pub ir: String,
    /// Standalone CUDA C++.
    pub cuda: String,
    /// C++ of the source for a CPU.
    pub cpp: String,
    /// How to make the inputs, a line a parameter.
    pub inputs: String,
    /// Threads of a block in the launch of the CUDA text.
    pub block: [u32; 3],
    /// Operators and functions that the source uses, by name.
    pub ops: Vec<&'static str>,
    /// Types that it uses, by name.
    pub types: Vec<&'static str>,
    /// Operations, statements and how deep they nest, as one number.
    pub complexity: u32,
    /// 1 to 5.
    pub difficulty: u8,
    /// What the row was checked for.
    pub level: Level,
    /// The program that all texts come from.
    pub program: Program,
}

/// A row's id: seed and number.
pub fn id(seed: u64, index: u64) -> String {
    format!("{seed:016x}-{index:08}")
}

/// The row of an index, of any category; or why there is none.
pub fn generate(seed: u64, index: u64) -> Result<Row, Rejected> {
    make(seed, index, Category::ALL)
}

/// The row of an index, of one of some categories; or why there is none.
pub fn make(seed: u64, index: u64, among: &[Category]) -> Result<Row, Rejected> {
    let category = crate::generate::category(seed, index, among);
    let program = crate::generate::program(seed, index, category);
    Row::new(seed, index, category, program)
}

impl Row {
    /// The row of a program. The IR is that of the CUDA text, so a text that our front end does not take is no row.
    pub fn new(seed: u64, index: u64, category: Category, program: Program) -> Result<Row, Rejected> {
        let (source, cuda, cpp) = (python::print(&program), c::cuda(&program), c::host(&program));
        let module = Module::parse("kernel.cu", &cuda).map_err(|e| Rejected::Text(e.to_string()))?;
        let sizes: Vec<u32> = program.sizes.iter().map(|size| IR_SIZE.clamp(size.least, size.most)).collect();
        let lowered = module.kernel(&program.name, &request(&program, &sizes));
        let ir = lowered.map_err(|e| Rejected::Text(e.to_string()))?.kernel.to_string();
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

    /// Seed and number.
    pub fn id(&self) -> String {
        id(self.seed, self.index)
    }
}

/// The launch of a program's CUDA text for these sizes.
pub fn request(program: &Program, sizes: &[u32]) -> Request {
    let mut request = Request::new(program.blocks(sizes), program.block());
    for array in &program.arrays {
        let elements: u64 = array.shape.iter().map(|size| size.of(sizes) as u64).product();
        request = request.length(&array.name, elements);
    }
    request
}

fn ops(program: &Program) -> Vec<&'static str> {
    let mut ops = BTreeSet::new();
    program.each_expr(&mut |e| {
        ops.extend(match &e.kind {
            Kind::Binary(op, _) => Some(operator(*op)),
            Kind::Unary(crate::program::Unary::Neg, _) => Some("neg"),
            Kind::Unary(..) => Some("not"),
            Kind::Call(builtin, _) => Some(builtin.name()),
            Kind::Where(_) => Some("where"),
            Kind::Cast(_) => Some("cast"),
            Kind::Function(..) => Some("call"),
            _ => None,
        });
    });
    program.each_stmt(&mut |stmt| {
        ops.extend(match stmt {
            Stmt::Update(_, op, _) => Some(operator(*op)),
            Stmt::If(..) => Some("if"),
            Stmt::For(..) => Some("for"),
            Stmt::While(..) => Some("while"),
            Stmt::Atomic(update, ..) => Some(atomic(*update)),
            Stmt::Draw(_, _, None) => Some("randf"),
            Stmt::Draw(..) => Some("randi"),
            _ => None,
        });
    });
    if let Form::Block(block) = &program.form {
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

/// Operations, weighed by what they stand in.
fn complexity(program: &Program) -> u32 {
    let mut operations = 0;
    program.each_expr(&mut |e| {
        operations += match e.kind {
            Kind::Call(..) | Kind::Function(..) | Kind::Where(_) => 2,
            Kind::Binary(..) | Kind::Unary(..) | Kind::Load(..) => 1,
            _ => 0,
        }
    });
    program.each_stmt(&mut |stmt| {
        operations += match stmt {
            Stmt::If(..) => 3,
            Stmt::For(..) | Stmt::While(..) => 5,
            Stmt::Atomic(..) => 4,
            _ => 1,
        }
    });
    let together = if let Form::Block(block) = &program.form { block.text.lines().count() as u32 } else { 0 };
    operations + together
}

fn difficulty(program: &Program, complexity: u32) -> u8 {
    let together = matches!(program.form, Form::Block(_)) as u8;
    let size = match complexity {
        0..=11 => 1,
        12..=24 => 2,
        25..=45 => 3,
        _ => 4,
    };
    (size + together).min(5)
}
