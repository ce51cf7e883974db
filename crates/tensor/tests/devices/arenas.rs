//! Arenas: parameters in one flat variable. An optimizer over all of them is one kernel and equals
//! one kernel per parameter.

use bornite::{
    DType, Device, Tensor, Var,
    plan::with_gpu_kernels,
    trace,
    var::{Arena, commit},
};

use crate::Outcome;
use crate::random::Random;

/// Sizes of a small transformer; some parameters are not a multiple of the segment alignment.
const LAYERS: usize = 2;
const WIDTH: usize = 12;
const HEADS: usize = 3;
const WORDS: usize = 17;
const PLACES: usize = 5;
/// Parameters of a layer.
const OF_LAYER: usize = 12;
const RATE: f64 = 0.01;
const BETA1: f64 = 0.9;
const BETA2: f64 = 0.99;

fn shapes() -> Vec<(String, Vec<usize>)> {
    let w = WIDTH;
    let mut shapes = vec![("words".to_owned(), vec![WORDS, w]), ("places".to_owned(), vec![PLACES, w])];
    for layer in 0..LAYERS {
        let own: [(&str, &[usize]); OF_LAYER] = [
            ("norm1.weight", &[w]),
            ("norm1.bias", &[w]),
            ("qkv.weight", &[3 * w, w]),
            ("qkv.bias", &[3 * w]),
            ("proj.weight", &[w, w]),
            ("proj.bias", &[w]),
            ("norm2.weight", &[w]),
            ("norm2.bias", &[w]),
            ("up.weight", &[4 * w, w]),
            ("up.bias", &[4 * w]),
            ("down.weight", &[w, 4 * w]),
            ("down.bias", &[w]),
        ];
        shapes.extend(own.map(|(name, shape)| (format!("layer{layer}.{name}"), shape.to_vec())));
    }
    shapes.extend([("norm.weight".to_owned(), vec![w]), ("norm.bias".to_owned(), vec![w])]);
    shapes
}

/// Mean loss of a transformer that predicts the next token.
fn loss(p: &[Tensor], tokens: &Tensor, next: &Tensor) -> bornite::Result<Tensor> {
    let [batch, length] = tokens.dims()?;
    let mut x = p[0].embedding(tokens) + &p[1];
    for own in p[2..2 + LAYERS * OF_LAYER].chunks(OF_LAYER) {
        let normed = x.layer_norm(&own[0], &own[1], 1e-5);
        let qkv = normed.linear(&own[2], Some(&own[3])).reshape(&[batch, length, 3, HEADS, WIDTH / HEADS]);
        let [q, k, v] = [0, 1, 2].map(|n| qkv.slice(2, n..n + 1).squeeze(2).transpose(1, 2));
        let seen = Tensor::attention(&q, &k, &v, None, true, None).transpose(1, 2);
        x += seen.reshape(&[batch, length, WIDTH]).linear(&own[4], Some(&own[5]));
        let normed = x.layer_norm(&own[6], &own[7], 1e-5);
        x += normed.linear(&own[8], Some(&own[9])).gelu().linear(&own[10], Some(&own[11]));
    }
    let [.., weight, bias] = p else { return Ok(x) };
    let logits = x.layer_norm(weight, bias, 1e-5).linear(&p[0], None);
    Ok(logits.reshape(&[batch * length, WORDS]).cross_entropy(&next.reshape(&[batch * length])))
}

/// Bias corrections of AdamW's moments; `time` counts steps.
fn corrections(time: &Tensor) -> [Tensor; 2] {
    [BETA1, BETA2].map(|beta| 1.0 - (time * beta.ln()).exp())
}

/// A step of AdamW on a parameter and its moments; `decay` is a scalar or has one element per
/// parameter.
fn adamw(p: &Tensor, g: &Tensor, m: &Tensor, v: &Tensor, by: &[Tensor; 2], decay: &Tensor) -> [Tensor; 3] {
    let m = m * BETA1 + g * (1.0 - BETA1);
    let v = v * BETA2 + g * g * (1.0 - BETA2);
    let moved = (&m / &by[0]) / ((&v / &by[1]).sqrt() + 1e-8);
    [p * (1.0 - decay * RATE) - moved * RATE, m, v]
}

