//! Folders of images, one folder per class.

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use bornite::DType;
use image::{DynamicImage, ImageDecoder, ImageReader};

use super::HostArray;
use super::samples::{Dataset, fingerprint_of, no_such_sample, words_of};
use crate::error::located;
use crate::{Error, Result, files};

/// File extensions that are read; other files are skipped.
const EXTENSIONS: [&str; 4] = ["png", "jpg", "jpeg", "bmp"];

/// Channels of decoded images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageChannels {
    /// One channel of luminance.
    Gray,
    /// Red, green and blue; transparency is ignored.
    Rgb,
}

/// A dataset of images in folders, `class/name.png`. The classes are the folders' names in sorted
/// order; samples are an image `[channels, height, width]` and its class (i64). PNG, JPEG and BMP.
///
/// ```no_run
/// use bornite_nn::data::{DataLoader, ImageFolder, Normalize, RandomCrop, RandomFlip, Resize};
///
/// let folder = ImageFolder::open("pets/train")?; // pets/train/cat/1.jpg, pets/train/dog/2.png, …
/// println!("{:?}", folder.classes());
/// let loader = DataLoader::new(folder)
///     .batch(64)
///     .shuffle(1)
///     .workers(4)
///     .transform(0, Resize { height: 72, width: 72 })
///     .transform(0, RandomCrop { height: 64, width: 64, padding: 0 })
///     .transform(0, RandomFlip { horizontal: 0.5, vertical: 0.0 })
///     .transform(0, Normalize { mean: vec![0.5; 3], std: vec![0.25; 3] });
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    files: Vec<ImageFile>,
    channels: ImageChannels,
    dtype: DType,
}

#[derive(Clone, Debug)]
struct ImageFile {
    path: PathBuf,
    class: usize,
    bytes: u64,
}

impl ImageFolder {
    /// Lists the images of a folder. They are decoded when they are used, to RGB in f32 from 0 to
    /// 1. Names that start with a dot and files without the extension of an image are skipped.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<ImageFolder> {
        located(|| ImageFolder::read(path.as_ref(), None))
    }

    /// As [`ImageFolder::open`], with the classes of a trained model, whose positions are the class
    /// indices: folders may be missing, and a folder of another name is an error.
    #[track_caller]
    pub fn open_with_classes(path: impl AsRef<Path>, classes: &[String]) -> Result<ImageFolder> {
        located(|| ImageFolder::read(path.as_ref(), Some(classes)))
    }

    fn read(path: &Path, known: Option<&[String]>) -> Result<ImageFolder> {
        let mut folder = ImageFolder {
            classes: known.map(<[String]>::to_vec).unwrap_or_default(),
            files: vec![],
            channels: ImageChannels::Rgb,
            dtype: DType::F32,
        };
        for class in list(path)?.into_iter().filter(|class| class.is_dir()) {
            let name = class.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = match known {
                None => folder.classes.len(),
                Some(known) => known.iter().position(|known| *known == name).ok_or_else(|| {
                    let what = format!("is not a class of the model, whose classes are {}", some_of(known));
                    Error::file(&class, format!("{what}; rename or remove the folder"))
                })?,
            };
            let before = folder.files.len();
            for file in list(&class)?.into_iter().filter(|file| is_image(file)) {
                let found = fs::metadata(&file).map_err(Error::io("read", &file))?;
                files::check_plain(&file)?;
                folder.files.push(ImageFile { path: file, class: number, bytes: found.len() });
            }
            if folder.files.len() == before {
                let expected = EXTENSIONS.join(", ");
                return Err(Error::file(
                    &class,
                    format!("contains no images ({expected}), but is a class; add images or remove the folder"),
                ));
            }
            if known.is_none() {
                folder.classes.push(name);
            }
        }
        if folder.files.is_empty() {
            let message = "contains no folders; expected one folder of images per class, such as cat/1.png";
            return Err(Error::file(path, message));
        }
        Ok(folder)
    }

    /// Sets the channels of the images.
    pub fn channels(self, channels: ImageChannels) -> ImageFolder {
        ImageFolder { channels, ..self }
    }

    /// Decodes to u8 from 0 to 255 instead of f32 from 0 to 1.
    pub fn as_bytes(self) -> ImageFolder {
        ImageFolder { dtype: DType::U8, ..self }
    }

    /// Returns the names of the classes; their positions are the class indices.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the file of a sample.
    pub fn path(&self, index: usize) -> Option<&Path> {
        self.files.get(index).map(|file| &*file.path)
    }
}

