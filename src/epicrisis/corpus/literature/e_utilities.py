"""PubMed by NCBI's E-utilities: `esearch` finds the numbers of records (PMIDs), `efetch` returns the records as XML.

NCBI asks programs for their name and an e-mail address, and for at most 3 requests per second, or 10 with a key.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from epicrisis.corpus.articles.pubmed_record import find_pmids
from epicrisis.corpus.base.xml_text import BrokenXML, read_records
from epicrisis.corpus.literature.response_cache import ResponseCache
from epicrisis.corpus.literature.web_client import RequestRejected, ServiceFailed, WebClient

KEY_VARIABLE = "NCBI_API_KEY"
MAX_RESULTS = 10_000
"""Maximum number of results of one search in PubMed."""
_PER_SECOND, _PER_SECOND_WITH_KEY = 3, 10
_BATCH = 200
_ALL_UNKNOWN = b"ID list is empty"
"""NCBI's error if it has no record of any of the numbers."""
_RECORDS = ("PubmedArticle", "PubmedBookArticle")


class _SearchResult(BaseModel):
    count: int = 0
    idlist: tuple[str, ...] = ()
    ERROR: str = ""


class _SearchReply(BaseModel):
    esearchresult: _SearchResult


class PubMedResults(BaseModel):
    """The PMIDs of a search, the most relevant first, and how many results PubMed has."""

    pmids: tuple[str, ...]
    total: int


def open_e_utilities(base: str, email: str | None) -> WebClient:
    """Return a client with the rate limit, name, address and key for NCBI."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    identity = {"tool": "epicrisis"}
    if email:
        identity["email"] = email
    if key:
        identity["api_key"] = key
    return WebClient(base, _PER_SECOND_WITH_KEY if key else _PER_SECOND, identity)


def search_pubmed(client: WebClient, cache: ResponseCache, query: str, limit: int) -> PubMedResults:
    """Return the `limit` most relevant records for a query in PubMed's syntax. Raises ServiceFailed."""
    limit = min(limit, MAX_RESULTS)
    key = f"esearch:{client.base}:{limit}:{query}"
    body = cache.get(key)
    is_new = body is None
    if body is None:
        parameters = {"db": "pubmed", "term": query, "retmax": str(limit), "retmode": "json", "sort": "relevance"}
        body = client.post("esearch.fcgi", parameters)
    try:
        result = _SearchReply.model_validate_json(body).esearchresult
    except ValidationError:
        raise ServiceFailed("it answered with something else than a search result") from None
    if result.ERROR:
        raise ServiceFailed("it does not understand the query")
    if is_new:
        cache.put(key, body)
    return PubMedResults(pmids=tuple(filter(str.isdecimal, result.idlist)), total=result.count)


def fetch_records(client: WebClient, cache: ResponseCache, pmids: Sequence[str], folder: Path) -> dict[str, bytes]:
    """Return the XML of each PMID that PubMed has, from the cache or from NCBI. Raises ServiceFailed.

    `folder` holds responses while they are read. At most 200 records are fetched; call again for more.
    """
    records: dict[str, bytes] = {}
    missing = []
    for pmid in pmids:
        record = cache.get(f"pubmed:{client.base}:{pmid}")
        if record is None:
            missing.append(pmid)
        else:
            records[pmid] = record
    for first in range(0, len(missing), _BATCH):
        batch = missing[first : first + _BATCH]
        try:
            body = client.post("efetch.fcgi", {"db": "pubmed", "id": ",".join(batch), "retmode": "xml"})
        except RequestRejected as error:
            if _ALL_UNKNOWN not in error.body:
                raise
            continue
        path = folder / "efetch.xml"
        path.write_bytes(body)
        for pmid, record in _read_response(path).items():
            records[pmid] = record
            cache.put(f"pubmed:{client.base}:{pmid}", record)
    return records


def _read_response(path: Path) -> dict[str, bytes]:
    """Return the records of a response by PMID. Raises ServiceFailed if it is none."""
    from lxml import etree

    records: dict[str, bytes] = {}
    is_response = False
    try:
        for element in read_records(path, (*_RECORDS, "PubmedArticleSet")):
            is_response = True
            if element.tag in _RECORDS:
                for part in element:
                    if (pmid := next(find_pmids(part), None)) is not None:
                        records[pmid] = etree.tostring(element, encoding="utf-8", with_tail=False)
                        break
    except BrokenXML:
        is_response = False
    if not is_response and _ALL_UNKNOWN not in path.read_bytes():
        raise ServiceFailed("it answered with something else than PubMed's XML")
    return records


def write_records(records: Sequence[bytes], path: Path) -> Path:
    """Write records as a file of PubMed's XML and return its path."""
    path.write_bytes(b"\n".join((b"<PubmedArticleSet>", *records, b"</PubmedArticleSet>")))
    return path