/// Clipping factor of gradients with this squared norm.
fn clip(square: &Tensor) -> Tensor {
    (0.25 / (square.sqrt() + 1e-6)).minimum(1.0)
}

struct Data {
    parameters: Vec<(String, Tensor)>,
    tokens: Vec<[Tensor; 2]>,
}

fn data(random: &mut Random, device: Device) -> Data {
    let mut floats = |shape: &[usize]| {
        let values: Vec<f32> = random.vec(shape.iter().product(), -0.5, 0.5).iter().map(|&x| x as f32).collect();
        Tensor::from_slice(&values, shape, device)
    };
    let parameters = shapes().into_iter().map(|(name, shape)| (name, floats(&shape))).collect();
    let mut words = || {
        let words: Vec<i32> = (0..3 * PLACES).map(|_| (random.bits() % WORDS as u64) as i32).collect();
        Tensor::from_slice(&words, &[3, PLACES], device)
    };
    Data { parameters, tokens: (0..4).map(|_| [words(), words()]).collect() }
}

/// Weight decay: only for matrices.
fn decay(shape: &[usize]) -> f64 {
    if shape.len() == 2 { 0.1 } else { 0.0 }
}

fn bits(tensor: &Tensor) -> bornite::Result<Vec<u32>> {
    Ok(tensor.to_vec::<f32>()?.iter().map(|x| x.to_bits()).collect())
}

/// Losses and parameters after some steps with an arena.
fn by_arena(data: &Data, clipped: bool, device: Device) -> bornite::Result<(Vec<f64>, Arena)> {
    let named: Vec<(&str, &Tensor)> = data.parameters.iter().map(|(name, tensor)| (&name[..], tensor)).collect();
    let parameters = Arena::grouped(&named, |_, shape| usize::from(shape.len() != 2))?;
    let (first, second) = (parameters.like(DType::F32, 0.0)?, parameters.like(DType::F32, 0.0)?);
    let time = Var::new(&Tensor::zeros(&[], DType::F32, device))?;
    let decays: Vec<f64> = parameters.segments().map(|(_, shape)| decay(shape)).collect();
    let step = trace(|t| {
        let now = time.get() + 1.0;
        let by = corrections(&now);
        let loss = loss(&parameters.tensors(), &t[0], &t[1])?;
        let mut gradient = parameters.gradient(&loss);
        if clipped {
            gradient = &gradient * clip(&gradient.square().sum(..));
        }
        let [p, m, v] = adamw(
            &parameters.get(),
            &gradient,
            &first.get(),
            &second.get(),
            &by,
            &parameters.expand_segment_values(&decays),
        );
        Ok((vec![loss], vec![parameters.set(p), first.set(m), second.set(v), time.set(now)]))
    });
    let losses = data.tokens.iter().map(|tokens| step.call(tokens)?[0].item()).collect::<bornite::Result<_>>()?;
    Ok((losses, parameters.clone()))
}

/// The same with one variable per parameter.
fn by_variables(data: &Data, clipped: bool, device: Device) -> bornite::Result<(Vec<f64>, Vec<Tensor>)> {
    let vars = |f: &dyn Fn(&Tensor) -> bornite::Result<Var>| {
        data.parameters.iter().map(|(_, tensor)| f(tensor)).collect::<bornite::Result<Vec<Var>>>()
    };
    let zeros = |t: &Tensor| Var::new(&Tensor::zeros(t.shape()?, DType::F32, device));
    let (parameters, first, second) = (vars(&Var::new)?, vars(&zeros)?, vars(&zeros)?);
    let time = Var::new(&Tensor::zeros(&[], DType::F32, device))?;
    let step = trace(|t| {
        let now = time.get() + 1.0;
        let by = corrections(&now);
        let p: Vec<Tensor> = parameters.iter().map(Var::get).collect();
        let loss = loss(&p, &t[0], &t[1])?;
        let mut gradients = loss.grad(&p.iter().collect::<Vec<_>>());
        if clipped {
            let squares: Vec<Tensor> = gradients.iter().map(|g| g.square().sum(..)).collect();
            let by = clip(&Tensor::stack(&squares.iter().collect::<Vec<_>>(), 0).sum(..));
            gradients = gradients.iter().map(|g| g * &by).collect();
        }
        let mut updates = vec![time.set(now.clone())];
        for (n, gradient) in gradients.iter().enumerate() {
            let decay = Tensor::full(decay(p[n].shape()?), &[], DType::F32, device);
            let [new, m, v] = adamw(&p[n], gradient, &first[n].get(), &second[n].get(), &by, &decay);
            updates.extend([parameters[n].set(new), first[n].set(m), second[n].set(v)]);
        }
        Ok((vec![loss], updates))
    });
    let losses = data.tokens.iter().map(|tokens| step.call(tokens)?[0].item()).collect::<bornite::Result<_>>()?;
    Ok((losses, parameters.iter().map(Var::get).collect()))
}

