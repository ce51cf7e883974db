#!/usr/bin/env python3
"""Measures how many kernels of public CUDA collections pass `bornite kernel check`.

  scripts/cuda_coverage.py FOLDER...            one table per folder
  scripts/cuda_coverage.py --reasons 40 FOLDER  more rows of the table of reasons
  scripts/cuda_coverage.py --list TEXT FOLDER   kernels whose reason contains TEXT
  scripts/cuda_coverage.py --emit FOLDER        whether kernels also pass as `kernel emit` writes them

`__global__` functions are counted in the text, with comments stripped, and matched by file and name with the lines of
`check --json`. A kernel passes if it has at least one result and all of its results (one per template instance and per
translation unit) have no errors. Kernels that the report does not mention count as failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

SOURCES = {".cu", ".cuh", ".h", ".hpp", ".hh", ".inl", ".inc"}
COMMENT_OR_STRING = re.compile(r'//(?:[^\n\\]|\\.)*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def without_comments(text):
    keep = lambda found: " " if found.group().startswith("/") else '""'
    return COMMENT_OR_STRING.sub(keep, text)


def after_parentheses(text, at):
    """Position after the parenthesis that matches the one at `at`."""
    depth = 0
    for n in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[n], 0)
        if depth == 0:
            return n + 1
    return len(text)


def kernels_of(text):
    """Names of the `__global__` functions that a text defines."""
    text, names = without_comments(text), []
    for found in re.finditer(r"\b__global__\b", text):
        at = found.end()
        while at < len(text):
            opened = re.compile(r"[({;}]").search(text, at)
            if not opened or opened.group() != "(":
                break
            word = re.search(r"(\w+)(?:\s*<[^;{}()]*>)?\s*$", text[found.end():opened.start()])
            at = after_parentheses(text, opened.start())
            if word and word.group(1) not in ("__launch_bounds__", "__attribute__", "__cluster_dims__"):
                if re.match(r"\s*\{", text[at:]):
                    names.append(word.group(1))
                break
    return names


def reports_of(binary, folder, options):
    command = [binary, "kernel", "check", "--json", *options, str(folder)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode not in (0, 1) or "panicked" in run.stderr:
        print(f"{folder}: exit {run.returncode}: {run.stderr.strip()[:300]}", file=sys.stderr)
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def reason_of(report):
    """The first error without the names in it."""
    if report["ok"] is None:
        return "not instantiated"
    message = report.get("error") or (report.get("errors") or [{"message": "?"}])[0]["message"]
    return re.sub(r"\s+", " ", re.sub(r"\d+", "N", message))[:110]


def measure(folder, arguments):
    expected = defaultdict(Counter)
    for path in sorted(p for p in Path(folder).rglob("*") if p.suffix in SOURCES and p.is_file()):
        for name in kernels_of(path.read_text(errors="replace")):
            expected[os.path.realpath(path)][name] += 1
    results, file_errors = defaultdict(list), {}
    for report in reports_of(arguments.bornite, folder, arguments.option):
        file, name = os.path.realpath(report["file"]), re.split("[<(]", report.get("kernel") or "")[0]
        if name:
            results[file, name].append(report)
        else:
            file_errors[file] = report
    total, passed, reasons, listed = 0, 0, Counter(), []
    for file, names in expected.items():
        for name, count in names.items():
            total += count
            found = results.get((file, name), [])
            bad = next((r for r in found if r["ok"] is not True), None)
            if found and not bad:
                passed += count
                continue
            bad = bad or file_errors.get(file)
            reason = reason_of(bad) if bad else "not reported"
            reasons[reason if arguments.names else re.sub(r"'[^']*'", "'…'", reason)] += count
            listed.append((reason, file, name, (bad or {}).get("line")))
    print(f"{folder}: {passed} of {total} kernels with no errors found ({100 * passed / max(total, 1):.1f} %)")
    for reason, count in reasons.most_common(arguments.reasons):
        print(f"{count:6}  {reason}")
    if arguments.list is not None:
        for reason, file, name, line in sorted(listed, key=str):
            if arguments.list in reason:
                print(f"  {os.path.relpath(file, folder)}:{line}: {name}: {reason}")


def measure_emitted(folder, arguments):
    """Emits every kernel with no errors as CUDA C++ and checks the text again."""
    passing, failed, total = {}, [], 0
    for report in reports_of(arguments.bornite, folder, arguments.option):
        if report["ok"] is True and report.get("kernel"):
            passing[report.get("included_by") or report["file"], report["kernel"]] = None
    with tempfile.TemporaryDirectory() as texts:
        emitted = []
        for file, kernel in passing:
            path = os.path.join(texts, f"{len(emitted)}.cu")
            command = [arguments.bornite, "kernel", "emit", *arguments.option, file, "--kernel", kernel, "--out", path]
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if run.returncode:
                failed.append((file, kernel, run.stderr.strip()[:300]))
            emitted.append((path, file, kernel))
        results = defaultdict(dict)
        for report in reports_of(arguments.bornite, texts, arguments.option):
            results[report["file"]][re.sub(r"\s", "", report.get("kernel") or "")] = report
        for path, file, kernel in emitted:
            # An overload that is emitted alone has no parameter types in its name.
            of_file, name = results[path], re.sub(r"\s", "", kernel)
            found = of_file.get(name) or of_file.get(re.sub(r"\([^()]*\)$", "", name))
            total += 1
            if not found or found["ok"] is not True:
                failed.append((file, kernel, reason_of(found) if found else f"not reported; {list(of_file)}"))
    print(f"{folder}: {total - len(failed)} of {total} kernels pass as emitted")
    for file, kernel, reason in failed:
        print(f"  {os.path.relpath(file, folder)}: {kernel}: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--bornite", default="target/debug/bornite", help="the command to measure")
    parser.add_argument("--option", action="append", default=[], help="option of `kernel check`, such as -Ifolder")
    parser.add_argument("--reasons", type=int, default=20, help="rows of the table of reasons")
    parser.add_argument("--names", action="store_true", help="keep names in reasons")
    parser.add_argument("--list", metavar="TEXT", help="list kernels whose reason contains TEXT")
    parser.add_argument("--emit", action="store_true", help="emit kernels with no errors and check the texts")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        (measure_emitted if arguments.emit else measure)(folder, arguments)


if __name__ == "__main__":
    main()
