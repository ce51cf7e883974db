//! Round trips of tables, and errors of the reader and writer.

mod common;

use bornite_parquet::{ColumnType, ColumnValue, Error, TableReader, TableWriter};
use bornite_support::random::Random;

use common::{Cell, file_of, golden, random, read_rows, write_table};

/// Creates random columns and rows.
fn table(random: &mut Random, max_rows: usize) -> (Vec<(String, ColumnType)>, Vec<Vec<Cell>>) {
    let columns: Vec<(String, ColumnType)> = (0..1 + random.below(5))
        .map(|n| (format!("column {n}"), *random.pick(&[ColumnType::Text, ColumnType::Int])))
        .collect();
    let cell = |random: &mut Random, kind| match kind {
        ColumnType::Int => Cell::Int(*random.pick(&[0, 1, u64::MAX, 1 << 63])),
        ColumnType::Text => match random.below(4) {
            0 => Cell::Text(String::new()),
            1 => Cell::Text(" é中😀\0\n".repeat(random.below(4))),
            2 => Cell::Text("the same text again and again".into()),
            _ => Cell::Text((0..random.below(200)).map(|_| char::from(random.below(128) as u8)).collect()),
        },
    };
    let rows = (0..random.below(max_rows)).map(|_| columns.iter().map(|(_, kind)| cell(random, *kind)).collect());
    let rows = rows.collect();
    (columns, rows)
}

#[test]
fn tables_round_trip() {
    let mut random = random();
    for round in 0..200 {
        let (columns, rows) = table(&mut random, if round % 10 == 0 { 1 } else { 300 });
        let bytes = write_table(&columns, &rows);
        assert!(bytes == write_table(&columns, &rows), "the same rows give the same bytes");
        let (names, read) = read_rows(&bytes, 1 << 20).unwrap();
        assert!(names.iter().eq(columns.iter().map(|(name, _)| name)), "{names:?}");
        assert_eq!(read, rows);

        let table = TableReader::open(file_of(&bytes), 1 << 20).unwrap();
        for (n, (name, kind)) in columns.iter().enumerate() {
            let texts = table.texts(name);
            if *kind == ColumnType::Int {
                assert!(texts.err().unwrap().to_string().ends_with("has type INT64, not text"));
                continue;
            }
            let mut texts = texts.unwrap();
            assert_eq!(texts.row_count(), rows.len() as u64);
            for row in &rows {
                assert_eq!(texts.next_text().unwrap().map(|text| Cell::Text(text.into())).as_ref(), Some(&row[n]));
            }
            assert_eq!(texts.next_text().unwrap(), None);
            assert_eq!(texts.row(), rows.len() as u64);
        }
    }
}

#[test]
fn large_tables_have_several_row_groups() {
    let columns = [("text".to_owned(), ColumnType::Text), ("n".to_owned(), ColumnType::Int)];
    let mut random = random();
    let mut text = || (0..300_000).map(|_| char::from(32 + random.below(90) as u8)).collect();
    let rows: Vec<Vec<Cell>> = (0..100).map(|n| vec![Cell::Text(text()), Cell::Int(n)]).collect();
    let bytes = write_table(&columns, &rows);
    // A row group has 8 MiB or a little more, and both of its columns are in memory at once.
    assert_eq!(read_rows(&bytes, 9 << 20).unwrap().1, rows);
    let error = read_rows(&bytes, 4 << 20).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit_bytes, .. } if limit_bytes == 4 << 20), "{error}");
    assert!(
        error.to_string().ends_with("more than 4.00 MiB; raise BORNITE_INPUT_LIMIT if you trust the file"),
        "{error}"
    );
}

/// Datasets are identified by hashes, so the bytes must not change.
#[test]
fn written_bytes_match_the_golden_file() {
    let columns = [("name".to_owned(), ColumnType::Text), ("length".to_owned(), ColumnType::Int)];
    let names = ["softmax", "", "layer norm", "é中😀"];
    let rows: Vec<Vec<Cell>> = (0..400)
        .map(|n| {
            let name = names[n % 4].repeat(1 + n % 3);
            vec![Cell::Text(name.clone()), Cell::Int(name.len() as u64)]
        })
        .collect();
    let bytes = write_table(&columns, &rows);
    let path = golden("rows.parquet");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == bytes, "the bytes of a table changed; see {}", path.display());
}

#[test]
fn invalid_rows_are_rejected() {
    let mut writer = TableWriter::new([("text", ColumnType::Text), ("n", ColumnType::Int)], vec![]).unwrap();
    let error = writer.row(&[ColumnValue::Text("a")]).unwrap_err().to_string();
    assert_eq!(error, "a row has 1 value; expected 2");
    let error = writer.row(&[ColumnValue::Text("a"), ColumnValue::Text("b")]).unwrap_err().to_string();
    assert_eq!(error, "the column 'n' has values of type Int, not Text(\"b\")");
    writer.row(&[ColumnValue::Text("a"), ColumnValue::Int(1)]).unwrap();
    let (_, rows) = read_rows(&writer.finish().unwrap(), 1 << 20).unwrap();
    assert_eq!(rows, [[Cell::Text("a".into()), Cell::Int(1)]]);
    assert!(TableWriter::new(Vec::<(String, ColumnType)>::new(), vec![]).is_err());
}

#[test]
fn rows_of_unsupported_types_are_rejected() {
    let bytes = std::fs::read(common::arrow().join("none-1-plain.parquet")).unwrap();
    let error = read_rows(&bytes, 1 << 20).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("which is not supported in rows"), "{error}");
}
