"""Recognizers of Microsoft Presidio: numbers with check digits and fixed forms.

Its recognizers of addresses in mail and on the web are not used: they fetch a list of domains from the network. Nor is
its recognizer of names, which needs a model of spaCy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from epicrisis.core.errors import ModelMissing
from epicrisis.privacy.deidentification.spans import Identifier, IdentifierKind

if TYPE_CHECKING:
    from presidio_analyzer import PatternRecognizer

_KINDS: dict[str, IdentifierKind] = {
    "CREDIT_CARD": "account",
    "IBAN_CODE": "account",
    "CRYPTO": "account",
    "US_ITIN": "ssn",
    "US_SSN": "ssn",
    "UK_NHS": "record-number",
    "IP_ADDRESS": "ip",
    "MAC_ADDRESS": "device",
    "UUID": "other-id",
    "MEDICAL_LICENSE": "licence",
}
_LEAST_SCORE = 0.3
"""Weaker patterns of Presidio, such as any nine digits, need its model of the context."""


@lru_cache(maxsize=1)
def load_recognizers() -> tuple[PatternRecognizer, ...]:
    """Return the recognizers. Raise ModelMissing without the extra `deidentify`."""
    try:
        import faker  # noqa: F401
        import symspellpy  # noqa: F401
        from presidio_analyzer import predefined_recognizers as recognizers
    except ImportError as error:
        raise ModelMissing(
            f"de-identification needs the package {error.name}: pip install 'epicrisis[deidentify]'"
        ) from None
    classes = (
        recognizers.CreditCardRecognizer,
        recognizers.CryptoRecognizer,
        recognizers.IbanRecognizer,
        recognizers.IpRecognizer,
        recognizers.MacAddressRecognizer,
        recognizers.MedicalLicenseRecognizer,
        recognizers.NhsRecognizer,
        recognizers.UsItinRecognizer,
        recognizers.UsSsnRecognizer,
        recognizers.UuidRecognizer,
    )
    return tuple(recognizer() for recognizer in classes)


def find_with_presidio(text: str) -> Iterator[Identifier]:
    """Yield the identifiers that Presidio's recognizers find. They may overlap."""
    for recognizer in load_recognizers():
        for result in recognizer.analyze(text, recognizer.supported_entities, None):
            if result.score >= _LEAST_SCORE:
                yield Identifier(result.start, result.end, _KINDS[result.entity_type])
