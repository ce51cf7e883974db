//! Stop strings. Text that could be the start of one is held back until it is known not to be.

pub(super) struct StopMatcher<'a> {
    stops: &'a [String],
    held: String,
}

impl<'a> StopMatcher<'a> {
    pub fn new(stops: &'a [String]) -> StopMatcher<'a> {
        StopMatcher { stops, held: String::new() }
    }

    /// Appends text. Returns the text that can be shown, and true if a stop string was found.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held += text;
        let stops = || self.stops.iter().filter(|stop| !stop.is_empty());
        if let Some(at) = stops().filter_map(|stop| self.held.find(&stop[..])).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let starts = |tail: &str| stops().any(|stop| stop.starts_with(tail));
        let start = self.held.char_indices().map(|(at, _)| at).find(|at| starts(&self.held[*at..]));
        let held = self.held.split_off(start.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, held), false)
    }

    /// Returns the text that was held back, at the end.
    pub fn finish(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_strings_are_removed_and_all_other_text_is_shown() {
        let cases = [
            ("one\n\ntwo", &["\n\n"][..], "one", true),
            ("one\ntwo\n", &["\n\n"], "one\ntwo\n", false),
            ("aaab", &["aab"], "a", true),
            ("äöü!", &["ü!", "!"], "äö", true),
            ("text", &[""], "text", false),
            ("xSTOyENDz", &["STOP", "END"], "xSTOy", true),
        ];
        for (text, stops, shown, stopped) in cases {
            let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
            for size in 1..=text.chars().count() {
                let letters: Vec<char> = text.chars().collect();
                let (mut watch, mut out, mut met) = (StopMatcher::new(&stops), String::new(), false);
                for piece in letters.chunks(size) {
                    let (new, stop) = watch.push(&piece.iter().collect::<String>());
                    out += &new;
                    met = stop;
                    if met {
                        break;
                    }
                }
                if !met {
                    out += &watch.finish();
                }
                assert_eq!((&out[..], met), (shown, stopped), "{text:?} in pieces of {size}");
            }
        }
    }
}
