//! Report of an evaluation: a self-contained HTML page with the confusion matrix and the images
//! that were classified wrongly.

use std::fmt::Write;
use std::io::Cursor;
use std::path::Path;

use bornite::DType;
use image::{DynamicImage, ImageFormat, RgbImage};

use super::ImageEvaluation;
use crate::data::{Dataset, HostArray};
use crate::error::located;
use crate::{Error, Result, files};

/// Images shown; the surest mistakes first.
const MAX_IMAGES: usize = 100;
/// Classes of a confusion matrix that is shown.
const MAX_CLASSES: usize = 100;

/// Writes the report of an evaluation of `data` to a file.
#[track_caller]
pub fn write_report(path: &Path, title: &str, evaluation: &ImageEvaluation, data: &dyn Dataset) -> Result<()> {
    located(|| files::replace(path, html(title, evaluation, data)?.as_bytes()))
}

fn html(title: &str, evaluation: &ImageEvaluation, data: &dyn Dataset) -> Result<String> {
    let ImageEvaluation { classes, images, loss, confusion, wrong } = evaluation;
    let title = escaped(title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>\n\
         body {{ font-family: sans-serif; margin: 2em; }}\ntable {{ border-collapse: collapse; }}\n\
         td, th {{ padding: 0.2em 0.5em; text-align: right; }}\nth {{ font-weight: normal; color: #555; }}\n\
         figure {{ display: inline-block; width: 10em; margin: 0.5em; vertical-align: top; font-size: 0.8em; }}\n\
         img {{ width: 10em; image-rendering: pixelated; }}\n</style></head><body>\n<h1>{title}</h1>\n\
         <p>Accuracy {:.2} % of {images} images, mean loss {loss:.4}.</p>\n",
        100.0 * evaluation.accuracy()
    );
    let name = |class: usize| escaped(classes.get(class).map_or("", |name| name));
    if classes.len() <= MAX_CLASSES {
        page += "<h2>Confusion matrix</h2>\n<p>Rows are classes, columns predictions.</p>\n<table><tr><th></th>";
        (0..classes.len()).for_each(|class| page += &format!("<th>{}</th>", name(class)));
        page += "</tr>\n";
        for (class, row) in confusion.iter().enumerate() {
            let total = row.iter().sum::<u64>().max(1) as f64;
            let _ = write!(page, "<tr><th>{}</th>", name(class)); // writing to a string cannot fail
            for (predicted, count) in row.iter().enumerate() {
                let color = if predicted == class { "46, 125, 50" } else { "198, 40, 40" };
                let share = *count as f64 / total;
                let _ = write!(page, "<td style=\"background: rgba({color}, {share:.3})\">{count}</td>");
            }
            page += "</tr>\n";
        }
        page += "</table>\n";
    }
    let mut shown: Vec<_> = wrong.iter().collect();
    shown.sort_by(|a, b| b.probability.total_cmp(&a.probability).then(a.index.cmp(&b.index)));
    shown.truncate(MAX_IMAGES);
    let count = match wrong.len() {
        0 => "No image was classified wrongly.".into(),
        all if all > shown.len() => {
            format!("{all} images; shown are the {} with the highest probability.", shown.len())
        }
        1 => "1 image.".into(),
        all => format!("{all} images, by the probability of the wrong class."),
    };
    let _ = writeln!(page, "<h2>Classified wrongly</h2>\n<p>{count}</p>");
    for image in shown {
        let sample = data.get(image.index)?;
        let picture = sample.first().map(png).transpose()?.unwrap_or_default();
        let _ = writeln!(
            page,
            "<figure><img src=\"data:image/png;base64,{}\" alt=\"\"><figcaption>{}: taken for {} ({:.0} %)<br>{}</figcaption></figure>",
            base64(&picture),
            name(image.class),
            name(image.predicted),
            100.0 * image.probability,
            escaped(&image.name)
        );
    }
    Ok(page + "</body></html>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Encodes an image `[3, height, width]` of f32 from 0 to 1 as PNG.
fn png(image: &HostArray) -> Result<Vec<u8>> {
    let (DType::F32, &[3, height, width]) = (image.dtype(), image.shape()) else {
        return Err(Error::data(format!("expected an image f32[3, height, width], found {image:?}")));
    };
    let (values, plane) = (image.to_vec::<f32>()?, height * width);
    let pixels = (0..plane).flat_map(|n| [0, 1, 2].map(|channel| (values[channel * plane + n] * 255.0).round() as u8));
    let picture = RgbImage::from_raw(width as u32, height as u32, pixels.collect());
    let mut bytes = vec![];
    if let Some(picture) = picture {
        let written = DynamicImage::from(picture).write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png);
        written.map_err(|error| Error::data(format!("cannot encode an image: {error}")))?;
    }
    Ok(bytes)
}

/// Base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * n)) as usize & 63];
            text.push(if n > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TensorDataset;

    #[test]
    fn base64_matches_the_standard() {
        // RFC 4648, section 10.
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn reports_show_the_mistakes() {
        let images = HostArray::from_slice(&[0.5f32; 2 * 3 * 2 * 2], &[2, 3, 2, 2]).unwrap();
        let data = TensorDataset::new(vec![images]).unwrap();
        let mut evaluation = ImageEvaluation::new(&["<cat>".into(), "dog".into()]);
        evaluation.add(0, 0, &[0.9, 0.1], || "a.png".into());
        evaluation.add(1, 0, &[0.3, 0.7], || "b.png".into());
        let page = html("run", &evaluation, &data).unwrap();
        for expected in
            ["Accuracy 50.00 %", "&lt;cat&gt;: taken for dog (70 %)", "b.png", "data:image/png;base64,iVBORw0KGgo"]
        {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        assert!(!page.contains("a.png") && !page.contains("<cat>"), "{page}");
    }
}