/// An arena gives bitwise the results of separate variables, or equal up to rounding if the norm is
/// summed in another order.
pub fn equal_separate_variables(device: Device) -> Outcome {
    let data = data(&mut Random::fresh(), device);
    for clipped in [false, true] {
        let (losses, arena) = by_arena(&data, clipped, device)?;
        let (expected_losses, expected) = by_variables(&data, clipped, device)?;
        let (again, repeated) = by_arena(&data, clipped, device)?;
        assert_eq!(losses, again);
        assert_eq!(bits(&arena.get())?, bits(&repeated.get())?, "the same bits again");
        if !clipped {
            assert_eq!(losses, expected_losses);
        }
        let mut inside = 0;
        for ((found, expected), (name, _)) in arena.tensors().iter().zip(&expected).zip(arena.segments()) {
            assert_eq!(found.shape()?, expected.shape()?);
            inside += found.to_vec::<f32>()?.iter().filter(|x| **x != 0.0).count();
            if !clipped {
                assert_eq!(bits(found)?, bits(expected)?, "{name}");
            }
            // The length of AdamW's step does not depend on the gradient: if that is nearly 0,
            // rounding decides its sign. A bias of keys does not change attention weights, so its
            // gradient is only rounding error.
            let bound = if name.ends_with("qkv.bias") { 2.0 * RATE * data.tokens.len() as f64 } else { 1e-3 };
            let far = (found - expected).abs().max(..).item()?;
            assert!(far < bound, "{name} is off by {far}");
        }
        let all = arena.get().to_vec::<f32>()?.iter().filter(|x| **x != 0.0).count();
        assert_eq!(all, inside, "what lies between segments is still zero");
    }
    Ok(())
}

/// Number and description of the steps that compute some tensors.
fn steps(tensors: &[Tensor]) -> bornite::Result<(usize, String)> {
    let text = bornite::plan::explain(tensors)?;
    Ok((text.lines().filter(|line| line.contains(" = ")).count(), text))
}

/// A clipped optimizer step over all parameters, from a flat gradient.
fn optimizer_step(
    parameters: &Arena,
    moments: &[Arena; 2],
    gradient: &Tensor,
) -> bornite::Result<(Tensor, [Tensor; 3])> {
    let decays: Vec<f64> = parameters.segments().map(|(_, shape)| decay(shape)).collect();
    // Two scalars, which are not counted: the scheduler decides if they have separate kernels.
    let by = corrections(&Tensor::from_slice(&[1.0f32], &[], gradient.device()?));
    commit(&by, vec![])?;
    let square = gradient.square().sum(..);
    let [m, v] = [moments[0].get(), moments[1].get()];
    let clipped = gradient * clip(&square);
    Ok((square, adamw(&parameters.get(), &clipped, &m, &v, &by, &parameters.expand_segment_values(&decays))))
}

/// The optimizer over all parameters is one kernel, and the norm is one sum: one kernel for few
/// elements, else two.
pub fn optimizer_is_one_kernel(device: Device) -> Outcome {
    one_kernel_of(device)?;
    if device == Device::Interpreter { with_gpu_kernels(|| one_kernel_of(device)) } else { Ok(()) }
}

