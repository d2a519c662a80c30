"""Articles fetched from PubMed and Europe PMC, which are served on loopback."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import ArticleStatement, ReaderItem, Skipped
from epicrisis.corpus.literature import fetched_articles as articles_module
from epicrisis.corpus.literature.fetched_articles import ArticleRequest, FetchedArticles, fetch_articles, open_services
from epicrisis.corpus.literature.response_cache import CACHE_FILE, ResponseCache
from epicrisis.corpus.literature.web_client import RequestRejected, ServiceFailed, WebClient
from epicrisis.settings.settings import Settings
from tests.support.literature_services import LiteratureServices, pubmed_record, serve_literature

RETRACTION = (
    '<CommentsCorrectionsList><CommentsCorrections RefType="RetractionIn"><RefSource>Lancet. 2021</RefSource>'
    '<PMID Version="1">33</PMID></CommentsCorrections></CommentsCorrectionsList>'
)
PREPRINT = {
    "id": "PPR1",
    "source": "PPR",
    "doi": "10.1101/2020.01.01",
    "title": "Zinc for <i>colds</i>",
    "authorList": {"author": [{"fullName": "Doe J", "firstName": "Jane", "lastName": "Doe", "initials": "J"}]},
    "pubYear": "2020",
    "abstractText": "<h4>Background</h4>Zinc &lt; iron. <h4>Results</h4>It shortened colds.",
    "pubTypeList": {"pubType": ["Preprint"]},
    "firstPublicationDate": "2020-01-02",
    "isOpenAccess": "N",
}


@pytest.fixture
def services() -> Iterator[LiteratureServices]:
    with serve_literature() as server:
        yield server


@pytest.fixture
def settings(services: LiteratureServices, tmp_path: Path) -> Settings:
    places = {"pubmed": f"{services.url}/eutils", "europe_pmc": f"{services.url}/rest", "email": "me@example.org"}
    return Settings.model_validate({"home": tmp_path / "home", "literature": places})


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait between requests."""
    monkeypatch.delenv("NCBI_API_KEY", raising=False)
    monkeypatch.setattr(WebClient.__init__, "__defaults__", (None, lambda seconds: None, lambda: 0.0))


def fetch(settings: Settings, request: ArticleRequest) -> FetchedArticles:
    with open_services(settings) as opened:
        return fetch_articles(opened, request)


def documents(fetched: FetchedArticles) -> dict[str, Document]:
    return {item.id: item for item in fetched.items if isinstance(item, Document)}


def skipped(fetched: FetchedArticles) -> dict[str, str]:
    return {item.path: item.reason for item in fetched.items if isinstance(item, Skipped)}


def test_real_record_is_read_as_from_a_file(
    services: LiteratureServices, settings: Settings, data_folder: Path
) -> None:
    xml = (data_folder / "pubmed_xml/pubmed-29768149.xml").read_text()
    match = re.search(r"<PubmedArticle>.*?</PubmedArticle>", xml, re.DOTALL)
    assert match is not None
    services.records["29768149"] = match[0]
    fetched = fetch(settings, ArticleRequest(pmids=("29768149",)))
    (document,) = documents(fetched).values()
    assert document.title == "Inhaled Combined Budesonide-Formoterol as Needed in Mild Asthma."
    assert document.text.startswith("BACKGROUND: In patients with mild asthma")
    assert (document.date, document.metadata["doi"]) == ("2018-05-17", "10.1056/NEJMoa1715274")
    assert document.revision is not None
    assert document.revision.startswith("20220410.01.")
    (_, parameters), agent = services.asked[0], services.agents[0]
    assert parameters == {
        "db": "pubmed", "id": "29768149", "retmode": "xml", "tool": "epicrisis", "email": "me@example.org"
    }  # fmt: skip
    assert agent.startswith("epicrisis/")


@pytest.mark.slow
def test_unknown_numbers_and_dois_are_skipped_with_a_cure_and_the_rest_is_taken(
    services: LiteratureServices, settings: Settings
) -> None:
    services.records["1"] = pubmed_record(1)
    fetched = fetch(settings, ArticleRequest(pmids=("1", "999999999"), dois=("10.1/none",)))
    assert list(documents(fetched)) == ["pubmed:1"]
    assert skipped(fetched) == {
        "DOI 10.1/none": "Europe PMC has no article with this DOI; check it, or add the article's file",
        "PMID 999999999": "PubMed has no record of this number; check the number",
    }
    alone = fetch(settings, ArticleRequest(pmids=("999999998",)))
    assert list(skipped(alone)) == ["PMID 999999998"], "NCBI's error for a list of unknown numbers"


