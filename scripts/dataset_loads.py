"""Loads datasets of `bornite data make` as other people would: with pyarrow, with Hugging Face `datasets`, and as JSON.

    pip install --target target/py pyarrow datasets zstandard
    PYTHONPATH=target/py python3 scripts/dataset_loads.py DIR…

Compares the rows of every file with the manifest, and the header of the card with what it must have. Exits with 1 at
the first difference. Nothing is fetched from a network.
"""

import hashlib
import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import datasets
import pyarrow.parquet
import yaml

TEXTS = ["id", "name", "category", "description", "source", "cuda", "cpp", "ir", "inputs", "split"]
NUMBERS = ["complexity", "difficulty", "seed", "index", "version"]


def header(card):
    """The header of a card, read as YAML."""
    begin, text, _ = card.split("---\n", 2)
    assert begin == "", "the card does not begin with a header"
    return yaml.safe_load(text)


def loads(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    form = manifest["settings"]["format"]
    extra = {name.replace("-", "_") for name in manifest["settings"]["with"]}
    files = [file for shard in manifest["shards"] for file in shard["files"]]
    for file in files:
        found = hashlib.sha256((folder / file["path"]).read_bytes()).hexdigest()
        assert found == file["sha256"], f"{file['path']}: another checksum"
    card = header((folder / "README.md").read_text())
    assert {"pretty_name", "task_categories", "size_categories"} <= card.keys(), card
    if form == "seed-json":
        for file in files:
            pair = json.loads((folder / file["path"]).read_text())
            assert {"python_source", "cuda_forward", "metadata"} | extra == pair.keys(), file["path"]
        print(f"{folder}: {len(files)} pairs")
        return
    if form == "parquet":
        for file in files:
            table = pyarrow.parquet.read_table(folder / file["path"])
            assert table.num_rows == file["rows"], f"{file['path']}: {table.num_rows} rows"
            for name in [*TEXTS, *extra]:
                assert str(table.schema.field(name).type) in ("string", "large_string"), name
            for name in NUMBERS:
                assert str(table.schema.field(name).type) == "uint64", name
            chunk = pyarrow.parquet.ParquetFile(folder / file["path"]).metadata
            if chunk.num_row_groups:
                assert chunk.row_group(0).column(0).compression == "ZSTD"
    loaded = datasets.load_dataset(str(folder), cache_dir=str(folder.parent / ".datasets-cache"))
    rows = {split: len(loaded[split]) for split in loaded}
    expected = {}
    for file in files:
        expected[file["split"]] = expected.get(file["split"], 0) + file["rows"]
    expected = {split: count for split, count in expected.items() if count}
    assert rows == expected, f"{rows} instead of {expected}"
    assert sum(rows.values()) == manifest["rows"]
    clusters = {}
    ids = set()
    for split in rows:
        for row in loaded[split]:
            assert row["split"] == split and "def " in row["source"] and "__global__" in row["cuda"], row["id"]
            ids.add(row["id"])
            if split != "held_out":
                assert clusters.setdefault(row["cluster"], split) == split, row["id"]
    assert len(ids) == manifest["rows"], "an id occurs twice"
    versions = f"pyarrow {pyarrow.__version__}, datasets {datasets.__version__}"
    print(f"{folder}: {form}, {rows}, {len(clusters)} clusters; {versions}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        loads(pathlib.Path(name).resolve())
