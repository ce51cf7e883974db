//! Image classifiers against torchvision: names, logits, losses of 30 steps. `scripts/image_goldens.py` writes the expected
//! values; weights and images come from a formula.

use std::collections::BTreeMap;

use bornite_nn::checkpoint::{Tensors, safetensors::Safetensors};
use bornite_nn::model::{ImageModel, ImageModelConfig, ResNet, ResNetConfig, Vgg, VisionTransformer, VitConfig};
use bornite_nn::prelude::*;
use serde::Deserialize;

const CPU: Device = Device::Cpu(0);

#[derive(Deserialize)]
struct Golden {
    /// Number of tensors of the state dict, and checksum of their names, dtypes and shapes.
    tensors: usize,
    checksum: u32,
    /// First 10 logits of two images.
    logits: Option<Vec<Vec<f64>>>,
    losses: Option<Vec<f64>>,
}

fn goldens() -> BTreeMap<String, Golden> {
    serde_json::from_str(include_str!("../goldens/images.json")).unwrap()
}

fn crc32(text: &str) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !text.bytes().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

/// Numbers from -0.5 to 0.5: a hash of the index and the checksum of a name.
fn formula(name: &str, count: usize) -> impl Iterator<Item = f32> {
    let seed = crc32(name);
    (0..count as u64).map(move |n| {
        let mut x = (n.wrapping_mul(2_654_435_761).wrapping_add(seed.into()) & 0xffff_ffff) as u32;
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        ((x ^ (x >> 16)) >> 8) as f32 / 16_777_216.0 - 0.5
    })
}

/// A parameter or buffer.
fn value(name: &str, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let is_table = name.contains("embedding") || name.contains("token");
    let (scale, shift) = match shape {
        [] => (0.0, 0.0),
        [_, rest @ ..] if !rest.is_empty() && !is_table => {
            ((24.0f32 / rest.iter().product::<usize>() as f32).sqrt(), 0.0)
        }
        _ if name.ends_with("running_var") || name.ends_with(".weight") => (0.4, 0.6),
        _ => (0.4, 0.0),
    };
    let values: Vec<f32> = formula(name, count).map(|x| x * scale + shift).collect();
    Tensor::from_slice(&values, shape, CPU)
}

/// Loads the values of the formula.
fn load(params: &Params) {
    let all = params.list().into_iter().chain(params.buffers());
    let values: Tensors = all.map(|info| (info.name.clone(), value(&info.name, &info.shape))).collect();
    params.load_tensors(&values).unwrap();
}

fn images(name: &str, count: usize, size: usize) -> Tensor {
    let values: Vec<f32> = formula(name, count * 3 * size * size).map(|x| x * 4.0).collect();
    Tensor::from_slice(&values, &[count, 3, size, size], CPU)
}

type Net = Box<dyn Forward + Send + Sync>;

/// A classifier by the name of its golden, and the size of the images for its logits.
fn net(name: &str, params: &Params) -> (Net, usize) {
    match name {
        "vgg-small" => {
            let channels: [&[usize]; 5] = [&[4, 4], &[6, 6], &[8; 3], &[8; 3], &[8; 3]];
            (Box::new(Vgg::new(params, channels, 16, 5)), 40)
        }
        "vit-small" => {
            let config =
                VitConfig { image_size: 16, patch: 4, layers: 2, heads: 2, width: 16, mlp_hidden: 32, classes: 5 };
            (Box::new(VisionTransformer::new(params, config).unwrap()), 16)
        }
        name => {
            let config = ImageModelConfig { name: ImageModel::named(name).unwrap(), classes: 1000, image_size: 64 };
            (config.build(params).unwrap(), 64)
        }
    }
}

#[test]
fn names_and_shapes_are_those_of_torchvision() {
    for (name, golden) in goldens() {
        let params = Params::new(CPU, 0);
        let (net, _) = net(&name, &params);
        let mut lines: Vec<String> = (params.list().into_iter().chain(params.buffers()))
            .map(|info| {
                let dtype = if info.name.ends_with("num_batches_tracked") { "int64" } else { "float32" };
                format!("{} {dtype} {:?}", info.name, info.shape)
            })
            .collect();
        lines.sort();
        assert_eq!(lines.len(), golden.tensors, "{name}: {lines:#?}");
        assert_eq!(crc32(&lines.join("\n")), golden.checksum, "{name}: {lines:#?}");
        // Paths of the parts are the names of the parameters.
        let mut visited = vec![];
        net.visit(&mut bornite_nn::Visitor::new(&mut |path, part| match part {
            bornite_nn::Visited::Parameter(_) | bornite_nn::Visited::Buffer(_) => visited.push(path.to_owned()),
            bornite_nn::Visited::Module(_) => {}
        }));
        visited.sort();
        let names: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(visited, names, "{name}");
    }
}

