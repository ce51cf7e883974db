//! Limits, and parsing of sizes.

use std::sync::Arc;

use super::fake::{Fake, MIB};
use bornite_support::{format_bytes, parse_bytes};

use crate::Error;
use crate::pool::{Cap, Pool, StreamId, Tag};

const S0: StreamId = StreamId(0);

fn pool(capacity: u64) -> Pool {
    Pool::new(Arc::new(Fake::new(capacity)))
}

#[test]
fn sizes_are_parsed() {
    let rows = [
        ("0", 0),
        ("4096", 4096),
        (" 12 B ", 12),
        ("1k", 1 << 10),
        ("2GB", 2 << 30),
        ("2gib", 2 << 30),
        ("512 MiB", 512 << 20),
        ("1.5g", 3 << 29),
        (".5 TB", 1 << 39),
        ("2.", 2),
        ("0.0000001g", 107),
        ("1.00000000000000000000000001 GB", 1 << 30),
        ("18446744073709551615", u64::MAX),
    ];
    for (text, bytes) in rows {
        assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
    }
    let invalid = [
        ("", "does not begin with a number"),
        ("GB", "does not begin with a number"),
        (".", "does not begin with a number"),
        ("-1GB", "negative"),
        ("1.2.3k", "more than one decimal point"),
        ("2 parsecs", "'parsecs' is not a unit"),
        ("1e9", "'e9' is not a unit"),
        ("99999999999999999999", "too large"),
        ("99999999 TB", "too large"),
    ];
    for (text, what) in invalid {
        let error = parse_bytes(text).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("such as 512MB"), "{text}: {error}");
    }
}

#[test]
fn sizes_are_formatted_in_the_largest_unit() {
    let rows = [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (3 << 29, "1.50 GiB"), (1 << 41, "2.00 TiB")];
    for (bytes, text) in rows {
        assert_eq!(format_bytes(bytes), text);
    }
}

#[test]
fn fractions_outside_of_0_to_1_are_rejected() {
    let pool = pool(100 * MIB);
    for fraction in [-0.1, 1.0001, f64::NAN, f64::INFINITY] {
        let error = pool.set_fraction(fraction).unwrap_err();
        assert!(matches!(error, Error::Support(bornite_support::Error::InvalidFraction { .. })), "{error}");
        assert!(error.to_string().contains("between 0 and 1"), "{error}");
    }
    assert_eq!(pool.limits().fraction, 1.0, "a rejected value changes nothing");
    for fraction in [0.0, 0.7, 1.0] {
        pool.set_fraction(fraction).unwrap();
    }
}

#[test]
fn the_smaller_limit_applies_and_is_reported() {
    let pool = pool(100 * MIB);
    let report = |bytes| match pool.alloc(bytes, S0, Tag::default()) {
        Err(Error::OutOfMemory(report)) => *report,
        other => panic!("{other:?}"),
    };
    assert_eq!(report(101 * MIB).cap, Cap::Device);
    pool.set_fraction(0.5).unwrap();
    assert_eq!((report(51 * MIB).cap, report(51 * MIB).cap_bytes), (Cap::Fraction(0.5), 50 * MIB));
    pool.set_limit(Some(30 * MIB)).unwrap();
    assert_eq!((report(40 * MIB).cap, report(40 * MIB).cap_bytes), (Cap::Bytes, 30 * MIB));
    pool.set_fraction(0.0).unwrap();
    assert_eq!(report(1).cap, Cap::Fraction(0.0));
    pool.set_fraction(1.0).unwrap();
    pool.alloc(30 * MIB, S0, Tag::default()).unwrap();
}

#[test]
fn a_lower_limit_releases_cached_memory_only() {
    let pool = pool(100 * MIB);
    let (a, b) = (pool.alloc(20 * MIB, S0, Tag::default()).unwrap(), pool.alloc(10 * MIB, S0, Tag::default()).unwrap());
    pool.free(b).unwrap();
    pool.set_limit(Some(12 * MIB)).unwrap();
    assert_eq!(pool.stats().reserved, 20 * MIB);
    assert!(pool.alloc(1, S0, Tag::default()).is_err());
    pool.free(a).unwrap();
    pool.alloc(12 * MIB, S0, Tag::default()).unwrap();
}

#[test]
fn the_cache_limit_bounds_free_memory() {
    let pool = pool(200 * MIB);
    pool.set_cache_limit(Some(32 * MIB)).unwrap();
    let blocks = [10, 20, 30, 40].map(|n| pool.alloc(n * MIB, S0, Tag::default()).unwrap());
    for block in blocks {
        pool.free(block).unwrap();
        assert!(pool.stats().free <= 32 * MIB);
    }
    // 10 + 20 stay cached; 30 and 40 each exceed the limit, and releasing just those is enough.
    assert_eq!(pool.stats().free, 30 * MIB);
    pool.set_cache_limit(Some(0)).unwrap();
    assert_eq!(pool.stats().reserved, 0);
}
