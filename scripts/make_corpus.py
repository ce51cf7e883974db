"""Makes a text to learn from, the same for a seed everywhere: sentences of a small grammar whose subject and verb agree
over clauses in between, sums that are right, and people whose names and trades come back later in a paragraph.

    python3 scripts/make_corpus.py corpus.txt
    python3 scripts/make_corpus.py --bytes 20000000 --seed 7 corpus.txt
"""

import argparse
import random

SYLLABLES = "ba be bo da de do fa fi ga go ha ka ki la le li lo ma mi mo na ne ni no ra re ri ro sa se so ta te to va vi".split()
TRADES = "miner smith baker weaver sailor printer potter tanner cooper mason".split()
THINGS = "vein lamp rope shaft cart furnace ledger hammer bucket stone map door".split()
PLACES = "the northern mine,the harbour,the old mill,the market,the upper level,the river".split(",")
QUALITIES = "green heavy broken narrow copper silent long warm pale deep".split()
# Singular and plural.
VERBS = [("glows", "glow"), ("sleeps", "sleep"), ("falls", "fall"), ("waits", "wait"), ("turns", "turn"), ("shines", "shine")]
SEEING = [("sees", "see"), ("carries", "carry"), ("finds", "find"), ("mends", "mend"), ("sells", "sell"), ("hides", "hide")]


class Writer:
    """Paragraphs, one after the other."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    # `random()` alone is promised to stay the same from one Python to the next.
    def below(self, count):
        return int(self.random.random() * count)

    def one(self, of):
        return of[self.below(len(of))]

    def name(self):
        return "".join(self.one(SYLLABLES) for _ in range(2 + self.below(2))).capitalize()

    def noun(self, plural):
        quality = self.one(QUALITIES) + " " if self.below(2) else ""
        return f"the {quality}{self.one(THINGS)}{'s' if plural else ''}"

    def sentence(self):
        """The verb agrees with the first noun, whatever stands between."""
        plural = self.below(2)
        words = self.noun(plural)
        for _ in range(self.below(3)):
            inner = self.below(2)
            if self.below(2):
                words += f" that {self.noun(inner)} {self.one(SEEING)[inner]}"
            else:
                words += f" near {self.noun(inner)} of {self.one(PLACES)}"
        return f"{words[0].upper()}{words[1:]} {self.one(VERBS)[plural]}."

    def sum(self):
        a, b = self.below(100), self.below(100)
        sign = self.one("+-*")
        return f"{a} {sign} {b} = {a + b if sign == '+' else a - b if sign == '-' else a * b}."

    def paragraph(self):
        """People are introduced, then asked for: the answer is some sentences back."""
        people = {self.name(): (self.one(TRADES), self.one(PLACES)) for _ in range(2 + self.below(2))}
        said = [f"{name} is a {trade} from {place}." for name, (trade, place) in people.items()]
        said += [self.sum() if self.below(3) == 0 else self.sentence() for _ in range(3 + self.below(5))]
        for name, (trade, place) in people.items():
            said.append(f"Who is {name}? A {trade}." if self.below(2) else f"Where is {name} from? From {place}.")
        return " ".join(said)


def text(seed, size):
    """At least `size` bytes."""
    writer, parts, written = Writer(seed), [], 0
    while written < size:
        parts.append(writer.paragraph() + "\n\n")
        written += len(parts[-1])
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description="Write a generated text.")
    parser.add_argument("path")
    parser.add_argument("--bytes", type=int, default=12_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with open(given.path, "w", encoding="ascii", newline="\n") as file:
        file.write(text(given.seed, given.bytes))


if __name__ == "__main__":
    main()
