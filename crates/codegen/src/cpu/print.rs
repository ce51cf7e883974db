//! Debug prints of compiled code: a callback into this process.

use bornite_ir::{Scalar, Value, format_print_line, write_print_line};

/// Format and types of a print statement. Compiled code holds its address, so it must live as long
/// as the code.
pub(super) struct PrintRecord {
    pub format: String,
    pub scalars: Vec<Scalar>,
}

/// Prints a line.
#[allow(unsafe_code)]
pub(super) unsafe extern "C" fn print(record: *const PrintRecord, words: *const u64) {
    // SAFETY: compiled code passes the record that it was compiled with, which its kernel owns, and
    // as many words as the record has scalars.
    let (record, words) = unsafe { (&*record, std::slice::from_raw_parts(words, (*record).scalars.len())) };
    let values: Vec<Value> =
        record.scalars.iter().zip(words).map(|(&scalar, &bits)| Value::from_bits(scalar, bits)).collect();
    write_print_line(&format_print_line(&record.format, &values));
}
