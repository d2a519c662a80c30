"""Answer medical questions from long evidence, and quote the passages that support each answer.

    import epicrisis
    answer = epicrisis.ask("~/lib", "Is aspirin of use in suspected myocardial infarction?", ["yes", "no"])
    print(answer.choice, answer.text, answer.citations)

Not a medical device. The names in `__all__` are public and imported at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epicrisis.answers import Answer, Citation, Event
    from epicrisis.api import ask, stream
    from epicrisis.pipeline import Pipeline
    from epicrisis.serialization import to_json
    from epicrisis.settings import Settings
    from epicrisis.types import Document, Passage, Question, Ranking, Scope

__version__ = "0.2.0"

__all__ = [
    "Answer",
    "Citation",
    "Document",
    "Event",
    "Passage",
    "Pipeline",
    "Question",
    "Ranking",
    "Scope",
    "Settings",
    "ask",
    "stream",
    "to_json",
]

_MODULES = {
    "answers": ("Answer", "Citation", "Event"),
    "api": ("ask", "stream"),
    "pipeline": ("Pipeline",),
    "serialization": ("to_json",),
    "settings": ("Settings",),
    "types": ("Document", "Passage", "Question", "Ranking", "Scope"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"epicrisis.{module}"), name)
    raise AttributeError(f"epicrisis has no {name!r}; its public names are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
