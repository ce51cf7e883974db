//! Folders of images, and transforms.

use std::path::PathBuf;

use bornite::{DType, Device};
use bornite_nn::data::{
    CenterCrop, DataLoader, Dataset, HostArray, ImageChannels, ImageFolder, Normalize, RandomCrop, RandomFlip, Resize,
    TensorDataset, ToFloat, Transform, read_npy,
};
use bornite_nn::{Error, Result};

use crate::{Folder, Random, golden, says};

fn sample(name: &str) -> PathBuf {
    golden("samples").join(name)
}

fn contents(name: &str) -> Vec<u8> {
    std::fs::read(sample(name)).unwrap()
}

/// Applies a transform through a loader of one sample.
fn apply(transform: impl Transform + 'static, array: &HostArray, seed: u64) -> Result<HostArray> {
    let shape = [&[1][..], array.shape()].concat();
    let dataset = TensorDataset::new(vec![HostArray::from_bytes(array.bytes().to_vec(), &shape, array.dtype())?])?;
    let loader = DataLoader::new(dataset).workers(0).seed(seed).device(Device::cpu()).transform(0, transform);
    let batch = loader.epoch().next().unwrap()?;
    let out = HostArray::from_tensor(&batch[0])?;
    HostArray::from_bytes(out.bytes().to_vec(), &out.shape()[1..], out.dtype())
}

#[test]
fn folders_of_images() {
    let folder = Folder::new();
    for name in ["rgb.png", "rgb.jpg", "palette.png"] {
        folder.write(&format!("b class/{name}"), contents(name));
    }
    folder.write("a class/1.bmp", contents("rgb.bmp"));
    folder.write("a class/2.PNG", contents("rgba.png"));
    folder.write("a class/.hidden.png", "no image");
    folder.write("a class/readme.txt", "no image");
    folder.write("readme.txt", "no image");
    let images = ImageFolder::open(&folder.0).unwrap();
    assert_eq!((images.classes(), images.len()), (&["a class".to_string(), "b class".into()][..], 5));
    let bytes = images.clone().as_bytes();
    // 1.bmp, 2.PNG, palette.png, rgb.jpg, rgb.png.
    for (index, (golden, tolerance, class)) in
        [("rgb.png", 0, 0), ("rgb.png", 0, 0), ("palette.png", 0, 1), ("rgb.jpg", 2, 1), ("rgb.png", 0, 1)]
            .iter()
            .enumerate()
    {
        let found = bytes.get(index).unwrap();
        let expected = read_npy(sample(&format!("{golden}.npy"))).unwrap();
        assert_eq!((found[0].dtype(), found[0].shape()), (DType::U8, expected.shape()));
        let far = found[0].bytes().iter().zip(expected.bytes()).filter(|(a, b)| a.abs_diff(**b) > *tolerance).count();
        assert_eq!(far, 0, "{golden}");
        assert_eq!(found[1].to_vec::<i64>().unwrap(), [*class]);
        let floats = images.get(index).unwrap()[0].to_vec::<f32>().unwrap();
        assert!(floats.iter().zip(found[0].bytes()).all(|(float, byte)| *float == *byte as f32 / 255.0));
    }
    let gray = images.clone().channels(ImageChannels::Gray).get(4).unwrap();
    assert_eq!(gray[0].shape(), [1, 20, 24]);
    // All samples through a loader.
    let loader = DataLoader::new(images).batch(2).workers(2).device(Device::cpu());
    assert_eq!(loader.epoch().map(|batch| batch.unwrap()[0].shape().unwrap().to_vec()).last().unwrap(), [1, 3, 20, 24]);
}

fn one_image(folder: &Folder, contents: impl AsRef<[u8]>) -> Result<Vec<HostArray>> {
    folder.write("class/one.png", contents);
    ImageFolder::open(&folder.0)?.get(0)
}

