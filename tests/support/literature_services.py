"""PubMed's E-utilities and Europe PMC on loopback, as their documentation describes their responses.

The records are real ones of the data folder, or built after PubMed's DTD. The live services are not contacted by tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.loopback import run_in_thread

HEAD = '<?xml version="1.0" ?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
HEAD += '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n'
EMPTY_LIST = (
    '<?xml version="1.0" encoding="UTF-8" ?><!DOCTYPE eEfetchResult PUBLIC "-//NLM//DTD efetch 20131226//EN" '
    '"https://eutils.ncbi.nlm.nih.gov/eutils/dtd/20131226/efetch.dtd"><eFetchResult><ERROR>ID list is empty! '
    "Possibly it has no correct IDs.</ERROR></eFetchResult>"
)


def pubmed_record(pmid: int, title: str = "", more: str = "", identifiers: str = "") -> str:
    """Return a record; `more` follows the article, such as corrections; `identifiers` are of PubmedData."""
    return (
        f'<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID Version="1">{pmid}</PMID>'
        "<DateRevised><Year>2020</Year><Month>03</Month><Day>01</Day></DateRevised>"
        '<Article PubModel="Print"><Journal><JournalIssue><PubDate><Year>2019</Year></PubDate></JournalIssue>'
        f"<Title>The Lancet</Title></Journal><ArticleTitle>{title or f'Trial {pmid}'}</ArticleTitle>"
        f"<Abstract><AbstractText>Aspirin lowered the risk in trial {pmid}.</AbstractText></Abstract>"
        '<PublicationTypeList><PublicationType UI="D016449">Randomized Controlled Trial</PublicationType>'
        f"</PublicationTypeList></Article>{more}</MedlineCitation>"
        f'<PubmedData><ArticleIdList><ArticleId IdType="pubmed">{pmid}</ArticleId>{identifiers}</ArticleIdList>'
        "</PubmedData></PubmedArticle>"
    )


@dataclass
class LiteratureServices:
    """What the services hold, and what they were asked."""

    records: dict[str, str] = field(default_factory=dict)
    """PubMed's records by PMID."""
    results: dict[str, list[str]] = field(default_factory=dict)
    """PMIDs by query."""
    articles: list[dict[str, Any]] = field(default_factory=list)
    """Europe PMC's articles."""
    full_texts: dict[str, str] = field(default_factory=dict)
    failures: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Status and headers of the next responses, before the service works again."""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Function and parameters of each request."""
    agents: list[str] = field(default_factory=list)
    url: str = ""

    def functions(self) -> list[str]:
        return [function for function, _ in self.asked]

    def answer(self, function: str, parameters: dict[str, str]) -> tuple[int, str]:
        """Return status and body."""
        if function == "eutils/esearch.fcgi":
            pmids = self.results.get(parameters["term"], [])
            shown = pmids[: int(parameters["retmax"])]
            result = {"count": str(len(pmids)), "retmax": str(len(shown)), "retstart": "0", "idlist": shown}
            header = {"type": "esearch", "version": "0.3"}
            return 200, json.dumps({"header": header, "esearchresult": {**result, "translationset": []}})
        if function == "eutils/efetch.fcgi":
            records = [self.records[pmid] for pmid in parameters["id"].split(",") if pmid in self.records]
            if not records:
                return 400, EMPTY_LIST
            return 200, f"{HEAD}<PubmedArticleSet>{''.join(records)}</PubmedArticleSet>"
        if function == "rest/search":
            hits = [article for article in self.articles if f'"{article["doi"].lower()}"' in parameters["query"]]
            return 200, json.dumps({"version": "6.9", "hitCount": len(hits), "resultList": {"result": hits}})
        body = self.full_texts.get(function.removeprefix("rest/").removesuffix("/fullTextXML"))
        return (404, "") if body is None else (200, body)


class _Handler(BaseHTTPRequestHandler):
    services: LiteratureServices
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, query: str) -> None:
        parameters = {name: values[0] for name, values in parse_qs(query).items()}
        function = urlsplit(self.path).path.lstrip("/")
        self.services.asked.append((function, parameters))
        self.services.agents.append(self.headers["User-Agent"])
        headers: dict[str, str] = {}
        if self.services.failures:
            status, headers = self.services.failures.pop(0)
            body = '{"error":"API rate limit exceeded","count":"4","limit":"3"}'
        else:
            status, body = self.services.answer(function, parameters)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serve_literature() -> Iterator[LiteratureServices]:
    """Run the services during the block."""
    services = LiteratureServices()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"services": services}))
    server.daemon_threads = True
    with run_in_thread(server) as services.url:
        yield services
