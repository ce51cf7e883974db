//! Hugging Face folders, out and in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bornite::{DType, Device, Tensor};
use bornite_nn::checkpoint::Tensors;
use bornite_nn::checkpoint::hugging_face::{HuggingFaceModel, ModelExport, TensorMapping};
use bornite_nn::checkpoint::safetensors::{ReadOptions, Safetensors};

use crate::Outcome;
use crate::random::Random;
use crate::sample::{Folder, assert_says, bytes, names, tensor};

fn mappings() -> Vec<TensorMapping> {
    vec![
        TensorMapping::new("embed", "wte.weight", false),
        TensorMapping::new("block.qkv", "h.0.attn.c_attn.weight", true),
        TensorMapping::new("block.bias", "h.0.attn.c_attn.bias", false),
        TensorMapping::new("norm", "ln_f.weight", false),
    ]
}

fn ours(random: &mut Random) -> Tensors {
    let shapes: [(&str, DType, &[usize]); 4] = [
        ("embed", DType::F32, &[50, 8]),
        ("block.qkv", DType::BF16, &[24, 8]),
        ("block.bias", DType::F32, &[24]),
        ("norm", DType::F16, &[8]),
    ];
    shapes.into_iter().map(|(name, dtype, shape)| (name.into(), tensor(random, dtype, shape))).collect()
}

fn shapes(tensors: &Tensors) -> BTreeMap<String, Vec<usize>> {
    tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape().unwrap().to_vec())).collect()
}

fn export(folder: &Path, tensors: &Tensors, max_file_bytes: u64, files: &[(&str, String)]) -> bornite_nn::Result<()> {
    let config = serde_json::json!({ "model_type": "gpt2", "layer_norm_epsilon": 1e-5 });
    ModelExport { config: &config, tensors, mappings: &mappings(), files, max_file_bytes }.write(folder)
}