def test_doi_of_a_journal_article_is_taken_from_pubmed_and_of_a_preprint_from_europe_pmc(
    services: LiteratureServices, settings: Settings
) -> None:
    services.records["7"] = pubmed_record(7)
    services.articles = [{"doi": "10.1/ABC", "pmid": "7", "source": "MED"}, PREPRINT]
    fetched = fetch(settings, ArticleRequest(dois=("10.1/abc", "10.1101/2020.01.01")))
    found = documents(fetched)
    assert list(found) == ["doi:10.1101/2020.01.01", "pubmed:7"]
    preprint = found["doi:10.1101/2020.01.01"]
    assert preprint.text == "Background: Zinc < iron.\nResults: It shortened colds."
    assert (preprint.title, preprint.date) == ("Zinc for colds", "2020-01-02")
    assert preprint.metadata["authors"] == ["Doe, Jane"]
    assert preprint.metadata["publication_types"] == ["Preprint"]


@pytest.mark.slow
def test_search_with_more_results_than_the_limit_says_how_many(
    services: LiteratureServices, settings: Settings
) -> None:
    services.results["aspirin AND preeclampsia"] = [str(pmid) for pmid in range(1, 1235)]
    services.records.update({str(pmid): pubmed_record(pmid) for pmid in range(1, 1235)})
    fetched = fetch(settings, ArticleRequest(searches=("aspirin AND preeclampsia", "nothing"), limit=450))
    assert len(documents(fetched)) == 450
    assert fetched.notes == [
        "search 1: PubMed has 1,234 results; the 450 most relevant are taken (--limit takes more of them)"
    ]
    assert skipped(fetched) == {"search 2": "PubMed has no result; try fewer or other words"}
    sizes = [len(parameters["id"].split(",")) for function, parameters in services.asked if "efetch" in function]
    assert sizes == [200, 200, 50]
    assert services.asked[0][1]["sort"] == "relevance"


@pytest.mark.slow
def test_retraction_status_is_kept_and_marks_other_articles(services: LiteratureServices, settings: Settings) -> None:
    services.records["1"] = pubmed_record(1, more=RETRACTION)
    (document,) = documents(fetch(settings, ArticleRequest(pmids=("1",)))).values()
    assert document.metadata["retracted"] is True
    services.articles = [PREPRINT | {"commentCorrectionList": {"commentCorrection": [{"type": "Retraction in"}]}}]
    (preprint,) = documents(fetch(settings, ArticleRequest(dois=("10.1101/2020.01.01",)))).values()
    assert preprint.metadata["retracted"] is True


def test_full_text_replaces_the_abstract_and_keeps_what_pubmed_says(
    services: LiteratureServices, settings: Settings, data_folder: Path
) -> None:
    number = '<ArticleId IdType="pmc">PMC3460867</ArticleId>'
    services.records["23029536"] = pubmed_record(23029536, more=RETRACTION, identifiers=number)
    services.records["2"] = pubmed_record(2, identifiers='<ArticleId IdType="pmc">PMC2</ArticleId>')
    services.full_texts["PMC3460867"] = (data_folder / "pubmed_xml/pone.0046493.nxml").read_text()
    request = ArticleRequest(pmids=("23029536", "2"), full_text=True)
    fetched = fetch(settings, request)
    found = documents(fetched)
    assert list(found) == ["pmc:PMC3460867", "pubmed:2"], "an abstract without an open full text stays"
    text = found["pmc:PMC3460867"]
    assert len(text.text) > 10_000
    assert (text.metadata["pmid"], text.metadata["retracted"]) == ("23029536", True)
    assert text.metadata["publication_types"] == ["Randomized Controlled Trial"]
    assert any(title == "Abstract" for _, _, title in text.metadata["sections"])
    count = len(services.asked)
    assert list(documents(fetch(settings, request))) == list(found)
    assert len(services.asked) == count, "texts, and the lack of one, are in the cache"


