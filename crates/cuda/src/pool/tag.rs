//! Names for who holds memory, kept once each so that a block carries only a number.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Who asks for memory, by a name given to [`super::Pool::tag`]. The default is nobody in particular.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tag(u32);

/// Every name that was given.
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
        let number = self.names.len() as u32; // 0 is nobody
        self.numbers.insert(name, number);
        Tag(number)
    }

    /// The name, if it is somebody's.
    pub fn get(&self, tag: Tag) -> Option<&Arc<str>> {
        self.names.get((tag.0 as usize).checked_sub(1)?)
    }

    pub fn name(&self, tag: Tag) -> &str {
        self.get(tag).map_or("untagged", |name| name)
    }
}