#[test]
fn damaged_images_are_errors() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    for name in ["rgb.png", "rgb.jpg", "rgb.bmp", "palette.png"] {
        let bytes = contents(name);
        // The last chunk of a PNG file contains no pixels.
        let shortest = bytes.len() - if name.ends_with("png") { 16 } else { 0 };
        for length in 0..shortest {
            let truncated = one_image(&folder, &bytes[..length]);
            assert!(truncated.is_err(), "{name} of {length} bytes");
            says(truncated, &["class/one.png", "image", "replace or remove"]);
        }
        for _ in 0..300 {
            let mut changed = bytes.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                changed[at] = random.below(256) as u8;
            }
            if let Err(error) = one_image(&folder, &changed) {
                assert!(error.to_string().contains("class/one.png"), "{error}");
            }
        }
    }
    // A header that announces 65535 × 65535 pixels is an error before memory is reserved.
    let mut bmp = contents("rgb.bmp");
    bmp[18..22].copy_from_slice(&65535u32.to_le_bytes());
    bmp[22..26].copy_from_slice(&65535u32.to_le_bytes());
    says(
        one_image(&folder, bmp),
        &["class/one.png: needs 12884508675 bytes, more than the limit", "BORNITE_INPUT_LIMIT"],
    );
    says(one_image(&folder, "plain text"), &["cannot be decoded as an image"]);
    // Through a loader, with the index and the file.
    let (bytes, workers) = (contents("rgb.png"), 2);
    folder.write("class/one.png", &bytes);
    folder.write("class/two.png", &bytes[..bytes.len() / 2]);
    let loader = DataLoader::new(ImageFolder::open(&folder.0).unwrap()).workers(workers).device(Device::cpu());
    says(loader.epoch().next().unwrap(), &["sample 1: ", "class/two.png: cannot be decoded"]);
    std::fs::remove_file(folder.0.join("class/two.png")).unwrap();
    says(loader.epoch().next().unwrap(), &["sample 1: cannot read", "class/two.png"]);
    // Images of several sizes.
    folder.write("class/two.png", contents("rgb.png"));
    let small = image::RgbImage::from_pixel(2, 3, image::Rgb([1, 2, 3]));
    small.save(folder.0.join("class/small.png")).unwrap();
    let loader = DataLoader::new(ImageFolder::open(&folder.0).unwrap()).workers(workers).device(Device::cpu());
    says(
        loader.epoch().next().unwrap(),
        &[
            "sample 1 (",
            "class/small.png) is f32[3, 3, 2], but of sample 0 (",
            "class/one.png) f32[3, 20, 24]",
            "resize",
        ],
    );
}

#[test]
fn folders_without_images_are_errors() {
    let folder = Folder::new();
    says(ImageFolder::open(folder.0.join("absent")), &["cannot list", "absent"]);
    says(ImageFolder::open(&folder.0), &["contains no folders; expected one folder of images per class"]);
    folder.write("class/readme.txt", "");
    says(ImageFolder::open(&folder.0), &["class: contains no images (png, jpg, jpeg, bmp)", "remove the folder"]);
    let pipe = folder.0.join("class/pipe.png");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    says(ImageFolder::open(&folder.0), &["pipe.png", "named pipe"]);
    std::fs::remove_file(&pipe).unwrap();
    // A pipe that took the name of an image later.
    folder.write("class/pipe.png", contents("rgb.png"));
    let images = ImageFolder::open(&folder.0).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    says(images.get(0), &["pipe.png", "named pipe"]);
}

fn numbered(shape: &[usize]) -> HostArray {
    let numbers: Vec<i16> = (0..shape.iter().product::<usize>() as i16).map(|n| n + 1).collect();
    HostArray::from_slice(&numbers, shape).unwrap()
}

#[test]
fn crops_and_flips() {
    let image = numbered(&[2, 3, 4]);
    let cropped = apply(CenterCrop { height: 1, width: 2 }, &image, 0).unwrap();
    assert_eq!((cropped.shape(), cropped.to_vec::<i16>().unwrap()), (&[2, 1, 2][..], vec![6, 7, 18, 19]));
    assert_eq!(apply(CenterCrop { height: 3, width: 4 }, &image, 0).unwrap(), image);
    // Every random crop is a part of the padded image, and all of them occur.
    let (height, width, padding) = (2, 3, 1);
    let pixel = |channel: i32, row: i32, column: i32| {
        let inside = (0..3).contains(&row) && (0..4).contains(&column);
        if inside { (channel * 12 + row * 4 + column + 1) as i16 } else { 0 }
    };
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let crop = apply(RandomCrop { height, width, padding }, &image, seed).unwrap();
        assert_eq!(crop, apply(RandomCrop { height, width, padding }, &image, seed).unwrap());
        let crop = crop.to_vec::<i16>().unwrap();
        let at = (-1..=2).flat_map(|top| (-1..=2).map(move |left| (top, left))).find(|(top, left)| {
            let pixels = (0..12).map(|n| pixel(n / 6, top + n / 3 % 2, left + n % 3));
            pixels.eq(crop.iter().copied())
        });
        found.insert(at.unwrap_or_else(|| panic!("{crop:?} is no part of the image")));
    }
    assert_eq!(found.len(), 16);
    let flip = |horizontal, vertical| apply(RandomFlip { horizontal, vertical }, &numbered(&[2, 3]), 1).unwrap();
    assert_eq!(flip(0.0, 0.0).to_vec::<i16>().unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(flip(1.0, 0.0).to_vec::<i16>().unwrap(), [3, 2, 1, 6, 5, 4]);
    assert_eq!(flip(0.0, 1.0).to_vec::<i16>().unwrap(), [4, 5, 6, 1, 2, 3]);
    let flipped =
        (0..200).filter(|seed| apply(RandomFlip { horizontal: 0.3, vertical: 0.0 }, &image, *seed).unwrap() != image);
    assert!((30..90).contains(&flipped.count()));
}

