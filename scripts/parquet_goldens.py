#!/usr/bin/env python3
"""Writes crates/nn/tests/goldens/parquet/*.parquet: one table in many forms, which the test `data` reads.

Needs pyarrow: `pip install pyarrow==26.0.1`. Each file has the columns id (int64), tags (lists of strings), text (strings, some
missing or empty) and needed (strings, none missing); row n of text is as `text(n)` here and in the test.
"""

import itertools
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).parent.parent / "crates/nn/tests/goldens/parquet"
ROWS = 300


def text(n):
    if n % 7 == 3 or 100 <= n < 140:
        return None
    if n % 11 == 5:
        return ""
    return "row " + str(n % 90) + " é中😀" * (n % 5) + ("x" * 300 if n % 97 == 0 else "")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([
        pa.field("id", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("text", pa.string()),
        pa.field("needed", pa.string(), nullable=False),
    ])
    table = pa.table({
        "id": list(range(ROWS)),
        "tags": [["a"] * (n % 3) for n in range(ROWS)],
        "text": [text(n) for n in range(ROWS)],
        "needed": [f"needed {n // 3}" for n in range(ROWS)],
    }, schema=schema)
    for codec, version in itertools.product(["none", "snappy", "gzip", "zstd", "lz4"], ["1.0", "2.0"]):
        for encoding in ["dictionary", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]:
            if codec in ("gzip", "lz4") and encoding not in ("dictionary", "PLAIN"):
                continue
            options = {"use_dictionary": True} if encoding == "dictionary" else {
                "use_dictionary": False, "column_encoding": {"text": encoding, "needed": encoding}}
            name = f"{codec}-{version[0]}-{encoding.lower()}.parquet"
            # Several groups of rows and several pages in each.
            pq.write_table(table, FOLDER / name, compression=codec, data_page_version=version, row_group_size=170,
                           data_page_size=1000, write_batch_size=50, **options)
    pq.write_table(table, FOLDER / "brotli.parquet", compression="brotli")
    pq.write_table(table.slice(0, 0), FOLDER / "empty.parquet")
    print(sum(path.stat().st_size for path in FOLDER.iterdir()), "bytes in", FOLDER)


if __name__ == "__main__":
    main()
