"""Records a CPU-second of our reader of PubMed, of the package `pubmed_parser` and of bare `lxml`, and what text either
loses that the other keeps. One generated gzip file of realistic citations, all readers in turn in one run.

Needs the checkout (the generator lies with the tests) and, for the comparison alone, pubmed_parser:

    pip install pubmed_parser==0.5.1
    PYTHONPATH=. python benchmarks/pubmed_parser_speed.py [records]

Guide: ours is at least twice as fast, and loses nothing that pubmed_parser has. Knows nothing of libraries: what
becomes of the documents is not in the figure.
"""

from __future__ import annotations

import gzip
import importlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lxml import etree

from epicrisis.core.types import Document
from epicrisis.corpus.articles import pubmed
from tests.support.pubmed_xml import article, article_set, write_realistic

ROUNDS = 3
OMITTED = (
    *("delete", "issue", "pages", "chemical_list", "affiliations", "references", "grant_ids", "other_id"),
    *("medline_ta", "nlm_unique_id", "issn_linking"),
)
"""Fields that no search needs, and the flag `delete`."""
_MARK = re.compile(r"[;|:,/*]")
_VOCABULARY_ID = re.compile(r"[DQ]\d{6}")


def bare(path: Path) -> Iterator[object]:
    """The least that any reader on lxml does: every record parsed, none looked at."""
    with gzip.open(path) as file:
        for _, element in etree.iterparse(file, tag="PubmedArticle"):
            yield None
            element.clear(keep_tail=True)
            while element.getprevious() is not None:
                del element.getparent()[0]


def peer(path: Path) -> Iterator[dict[str, Any]]:
    """pubmed_parser with its defaults, as its users call it."""
    found: Iterator[dict[str, Any]] = importlib.import_module("pubmed_parser").parse_medline_xml(str(path))
    return found


def words(value: object) -> list[str]:
    """The words of a value, its objects and lists included."""
    if isinstance(value, Mapping):
        return [word for each in value.values() for word in words(each)]
    if isinstance(value, list | tuple):
        return [word for each in value for word in words(each)]
    return _MARK.sub(" ", str(value)).split()


def theirs_in_ours(record: Mapping[str, Any], document: pubmed.PubMedItem) -> Iterator[str]:
    """Every word of pubmed_parser's record that is nowhere in our document, as `field: word`.

    Exponents are compared without our `^`: pubmed_parser writes ten to the minus third as `10-3`.
    """
    if not isinstance(document, Document):
        raise SystemExit(f"ours has no document: {document}")
    ours = set(words([document.id, document.title, document.text.replace("^", ""), document.date, document.metadata]))
    for field, value in record.items():
        if field in OMITTED:
            continue
        if field == "authors":  # `last|first|initials|identifier`
            value = [author.split("|")[:2] for author in value.split(";")]
        for word in words(value):
            if word not in ours and not _VOCABULARY_ID.fullmatch(word):
                yield f"{field}: {word}"


_MATH = (
    '<mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML"><mml:msup><mml:mi>zeta</mml:mi><mml:mn>2</mml:mn>'
    "</mml:msup></mml:math>"
)
FEATURES = [
    ("text in nested markup", "slanted", article(title="A <b>bold <i>slanted</i></b> title")),
    ("MathML", "zeta", article(abstract=f"<Abstract><AbstractText>If {_MATH}.</AbstractText></Abstract>")),
    (
        "label of a single section",
        "OBJECTIVE",
        article(abstract='<Abstract><AbstractText Label="OBJECTIVE">To see.</AbstractText></Abstract>'),
    ),
    (
        "other abstracts",
        "Palabras",
        article(in_citation='<OtherAbstract Language="spa"><AbstractText>Palabras.</AbstractText></OtherAbstract>'),
    ),
    (
        "markup in keywords",
        "rise",
        article(in_citation="<KeywordList><Keyword>CO<sub>2</sub> rise</Keyword></KeywordList>"),
    ),
    (
        "corrections",
        "RetractionIn",
        article(
            in_citation='<CommentsCorrectionsList><CommentsCorrections RefType="RetractionIn"><PMID>77</PMID>'
            "</CommentsCorrections></CommentsCorrectionsList>"
        ),
    ),
    (
        "collective authors",
        "Consortium",
        article(in_article="<AuthorList><Author><CollectiveName>Consortium</CollectiveName></Author></AuthorList>"),
    ),
    (
        "MeSH qualifiers",
        "diet",
        article(
            in_citation='<MeshHeadingList><MeshHeading><DescriptorName UI="D1">Gout</DescriptorName>'
            '<QualifierName UI="Q1">diet</QualifierName></MeshHeading></MeshHeadingList>'
        ),
    ),
    (
        "trial registrations",
        "NCT01",
        article(
            in_article="<DataBankList><DataBank><AccessionNumberList><AccessionNumber>NCT01</AccessionNumber>"
            "</AccessionNumberList></DataBank></DataBankList>"
        ),
    ),
    ("month and day of publication", "2015-06-30", article()),
    ("deletions", "5550555", article()),
]
"""What a file may have, a word that must come out, and the citation that has it."""


def kept(folder: Path) -> None:
    """One small file a feature: does its text come out?"""
    print(f"\n{'what the file has':32} {'pubmed_parser':>14} {'ours':>6}")
    path = folder / "feature.xml.gz"
    for feature, word, xml in FEATURES:
        path.write_bytes(gzip.compress(article_set([xml], deleted=[5550555]).encode()))
        ours = str(list(pubmed.read_citations(path)))
        print(f"{feature:32} {_yes(word in str(list(peer(path)))):>14} {_yes(word in ours):>6}")


def _yes(kept: bool) -> str:
    return "kept" if kept else "lost"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "pubmed26n0001.xml.gz"
        write_realistic(path, count)
        print(f"{count} records, {path.stat().st_size / 1e6:.1f} MB of gzip, {os.cpu_count()} cores")
        readers: dict[str, Callable[[], Iterator[object]]] = {
            "pubmed_parser": lambda: peer(path),
            "ours": lambda: pubmed.read_citations(path),
            "bare lxml": lambda: bare(path),
        }
        seconds = dict.fromkeys(readers, float("inf"))
        for _ in range(ROUNDS):
            for name, reader in readers.items():
                began = time.process_time()
                found = sum(1 for _ in reader())
                seconds[name] = min(seconds[name], time.process_time() - began)
                if found != count:
                    raise SystemExit(f"{name} found {found} records")
        print(f"\n{'best of ' + str(ROUNDS):20} {'CPU s':>8} {'records / CPU s':>16} {'x pubmed_parser':>16}")
        for name, spent in seconds.items():
            print(f"{name:20} {spent:8.2f} {count / spent:16.0f} {seconds['pubmed_parser'] / spent:16.2f}")
        missing = [
            loss
            for record, document in zip_longest(peer(path), pubmed.read_citations(path))
            for loss in theirs_in_ours(record, document)
        ]
        print(f"\nwords of pubmed_parser's {count} records that are not in ours: {len(missing)} {missing[:5]}")
        kept(Path(scratch))


if __name__ == "__main__":
    main()
