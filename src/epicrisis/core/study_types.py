"""The type of a study, from PubMed's publication types, MeSH terms and article types, or else from its own words.

The type says how a study was done, and nothing about how well. It is no GRADE rating, which is given to a body of
evidence. `STUDY_TYPES` is the complete table; its order is the order of preference when several rows match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from epicrisis.core.types import Metadata

StudyType: TypeAlias = Literal[
    "guideline",
    "systematic-review",
    "randomised-trial",
    "clinical-trial",
    "cohort",
    "case-control",
    "cross-sectional",
    "case-report",
    "narrative-review",
    "opinion",
    "protocol",
    "preprint",
    "laboratory",
]
StudyTypeBasis: TypeAlias = Literal["publication type", "MeSH", "title", "abstract"]

_ANIMALS, _HUMANS = "animals", "humans"
_EXPERIMENTS: frozenset[StudyType] = frozenset({"randomised-trial", "clinical-trial", "case-report"})
_CLEAR_TITLES: frozenset[StudyType] = frozenset({"randomised-trial", "systematic-review", "protocol"})
"""Types whose words in a title are clearer than MeSH terms of the design."""
_TRIALS: frozenset[StudyType] = frozenset({"randomised-trial", "clinical-trial"})
_RANDOMISED = r"(?:randomi[sz]ed|(?<!ed )(?<!ed, )(?:double[- ]blind(?:ed)?|placebo[- ]controlled))"
_OTHERS_TRIALS = rf"(?<!two )(?<!three )(?<!four )(?<!both ){_RANDOMISED},? (?:[\w-]+,? ){{0,4}}(?:trials|studies|RCTs)"
"""Trials in the plural are those of others: the studies of a review, or the background of a report."""
_EMULATION = r"(?:target|hypothetical) trial|trial emulation|emulat\w+ (?:[\w-]+ ){0,4}trial|Mendelian randomi[sz]ation"
"""Observational studies that borrow the words of trials."""
_DENIAL = re.compile(
    rf"\b(?:(?:non|quasi|pseudo)[- ]?randomi[sz]|not (?:(?:an?|been|be|yet) ){{0,2}}randomi[sz]|"
    rf"(?:no|without|lack of|absence of) randomi[sz]ation|{_EMULATION})",
    re.IGNORECASE,
)
"""Words that say that a study randomised nobody."""
_OTHER_TRIAL = re.compile(
    rf"\b(?:{_OTHERS_TRIALS}|letter|should|(?:is|are|be|seems?) (?:[\w-]+ )?(?:needed|warranted|required|justified)|"
    r"(?:future|further|larger|previous|prior|earlier|recent|another) (?:[\w,-]+ ){0,5}(?:trial|study|research))\b",
    re.IGNORECASE,
)
"""Words of a sentence that tells of another trial than the study's own: one before it, or one to come."""
_SENTENCE_END = re.compile(r"[.;:]\s")
_ANIMAL_SUBJECTS = re.compile(r"\b(?:animals|mice|mouse|rats?|murine|rabbits?|rodents?|piglets?)\b", re.IGNORECASE)
"""Those who were randomised, if a sentence that says so names them."""
_ABSTRACT: tuple[tuple[StudyType, re.Pattern[str]], ...] = (
    (
        "opinion",
        re.compile(
            r"\A\W{0,3}(?:dear (?:editor|sir)|to the editor|in this issue\b|"
            r"(?:we|i) (?:have )?(?:recently )?read (?:[^.]{0,200}? )?with (?:\w+ )?interest)",
            re.I,
        ),
    ),
    (
        "systematic-review",
        re.compile(r"\b(?:we|were|was) (?:systematically (?:reviewed|searched)|searched (?:MEDLINE|PubMed))", re.I),
    ),
    (
        "randomised-trial",
        re.compile(
            r"\b(?:randomly (?:assigned|allocated|divided)|randomi[sz]ed|"
            r"(?:at|after|before|following) randomi[sz]ation|allocated (?:[\w-]+ ){0,3}1:1|"
            r"placebo[- ]controlled (?:[\w-]+ ){0,3}(?:trial|study))\b",
            re.I,
        ),
    ),
    ("case-control", re.compile(r"\bcase[- ]control study\b", re.I)),
    (
        "cohort",
        re.compile(
            r"\b(?:cohort study|(?:pro|retro)spective(?:ly)? (?:cohort|study|review|followed))",
            re.I,
        ),
    ),
    ("cross-sectional", re.compile(r"\bcross[- ]sectional study\b", re.I)),
)
"""Words of an abstract, used only if its title matches no row, or shows a trial and not whether it was randomised."""


