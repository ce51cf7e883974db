//! Tags: interned names of the users of memory, so that a block stores only a number.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of a user of memory, created by [`super::Pool::tag`]. The default has no name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tag(u32);

/// All interned names.
#[derive(Default)]
pub(super) struct Tags {
    names: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
}

impl Tags {
    pub fn intern(&mut self, name: &str) -> Tag {
        if let Some(&number) = self.numbers.get(name) {
            return Tag(number);
        }
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        let number = self.names.len() as u32; // 0 is the default tag
        self.numbers.insert(name, number);
        Tag(number)
    }

    /// Returns the name, if the tag has one.
    pub fn get(&self, tag: Tag) -> Option<&Arc<str>> {
        self.names.get((tag.0 as usize).checked_sub(1)?)
    }

    pub fn name(&self, tag: Tag) -> &str {
        self.get(tag).map_or("untagged", |name| name)
    }
}