pub fn export_and_import_round_trip() -> Outcome {
    let folder = Folder::new("models");
    let tensors = ours(&mut Random::fresh());
    let tokenizer = [("tokenizer.json", r#"{"version":"1.0"}"#.to_string())];
    let one: &[&str] = &["config.json", "model.safetensors", "tokenizer.json"];
    let three: &[&str] = &[
        "config.json",
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ];
    for (n, (max_file_bytes, files)) in [(1 << 30, one), (490, three)].into_iter().enumerate() {
        let to = folder.join(&format!("deep/er/{n}"));
        export(&to, &tensors, max_file_bytes, &tokenizer)?;
        assert_eq!(names(&to), files);
        let mut model = HuggingFaceModel::open(&to, &ReadOptions::default())?;
        assert_eq!(model.config()["layer_norm_epsilon"], 1e-5);
        assert_eq!(fs::read_to_string(model.tokenizer().ok_or("no tokenizer")?)?, r#"{"version":"1.0"}"#);
        assert_eq!(model.tensors().count(), 4);
        let back = model.import(&mappings(), &shapes(&tensors), |_| false, Device::cpu())?;
        assert_eq!(bytes(&back), bytes(&tensors));
        let theirs = model.tensors().find(|(name, _)| *name == "h.0.attn.c_attn.weight").ok_or("not there")?.1;
        assert_eq!(theirs.shape, [8, 24]);
    }
    // What is transposed is transposed, not only said to be.
    let x = Tensor::from_slice(&[1i32, 2, 3, 4, 5, 6], &[2, 3], Device::cpu());
    let tensors = Tensors::from([("x".to_string(), x)]);
    let rows = [TensorMapping::new("x", "y", true)];
    let config = serde_json::json!({});
    let to = folder.join("turned");
    // Left by an export that died.
    fs::create_dir(folder.join(".saving-turned-1"))?;
    ModelExport { config: &config, tensors: &tensors, mappings: &rows, files: &[], max_file_bytes: 1 << 30 }
        .write(&to)?;
    let mut file = Safetensors::open(to.join("model.safetensors"))?;
    assert_eq!(file.header().metadata["format"], "pt");
    assert_eq!(file.tensor("y", Device::cpu())?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    assert_eq!(names(&folder.0), ["deep", "turned"]);
    Ok(())
}

pub fn names_and_shapes_must_match() -> Outcome {
    let folder = Folder::new("fit");
    let tensors = ours(&mut Random::fresh());
    let to = folder.join("model");
    export(&to, &tensors, 1 << 30, &[])?;
    let mut model = HuggingFaceModel::open(&to, &ReadOptions::default())?;
    let right = shapes(&tensors);
    let mut longer = right.clone();
    longer.insert("block.mlp".into(), vec![1]);
    let mut other = right.clone();
    other.insert("block.qkv".into(), vec![8, 24]);
    let with = |from: &str, to: &str| -> Vec<TensorMapping> {
        let renamed =
            |pair: TensorMapping| if pair.theirs == from { TensorMapping { theirs: to.into(), ..pair } } else { pair };
        mappings().into_iter().map(renamed).collect()
    };
    let without =
        |theirs: &str| -> Vec<TensorMapping> { mappings().into_iter().filter(|pair| pair.theirs != theirs).collect() };
    let mut fewer = right.clone();
    fewer.remove("norm");
    let untransposable = vec![TensorMapping { transpose: true, ..mappings()[2].clone() }];
    let cases: [(Vec<TensorMapping>, &BTreeMap<String, Vec<usize>>, &[&str]); 6] = [
        (with("wte.weight", "wte.weigth"), &right, &["lacks 'wte.weigth' (did you mean 'wte.weight'?)", "unexpected"]),
        (without("ln_f.weight"), &fewer, &["it has unexpected 'ln_f.weight'"]),
        (mappings(), &longer, &["no name mapping for our 'block.mlp'"]),
        (
            mappings(),
            &other,
            &["'h.0.attn.c_attn.weight' has shape [8, 24] (stored transposed)", "'block.qkv' expects [8, 24]"],
        ),
        (mappings(), &fewer, &["a name mapping for 'norm', which our model does not have"]),
        (
            [untransposable, mappings()].concat(),
            &right,
            &["'h.0.attn.c_attn.bias' has shape [24] (stored transposed); our 'block.bias' expects [24]"],
        ),
    ];
    for (mappings, shapes, expected) in cases {
        let error = model.import(&mappings, shapes, |_| false, Device::cpu()).err().ok_or(expected[0])?;
        assert_says(&error, expected);
        assert_says(&error, &[&to.display().to_string()]);
    }
    // Unless it is ignored.
    let imported = model.import(&without("ln_f.weight"), &fewer, |name| name == "ln_f.weight", Device::cpu())?;
    assert_eq!(imported.len(), 3);
    let error = export(&folder.join("more"), &Tensors::from([("nrom".into(), tensors["norm"].clone())]), 1, &[]);
    assert_says(&error.err().ok_or("exported")?, &["no name mapping for our 'nrom' (did you mean 'norm'?)"]);
    assert_eq!(names(&folder.0), ["model"], "a failed export leaves nothing");
    Ok(())
}

pub fn shards_must_match_their_index() -> Outcome {
    let folder = Folder::new("shards");
    let to = folder.join("model");
    export(&to, &ours(&mut Random::fresh()), 490, &[])?;
    let index = to.join("model.safetensors.index.json");
    let right = fs::read_to_string(&index)?;
    let first = "model-00001-of-00003.safetensors";
    for (from, by, expected) in [
        (first, "../model/model-00001-of-00003.safetensors", "not a safetensors file of this folder"),
        (first, "/etc/passwd", "not a safetensors file of this folder"),
        (first, "config.json", "not a safetensors file of this folder"),
        (first, "model-00002-of-00003.safetensors", "does not list tensor"),
        ("model-00003-of-00003.safetensors", "model-00009-of-00003.safetensors", "No such file"),
        ("\"ln_f.weight\"", "\"ln_g.weight\"", "does not list tensor 'ln_f.weight' of"),
        ("\"ln_f.weight\"", "\"wte.weight\"", "'wte.weight' is duplicated"),
        (
            "\"ln_f.weight\"",
            "\"a\": \"model-00001-of-00003.safetensors\", \"ln_f.weight\"",
            "which does not contain it",
        ),
        ("weight_map", "weights", "missing field `weight_map`"),
    ] {
        assert!(right.contains(from), "{right}");
        fs::write(&index, right.replacen(from, by, 1))?;
        assert_says(&HuggingFaceModel::open(&to, &ReadOptions::default()).err().ok_or(expected)?, &[expected]);
    }
    fs::write(&index, &right)?;
    HuggingFaceModel::open(&to, &ReadOptions::default())?;
    Ok(())
}
