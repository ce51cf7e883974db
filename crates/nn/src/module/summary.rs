//! Table of the layers of a model: output shapes, parameters, flops.

use std::cell::RefCell;
use std::fmt;

use bornite::Tensor;

use super::{Forward, Module, Visited, Visitor};
use crate::Result;
use crate::error::located;

/// A call of a layer in a forward pass.
struct LayerCall {
    address: (usize, usize),
    kind: &'static str,
    output: Vec<usize>,
    flops: u64,
}

thread_local! {
    /// Calls of the forward pass that [`summary`] runs.
    static CALLS: RefCell<Option<Vec<LayerCall>>> = const { RefCell::new(None) };
}

/// Address and size of a module, which identify it while it is borrowed: a struct and its first
/// field have the same address.
fn identity<M: Module + ?Sized>(module: &M) -> (usize, usize) {
    (std::ptr::from_ref(module).cast::<()>() as usize, std::mem::size_of_val(module))
}

/// Returns the output of a layer, and records the call for a [`summary`]. `flops` receives the
/// number of elements of the output.
pub(crate) fn observed<M: Module>(
    module: &M,
    kind: &'static str,
    output: &Tensor,
    flops: impl FnOnce(u64) -> u64,
) -> Tensor {
    CALLS.with_borrow_mut(|calls| {
        if let (Some(calls), Ok(shape)) = (calls, output.shape()) {
            let flops = flops(shape.iter().map(|&length| length as u64).product());
            calls.push(LayerCall { address: identity(module), kind, output: shape.to_vec(), flops });
        }
    });
    output.clone()
}

/// One row of a [`Summary`].
#[derive(Clone, PartialEq, Debug)]
pub struct SummaryRow {
    /// Path of the layer in the model; empty for layers without fields, such as activations.
    pub path: String,
    /// Type of the layer.
    pub kind: &'static str,
    /// Shape of its output.
    pub output: Vec<usize>,
    /// Number of elements of its parameters that no other row has.
    pub parameters: usize,
    /// Floating-point operations of the forward pass: two per multiplication and addition of a
    /// matrix product, about one per element and operation elsewhere.
    pub flops: u64,
}

/// Layers of a model in the order of their calls. `Display` prints a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The layers.
    pub rows: Vec<SummaryRow>,
    /// Number of elements of all parameters of the model.
    pub parameters: usize,
    /// Number of elements of trainable parameters.
    pub trainable: usize,
    /// Floating-point operations of all rows.
    pub flops: u64,
}

/// Summarizes a model for an input of the shape of `x`. Nothing is computed.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::layers::{Linear, Relu, Sequential};
/// use bornite_nn::{Params, summary};
/// # fn main() -> bornite_nn::Result<()> {
/// let params = Params::new(Device::cpu(), 0);
/// let net = Sequential::new().add(Linear::new(&params.at(0), 784, 128)).add(Relu);
/// let table = summary(&net, &Tensor::zeros(&[1, 784], DType::F32, Device::cpu()))?;
/// assert_eq!((table.parameters, table.rows.len()), (784 * 128 + 128, 2));
/// println!("{table}");
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn summary(model: &impl Forward, x: &Tensor) -> Result<Summary> {
    located(|| {
        // Ends the recording also if `forward` panics.
        struct Recording(Option<Vec<LayerCall>>);
        impl Drop for Recording {
            fn drop(&mut self) {
                CALLS.set(self.0.take());
            }
        }
        let recording = Recording(CALLS.replace(Some(vec![])));
        model.forward(x).shape()?;
        let calls = CALLS.take().unwrap_or_default();
        drop(recording);

        let (mut modules, mut parameters) = (vec![(identity(model), String::new())], vec![]);
        model.visit(&mut Visitor::new(&mut |path, visited| match visited {
            Visited::Module(module) => modules.push((identity(module), path.to_owned())),
            Visited::Parameter(parameter) => parameters.push((path.to_owned(), parameter.elements())),
            Visited::Buffer(_) => {}
        }));
        let path_of = |address: (usize, usize)| {
            let found = modules.iter().rev().find(|(known, _)| *known == address && address.1 > 0);
            found.map(|(_, path)| path.clone()).unwrap_or_default()
        };
        let row = |call: LayerCall| {
            let LayerCall { address, kind, output, flops } = call;
            SummaryRow { path: path_of(address), kind, output, parameters: 0, flops }
        };
        let mut rows: Vec<SummaryRow> = calls.into_iter().map(row).collect();
        // A parameter belongs to the row with the longest path that it is part of.
        for (path, elements) in parameters {
            let owners = rows.iter_mut().filter(|row| path.starts_with(&format!("{}.", row.path)));
            if let Some(row) = owners.reduce(|best, row| if row.path.len() > best.path.len() { row } else { best }) {
                row.parameters += elements;
            }
        }
        let all = model.parameters();
        let trainable = all.iter().filter(|parameter| parameter.is_trainable()).map(|p| p.elements()).sum();
        let flops = rows.iter().map(|row| row.flops).sum();
        Ok(Summary { rows, parameters: model.parameter_count(), trainable, flops })
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.path.len()).max().unwrap_or(0).max(5);
        writeln!(f, "{:width$}  {:18}  {:20}  {:>12}  {:>14}", "layer", "type", "output", "parameters", "flops")?;
        for SummaryRow { path, kind, output, parameters, flops } in &self.rows {
            let output = format!("{output:?}");
            writeln!(f, "{path:width$}  {kind:18}  {output:20}  {parameters:>12}  {flops:>14}")?;
        }
        let (total, trainable, flops) = (self.parameters, self.trainable, self.flops);
        write!(f, "{total} parameters, {trainable} trainable; {flops} flops per forward pass")
    }
}