#[test]
fn normalized_and_resized() {
    let image = HostArray::from_slice(&[0u8, 255, 51, 102], &[2, 1, 2]).unwrap();
    let floats = apply(ToFloat, &image, 0).unwrap();
    assert_eq!(floats.to_vec::<f32>().unwrap(), [0.0, 1.0, 0.2, 0.4]);
    let normalize = |mean: &[f32], std: &[f32]| {
        apply(Normalize { mean: mean.to_vec(), std: std.to_vec() }, &floats, 0)
            .map(|array| array.to_vec::<f32>().unwrap())
    };
    assert_eq!(normalize(&[0.5, 0.2], &[0.5, 0.1]).unwrap(), [-1.0, 1.0, 0.0, (0.4f32 - 0.2) / 0.1]);
    assert_eq!(normalize(&[0.5], &[0.25]).unwrap()[..2], [-2.0, 2.0]);
    // Pillow's results, smaller and larger.
    let plane = read_npy(sample("plane.npy")).unwrap();
    for (height, width) in [(7, 9), (31, 40), (20, 5), (1, 1)] {
        let found = apply(Resize { height, width }, &plane, 0).unwrap();
        let expected = read_npy(sample(&format!("plane_{height}x{width}.npy"))).unwrap();
        assert_eq!(found.shape(), expected.shape());
        let pairs = found.to_vec::<f32>().unwrap().into_iter().zip(expected.to_vec::<f32>().unwrap());
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-6, "{height} × {width}: {worst}");
    }
    assert_eq!(apply(Resize { height: 20, width: 24 }, &plane, 0).unwrap(), plane);
    let bytes = apply(Resize { height: 2, width: 4 }, &image, 0).unwrap();
    assert_eq!(bytes.to_vec::<u8>().unwrap()[..4], [0, 64, 191, 255]);
}

#[test]
fn invalid_transforms_are_errors() {
    let image = HostArray::from_slice(&[0.0f32; 12], &[3, 2, 2]).unwrap();
    let (bytes, line) = (numbered(&[2, 2]), numbered(&[4]));
    let cases: [(Result<HostArray>, &str); 14] = [
        (apply(CenterCrop { height: 3, width: 1 }, &image, 0), "CenterCrop: cannot crop 3 × 1 from f32[3, 2, 2]"),
        (apply(CenterCrop { height: 0, width: 1 }, &image, 0), "CenterCrop: cannot crop 0 × 1"),
        (apply(RandomCrop { height: 5, width: 1, padding: 1 }, &image, 0), "RandomCrop: cannot crop 5 × 1"),
        (apply(RandomCrop { height: 1, width: 1, padding: usize::MAX }, &image, 0), "RandomCrop: cannot crop"),
        (apply(RandomCrop { height: usize::MAX, width: 1, padding: 1 << 62 }, &image, 0), "RandomCrop: cannot crop"),
        (apply(RandomFlip { horizontal: 1.5, vertical: 0.0 }, &image, 0), "from 0 to 1, found 1.5 and 0"),
        (apply(RandomFlip { horizontal: 0.5, vertical: f64::NAN }, &image, 0), "found 0.5 and NaN"),
        (apply(CenterCrop { height: 1, width: 1 }, &line, 0), "expected an image"),
        (apply(ToFloat, &image, 0), "ToFloat: expected u8, found f32[3, 2, 2]"),
        (apply(Normalize { mean: vec![0.0], std: vec![1.0] }, &bytes, 0), "apply ToFloat to u8 first"),
        (apply(Normalize { mean: vec![0.0; 2], std: vec![1.0] }, &image, 0), "2 means and 1 standard deviations"),
        (apply(Normalize { mean: vec![0.0], std: vec![0.0] }, &image, 0), "standard deviations greater than 0"),
        (apply(Resize { height: 0, width: 1 }, &image, 0), "Resize: cannot resize f32[3, 2, 2] to 0 × 1"),
        (apply(Resize { height: usize::MAX, width: 1 }, &image, 0), "expected lengths from 1 to 65536"),
    ];
    for (found, expected) in cases {
        let error: Error = found.err().unwrap_or_else(|| panic!("no error, expected {expected}"));
        assert!(error.to_string().contains(expected), "{error}\nexpected {expected}");
        assert!(error.to_string().contains("sample 0: "), "{error}");
    }
}
