"""C-CDA documents as two senders write them: with the default namespace (Epic) and with a prefix (Cerner)."""

from __future__ import annotations

import base64
from collections.abc import Sequence

EPIC_ROOT, CERNER_ROOT = "1.2.840.114350.1.13.99", "2.16.840.1.113883.3.787"


def section(title: str, narrative: str, inner: Sequence[str] = (), code: str = "10164-2", entry: str = "") -> str:
    """Return a section with its narrative block in CDA's markup."""
    children = "".join(f"<component>{child}</component>" for child in inner)
    heading = f"<title>{title}</title>" if title else ""
    block = f"<text>{narrative}</text>" if narrative else ""
    return (
        f'<section><code code="{code}" codeSystem="2.16.840.1.113883.6.1" displayName="Coded name"/>'
        f"{heading}{block}{entry}{children}</section>"
    )


def document(
    sections: Sequence[str] = (),
    *,
    number: str = "D1",
    patient: str = "4711",
    root: str = EPIC_ROOT,
    given: str = "Ada",
    family: str = "Byron",
    born: str = "19501231",
    code: str = "18842-5",
    display: str = "Discharge Summary",
    time: str = "20150622083000-0500",
    relation: str = "",
    version: str = "",
    encounter: str = "",
    body: str = "",
    more_ids: str = "",
    targets: int = 1,
    status: str = "",
) -> str:
    """Return a document with the default namespace, as Epic writes it."""
    components = "".join(f"<component>{part}</component>" for part in sections)
    content = body or f"<structuredBody>{components}</structuredBody>"
    target = (
        f'<recordTarget><patientRole><id root="{root}" extension="{patient}"/>{more_ids}'
        f'<id nullFlavor="UNK"/><patient><name use="L"><given>{given}</given><given qualifier="CL">Addie</given>'
        f'<family>{family}</family></name><birthTime value="{born}"/></patient></patientRole></recordTarget>'
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><?xml-stylesheet type="text/xsl" href="STYLE.XSL"?>'
        '<ClinicalDocument xmlns="urn:hl7-org:v3" xmlns:sdtc="urn:hl7-org:sdtc" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><realmCode code="US"/>'
        '<templateId root="2.16.840.1.113883.10.20.22.1.1" extension="2015-08-01"/>'
        f'<id root="{root}.7" extension="{number}"/><code code="{code}" displayName="{display}"/>'
        f'<title>{display} of the stay</title>{status}<effectiveTime value="{time}"/>{version}{target * targets}'
        '<author><time value="20150622"/><assignedAuthor><id nullFlavor="NI"/><code displayName="Internal Medicine"/>'
        "<assignedPerson><name><given>Jane</given><family>Roe</family></name></assignedPerson></assignedAuthor></author>"
        f"{relation}{encounter}<component>{content}</component></ClinicalDocument>"
    )


def prefixed(text: str, prefix: str = "cda") -> str:
    """Return the document with a prefix on every tag and one element a line, as Cerner writes it."""
    text = text.replace('xmlns="urn:hl7-org:v3"', f'xmlns:{prefix}="urn:hl7-org:v3"')
    head, _, rest = text.partition("<ClinicalDocument")
    rest = "<ClinicalDocument" + rest
    rest = (
        rest.replace("</", f"</{prefix}:").replace("<", f"<{prefix}:").replace(f"<{prefix}:/{prefix}:", f"</{prefix}:")
    )
    return head + rest.replace("><", ">\n<")


def related(code: str, number: str, root: str = EPIC_ROOT) -> str:
    """Return a relation to an earlier document."""
    return (
        f'<relatedDocument typeCode="{code}"><parentDocument><id root="{root}.7" extension="{number}"/>'
        "</parentDocument></relatedDocument>"
    )


def encounter(low: str, high: str, code: str = "IMP", number: str = "E1") -> str:
    """Return an encounter with its class and days."""
    return (
        f'<componentOf><encompassingEncounter><id root="1.2.3" extension="{number}"/><code code="{code}"/>'
        f'<effectiveTime><low value="{low}"/><high value="{high}"/></effectiveTime>'
        "</encompassingEncounter></componentOf>"
    )


def unstructured(data: bytes, kind: str) -> str:
    """Return a body that is an embedded file."""
    packed = base64.b64encode(data).decode()
    return f'<nonXMLBody><text mediaType="{kind}" representation="B64">{packed}</text></nonXMLBody>'


LABORATORY_TABLE = (
    "<table><caption>Results</caption><thead><tr><th>Component</th><th>Value</th><th>Range</th></tr></thead><tbody>"
    '<tr><td ID="r1">Hemoglobin</td><td>9.1 g/dL<sup>a</sup></td><td>12-16</td></tr>'
    "<tr><td>Platelets</td><td>85 x10<sup>3</sup>/uL</td><td/></tr>"
    '<tr><td colspan="3">Specimen hemolyzed</td></tr></tbody></table>'
)
