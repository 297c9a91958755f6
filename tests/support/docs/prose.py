"""The rules of prose for every page, and what breaks them. Code, tables, pictures and quotations are not looked at.

python -m tests.support.docs.prose [PAGE...]    # what breaks a rule, and each page's length of sentences
"""

import re
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = [path for path in FILES if "{include}" not in path.read_text()]
MEDIAN, LONGEST, HEADING = 18, 40, 12
"""Words: of the median sentence of a page, of its longest sentence, of a heading."""
WORDS = {
    r"silent groups?|silences?": "zero-variance group",
    r"nuisances?": "noise",
    r"mend(s|ed|ing)?": "fix",
    r"(not )?(tell|told) apart": "no significant difference",
    r"(can|could|does|do|did)( ?not|n't) (tell|be told)|hardly tells?": "is not known, does not show",
    r"of the user's|of one's own": "custom, your own",
    r"in sight of": "after seeing",
    r"foretells?|foretold|foretelling": "predict",
    r"flattered|dear(er|est)?": "overestimated; expensive",
    r"(pure|a lead that was) luck": "chance",
    r"somebody's?": "another",
    r"beside each other": "side by side",
    r"is of (one|another|a|the)": "belongs to",
    r"hence|thus|whilst|herein|therein|whereof|thereof": "a plain word",
    r"leverage|utilize|seamless(ly)?|simply|obviously": "nothing",
}
"""Words that a stranger would ask about, and what to write."""
ORDER = {
    r"^(What|Whatever|How \w+|Whether) [^?]*[^?]$": "begins with a clause in the place of its subject",
    r"^(Nor|Neither|So|Such|Not|Only) (is|are|was|were|do|does|did|has|have|can|could|will|would)\b": "inverted",
    r"^(Of|Among|Beside|Beyond|Behind) [^,]*,? (is|are|was|were|lies|lie|stands?|comes?) ": "inverted",
    r"^(Here|There|Then) (stands?|lies?|comes?|goes|follows?)\b": "inverted",
}
"""Sentences that do not begin with their subject."""


def paragraphs(text: str) -> list[str]:
    """Paragraphs and points of a page, with `x` in the place of code and of targets of links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^( *)([*-]|\d+\.) +", r"\n\1", text, flags=re.MULTILINE)
    parts = re.split(r"\n(?:\s*\n|(?=#))|\n(?=[|!])", re.sub(r"^(#.*)$", r"\1\n", text, flags=re.MULTILINE))
    prose = [part for part in parts if part.strip() and not part.lstrip("\n").startswith(("#", "|", "!", "    ", ">"))]
    plain = [re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "x", part)) for part in prose]
    return [" ".join(part.replace("*", "").split()) for part in plain]


def sentences(text: str) -> list[str]:
    """Sentences of a page, of two words and more."""
    parts = [each for part in paragraphs(text) for each in re.split(r"(?<=[.!?])\)?\s+|(?<=[:;])\s+(?=[A-Z])", part)]
    return [part for part in parts if len(part.split()) > 1]


def faults(text: str) -> list[str]:
    """What in a page breaks a rule, a line each."""
    lines = sentences(text)
    lengths = [len(line.split()) for line in lines]
    typical = median(lengths or [0])
    broken = [f"median of {typical:g} words a sentence"] * (typical > MEDIAN)
    heads = re.findall(r"^(#+) +(.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    levels = [len(marks) for marks, _ in heads]
    broken += ["not one title"] * (levels[:1] != [1] or levels.count(1) != 1)
    broken += [f"level skipped: {b}" for (_, b), x, y in zip(heads[1:], levels, levels[1:], strict=False) if y > x + 1]
    broken += [f"heading: {head}" for _, head in heads if len(head.split()) > HEADING or head.endswith((".", ":"))]
    broken += [f"{n} words: {line}" for line, n in zip(lines, lengths, strict=True) if n > LONGEST]
    for rules in (WORDS, ORDER):
        for rule, instead in rules.items():
            whole = rule if rules is ORDER else rf"(?i)\b({rule})\b"
            broken += [f"{instead}: {line}" for line in lines if re.search(whole, line)]
    return broken


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        text = page.read_text()
        lengths = [len(line.split()) for line in sentences(text)] or [0]
        print(f"{page.relative_to(ROOT)}: median {median(lengths):g}")
        print(*(f"  {fault}" for fault in faults(text)), sep="\n")
