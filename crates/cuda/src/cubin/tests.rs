use super::*;

/// String table with an empty name and `k`.
const NAMES: &[u8] = b"\0k\0";

fn put(image: &mut Vec<u8>, value: u64, bytes: usize) {
    image.extend(&value.to_le_bytes()[..bytes]);
}

/// A valid image: names at byte 64, two symbols, 16 bytes of code, a segment, and the section table
/// at the end; the last section takes no space in the file.
pub(super) fn image() -> Vec<u8> {
    let (names, symbols, code) = (HEADER_BYTES, HEADER_BYTES + 8, HEADER_BYTES + 8 + 2 * SYMBOL_BYTES);
    let (segments, sections) = (code + 16, code + 16 + SEGMENT_BYTES);
    let mut image = b"\x7fELF\x02\x01\x01".to_vec();
    image.resize(16, 0);
    for (value, bytes) in [(2, 2), (MACHINE, 2), (1, 4), (0, 8), (segments, 8), (sections, 8), (90, 4)] {
        put(&mut image, value, bytes);
    }
    for value in [HEADER_BYTES, SEGMENT_BYTES, 1, SECTION_BYTES, 5, 1] {
        put(&mut image, value, 2);
    }
    image.extend(NAMES);
    image.resize(symbols as usize, 0);
    for section in [3, 0xfff1] {
        for (value, bytes) in [(1, 4), (0, 2), (section, 2), (0, 8), (16, 8)] {
            put(&mut image, value, bytes);
        }
    }
    image.resize(segments as usize, 0xee);
    for (value, bytes) in [(1, 4), (5, 4), (code, 8), (0, 8), (0, 8), (16, 8), (16, 8), (8, 8)] {
        put(&mut image, value, bytes);
    }
    let section = |kind, offset, bytes, link| {
        [(1, 4), (kind, 4), (0, 8), (0, 8), (offset, 8), (bytes, 8), (link, 4), (0, 4), (1, 8), (0, 8)]
    };
    for fields in [
        section(0, 0, 0, 0),
        section(STRINGS, names, NAMES.len() as u64, 0),
        section(SYMBOLS, symbols, 2 * SYMBOL_BYTES, 1),
        section(1, code, 16, 0),
        section(NO_BITS, 1 << 40, 1 << 40, 0),
    ] {
        fields.into_iter().for_each(|(value, bytes)| put(&mut image, value, bytes));
    }
    image
}

/// Validates an image with one field changed.
fn with(at: usize, value: u64, bytes: usize) -> ElfResult {
    let mut changed = image();
    changed[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    Cubin::checked(changed).map(drop)
}

#[test]
fn a_valid_image_is_accepted_and_truncated_ones_are_rejected() {
    let image = image();
    assert_eq!(Cubin::checked(image.clone()).unwrap().bytes(), image);
    for length in 0..image.len() {
        assert!(Cubin::checked(image[..length].to_vec()).is_err(), "the first {length} bytes were accepted");
    }
    // SAFETY: nothing loads the image.
    let error = unsafe { Cubin::from_image(image[..100].to_vec()) }.unwrap_err().to_string();
    assert!(
        error.starts_with("the image cannot be loaded: ") && error.contains("exceeds the image of 100 bytes"),
        "{error}"
    );
}

#[test]
fn fields_that_point_outside_are_reported() {
    let sections = image().len() - 5 * SECTION_BYTES as usize;
    let section = |n: usize, field: usize| sections + n * SECTION_BYTES as usize + field;
    let symbols = HEADER_BYTES as usize + 8;
    for (at, value, bytes, expected) in [
        (0, 0, 4, "header of a 64-bit ELF"),
        (4, 1, 1, "header of a 64-bit ELF"),
        (18, 62, 2, "its ELF machine is 62"),
        (32, u64::MAX, 8, "the segment table"),
        (40, u64::MAX - 8, 8, "the section table"),
        (54, 0, 2, "entries of 0 bytes; expected 56"),
        (58, 8, 2, "entries of 8 bytes; expected 64"),
        (56, 0xfff0, 2, "the segment table"),
        (60, 6, 2, "the section table"),
        (60, 0xffff, 2, "the section table"),
        (sections - SEGMENT_BYTES as usize + 8, 1 << 33, 8, "a segment"),
        (sections - SEGMENT_BYTES as usize + 32, u64::MAX, 8, "a segment"),
        (section(3, 24), 1 << 40, 8, "a section"),
        (section(3, 32), 1 << 40, 8, "a section"),
        (section(4, 4), 1, 4, "a section"),
        (section(3, 0), 3, 4, "a name is at offset 3 of a string table of 3 bytes"),
        (section(1, 32), 2, 8, "does not end with a zero byte"),
        (section(2, 40), 3, 4, "a string table of 0 bytes"),
        (symbols, 1 << 31, 4, "a name is at offset"),
        (symbols + 6, 5, 2, "refers to section 5 of 5"),
        (62, 9, 2, "a string table of 0 bytes"),
    ] {
        let reason = with(at, value, bytes).expect_err(&format!("{value} at byte {at} was accepted"));
        assert!(reason.contains(expected), "{value} at byte {at}: {reason}");
    }
}

#[test]
fn validation_never_panics_on_damaged_images() {
    let (good, mut state) = (image(), 1u64);
    for _ in 0..200_000 {
        let mut damaged = good.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % damaged.len();
            damaged[at] = [0, 1, 0x7f, 0x80, 0xff, (state >> 24) as u8][(state >> 20) as usize % 6];
        }
        let _ = Cubin::checked(damaged);
    }
}