@dataclass(frozen=True, slots=True)
class StudyTypeRow:
    """One row of the table. A document has the type if any of its terms matches, compared without case."""

    type: StudyType
    label: str
    """The words on the screen and in prompts."""
    publication_types: frozenset[str] = frozenset()
    """PubMed's publication types and the article types of JATS."""
    mesh: frozenset[str] = frozenset()
    """MeSH descriptors."""
    title: re.Pattern[str] | None = None
    """Words of a title, used only if nothing else of the document matches a row."""


_REPLY = (
    "^re(?=:)|^in reply|authors?['’]?s? (?:reply|response)|^(?:response|reply|rebuttal)(?= from )|"
    "^(?:reply|response|response to|comments?|letter|rebuttal|correspondence|discussion of)(?=:)|^comments? on|"
    "^invited comment\\w*|"
    "(?<=[:.–-] )(?:reply|response|rebuttal)(?=[.]?$)|"
    "^(?:in )?(?:response|rebuttal) to(?= (?:the (?:letter|comment|author)|[\"“‘'«]|drs? |prof))"
)
_RESPONSE = "^response to(?= [^:]{1,40}:(?!.*(?:randomi|trial|study|cohort|blind|placebo|analysis|review)))"
"""A response to a person or to a drug, which only other words of the title tell apart."""
_NOTICE = (
    "errat(?:um|a)|corrigend(?:um|a)|addendum|correction to|^(?:(?:author|publisher) )?correction(?=:)|"
    "^(?:retraction|expression of concern)(?: notice| note)?(?=:)"
)
_NOTICE_TYPES = frozenset(
    {"published erratum", "retraction of publication", "retraction notice", "expression of concern"}
)
_NO_TRIAL = re.compile(
    r"\b(?:secondary (?:\w+ )?analys[ei]s|post[- ]hoc|sub-?group analys[ei]s|qualitative|process evaluation|fidelity|"
    r"missing data|imputation|cost[- ]effectiveness|cost[- ]utility|economic|recruitment|trial design|trialists?|"
    r"generali[sz]ability|informed consent|lessons|characteristics|sub-?study|methodology|willingness|participation|"
    r"to (?:clinical )?practice|observational|retrospective|cohort|case[- ]matched|trial on a|"
    rf"predictors? of|correlates?|repl(?:y|ies) to|{_REPLY}|comment(?:ary)? on|letter to|editorial|"
    rf"{_RESPONSE}|{_NOTICE}|{_OTHERS_TRIALS}|systematic reviews|{_EMULATION})\b",
    re.IGNORECASE,
)
"""Titles of work about trials or reviews, which is not the comparison that the trial randomised."""


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)


