//! Images with classes, from a folder of class folders or from IDX files such as MNIST's.

use std::path::{Path, PathBuf};

use super::{Dataset, HostArray, ImageFolder, TensorDataset, Transform, read_idx};
use crate::error::located;
use crate::{Error, Result};

/// Images of a folder: class folders (see [`ImageFolder`]), or IDX files with the names of MNIST's,
/// `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, also with `.gz`. Samples are an image
/// `[3, height, width]`, f32 from 0 to 1, and its class (i64).
#[derive(Clone, Debug)]
pub struct LabeledImages {
    source: Source,
    classes: Vec<String>,
}

#[derive(Clone, Debug)]
enum Source {
    Folder(ImageFolder),
    /// Bytes `[n, height, width]` and classes.
    Idx(PathBuf, TensorDataset),
}

/// Prefixes of the names of IDX files: of training images, and of test images.
const IDX_PARTS: [&str; 2] = ["train", "t10k"];

impl LabeledImages {
    /// Opens the images of a folder; of IDX files, the training images.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<LabeledImages> {
        located(|| {
            let path = path.as_ref();
            if let Some(images) = read_idx_pair(path, IDX_PARTS[0], None)? {
                return Ok(images);
            }
            let folder = ImageFolder::open(path)?;
            Ok(LabeledImages { classes: folder.classes().to_vec(), source: Source::Folder(folder) })
        })
    }

    /// Opens the test images (`t10k-…`) of a folder of IDX files; `None` if there are none.
    #[track_caller]
    pub fn open_test(path: impl AsRef<Path>, classes: &[String]) -> Result<Option<LabeledImages>> {
        located(|| read_idx_pair(path.as_ref(), IDX_PARTS[1], Some(classes)))
    }

    /// Opens images for a model with these classes. Of IDX files these are the test images, or else
    /// the training images.
    #[track_caller]
    pub fn open_with_classes(path: impl AsRef<Path>, classes: &[String]) -> Result<LabeledImages> {
        located(|| {
            let path = path.as_ref();
            for part in IDX_PARTS.iter().rev() {
                if let Some(images) = read_idx_pair(path, part, Some(classes))? {
                    return Ok(images);
                }
            }
            let folder = ImageFolder::open_with_classes(path, classes)?;
            Ok(LabeledImages { classes: classes.to_vec(), source: Source::Folder(folder) })
        })
    }

    /// Returns the names of the classes; their positions are the class indices.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

/// Reads a pair of IDX files, if there is one.
fn read_idx_pair(folder: &Path, part: &str, classes: Option<&[String]>) -> Result<Option<LabeledImages>> {
    let find = |kind: &str| {
        let plain = folder.join(format!("{part}-{kind}-ubyte"));
        let packed = folder.join(format!("{part}-{kind}-ubyte.gz"));
        [plain, packed].into_iter().find(|path| path.exists())
    };
    let Some(images) = find("images-idx3") else { return Ok(None) };
    let Some(labels) = find("labels-idx1") else {
        let what = format!("has no labels beside it; add {part}-labels-idx1-ubyte");
        return Err(Error::file(&images, what));
    };
    let (pixels, numbers) = (read_idx(&images)?, read_idx(&labels)?);
    if pixels.dtype() != bornite::DType::U8 || pixels.shape().len() != 3 {
        return Err(Error::file(&images, format!("contains {pixels:?}; expected bytes [n, height, width]")));
    }
    if numbers.dtype() != bornite::DType::U8 || numbers.shape().len() != 1 {
        return Err(Error::file(&labels, format!("contains {numbers:?}; expected bytes [n]")));
    }
    let classes = match classes {
        Some(classes) => classes.to_vec(),
        None => {
            let count = numbers.bytes().iter().max().map_or(0, |max| *max as usize + 1);
            (0..count).map(|class| class.to_string()).collect()
        }
    };
    // IDX files number their classes, so the model's must be numbers, too.
    if let Some((n, name)) = classes.iter().enumerate().find(|(n, name)| **name != n.to_string()) {
        let what =
            format!("numbers its classes, but class {n} of the model is '{name}'; use a folder of class folders");
        return Err(Error::file(&labels, what));
    }
    let counts = [&pixels, &numbers].map(|array| array.shape().first().copied().unwrap_or(0));
    if counts[0] != counts[1] {
        let what = format!("has {} labels for {} images in {}", counts[1], counts[0], images.display());
        return Err(Error::file(&labels, what));
    }
    let dataset = TensorDataset::new(vec![pixels, numbers])?.with_classes(1, classes.len());
    let dataset = dataset.map_err(|error| Error::file(&labels, error.kind().to_string()))?;
    Ok(Some(LabeledImages { source: Source::Idx(images, dataset), classes }))
}

impl Dataset for LabeledImages {
    fn len(&self) -> usize {
        match &self.source {
            Source::Folder(folder) => folder.len(),
            Source::Idx(_, dataset) => dataset.len(),
        }
    }

    fn get(&self, index: usize) -> Result<Vec<HostArray>> {
        let dataset = match &self.source {
            Source::Folder(folder) => return folder.get(index),
            Source::Idx(_, dataset) => dataset,
        };
        let sample = dataset.get(index)?;
        let [image, class] = &sample[..] else { return Ok(sample) };
        let gray: Vec<f32> = image.bytes().iter().map(|&byte| f32::from(byte) / 255.0).collect();
        let shape = [&[3], image.shape()].concat();
        let class = i64::from(class.bytes().first().copied().unwrap_or(0));
        Ok(vec![HostArray::from_slice(&gray.repeat(3), &shape)?, HostArray::scalar(class)])
    }

    fn describe(&self, index: usize) -> String {
        match &self.source {
            Source::Folder(folder) => folder.path(index).map_or(String::new(), |path| path.display().to_string()),
            Source::Idx(path, _) => format!("image {index} of {}", path.display()),
        }
    }

    fn fingerprint(&self) -> u64 {
        match &self.source {
            Source::Folder(folder) => folder.fingerprint(),
            Source::Idx(_, dataset) => dataset.fingerprint(),
        }
    }
}

/// Rejects images of another size than the first one of a training set.
pub(crate) struct SameSize {
    /// Channels, height and width.
    pub shape: Vec<usize>,
    /// Description of the first image.
    pub first: String,
}

impl Transform for SameSize {
    fn apply(&self, array: HostArray, _: &mut super::SampleRandom) -> Result<HostArray> {
        if array.shape() == self.shape {
            return Ok(array);
        }
        let size = |shape: &[usize]| match shape {
            [.., height, width] => format!("{width} × {height}"),
            _ => "no".into(),
        };
        Err(Error::data(format!(
            "the image has {} pixels, but {} has {}; set data.image_size (--image-size N) to resize all images to N × N",
            size(array.shape()),
            self.first,
            size(&self.shape)
        )))
    }
}