fn one_kernel_of(device: Device) -> Outcome {
    let moments = |parameters: &Arena| -> bornite::Result<[Arena; 2]> {
        Ok([parameters.like(DType::F32, 0.0)?, parameters.like(DType::F32, 0.0)?])
    };
    let large = Tensor::full(0.1, &[600, 507], DType::F32, device);
    let row = Tensor::full(0.1, &[507], DType::F32, device);
    let data = data(&mut Random::fresh(), device);
    let named: Vec<(&str, &Tensor)> = data.parameters.iter().map(|(name, tensor)| (&name[..], tensor)).collect();
    // The latter cannot be split evenly: 128 times a prime.
    for (tensors, few) in [(named.clone(), true), (vec![("weight", &large), ("bias", &row)], false)] {
        let parameters = Arena::grouped(&tensors, |_, shape| usize::from(shape.len() != 2))?;
        let gradient = parameters.get() * 0.5;
        gradient.realize()?;
        let (square, new) = optimizer_step(&parameters, &moments(&parameters)?, &gradient)?;
        let (norm, text) = steps(&[square])?;
        assert_eq!(norm, if few { 1 } else { 2 }, "{text}");
        let (all, text) = steps(&new)?;
        assert!(all <= norm + 1, "{text}");
        let writes = text.lines().filter(|line| line.split(" = ").next().is_some_and(|to| to.contains("result")));
        assert_eq!(writes.count(), 1, "one kernel writes parameters and moments: {text}");
    }
    // 16-bit weights with f32 master copies: four outputs of one kernel.
    let weight = Tensor::full(0.1, &[33, 20], DType::BF16, device);
    let weights = Arena::new(&[("weight", &weight), ("bias", &weight.slice(0, 0..1))])?;
    let masters = weights.like(DType::F32, 0.0)?;
    commit(&[], vec![masters.set(weights.get().cast(DType::F32))])?;
    let gradient = (weights.get() * 0.5).cast(DType::F32);
    gradient.realize()?;
    let (_, [p, m, v]) = optimizer_step(&masters, &moments(&masters)?, &gradient)?;
    let (all, text) = steps(&[p.cast(DType::BF16), p, m, v])?;
    assert!(all <= 2 && text.contains("result 3"), "{text}");
    // In a complete step: no kernels besides those of loss and gradients.
    let parameters = Arena::grouped(&named, |_, shape| usize::from(shape.len() != 2))?;
    let loss = loss(&parameters.tensors(), &data.tokens[0][0], &data.tokens[0][1])?;
    let gradient = parameters.gradient(&loss);
    let (before, _) = steps(&[loss.clone(), gradient.clone()])?;
    let (_, new) = optimizer_step(&parameters, &moments(&parameters)?, &gradient)?;
    let (whole, text) = steps(&[vec![loss], new.to_vec()].concat())?;
    println!("{device}: {before} steps for loss and gradients of {} parameters, {whole} with AdamW", named.len());
    assert!(whole <= before + 3, "{before} steps for gradients, {whole} in all\n{text}");
    Ok(())
}