#[test]
fn logits_match_torchvision() {
    for (name, golden) in goldens() {
        let Some(expected) = golden.logits else { continue };
        let params = Params::new(CPU, 0);
        let (net, size) = net(&name, &params);
        load(&params);
        let logits = net.forward(&images("images", 2, size));
        let classes = logits.shape().unwrap()[1];
        let logits = logits.to_vec::<f32>().unwrap();
        for (row, expected) in logits.chunks(classes).zip(&expected) {
            for (found, expected) in row.iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{name}: {found} and {expected}");
            }
        }
    }
}

#[test]
fn training_losses_match_torchvision() {
    let expected = goldens().remove("resnet18").and_then(|golden| golden.losses).unwrap();
    let params = Params::new(CPU, 0);
    let (net, size) = net("resnet18", &params);
    load(&params);
    let sgd = Sgd::new(&params).lr(5e-5).momentum(0.9);
    let step = sgd.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    let batches: Vec<[Tensor; 2]> = (0..5)
        .map(|n| {
            let classes: Vec<i64> = (0..8).map(|image| image * 7 + n).collect();
            [images(&format!("batch{n}"), 8, size), Tensor::from_slice(&classes, &[8], CPU)]
        })
        .collect();
    let losses: Vec<f64> = (0..30).map(|n| step.call(&batches[n % 5]).unwrap().loss().unwrap()).collect();
    for (n, (found, expected)) in losses.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() < 1e-3, "step {n}: {found} and {expected}");
    }
    assert!(expected.len() == 30 && expected[29] < expected[0] - 0.5, "{expected:?}");

    // The file has the integers that PyTorch's strict load_state_dict needs, and is read back.
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("resnet18.safetensors");
    params.save(&path).unwrap();
    let mut file = Safetensors::open(&path).unwrap();
    let count = file.tensor("layer4.1.bn2.num_batches_tracked", CPU).unwrap();
    assert_eq!((count.shape().unwrap(), count.to_vec::<i64>().unwrap()), (&[][..], vec![30]));
    let again = Params::new(CPU, 1);
    self::net("resnet18", &again);
    again.load(&path).unwrap();
    let bits = |params: &Params| params.get("layer4.1.bn2.running_var").unwrap().to_vec::<f32>().unwrap();
    assert_eq!(bits(&again), bits(&params));
    assert_eq!(again.get("bn1.num_batches_tracked").unwrap().to_vec::<f32>().unwrap(), [30.0]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn impossible_sizes_are_errors() {
    let error = |config: ImageModelConfig| {
        let built = config.build(&Params::new(CPU, 0));
        built.map(|_| ()).unwrap_err().to_string()
    };
    let config = |name, classes, image_size| ImageModelConfig { name, classes, image_size };
    for (config, expected) in [
        (config(ImageModel::Vgg16, 10, 28), "enlarge them to at least 32 (data.image_size)"),
        (config(ImageModel::VitTiny, 10, 30), "must be a multiple of 4; found 30 (data.image_size)"),
        (config(ImageModel::VitTiny, 10, 130), "must be a multiple of 16"),
        (config(ImageModel::Resnet18, 0, 32), "resnet18 with 0 classes"),
        (config(ImageModel::Resnet18, usize::MAX, 32), "both must be from 1 to 1048576"),
    ] {
        assert!(error(config).contains(expected), "{expected}: {}", error(config));
    }
    let unknown = ImageModel::named("resnet19").unwrap_err().to_string();
    assert!(
        unknown.contains("resnet18, resnet34, resnet50, vgg16, vit-tiny") && unknown.contains("did you mean"),
        "{unknown}"
    );
    // Images of another size or number of channels.
    let params = Params::new(CPU, 0);
    let vit = ImageModelConfig { name: ImageModel::VitTiny, classes: 3, image_size: 8 }.build(&params).unwrap();
    let error = vit.forward(&images("x", 1, 12)).to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("expected images [n, 3, 8, 8], found [1, 3, 12, 12]"), "{error}");
    let params = Params::new(CPU, 0);
    let resnet = ResNet::new(&params, ResNetConfig { width: 4, ..ResNetConfig::RESNET18 }, 3);
    assert!(resnet.forward(&Tensor::zeros(&[1, 1, 9, 9], DType::F32, CPU)).to_vec::<f32>().is_err());
}