/// The first names of a list.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown}, …") } else { shown }
}

/// Entries of a folder in sorted order, without names that start with a dot.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let names = || fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>();
    let mut names = names().map_err(Error::io("list", folder))?;
    names.sort();
    let visible = names.iter().filter(|name| !name.as_encoded_bytes().starts_with(b"."));
    Ok(visible.map(|name| folder.join(name)).collect())
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    extension.is_some_and(|extension| EXTENSIONS.contains(&&extension[..]))
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<Vec<HostArray>> {
        let file = self.files.get(index).ok_or_else(|| no_such_sample(index, self.files.len()))?;
        Ok(vec![read_image(&file.path, self.channels, self.dtype)?, HostArray::scalar(file.class as i64)])
    }

    fn describe(&self, index: usize) -> String {
        match self.files.get(index) {
            Some(file) => format!("sample {index} ({})", file.path.display()),
            None => format!("sample {index}"),
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut words = vec![];
        for file in &self.files {
            words.extend([file.class as u64, file.bytes]);
            words.extend(words_of(file.path.file_name().unwrap_or_default().as_encoded_bytes()));
        }
        fingerprint_of(words)
    }
}

/// Decodes an image to `[channels, height, width]`; `dtype` is u8 or f32.
pub(crate) fn read_image(path: &Path, channels: ImageChannels, dtype: DType) -> Result<HostArray> {
    let limit = bornite_support::input_limit().map_err(|error| Error::config(error.to_string()))?;
    let damaged = |error: image::ImageError| {
        Error::file(path, format!("cannot be decoded as an image ({error}); replace or remove the file"))
    };
    let too_large = |bytes: u64| {
        Error::file(path, format!("needs {bytes} bytes, more than the limit of {limit}; raise BORNITE_INPUT_LIMIT"))
    };
    let (file, bytes) = files::open(path)?;
    if bytes > limit {
        return Err(too_large(bytes));
    }
    let mut contents = vec![];
    file.take(limit).read_to_end(&mut contents).map_err(Error::io("read", path))?;
    if contents.starts_with(&[0xff, 0xd8]) && !has_end_of_jpeg(&contents) {
        return Err(Error::file(path, "is a truncated JPEG image; replace or remove the file"));
    }
    let reader = ImageReader::new(Cursor::new(contents)).with_guessed_format().map_err(Error::io("read", path))?;
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    // Before memory is reserved: a damaged header may announce any size.
    let (width, height) = decoder.dimensions();
    if decoder.total_bytes() > limit {
        return Err(too_large(decoder.total_bytes()));
    }
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(limit);
    decoder.set_limits(limits).map_err(damaged)?;
    let image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    let (planes, pixels) = match channels {
        ImageChannels::Gray => (1, image.to_luma8().into_raw()),
        ImageChannels::Rgb => (3, image.to_rgb8().into_raw()),
    };
    let shape = [planes, height as usize, width as usize];
    // Pixel by pixel to plane by plane.
    let bytes = (0..planes).flat_map(|plane| pixels.iter().skip(plane).step_by(planes).copied());
    match dtype {
        DType::U8 => HostArray::from_bytes(bytes.collect(), &shape, DType::U8),
        _ => HostArray::from_slice(&bytes.map(|byte| byte as f32 / 255.0).collect::<Vec<f32>>(), &shape),
    }
}

/// Returns true if the marker that ends a JPEG image is reached. The decoder fills missing pixels
/// with gray instead of an error.
fn has_end_of_jpeg(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        // The next marker: FF, perhaps repeated, and a byte that is neither 0, which stands for a
        // byte FF of the pixels, nor a restart marker.
        match bytes.get(at..) {
            Some([0xff, 0xd9, ..]) => return true,
            Some([0xff, 0x00 | 0x01 | 0xd0..=0xd8, ..]) => at += 2,
            Some([0xff, 0xff, ..]) => at += 1,
            // A segment with its length.
            Some([0xff, _, high, low, ..]) => at += 2 + u16::from_be_bytes([*high, *low]) as usize,
            Some([_, ..]) => at += 1,
            _ => return false,
        }
    }
}
