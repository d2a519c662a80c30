"""Answer medical questions from long evidence, and quote the passages that support each answer.

    import epicrisis
    with epicrisis.Library.open("~/lib") as library:
        answer = library.ask("Is aspirin of use in suspected myocardial infarction?")
        print(answer.text, answer.citations)

Not a medical device. The names in `__all__` are public and imported at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epicrisis.api import Library, ask, stream
    from epicrisis.core.answers import Answer, Citation, Event
    from epicrisis.core.errors import EpicrisisError
    from epicrisis.core.serialization import to_json
    from epicrisis.core.types import Document, Hit, Passage, Question, Ranking, Scope, SentenceRanking
    from epicrisis.evaluation.analysis.dataframe import runs_to_dataframe
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.report.citation_styles import write_references
    from epicrisis.settings.settings import Settings

__version__ = "0.2.0"

__all__ = [
    "Answer",
    "Citation",
    "Document",
    "EpicrisisError",
    "Event",
    "Hit",
    "Library",
    "Passage",
    "Pipeline",
    "Question",
    "Ranking",
    "Scope",
    "SentenceRanking",
    "Settings",
    "ask",
    "runs_to_dataframe",
    "stream",
    "to_json",
    "write_references",
]

_MODULES = {
    "core.answers": ("Answer", "Citation", "Event"),
    "api": ("Library", "ask", "stream"),
    "core.errors": ("EpicrisisError",),
    "evaluation.analysis.dataframe": ("runs_to_dataframe",),
    "pipeline.pipeline": ("Pipeline",),
    "report.citation_styles": ("write_references",),
    "core.serialization": ("to_json",),
    "settings.settings": ("Settings",),
    "core.types": ("Document", "Hit", "Passage", "Question", "Ranking", "Scope", "SentenceRanking"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"epicrisis.{module}"), name)
    raise AttributeError(f"epicrisis has no {name!r}; its public names are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
