"""Fetch named or searched articles as items for a library.

with open_services(settings) as services:
    fetched = fetch_articles(services, ArticleRequest(pmids=("12377809",)))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from epicrisis.core.types import Document
from epicrisis.corpus import sandbox
from epicrisis.corpus.articles.pubmed import read_citations
from epicrisis.corpus.articles.retractions import extract_statements
from epicrisis.corpus.base.reader_base import ReaderItem, Skipped
from epicrisis.corpus.literature import e_utilities, europe_pmc
from epicrisis.corpus.literature.response_cache import ResponseCache
from epicrisis.corpus.literature.web_client import ServiceFailed, WebClient
from epicrisis.settings.settings import Settings
from epicrisis.settings.tables import LiteratureSettings
from epicrisis.system.local_only import parse_host
from epicrisis.system.temporary_folders import TemporaryFolder

_BATCH = 200
_AGAIN = "the same command asks again for what is missing"


@dataclass(frozen=True, slots=True)
class ArticleRequest:
    """Which articles to fetch."""

    pmids: tuple[str, ...] = ()
    dois: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    """Queries in PubMed's syntax."""
    limit: int = 100
    """Maximum number of results of each search."""
    full_text: bool = False
    """Take the open-access full text in place of the abstract, where Europe PMC has it."""

    def hosts(self, settings: LiteratureSettings) -> tuple[str, ...]:
        """Return the hosts that the request contacts."""
        bases = []
        if self.pmids or self.searches or self.dois:
            bases.append(settings.pubmed)
        if self.dois or self.full_text:
            bases.append(settings.europe_pmc)
        return tuple(dict.fromkeys(parse_host(base) or base for base in bases))


@dataclass(frozen=True, slots=True)
class Services:
    """The open services, their cache, and a folder for responses while they are read."""

    pubmed: WebClient
    europe_pmc: WebClient
    cache: ResponseCache
    folder: Path


class FetchedArticles:
    """The items for a library, and lines on what a search left out."""

    def __init__(self) -> None:
        self.items: list[ReaderItem] = []
        self.notes: list[str] = []

    def skip(self, names: Iterable[str], reason: str) -> None:
        """Add an item for each article that was not fetched."""
        self.items += [Skipped(name, "", reason) for name in names]


@contextmanager
def open_services(settings: Settings) -> Iterator[Services]:
    """Open the services of the settings. Nothing is contacted yet. Raises StorageError for an unusable cache."""
    places = settings.literature
    with ExitStack() as stack:
        cache = stack.enter_context(ResponseCache(settings.home, places.cache_days))
        pubmed = stack.enter_context(e_utilities.open_e_utilities(places.pubmed, places.email))
        europe = stack.enter_context(europe_pmc.open_europe_pmc(places.europe_pmc, places.email))
        folder = TemporaryFolder("epicrisis-literature-")
        stack.callback(folder.close)
        yield Services(pubmed, europe, cache, folder.path)


def fetch_articles(
    services: Services, request: ArticleRequest, on_progress: Callable[[int, int], None] | None = None
) -> FetchedArticles:
    """Return the articles of a request. What a service does not have or does not give is a skipped item with its cure.

    `on_progress` receives the numbers of records fetched and to fetch.
    """
    fetched = FetchedArticles()
    names = {pmid: f"PMID {pmid}" for pmid in request.pmids}
    for number, query in enumerate(request.searches, 1):
        _search(services, query, f"search {number}", request.limit, names, fetched)
    _resolve_dois(services, request.dois, names, fetched)
    pmids = list(names)
    for first in range(0, len(pmids), _BATCH):
        if on_progress is not None:
            on_progress(first, len(pmids))
        batch = pmids[first : first + _BATCH]
        try:
            records = e_utilities.fetch_records(services.pubmed, services.cache, batch, services.folder)
        except ServiceFailed as error:
            fetched.skip((names[pmid] for pmid in batch), f"PubMed gave no records: {error}; {_AGAIN}")
            continue
        unknown = [names[pmid] for pmid in batch if pmid not in records]
        fetched.skip(unknown, "PubMed has no record of this number; check the number")
        path = e_utilities.write_records(list(records.values()), services.folder / "records.xml")
        for item in read_citations(path) if records else ():
            if isinstance(item, Document) and request.full_text:
                fetched.items += _with_full_text(services, item)
            else:
                fetched.items.append(item)
    return fetched


