#!/usr/bin/env python3
"""How many of the kernels of NVIDIA Warp's own examples Bornite understands, and why it refuses the others.

    pip install warp-lang==1.19.0
    scripts/warp_examples.py [--bornite target/release/bornite] [--write docs/warp-examples.md] [FOLDER...]

Kernels are counted by Python's own parser: every function that is decorated with `wp.kernel`. A kernel that
`bornite kernel check --json` does not speak of counts as refused. FOLDERs other than the examples can be named.
"""

import argparse
import ast
import collections
import importlib.util
import json
import pathlib
import subprocess


def is_kernel(decorator):
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(target, ast.Attribute) and target.attr == "kernel" and getattr(target.value, "id", "") in ("wp", "warp")


def kernels(path):
    """Name and line of every kernel in a file."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [(node.name, node.lineno) for node in functions if any(is_kernel(decorator) for decorator in node.decorator_list)]


def checked(bornite, paths):
    """What `kernel check` says: (file, kernel) -> its verdicts. Several kernels of a file can have one name."""
    command = [bornite, "kernel", "check", "--json", *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command[:4])} exits with {result.returncode}:\n{result.stderr}")
    found = collections.defaultdict(list)
    for line in result.stdout.splitlines():
        verdict = json.loads(line)
        found[str(pathlib.Path(verdict["file"]).resolve()), verdict.get("kernel")].append(verdict)
    return found


def reason(verdict):
    """The first line of an error, without its 'error:'."""
    error = verdict.get("error") or "no reason is given"
    if isinstance(error, dict):
        error = error.get("message", json.dumps(error))
    return error.strip().splitlines()[0].removeprefix("error: ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    parser.add_argument("--bornite", default="target/release/bornite")
    parser.add_argument("--write", type=pathlib.Path, help="writes the page instead of printing it")
    options = parser.parse_args()
    warp = pathlib.Path(importlib.util.find_spec("warp").origin).parent
    folders = options.folders or [warp / "examples"]
    files = sorted(path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*.py")))
    declared = {path: kernels(path) for path in files}
    declared = {path: names for path, names in declared.items() if names}
    verdicts = checked(options.bornite, declared)
    rows, right = [], 0
    for path, names in declared.items():
        where = str(path.resolve())
        for name, line in names:
            said = verdicts.get((where, name), [])
            whole = verdicts.get((where, None), [])
            verdict = said.pop(0) if said else whole[0] if whole else {"ok": False, "error": "not found in the file"}
            right += bool(verdict["ok"])
            if not verdict["ok"]:
                shown = path.relative_to(warp) if path.is_relative_to(warp) else path
                rows.append((f"{shown}:{line}", name, reason(verdict)))
    total = sum(len(names) for names in declared.values())
    page = "# Warp's own examples\n\n"
    page += f"Of the {total} kernels in {len(declared)} files of `warp/examples` (Warp 1.19), {right} compile:\n{100 * right / total:.1f} %."
    page += " This page is written by `scripts/warp_examples.py`. The others:\n\n| where | kernel | reason |\n|---|---|---|\n"
    page += "".join(f"| {where} | `{name}` | {why.replace('|', chr(92) + '|')} |\n" for where, name, why in rows)
    common = collections.Counter(why for _, _, why in rows).most_common()
    page += "\n| reason | kernels |\n|---|---|\n" + "".join(f"| {why.replace('|', chr(92) + '|')} | {n} |\n" for why, n in common)
    if options.write:
        options.write.write_text(page)
        print(f"{right} of {total}")
    else:
        print(page)


if __name__ == "__main__":
    main()