STUDY_TYPES: tuple[StudyTypeRow, ...] = (
    StudyTypeRow(
        "protocol",
        "study protocol",
        frozenset({"clinical trial protocol"}),
        title=_words(
            "protocol (?:for|of (?:a|an|the)|and rationale)|(?:study|trial|review) protocol|"
            r"(?:rationale and (?:study )?design|design and rationale|study design|(?<!factorial )design) (?:for|of) "
            "(?:a|an|the|this)"
        ),
    ),
    StudyTypeRow("preprint", "preprint, not peer-reviewed", frozenset({"preprint"})),
    StudyTypeRow(
        "guideline",
        "guideline",
        frozenset(
            {
                "guideline",
                "practice guideline",
                "consensus development conference",
                "consensus development conference, nih",
            }
        ),
        title=re.compile(
            r"^(?!.*\b(?:implement\w*|adher\w*|complian\w*|concord\w*|accord\w*|relation|impact|effects?|use|utili\w+|"
            r"following|appl\w+|awareness|knowledge|evaluat\w+|assess\w*|comparison|compar\w+|versus|trial|study|"
            r"survey|attitudes|barriers|uptake|dissemination|improv\w+)\b)"
            r".*(?:^|[:.] |\b(?:practice|consensus|clinical|society|college|association|force|joint|group|\d{4}) )"
            r"(?:guidelines?\b(?!-)|consensus statement\b)",
            re.IGNORECASE,
        ),
    ),
    StudyTypeRow(
        "systematic-review",
        "systematic review or meta-analysis",
        frozenset({"meta-analysis", "systematic review", "network meta-analysis", "systematic-review"}),
        title=_words(
            r"(?<!quality of )systematic (?:literature )?review|"
            r"(?<!treatment )(?<!in )(?<!for )(?<!of )meta-?analys[ie]s|"
            "cochrane review|umbrella review|pooled analysis"
        ),
    ),
    StudyTypeRow(
        "laboratory",
        "animal or laboratory study",
        mesh=frozenset({"in vitro techniques"}),
        title=_words(
            "mice|mouse|rats?|murine|rabbits?|zebrafish|in vitro|animal models?|rodents?|porcine|canine|feline|bovine|"
            r"(?:in|of) (?:[\w-]+ ){0,2}(?:cats|dogs|pigs|piglets|sheep|lambs|goats|cattle|horses|monkeys|macaques|"
            "hamsters|gerbils|chickens|drosophila)"
        ),
    ),
    StudyTypeRow(
        "randomised-trial",
        "randomised trial",
        frozenset(
            {"randomized controlled trial", "equivalence trial", "pragmatic clinical trial", "adaptive clinical trial"}
        ),
        mesh=frozenset({"double-blind method", "random allocation"}),
        title=_words(r"randomi[sz]ed|randomi[sz]ation|double[- ]blind(?:ed)?|placebo[- ]controlled|\brct"),
    ),
    StudyTypeRow(
        "clinical-trial",
        "clinical trial, not known to be randomised",
        frozenset(
            {
                "clinical trial",
                "controlled clinical trial",
                "clinical trial, phase i",
                "clinical trial, phase ii",
                "clinical trial, phase iii",
                "clinical trial, phase iv",
            }
        ),
        title=_words(r"trial|(?:controlled|open[- ]label|phase (?:[1-4]|i{1,3}|iv)[ab]?) (?:\w+ )?study"),
    ),
    StudyTypeRow(
        "case-control",
        "case-control study",
        mesh=frozenset({"case-control studies"}),
        title=_words("case[- ]control(?:led)?"),
    ),
    StudyTypeRow(
        "cohort",
        "cohort study",
        mesh=frozenset(
            {
                "cohort studies",
                "longitudinal studies",
                "follow-up studies",
                "prospective studies",
                "retrospective studies",
            }
        ),
        title=_words(
            r"cohort|(?:pro|retro)spective(?:ly)? (?:[\w-]+ ){0,3}(?:study(?! design)|analysis|evaluation|"
            r"follow-up|review|audit|series|observation\w*|assessment)|"
            r"longitudinal (?:[\w-]+ ){0,2}(?:study|analysis|follow-up|assessment)|"
            "registry|follow[- ]up study"
        ),
    ),
    StudyTypeRow(
        "cross-sectional",
        "cross-sectional study",
        mesh=frozenset({"cross-sectional studies"}),
        title=_words("cross[- ]sectional|survey|prevalence (?:of|and|in)"),
    ),
    StudyTypeRow(
        "case-report",
        "case report",
        frozenset({"case reports", "case-report"}),
        title=_words(
            r"case (?:reports?|series)|(?:a|two|three) cases? of|(?:review|report|analysis) of \d+ (?:cases|patients)"
        ),
    ),
    StudyTypeRow(
        "narrative-review",
        "narrative review",
        frozenset({"review", "review-article", "scientific integrity review"}),
        title=_words(
            "(?:a|an|literature|narrative|scoping|clinical|brief) "
            "(?:(?!rapid|realist|integrative|chart|record)\\w+ )?review|review of(?: the)? literature"
        ),
    ),
    StudyTypeRow(
        "opinion",
        "editorial, letter or comment",
        frozenset({"editorial", "comment", "letter", "news", "article-commentary"}),
        title=_words(f"editorial|commentary|letter to the editor|comment on|repl(?:y|ies) to|{_REPLY}"),
    ),
)
_ROWS = {row.type: row for row in STUDY_TYPES}
assert set(_ROWS) == set(get_args(StudyType))


