"""Find the DOI and the PMID of an article in its PDF file: only clear ones.

The file's own metadata (XMP, then the document information) come first: a DOI counts if they name exactly one. Else the
first page is read up to its references: a DOI or PMID counts if the page names exactly one, complete on its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from epicrisis.corpus.base.reference_lists import HEADING

_DOI = re.compile(r"\b10\.\d{4,9}/[-._;()/:a-zA-Z0-9<>]{1,200}")
_PMID = re.compile(r"\bPMID\s?:?\s?(\d{5,8})\b")
_XMP_DOI = re.compile(
    rb"<(?:prism|pdfx|crossmark|dc|jav):(?:doi|DOI|identifier)\b[^>]{0,200}>(.{0,300}?)</(?:prism|pdfx|crossmark|dc|jav):",
    re.DOTALL,
)
_XMP_DOI_ATTRIBUTE = re.compile(rb"\b(?:prism|pdfx|crossmark):(?:doi|DOI)=[\"']([^\"']{5,200})[\"']")
_CONTINUATION = re.compile(r"\n(?=\S*[\d./_-])[a-z0-9./_-]\S{0,200}(?:\n|$)")
_CLOSING = {")": "(", ">": "<"}


def find_dois(text: str) -> list[str]:
    """Return the different DOIs of a text in lower case, in order, without the signs that follow them."""
    dois: dict[str, None] = {}
    for match in _DOI.finditer(text):
        doi = match[0]
        while doi and (
            doi[-1] in ".,;:-_/" or (doi[-1] in _CLOSING and doi.count(_CLOSING[doi[-1]]) < doi.count(doi[-1]))
        ):
            doi = doi[:-1]
        if "/" in doi:
            dois.setdefault(doi.lower())
    return list(dois)


def find_article_ids(first_page: str, information: Iterable[str], data: bytes) -> dict[str, str]:
    """Return `doi` and `pmid` of an article, as far as they are clear: see the module's docstring.

    `information` are values of the document information, `data` the bytes of the file, in which XMP is not compressed.
    """
    ids: dict[str, str] = {}
    xmp = [*_XMP_DOI.findall(data), *_XMP_DOI_ATTRIBUTE.findall(data)]
    page = HEADING.split(first_page, maxsplit=1)[0].replace("\r\n", "\n")
    own_sources = (b"\n".join(xmp).decode("utf-8", "replace"), "\n".join(information))
    for dois in (*map(find_dois, own_sources), _find_dois_on_page(page)):
        if dois:
            # Several are not clear, and no later source decides between them.
            if len(dois) == 1:
                ids["doi"] = dois[0]
            break
    pmids = set(_PMID.findall(page))
    if len(pmids) == 1:
        ids["pmid"] = pmids.pop()
    return ids


def _find_dois_on_page(page: str) -> list[str]:
    """Return the DOIs of a page, or two equal ones if one may go on in the next line."""
    for match in _DOI.finditer(page):
        rest = page[match.end() :]
        if (rest.startswith("\n") and match[0][-1] in "./-_") or _CONTINUATION.match(rest):
            return ["", ""]
    return find_dois(page)