pub fn segment_tables(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        let shapes: [&[usize]; 5] = [&[5, 7], &[], &[64], &[0, 3], &[3, 1, 2]];
        let made: Vec<Tensor> = (shapes.iter())
            .map(|shape| {
                let values = random.vec(shape.iter().product(), -3.0, 3.0);
                Tensor::from_slice(&values, shape, device).cast(dtype)
            })
            .collect();
        let names = ["a", "b", "c", "d", "e"];
        let named: Vec<(&str, &Tensor)> = names.into_iter().zip(&made).collect();
        // In memory order c, e, a, b, d.
        let arena = Arena::grouped(&named, |name, _| usize::from(name != "c" && name != "e"))?;
        let wide = |t: &Tensor| t.cast(DType::F64).to_vec::<f64>();
        for ((name, tensor), (found, shape)) in named.iter().zip(arena.segments()) {
            assert_eq!((*name, tensor.shape()?), (found, shape));
            assert_eq!(wide(&arena.tensor(name)?)?, wide(tensor)?, "{name}");
        }
        let flat = arena.get();
        assert_eq!((flat.shape()?, flat.dtype()?), (&[128 + 128 + 128 + 128][..], dtype));
        // Padding between segments is zero and does not change a norm.
        let sum: f64 = made.iter().map(wide).collect::<bornite::Result<Vec<_>>>()?.concat().iter().map(|x| x * x).sum();
        assert!((wide(&flat)?.iter().map(|x| x * x).sum::<f64>() - sum).abs() < 1e-9 * sum);
        assert_eq!(wide(&arena.flatten(&made))?, wide(&flat)?, "flat is as it is stored");
        for (view, tensor) in arena.unflatten(&(&flat * 2.0)).iter().zip(&made) {
            assert_eq!(wide(view)?, wide(&(tensor * 2.0))?, "and back");
        }
        let ones = arena.like(DType::F32, 1.0)?;
        let elements: usize = shapes.iter().map(|shape| shape.iter().product::<usize>()).sum();
        assert_eq!(ones.get().sum(..).item()?, elements as f64);
        let numbers = [1.0, 2.0, 3.0, 4.0, 3.0];
        let spread = arena.expand_segment_values(&numbers).to_vec::<f32>()?;
        let lying = [2usize, 4, 0, 1, 3];
        let expected: Vec<f32> =
            lying.iter().flat_map(|&n| vec![numbers[n] as f32; shapes[n].iter().product()]).collect();
        let inside = ones.get().to_vec::<f32>()?.into_iter().zip(spread).filter(|(one, _)| *one != 0.0);
        assert_eq!(inside.map(|(_, number)| number).collect::<Vec<_>>(), expected);
        // Loading is atomic.
        let (new, old) = (&made[0] * 2.0, wide(&flat)?);
        let wrong = Tensor::zeros(&[3], dtype, device);
        for (pairs, expected) in [
            (vec![("a", &new), ("b", &wrong)], "'b' is"),
            (vec![("a", &new), ("x", &wrong)], "no tensor named 'x' among 5"),
        ] {
            let error = arena.load(&pairs).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(file!()), "{error}");
            assert_eq!(wide(&arena.get())?, old);
        }
        let before = arena.tensor("a")?;
        arena.load(&[("a", &new)])?;
        assert_eq!(wide(&arena.tensor("a")?)?, wide(&new)?);
        assert_eq!(wide(&before)?, wide(&made[0])?, "what was read stays");
        assert_eq!(wide(&arena.tensor("c")?)?, wide(&made[2])?);
        commit(&[], vec![arena.set(arena.get() * 0.0)])?;
        assert_eq!(wide(&arena.tensor("e")?)?, [0.0; 6]);
    }
    let x = Tensor::ones(&[2], DType::F32, device);
    let y = Tensor::ones(&[2], DType::F64, device);
    let arena = Arena::new(&[("x", &x), ("z", &x)])?;
    let failed = |result: bornite::Result<Arena>| result.map(drop).unwrap_err().to_string();
    let flat = |t: Tensor| t.to_vec::<f32>().map(drop).unwrap_err().to_string();
    for (error, expected) in [
        (failed(Arena::new(&[])), "arena: no tensors; pass at least one"),
        (failed(Arena::new(&[("x", &x), ("y", &y)])), "'y' is f64 on"),
        (failed(Arena::new(&[("x", &x), ("x", &x)])), "tensors 0 and 1 have the same name, 'x'"),
        (failed(Arena::new(&[("x", &x.reshape(&[3]))])), "reshape"),
        (failed(arena.like(DType::U8, 0.0)), "dtype u8 is not supported; use one of 16 bits or more"),
        (flat(arena.flatten(std::slice::from_ref(&x))), "number of tensors is 1; expected 2, one per segment"),
        (flat(arena.flatten(&[x.clone(), x.reshape(&[2, 1])])), "segment 'z' has shape [2], found [2, 1]"),
        (flat(arena.unflatten(&x).remove(0)), "shape is [2]; expected [256], the size of the arena"),
        (flat(arena.expand_segment_values(&[1.0])), "number of values is 1; expected 2, one per segment"),
    ] {
        assert!(error.contains(expected) && error.contains(file!()), "{expected}: {error}");
    }
    Ok(())
}
