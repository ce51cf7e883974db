//! Accuracy of a classifier on images, and its mistakes.

use serde::Serialize;

/// An image that was classified wrongly.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WrongImage {
    /// Index in the dataset.
    pub index: usize,
    /// Its file, or its position in one.
    pub name: String,
    /// Class index.
    pub class: usize,
    /// Predicted class index.
    pub predicted: usize,
    /// Probability of the predicted class.
    pub probability: f32,
}

/// Result of an evaluation.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ImageEvaluation {
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Number of images.
    pub images: u64,
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// Number of images by class and predicted class.
    pub confusion: Vec<Vec<u64>>,
    /// Images that were classified wrongly, in the order of the dataset.
    pub wrong: Vec<WrongImage>,
}

impl ImageEvaluation {
    /// Creates an evaluation of no images.
    pub(super) fn new(classes: &[String]) -> ImageEvaluation {
        let confusion = vec![vec![0; classes.len()]; classes.len()];
        ImageEvaluation { classes: classes.to_vec(), confusion, ..ImageEvaluation::default() }
    }

    /// Adds an image with the probabilities of the classes.
    pub(super) fn add(&mut self, index: usize, class: usize, probabilities: &[f32], name: impl FnOnce() -> String) {
        let predicted = ranked(probabilities).first().copied().unwrap_or(0);
        let of = |class: usize| probabilities.get(class).copied().unwrap_or(f32::NAN);
        let loss = -f64::from(of(class)).max(f64::MIN_POSITIVE).ln();
        self.images += 1;
        self.loss += (loss - self.loss) / self.images as f64;
        if let Some(count) = self.confusion.get_mut(class).and_then(|row| row.get_mut(predicted)) {
            *count += 1;
        }
        if predicted != class {
            self.wrong.push(WrongImage { index, name: name(), class, predicted, probability: of(predicted) });
        }
    }

    /// Returns the fraction of images that were classified correctly; NaN without images.
    pub fn accuracy(&self) -> f64 {
        1.0 - self.wrong.len() as f64 / self.images as f64
    }

    /// Returns the confusion matrix as text: a row per class, a column per predicted class. With
    /// many classes, the most frequent confusions instead.
    pub fn confusion_text(&self) -> String {
        const MAX_COLUMNS: usize = 20;
        const MAX_PAIRS: usize = 20;
        let name = |class: usize| self.classes.get(class).map_or("", |name| name);
        if self.classes.len() <= MAX_COLUMNS {
            let short = |class: usize| name(class).chars().take(12).collect::<String>();
            let width = (0..self.classes.len()).map(|class| short(class).chars().count()).max().unwrap_or(0);
            let digits = self.confusion.iter().flatten().max().map_or(1, |count| count.to_string().len());
            let column = width.max(digits);
            let row = |first: &str, cells: Vec<String>| {
                let cells: String = cells.iter().map(|cell| format!(" {cell:>column$}")).collect();
                format!("{first:<width$}{cells}\n")
            };
            let mut text = row("", (0..self.classes.len()).map(short).collect());
            for (class, counts) in self.confusion.iter().enumerate() {
                text += &row(&short(class), counts.iter().map(u64::to_string).collect());
            }
            return text;
        }
        let cells = self.confusion.iter().enumerate().flat_map(|(class, row)| {
            row.iter().enumerate().filter(move |(predicted, _)| *predicted != class).map(move |(p, n)| (*n, class, p))
        });
        let mut pairs: Vec<(u64, usize, usize)> = cells.filter(|(count, ..)| *count > 0).collect();
        pairs.sort_by_key(|(count, class, predicted)| (std::cmp::Reverse(*count), *class, *predicted));
        let line = |(count, class, predicted): &(u64, usize, usize)| {
            format!("{count} × {} taken for {}\n", name(*class), name(*predicted))
        };
        pairs.iter().take(MAX_PAIRS).map(line).collect()
    }
}

/// Class indices by descending probability; the first of equal ones comes first.
pub(super) fn ranked(probabilities: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_accuracy_and_mistakes() {
        let classes = ["cat", "dog", "a very long name"].map(String::from);
        let mut found = ImageEvaluation::new(&classes);
        for (index, (class, probabilities)) in
            [(0, [0.5, 0.25, 0.25]), (1, [0.5, 0.5, 0.0]), (2, [0.0, 0.2, 0.8]), (1, [0.1, 0.8, 0.1])]
                .into_iter()
                .enumerate()
        {
            found.add(index, class, &probabilities, || format!("{index}.png"));
        }
        assert_eq!(found.confusion, [[1, 0, 0], [1, 1, 0], [0, 0, 1]]);
        assert_eq!((found.images, found.accuracy()), (4, 0.75));
        let expected = WrongImage { index: 1, name: "1.png".into(), class: 1, predicted: 0, probability: 0.5 };
        assert_eq!(found.wrong, [expected]);
        let loss = [0.5f64, 0.5, 0.8, 0.8].iter().map(|p| -p.ln()).sum::<f64>() / 4.0;
        assert!((found.loss - loss).abs() < 1e-6, "{}", found.loss);
        let text = found.confusion_text();
        assert_eq!(text.lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>(), ["dog", "1", "1", "0"]);
        assert!(text.contains("a very long") && !text.contains("name"), "{text}");
    }

    #[test]
    fn many_classes_are_summarized() {
        let classes: Vec<String> = (0..30).map(|n| format!("class{n}")).collect();
        let mut found = ImageEvaluation::new(&classes);
        let probabilities: Vec<f32> = (0..30).map(|n| if n == 7 { 1.0 } else { 0.0 }).collect();
        (0..5).for_each(|index| found.add(index, 3 + index / 4, &probabilities, String::new));
        assert_eq!(found.confusion_text(), "4 × class3 taken for class7\n1 × class4 taken for class7\n");
        assert!(found.loss.is_finite(), "a probability of 0");
    }
}
