#!/usr/bin/env python3
"""Checks the words of the repository: names, doc comments, messages and pages in the language of the field.

  scripts/words.py              checks; prints findings as `path:line: …` and exits with 1 if there are any
  scripts/words.py --messages   prints every message of the sources, one per line, to be read in one go
  scripts/words.py --wrap       wraps paragraphs of pages and doc comments that are wider than WIDTH

The rules are the tables below. `scripts/words.allow` lists exceptions, one `rule path what` per line, each used.
"""

import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

WIDTH = 100

# Parts of identifiers (`slope` is found in `slope_of` and `by_slope`, not in `envelope`).
RETIRED_PARTS = """
homecoming homecomings landing riders rider woven slope slopes spelling spellings spelled sliding turned by_hand
sparing settle settled told whoever crew
""".split()

# Identifiers that had several meanings.
RETIRED_NAMES = "place places given asked powers riders".split()

# Type names that said nothing, or six things. `Plan` is the compiled schedule of a graph, and nothing else.
RETIRED_TYPES = "Place Given Kind Fall Numbers Sliding Over How Way Asked Made Said Many About Among Giving Spelling".split()
ONCE = {"Plan": "crates/tensor/src/schedule/plan.rs"}

# Phrases in comments, messages and pages.
RETIRED_PHRASES = [
    r"so many", r"of (?:one's|someone's|somebody's) own", r"(?:is|are|was|were) refused", r"what is refused",
    r"cannot be told", r"(?:is|are) not understood", r"whoever", r"one a line", r"nothing of that name",
    r"rides? (?:on|along)", r"to be mended", r"written by hand", r"by hand", r"a thread's own",
    r"(?:rows|tokens|steps|pairs|kernels|examples|launches|items|bytes) a second", r"has not the", r"have not the",
]

# First words of doc comments that make a riddle of what they document.
RIDDLES = "What Which How Who Whoever Whose Where Why So".split()


def tracked(*patterns):
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    return [Path(name) for name in names if name and Path(name).is_file()]


TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<string>b?r(?P<fence>\#*)".*?"(?P=fence) | b?"(?:\\.|[^"\\])*")
      | (?P<char>b?'(?:\\[^']+|[^'\\])')
      | (?P<name>(?:r\#)?[A-Za-z_]\w*)""",
    re.S | re.X,
)


def tokens(text):
    """(kind, text, line) of comments, strings and names of Rust source."""
    line, at = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        yield match.lastgroup if match.lastgroup != "fence" else "string", match.group(), line


def parts(name):
    """Snake-case parts of an identifier, camel case included, and pairs of neighbours."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    return words + ["_".join(pair) for pair in zip(words, words[1:])]


PHRASE = re.compile(r"\b(?:" + "|".join(RETIRED_PHRASES) + r")\b", re.I)
RIDDLE = re.compile(r"^\s*//[/!] (" + "|".join(RIDDLES) + r")\b")
DEFINITION = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?(?:struct|enum|union|trait|type)\s+(\w+)", re.M)


def check_rust(path, text):
    previous = ""
    for number, line in enumerate(text.splitlines(), 1):
        first = RIDDLE.match(line)
        if first and not re.match(r"^\s*//[/!]\s*\S", previous):
            yield "doc-comment", number, first.group(1), f"doc comment begins with {first.group(1)!r}"
        previous = line
    for kind, token, line in tokens(text):
        if kind == "name":
            if token in RETIRED_NAMES:
                yield "identifier", line, token, f"identifier {token!r} is retired"
            for part in set(parts(token)) & set(RETIRED_PARTS):
                yield "identifier", line, token, f"identifier {token!r} has the retired word {part!r}"
        elif kind in ("comment", "string"):
            yield from phrases(token, line)
    for match in DEFINITION.finditer(text):
        name, line = match.group(2), text.count("\n", 0, match.start(2)) + 1
        if name in RETIRED_TYPES:
            yield "type", line, name, f"type name {name!r} is retired"
        if name in ONCE and str(path) != ONCE[name]:
            yield "type", line, name, f"{name!r} is defined in {ONCE[name]} only"


def phrases(text, line):
    joined = re.sub(r"\n\s*(?://[/!]?)?\s*|\\\n\s*", " ", text)
    for match in PHRASE.finditer(joined):
        found = match.group().lower()
        yield "phrase", line, found.replace(" ", "_"), f"retired phrase {found!r}"


def check_public_types(sources):
    """Public types of one name in several places. Sources under `tests` and `#[cfg(test)]` modules are left out."""
    defined = defaultdict(list)
    for path, text in sources.items():
        if "/src/" not in str(path) or "test" in path.name:
            continue
        for match in DEFINITION.finditer(text):
            if (match.group(1) or "").strip() == "pub":
                defined[match.group(2)].append((path, text.count("\n", 0, match.start(2)) + 1))
    for name, places in sorted(defined.items()):
        if len(places) > 1:
            where = ", ".join(f"{path}:{line}" for path, line in places[1:])
            yield places[0][0], "public-type", places[0][1], name, f"public type {name!r} is also defined at {where}"


def paragraphs_of_page(text):
    """(line number, line) of prose: no code blocks, tables, headings, links alone, HTML."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not re.match(r"\s*(\||#|<|\[[^]]*\]:)", line):
            yield number, line


def width(line):
    """Columns of a line, without link targets."""
    return len(re.sub(r"\]\([^)]*\)", "]", line))


def check_page(path, text):
    for number, line in paragraphs_of_page(text):
        yield from phrases(line, number)
        if width(line) > WIDTH:
            yield "width", number, "page", f"{width(line)} columns, at most {WIDTH}"
    for match in re.finditer(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", text):
        target, anchor = match.group(1), match.group(2)
        line = text.count("\n", 0, match.start()) + 1
        if re.match(r"[a-z]+:", target):
            continue
        file = (path.parent / target) if target else path
        if not file.exists():
            yield "link", line, target, f"link to {target}, which does not exist"
        elif anchor and file.suffix == ".md" and anchor[1:] not in anchors(file.read_text()):
            yield "link", line, target + anchor, f"link to {target}{anchor}: no such heading"


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_doc_width(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*//[/!] ?(.*)", line)
        if not match:
            fenced = False
            continue
        if match.group(1).startswith("```"):
            fenced = not fenced
        elif not fenced and not match.group(1).startswith(("|", "    ")) and width(line) > WIDTH:
            yield "width", number, "doc", f"{width(line)} columns, at most {WIDTH}"


def wrapped(prefix, words, rest):
    return textwrap.wrap(
        words, WIDTH, initial_indent=prefix, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def wrap_block(lines, head):
    """Wraps the paragraphs of `lines` (text without the comment marker) behind `head`, where one is too wide."""
    out, fenced, n = [], False, 0
    while n < len(lines):
        line = lines[n]
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced or not line.strip() or re.match(r"\s*(```|\||#|<|\[[^]]*\]:)|    ", line):
            out.append((head + line).rstrip())
            n += 1
            continue
        bullet = re.match(r"(\s*)((?:[-*]|\d+\.) +)?", line)
        indent = " " * len(bullet.group(0))
        end = n + 1
        while end < len(lines) and lines[end].strip() and not re.match(
            r"\s*(```|\||#|<|[-*] |\d+\. |\[[^]]*\]:)", lines[end]
        ) and (not bullet.group(2) or lines[end].startswith(indent)):
            end += 1
        if any(width(head + text) > WIDTH for text in lines[n:end]):
            words = " ".join(text.strip() for text in lines[n:end])
            words = words[len((bullet.group(2) or "")) :] if bullet.group(2) else words
            out += wrapped(head + bullet.group(0), words, head + indent)
        else:
            out += [(head + text).rstrip() for text in lines[n:end]]
        n = end
    return out


def wrap_rust(text):
    out, block, head = [], [], None
    for line in text.split("\n") + [None]:
        match = re.match(r"(\s*//[/!]) ?(.*)$", line) if line is not None else None
        if match and (head is None or head == match.group(1)):
            head = match.group(1)
            block.append(match.group(2))
            continue
        if block:
            out += [text.rstrip() for text in wrap_block(block, head + " ")]
            block, head = [], None
        if match:
            head, block = match.group(1), [match.group(2)]
        elif line is not None:
            out.append(line)
    return "\n".join(out)


def findings():
    rust = {path: path.read_text() for path in tracked("crates/*.rs", "tests/*.rs")}
    pages = {path: path.read_text() for path in tracked("*.md")}
    for path, text in rust.items():
        for rule, line, what, message in check_rust(path, text):
            yield path, rule, line, what, message
        if "/src/" in str(path):
            for rule, line, what, message in check_doc_width(text):
                yield path, rule, line, what, message
    yield from check_public_types(rust)
    for path, text in pages.items():
        for rule, line, what, message in check_page(path, text):
            yield path, rule, line, what, message


def self_test():
    """Every rule finds what it is for."""
    bad = "/// What it holds.\npub struct Given { slope_of: f32, place: u8 } // so many, and\n// cannot be\n// told\n"
    rules = {rule for rule, *_ in check_rust(Path("a.rs"), bad)}
    assert rules == {"doc-comment", "identifier", "phrase", "type"}, rules
    assert not list(check_rust(Path("a.rs"), "/// A gradient.\n/// What follows is text.\nstruct Envelope;"))
    twice = {Path("a/src/x.rs"): "pub struct A;", Path("b/src/y.rs"): "pub enum A {}", Path("b/src/z.rs"): "struct A;"}
    assert [what for _, _, _, what, _ in check_public_types(twice)] == ["A"]
    page = "word " * 30 + "\n[x](nowhere.md)\n" + "| " + "cell " * 30 + "|\n"
    assert [rule for rule, *_ in check_page(Path("a.md"), page)] == ["width", "link"]
    assert wrap_rust("/// " + "word " * 30).count("\n") == 1


def allowed():
    path = Path(__file__).with_suffix(".allow")
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines()] if path.exists() else []
    return {tuple(line): False for line in lines if line}


def main():
    if sys.argv[1:] == ["--messages"]:
        for path in tracked("crates/*/src/*.rs"):
            for kind, token, line in tokens(path.read_text()):
                if kind == "string" and " " in token.strip('"') and re.search(r"[a-z]{2}", token):
                    joined = re.sub(r"\\\n\s*", "", token)
                    print(f"{path}:{line}: {joined}")
        return 0
    if sys.argv[1:] == ["--wrap"]:
        for path in tracked("crates/*/src/*.rs", "*.md"):
            text = path.read_text()
            lines = text.split("\n")
            new = wrap_rust(text) if path.suffix == ".rs" else "\n".join(wrap_block(lines, ""))
            if new != text:
                path.write_text(new)
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    self_test()
    exceptions, count = allowed(), 0
    for path, rule, line, what, message in findings():
        matching = [key for key in ((rule, str(path), what), (rule, "*", what)) if key in exceptions]
        if matching:
            exceptions[matching[0]] = True
            continue
        count += 1
        print(f"{path}:{line}: {message}")
    for key, used in exceptions.items():
        if not used:
            count += 1
            print(f"scripts/words.allow: '{' '.join(key)}' allows nothing")
    print(f"words: {count} finding{'s' if count != 1 else ''}")
    return 1 if count else 0


sys.exit(main())