def _search(
    services: Services, query: str, name: str, limit: int, names: dict[str, str], fetched: FetchedArticles
) -> None:
    """Add the PMIDs of a search to `names`, and a line if PubMed has more results."""
    try:
        result = e_utilities.search_pubmed(services.pubmed, services.cache, query, limit)
    except ServiceFailed as error:
        fetched.skip([name], f"PubMed did not search: {error}; {_AGAIN}")
        return
    if not result.pmids:
        fetched.skip([name], "PubMed has no result; try fewer or other words")
    for pmid in result.pmids:
        names.setdefault(pmid, f"PMID {pmid}")
    if result.total > len(result.pmids):
        cure = "--limit takes more of them"
        if limit >= e_utilities.MAX_RESULTS:
            cure = "PubMed gives no more for one search: divide it by years"
        fetched.notes.append(
            f"{name}: PubMed has {result.total:,} results; the {len(result.pmids):,} most relevant are taken ({cure})"
        )


def _resolve_dois(services: Services, dois: Sequence[str], names: dict[str, str], fetched: FetchedArticles) -> None:
    """Add the PMIDs of the DOIs to `names`, and the abstracts that PubMed does not have to the items."""
    if not dois:
        return
    try:
        articles = europe_pmc.find_articles(services.europe_pmc, services.cache, dois)
    except ServiceFailed as error:
        fetched.skip((f"DOI {doi}" for doi in dois), f"Europe PMC did not search: {error}; {_AGAIN}")
        return
    for doi in dois:
        article = articles.get(doi.lower())
        if article is None:
            fetched.skip([f"DOI {doi}"], "Europe PMC has no article with this DOI; check it, or add the article's file")
        elif article.pmid:
            names.setdefault(article.pmid, f"DOI {doi} (PMID {article.pmid})")
        elif document := europe_pmc.build_document(article):
            fetched.items.append(document)
        else:
            fetched.skip([f"DOI {doi}"], "Europe PMC has no abstract of this article; add the article's file")


def _with_full_text(services: Services, record: Document) -> Iterator[ReaderItem]:
    """Yield the full text with what PubMed says about the article; the record itself if there is no full text."""
    pmcid = str(record.metadata.get("pmcid", ""))
    text: Document | None = None
    if pmcid:
        try:
            body = europe_pmc.fetch_full_text(services.europe_pmc, services.cache, pmcid)
        except ServiceFailed as error:
            yield Skipped(f"full text {pmcid}", "", f"Europe PMC gave no full text: {error}; {_AGAIN}")
            body = None
        if body is not None:
            path = services.folder / f"{pmcid}.nxml"
            path.write_bytes(body)
            for item in sandbox.read_file("nxml", path, path.name):
                if isinstance(item, Document) and item.id == f"pmc:{pmcid}":
                    text = item
            path.unlink()
    if text is None:
        yield record
        return
    # PubMed knows the study types and later corrections. Only its own records tell about other articles.
    metadata = {**record.metadata, **text.metadata}
    for key in ("publication_types", "corrections", "retracted", "mesh", "authors"):
        if key in record.metadata:
            metadata[key] = record.metadata[key]
    metadata.pop("abstract", None)
    metadata["pmid"] = record.id.removeprefix("pubmed:")
    yield from extract_statements(record)
    yield dataclasses.replace(text, title=text.title or record.title, date=text.date or record.date, metadata=metadata)
