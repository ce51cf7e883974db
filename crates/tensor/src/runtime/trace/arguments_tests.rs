use std::sync::Arc;

use super::*;
use crate::DType;
use crate::graph::node::{Node, Op};

fn specs(device: Device, lengths: &[usize]) -> Vec<TensorSpec> {
    lengths.iter().map(|&length| TensorSpec::new(DType::F32, &[length], device)).collect()
}

fn bind(arguments: &mut Arguments, inputs: &[Tensor], is_written: impl Fn(&Buffer) -> bool) -> BoundArguments {
    arguments.bind(inputs, &[], is_written, SourceLocation::here()).unwrap()
}

#[test]
fn an_argument_is_read_directly_or_copied() {
    for device in [Device::Cpu(0), Device::Interpreter] {
        let read = HashSet::from([0, 2]);
        let mut arguments = Arguments::new(device, specs(device, &[3, 3, 3]), &read, 1);
        let [a, b] = [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]].map(|data| Tensor::from_slice(&data, &[3], device));
        let bound = bind(&mut arguments, &[a.clone(), b.clone(), a.clone()], |_| false);
        let value = value_of(&a).unwrap();
        assert!(bound.get(0).unwrap().is_same(&value) && bound.get(2).unwrap().is_same(&value));
        assert!(bound.get(1).is_none(), "the plan does not read it");
        assert!(!bound.is_fixed() && arguments.slots.iter().all(|slot| slot.copy.is_none()), "no buffers for copies");
        drop(bound);
        // A result or a variable in memory that the replay writes, and one in other memory.
        for (op, is_copied) in [(Op::Output, true), (Op::Var, true), (Op::Output, false)] {
            let held = value_of(&b).unwrap();
            let leaf = Tensor(Arc::new(Node::leaf(op, &b.0, SourceLocation::here(), held.clone())));
            let bound =
                bind(&mut arguments, &[leaf, b.clone(), a.clone()], |memory| is_copied && memory.is_same(&held));
            assert_eq!(!bound.get(0).unwrap().is_same(&held), is_copied);
            assert_eq!(bound.get(0).unwrap().to_words().unwrap(), held.to_words().unwrap());
        }
        assert!(arguments.slots[0].copy.is_some() && arguments.slots[2].copy.is_none());
    }
}

#[test]
fn shorter_arguments_and_lengths_are_copied() {
    let device = Device::cpu();
    let mut slots = specs(device, &[4]);
    slots.push(TensorSpec::new(DType::I64, &[], device));
    let mut arguments = Arguments::new(device, slots, &HashSet::from([0, 1]), 1);
    for (length, words) in [(4, [1.0f32, 1.0, 1.0, 1.0]), (2, [1.0, 1.0, 0.0, 0.0]), (0, [0.0; 4]), (4, [1.0; 4])] {
        let x = Tensor::from_slice(&vec![1.0f32; length], &[length], device);
        let bound = arguments.bind(std::slice::from_ref(&x), &[length], |_| false, SourceLocation::here()).unwrap();
        assert_eq!(bound.get(0).unwrap().is_same(&value_of(&x).unwrap()), length == 4);
        let expected: Vec<u64> = bytemuck::cast_slice(&words).to_vec();
        assert_eq!(bound.get(0).unwrap().to_words().unwrap(), expected);
        assert_eq!(bound.get(1).unwrap().to_words().unwrap(), [length as u64]);
        assert!(bound.get(2).is_none());
    }
}

/// Number of calls until one of the arguments, read directly by a plan of `steps` steps, is always
/// copied; at most 1000.
fn calls_until_copied(steps: usize, lengths: &[usize], ran: &[RunKind], novel: &[bool]) -> (usize, Vec<bool>) {
    let device = Device::Cuda(0);
    let mut arguments = Arguments::new(device, specs(device, lengths), &(0..lengths.len()).collect(), steps);
    // Accounting does not access memory.
    let direct = |_: &usize| Some(Binding { buffer: Buffer::new(Device::cpu(), 8).unwrap(), is_direct: true });
    let bound = BoundArguments(lengths.iter().map(direct).collect());
    let calls = (ran.iter().cycle().take(1000)).position(|&ran| {
        arguments.account(&bound, ran, if ran == RunKind::Graph { &[] } else { novel }, SourceLocation::here())
    });
    (calls.map_or(1000, |calls| calls + 1), arguments.slots.iter().map(|slot| slot.credit < 0).collect())
}

#[test]
fn an_argument_that_costs_more_launches_than_its_copy_is_copied() {
    const MB: usize = 1 << 18;
    use RunKind::{Captured, Graph, Steps};
    // One kernel over 100 MB: a launch at a new address always costs less than a copy.
    assert_eq!(calls_until_copied(1, &[100 * MB], &[Steps], &[true]), (1000, vec![false]));
    // 200 kernels and 10 MB at a new address each time.
    assert_eq!(calls_until_copied(200, &[10 * MB], &[Steps], &[true]), (17, vec![true]));
    // Only the argument with the new address is charged.
    assert_eq!(calls_until_copied(200, &[10 * MB, 10 * MB], &[Steps], &[false, true]), (17, vec![false, true]));
    // New combinations of known addresses are charged to both.
    assert_eq!(calls_until_copied(200, &[10 * MB, 10 * MB], &[Steps], &[false, false]), (17, vec![true, true]));
    // Captures that are never reused, and captures that are.
    assert_eq!(calls_until_copied(200, &[10 * MB], &[Steps, Captured], &[true]), (12, vec![true]));
    let used = [&[Captured][..], &[Graph; 300]].concat();
    assert_eq!(calls_until_copied(200, &[10 * MB], &used, &[true]), (1000, vec![false]));
    // Four rotating sets.
    let sets = [&[Steps; 4][..], &[Captured; 4], &[Graph; 1000]].concat();
    assert_eq!(calls_until_copied(200, &[10 * MB], &sets, &[true]), (1000, vec![false]));
    // A plan without steps.
    assert_eq!(calls_until_copied(0, &[MB], &[Steps], &[true]), (1000, vec![false]));
}

#[test]
fn small_arguments_of_a_gpu_are_copied() {
    for (steps, bytes) in [(0, 256 << 10), (1, 256 << 10), (8, 256 << 10), (500, 500 * (32 << 10))] {
        assert_eq!(Arguments::new(Device::Cuda(0), vec![], &HashSet::new(), steps).copied_bytes, bytes);
        assert_eq!(Arguments::new(Device::cpu(), vec![], &HashSet::new(), steps).copied_bytes, 0);
    }
}