@dataclass(frozen=True, slots=True)
class StudyTypeMatch:
    """The type of a study and what it was read from."""

    type: StudyType
    basis: StudyTypeBasis

    @property
    def name(self) -> str:
        """The type in words."""
        return _ROWS[self.type].label

    @property
    def label(self) -> str:
        """The words for a reader. A type read from the title or abstract says so."""
        return f"{self.name} (by its {self.basis})" if self.basis in ("title", "abstract") else self.name


def find_study_type(metadata: Metadata, title: str = "", abstract: str = "") -> StudyTypeMatch | None:
    """Return the type of a study, or None if nothing in its metadata, title or abstract shows it.

    Publication types decide before MeSH terms, these before the title, and the title before the abstract. A study with
    the MeSH term `Animals` and without `Humans` is a laboratory study, unless it is a review or a guideline. A title
    that says randomised, systematic review or protocol decides before MeSH terms, because trials are often indexed
    with `Follow-Up Studies`. Where a title says only "trial", the abstract may show that it was randomised. Notices of
    errors and retractions have no type.
    """
    types = _lower(metadata.get("publication_types"))
    mesh = {term.split("/")[0].rstrip("*") for term in (*_lower(metadata.get("mesh")), *_lower(metadata.get("meshes")))}
    if types & _NOTICE_TYPES:
        return None
    in_animals = _ANIMALS in mesh and _HUMANS not in mesh
    by_words = _read_words(title, abstract)
    for row in STUDY_TYPES:
        if row.publication_types & types and not (in_animals and row.type in _EXPERIMENTS):
            if row.type == "narrative-review" and by_words == StudyTypeMatch("systematic-review", "title"):
                # Databases call both a review.
                return by_words
            return StudyTypeMatch(row.type, "publication type")
    if in_animals:
        return StudyTypeMatch("laboratory", "MeSH")
    if by_words is not None and by_words.basis == "title" and by_words.type in _CLEAR_TITLES:
        return by_words
    for row in STUDY_TYPES:
        if row.mesh & mesh:
            return StudyTypeMatch(row.type, "MeSH")
    return by_words


@lru_cache(maxsize=1024)
def _read_words(title: str, abstract: str) -> StudyTypeMatch | None:
    """Return the type that the words of a title or abstract show. Work about a trial has none."""
    about_trial = _NO_TRIAL.search(title) is not None
    excluded = _TRIALS if about_trial else _find_denied(title)
    rows = [row for row in STUDY_TYPES if row.title is not None and row.type not in excluded]
    by_title = next((row.type for row in rows if row.title is not None and row.title.search(title)), None)
    if by_title in (None, "clinical-trial") and not about_trial:
        by_abstract = _read_abstract(abstract, excluded)
        if by_abstract == "randomised-trial" or (by_abstract and not by_title):
            return StudyTypeMatch(by_abstract, "abstract")
    return StudyTypeMatch(by_title, "title") if by_title else None


def _read_abstract(abstract: str, excluded: frozenset[StudyType]) -> StudyType | None:
    """Return the type that an abstract shows. Of a randomised trial only its own sentences count."""
    own = [text for text in _SENTENCE_END.split(abstract) if not _OTHER_TRIAL.search(text)]
    excluded |= _find_denied(abstract)
    for study_type, pattern in _ABSTRACT:
        texts = own if study_type == "randomised-trial" else [abstract]
        matching = [text for text in texts if pattern.search(text)]
        if matching and study_type not in excluded:
            is_animal = study_type == "randomised-trial" and any(map(_ANIMAL_SUBJECTS.search, matching))
            return "laboratory" if is_animal else study_type
    return None


def _find_denied(text: str) -> frozenset[StudyType]:
    return frozenset({"randomised-trial"}) if _DENIAL.search(text) else frozenset()


def _lower(values: object) -> frozenset[str]:
    """Return the texts of a list in lower case; values of an unexpected type are ignored."""
    items: Iterable[object] = values if isinstance(values, list | tuple) else ()
    return frozenset(item.casefold() for item in items if isinstance(item, str))