@pytest.mark.slow
def test_second_request_within_days_asks_nobody_and_a_later_one_asks_again(
    services: LiteratureServices, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.results["aspirin"] = ["1"]
    services.records["1"] = pubmed_record(1)
    services.articles = [PREPRINT]
    request = ArticleRequest(dois=("10.1101/2020.01.01",), searches=("aspirin",))
    first = fetch(settings, request)
    assert services.functions() == ["eutils/esearch.fcgi", "rest/search", "eutils/efetch.fcgi"]
    assert fetch(settings, request).items == first.items
    assert len(services.asked) == 3
    path = settings.home / CACHE_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    class LaterCache(ResponseCache):
        def __init__(self, home: Path, max_days: float) -> None:
            import time

            super().__init__(home, max_days, lambda: time.time() + 8 * 86_400)

    monkeypatch.setattr(articles_module, "ResponseCache", LaterCache)
    assert fetch(settings, request).items == first.items
    assert len(services.asked) == 6


@pytest.mark.slow
def test_service_that_stays_busy_leaves_named_gaps_that_the_same_command_fills(
    services: LiteratureServices, settings: Settings
) -> None:
    services.records.update({str(pmid): pubmed_record(pmid) for pmid in range(1, 301)})
    pmids = tuple(map(str, range(1, 301)))
    services.failures = [(503, {})] * 4
    fetched = fetch(settings, ArticleRequest(pmids=pmids))
    assert len(documents(fetched)) == 100
    reasons = set(skipped(fetched).values())
    assert reasons == {
        "PubMed gave no records: it answered with status 503, 4 times; the same command asks again for what is missing"
    }
    assert len(documents(fetch(settings, ArticleRequest(pmids=pmids)))) == 300


def test_page_in_place_of_a_response_is_no_answer(
    services: LiteratureServices, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "<html><body><p>Maintenance</p></body></html>"
    monkeypatch.setattr(services, "answer", lambda function, parameters: (200, page))
    fetched = fetch(settings, ArticleRequest(pmids=("1",), dois=("10.1/x",), searches=("aspirin",)))
    assert set(skipped(fetched)) == {"PMID 1", "DOI 10.1/x", "search 1"}
    assert all("something else" in reason for reason in skipped(fetched).values())


def test_client_waits_for_its_turn_and_as_long_as_the_service_asks(services: LiteratureServices) -> None:
    waits: list[float] = []
    services.failures = [(429, {"Retry-After": "7"}), (500, {})]
    services.records["1"] = pubmed_record(1)
    with WebClient(f"{services.url}/eutils", 4, None, waits.append, lambda: 100.0) as client:
        client.get("efetch.fcgi", {"id": "1"})
        assert waits == [7.0, 0.25, 2.0, 0.5], "the rate limit holds for repeated requests, too"
        services.failures = [(429, {"Retry-After": "7200"})]
        with pytest.raises(ServiceFailed, match=r"it answered with status 429$"):
            client.get("efetch.fcgi", {"id": "1"})


def test_client_follows_no_redirect_and_never_shows_its_key(services: LiteratureServices) -> None:
    services.failures = [(302, {"Location": "http://127.0.0.1:9/other"})]
    client = WebClient(services.url, 4, {"api_key": "secret"}, lambda seconds: None)
    with client, pytest.raises(RequestRejected, match="it answered with status 302"):
        client.get("eutils/efetch.fcgi", {"id": "1"})
    client = WebClient("http://127.0.0.1:9", 4, {"api_key": "secret"}, lambda seconds: None)
    with client, pytest.raises(ServiceFailed) as caught:
        client.get("efetch.fcgi", {"id": "1"})
    assert str(caught.value) == "it cannot be reached (ConnectError), 4 times"


def test_key_of_ncbi_is_sent_and_allows_ten_requests_per_second(
    services: LiteratureServices, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCBI_API_KEY", "abc123")
    with open_services(settings) as opened:
        assert opened.pubmed._interval == pytest.approx(0.1)
        fetch_articles(opened, ArticleRequest(pmids=("5",)))
        assert opened.europe_pmc._interval == pytest.approx(1 / 3)
    assert services.asked[0][1]["api_key"] == "abc123"


def test_request_names_only_the_hosts_that_it_contacts() -> None:
    literature = Settings().literature
    assert ArticleRequest(pmids=("1",)).hosts(literature) == ("eutils.ncbi.nlm.nih.gov",)
    both = ("eutils.ncbi.nlm.nih.gov", "www.ebi.ac.uk")
    assert ArticleRequest(dois=("10.1/x",)).hosts(literature) == both
    assert ArticleRequest(pmids=("1",), full_text=True).hosts(literature) == both


def test_full_text_of_a_retracted_article_comes_with_statements_about_others(
    services: LiteratureServices, settings: Settings, data_folder: Path
) -> None:
    notice = RETRACTION.replace("RetractionIn", "RetractionOf")
    number = '<ArticleId IdType="pmc">PMC3460867</ArticleId>'
    services.records["23029536"] = pubmed_record(23029536, more=notice, identifiers=number)
    services.full_texts["PMC3460867"] = (data_folder / "pubmed_xml/pone.0046493.nxml").read_text()
    items: list[ReaderItem] = fetch(settings, ArticleRequest(pmids=("23029536",), full_text=True)).items
    (statement,) = (item for item in items if isinstance(item, ArticleStatement))
    assert (statement.targets, statement.mark) == (("pubmed:33",), "retracted")
