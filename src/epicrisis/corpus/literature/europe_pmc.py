"""Europe PMC by its REST API: the article behind a DOI, abstracts of preprints, and open-access full texts (JATS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field, ValidationError

from epicrisis.core.types import Document
from epicrisis.corpus.base.markup import remove_markup, split_sections
from epicrisis.corpus.literature.response_cache import ResponseCache
from epicrisis.corpus.literature.web_client import RequestRejected, ServiceFailed, WebClient

_PER_SECOND = 3
_BATCH = 25
_RETRACTIONS = frozenset({"retraction in", "retracted in", "partial retraction in"})


class _Author(BaseModel):
    full_name: str = Field("", alias="fullName")
    last_name: str = Field("", alias="lastName")
    first_name: str = Field("", alias="firstName")


class _AuthorList(BaseModel):
    author: tuple[_Author, ...] = ()


class _Journal(BaseModel):
    title: str = ""


class _JournalInfo(BaseModel):
    volume: str = ""
    issue: str = ""
    journal: _Journal = _Journal()


class _TypeList(BaseModel):
    types: tuple[str, ...] = Field((), alias="pubType")


class _Correction(BaseModel):
    type: str = ""


class _CorrectionList(BaseModel):
    corrections: tuple[_Correction, ...] = Field((), alias="commentCorrection")


class IndexedArticle(BaseModel):
    """A result of Europe PMC's search with `resultType=core`, as far as it is read."""

    pmid: str = ""
    pmcid: str = ""
    doi: str = ""
    title: str = ""
    abstract: str = Field("", alias="abstractText")
    pages: str = Field("", alias="pageInfo")
    published: str = Field("", alias="firstPublicationDate")
    year: str = Field("", alias="pubYear")
    open_access: str = Field("", alias="isOpenAccess")
    authors: _AuthorList = Field(_AuthorList(), alias="authorList")
    journal: _JournalInfo = Field(_JournalInfo(), alias="journalInfo")
    types: _TypeList = Field(_TypeList(), alias="pubTypeList")
    corrections: _CorrectionList = Field(_CorrectionList(), alias="commentCorrectionList")


class _ResultList(BaseModel):
    result: tuple[IndexedArticle, ...] = ()


class _SearchReply(BaseModel):
    results: _ResultList = Field(alias="resultList")


def open_europe_pmc(base: str, email: str | None) -> WebClient:
    """Return a client for Europe PMC, which asks for an e-mail address as NCBI does."""
    return WebClient(base, _PER_SECOND, {"email": email} if email else None)


def find_articles(client: WebClient, cache: ResponseCache, dois: Sequence[str]) -> Mapping[str, IndexedArticle]:
    """Return the articles by DOI in lower case, without those that Europe PMC does not have. Raises ServiceFailed."""
    articles: dict[str, IndexedArticle] = {}
    missing = []
    for doi in map(str.lower, dois):
        body = cache.get(f"europepmc:{client.base}:{doi}")
        if body is None:
            missing.append(doi)
        else:
            articles[doi] = IndexedArticle.model_validate_json(body)
    for first in range(0, len(missing), _BATCH):
        batch = missing[first : first + _BATCH]
        query = " OR ".join(f'DOI:"{doi}"' for doi in batch)
        parameters = {"query": query, "resultType": "core", "format": "json", "pageSize": str(4 * _BATCH)}
        try:
            reply = _SearchReply.model_validate_json(client.get("search", parameters))
        except ValidationError:
            raise ServiceFailed("it answered with something else than a search result") from None
        for article in reply.results.result:
            doi = article.doi.lower()
            # Of a journal article and its preprint with one DOI, the one with a PMID is used.
            if doi in batch and (doi not in articles or article.pmid):
                articles[doi] = article
                cache.put(f"europepmc:{client.base}:{doi}", article.model_dump_json(by_alias=True).encode())
    return articles


def fetch_full_text(client: WebClient, cache: ResponseCache, pmcid: str) -> bytes | None:
    """Return the open-access full text in JATS, or None if there is none. Raises ServiceFailed."""
    key = f"jats:{client.base}:{pmcid}"
    body = cache.get(key)
    if body is None:
        try:
            body = client.get(f"{pmcid}/fullTextXML", {})
        except RequestRejected as error:
            if error.status != 404:
                raise
            body = b""
        cache.put(key, body)
    return body or None


def build_document(article: IndexedArticle) -> Document | None:
    """Return the abstract of an article that PubMed does not have, such as a preprint; None without an abstract."""
    # Abstracts have tags such as <h4>Background</h4>, titles <i>.
    text = "\n".join(split_sections(article.abstract))
    if not text or not article.doi:
        return None
    authors = []
    for author in article.authors.author:
        names = ", ".join(filter(None, (author.last_name, author.first_name)))
        authors.append(names or author.full_name)
    types = list(article.types.types)
    is_retracted = "retracted publication" in map(str.lower, types)
    for correction in article.corrections.corrections:
        is_retracted = is_retracted or correction.type.lower() in _RETRACTIONS
    metadata = {
        "doi": article.doi,
        "pmcid": article.pmcid,
        "journal": article.journal.journal.title,
        "volume": article.journal.volume,
        "issue": article.journal.issue,
        "page_range": article.pages,
        "publication_types": types,
        "authors": list(filter(None, authors)),
        "retracted": is_retracted,
    }
    return Document(
        id=f"doi:{article.doi.lower()}",
        text=text,
        title=remove_markup(article.title),
        source="Europe PMC",
        date=article.published or article.year or None,
        metadata={name: value for name, value in metadata.items() if value},
    )
