//! Parquet and zstd files byte by byte, so that their headers can promise anything.

/// Thrift's compact protocol, as far as headers need it.
#[derive(Default)]
pub struct Thrift {
    pub bytes: Vec<u8>,
    last: u8,
    open: Vec<u8>,
}

impl Thrift {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn field(&mut self, field: u8, kind: u8) {
        self.bytes.push((field - self.last) << 4 | kind);
        self.last = field;
    }

    pub fn int(&mut self, field: u8, value: u64) -> &mut Thrift {
        self.field(field, 6);
        self.varint(value << 1);
        self
    }

    pub fn text(&mut self, field: u8, text: &str) -> &mut Thrift {
        self.field(field, 8);
        self.varint(text.len() as u64);
        self.bytes.extend(text.as_bytes());
        self
    }

    pub fn list(&mut self, field: u8, count: usize) -> &mut Thrift {
        self.field(field, 9);
        self.bytes.push(0xfc);
        self.varint(count as u64);
        self
    }

    pub fn element(&mut self) -> &mut Thrift {
        self.open.push(self.last);
        self.last = 0;
        self
    }

    pub fn begin(&mut self, field: u8) -> &mut Thrift {
        self.field(field, 12);
        self.element()
    }

    pub fn end(&mut self) -> &mut Thrift {
        self.bytes.push(0);
        self.last = self.open.pop().unwrap_or(0);
        self
    }
}

/// Kinds of pages.
pub const DATA: u64 = 0;
pub const DICTIONARY: u64 = 2;
pub const DATA_V2: u64 = 3;

/// Encodings of values.
pub const PLAIN: u64 = 0;
pub const DELTA_LENGTHS: u64 = 6;
pub const DELTA_PREFIXES: u64 = 7;
pub const INDICES: u64 = 8;

/// Compressions.
pub const NONE: u64 = 0;
pub const SNAPPY: u64 = 1;
pub const GZIP: u64 = 2;
pub const ZSTD: u64 = 6;
pub const LZ4: u64 = 7;

/// A page as its header has it.
pub struct Page {
    pub kind: u64,
    pub values: u64,
    pub encoding: u64,
    /// Bytes that the header promises after decompression.
    pub length: u64,
    pub body: Vec<u8>,
}

impl Page {
    pub fn new(kind: u64, values: u64, encoding: u64, length: u64, body: Vec<u8>) -> Page {
        Page { kind, values, encoding, length, body }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut header = Thrift::default();
        header.int(1, self.kind).int(2, self.length).int(3, self.body.len() as u64);
        match self.kind {
            DICTIONARY => header.begin(7).int(1, self.values).int(2, self.encoding).end(),
            DATA_V2 => {
                header.begin(8).int(1, self.values).int(2, 0).int(3, self.values).int(4, self.encoding);
                header.int(5, 0).int(6, 0).end()
            }
            _ => header.begin(5).int(1, self.values).int(2, self.encoding).int(3, 3).int(4, 3).end(),
        };
        header.bytes.push(0);
        [header.bytes, self.body.clone()].concat()
    }
}

/// A file of columns, each with the pages of one group of rows.
pub fn file(columns: &[(&str, &[Page])], codec: u64, optional: bool) -> Vec<u8> {
    let mut bytes = b"PAR1".to_vec();
    let mut positions = vec![];
    for (_, pages) in columns {
        let start = bytes.len() as u64;
        pages.iter().for_each(|page| bytes.extend(page.bytes()));
        let values: u64 = pages.iter().filter(|page| page.kind != DICTIONARY).map(|page| page.values).sum();
        positions.push((start, bytes.len() as u64 - start, values));
    }
    let mut footer = Thrift::default();
    footer.int(1, 1).list(2, columns.len() + 1);
    footer.element().text(4, "schema").int(5, columns.len() as u64).end();
    for (name, _) in columns {
        footer.element().int(1, 6).int(3, optional.into()).text(4, name).end();
    }
    let rows = positions.first().map_or(0, |position| position.2);
    footer.int(3, rows).list(4, 1);
    footer.element().list(1, columns.len());
    for (start, length, values) in positions {
        footer.element().int(2, start).begin(3).int(1, 6).int(4, codec).int(5, values).int(6, length).int(7, length);
        footer.int(9, start).end().end();
    }
    footer.int(2, bytes.len() as u64).int(3, rows).end();
    ended(bytes, footer)
}

/// A file that ends with a footer.
pub fn ended(mut bytes: Vec<u8>, mut footer: Thrift) -> Vec<u8> {
    footer.bytes.push(0);
    bytes.extend(&footer.bytes);
    bytes.extend((footer.bytes.len() as u32).to_le_bytes());
    bytes.extend(b"PAR1");
    bytes
}

/// A zstd frame of bytes and of one byte many times over, which takes four bytes for 128 KiB.
pub fn zstd(parts: &[(&[u8], u64)], window: u8) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window];
    let mut block = |kind: u32, size: usize, bytes: &[u8]| {
        frame.extend(&(kind << 1 | (size as u32) << 3).to_le_bytes()[..3]);
        frame.extend(bytes);
    };
    for &(bytes, times) in parts {
        if times == 1 {
            bytes.chunks(1 << 17).for_each(|part| block(0, part.len(), part));
            continue;
        }
        let mut left = times;
        while left > 0 {
            let size = left.min(1 << 17);
            block(1, size as usize, bytes);
            left -= size;
        }
    }
    frame.extend([1, 0, 0]);
    frame
}

/// Window descriptor of 128 KiB.
pub const WINDOW: u8 = 7 << 3;

/// A repeated byte in LZ4: a literal and a match, 255 bytes for one.
pub fn lz4(byte: u8, times: u64) -> Vec<u8> {
    let mut bytes = vec![0x1f, byte, 1, 0];
    let mut left = times - 1 - 4 - 15;
    while left >= 255 {
        bytes.push(255);
        left -= 255;
    }
    bytes.push(left as u8);
    bytes
}

/// A repeated byte in Snappy: a literal, then matches of 64.
pub fn snappy(byte: u8, times: u64) -> Vec<u8> {
    let mut length = Thrift::default();
    length.varint(times);
    let mut bytes = [length.bytes, vec![0, byte]].concat();
    let mut left = times - 1;
    while left > 0 {
        let size = left.min(64);
        bytes.extend([(size as u8 - 1) << 2 | 2, 1, 0]);
        left -= size;
    }
    bytes
}

/// Lengths as packed differences: `count` values from `first` on, each larger than the last by `step`.
pub fn differences(count: u64, first: u64, step: u64) -> Vec<u8> {
    let mut bytes = Thrift::default();
    // Blocks of a million values in one part.
    let block = 1 << 20;
    bytes.varint(block);
    bytes.varint(1);
    bytes.varint(count);
    bytes.varint(first << 1);
    for _ in 0..(count - 1).div_ceil(block) {
        bytes.varint(step << 1);
        bytes.bytes.push(0);
    }
    bytes.bytes
}
