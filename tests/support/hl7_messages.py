"""Messages of HL7 v2 as two senders write them: a laboratory with `|^~\\&`, and a transcription service with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LABORATORY, RADIOLOGY = "LAB|GENHOSP", "RAD|COUNTY"


def message(
    kind: str,
    *segments: str,
    sender: str = LABORATORY,
    sent: str = "20150304101500-0500",
    control: str = "M1",
    charset: str = "",
) -> str:
    """Return a message; its segments are separated by CR."""
    header = rf"MSH|^~\&|{sender}|EPIC|GENHOSP|{sent}||{kind}|{control}|P|2.5.1||||||{charset}"
    return "\r".join((header, *segments)) + "\r"


def pid(number: str = "4711", name: str = "Byron^Ada", born: str = "19501231", more: str = "") -> str:
    """Return a PID segment whose number has an authority."""
    return f"PID|1||{number}^^^GENHOSP&1.2.3.4&ISO^MR{more}||{name}||{born}|F"


def segment(name: str, values: Mapping[int, str]) -> str:
    """Return a segment with these fields by number."""
    return "|".join((name, *(values.get(number, "") for number in range(1, max(values) + 1))))


def visit(patient_class: str = "I", number: str = "V1", admitted: str = "", discharged: str = "") -> str:
    """Return a PV1 segment."""
    return f"PV1|1|{patient_class}{'|' * 17}{number}{'|' * 25}{admitted}|{discharged}"


def order(number: str, name: str, time: str = "20150304093000", service: str = "LAB", status: str = "F") -> str:
    """Return an OBR segment; `time` is that of specimen and report."""
    return f"OBR|1|P{number}|{number}|{name}|||{time}{'|' * 15}{time}||{service}|{status}"


def result(kind: str, name: str, value: str, unit: str = "", span: str = "", flag: str = "", status: str = "F") -> str:
    """Return an OBX segment."""
    return f"OBX|1|{kind}|{name}||{value}|{unit}|{span}|{flag}|||{status}"


def document(
    number: str,
    lines: Sequence[str],
    *,
    event: str = "T02",
    parent: str = "",
    completion: str = "AU",
    availability: str = "AV",
    sent: str = "20150306120000",
    person: str = "",
) -> str:
    """Return an MDM message with the lines of a document."""
    txa = (
        f"TXA|1|DS^Discharge Summary|TX|20150306||20150306110000|||88^Roe^Jane|||{number}^TRANS|{parent}||||"
        f"{completion}||{availability}"
    )
    texts = [f"OBX|{index}|TX|||{line}||||||F" for index, line in enumerate(lines, 1)]
    return message(f"MDM^{event}", person or pid(), visit(), txa, *texts, sender="TRANS|GENHOSP", sent=sent)


def with_signs(text: str, signs: str = "#*%@!") -> str:
    """Return the message with other delimiters: field, component, repetition, escape, subcomponent."""
    return text.translate(str.maketrans("|^~\\&", signs))


def framed(*messages: str) -> bytes:
    """Return messages in the frames of MLLP."""
    return b"".join(b"\x0b" + text.encode() + b"\x1c\r" for text in messages)


def batch(*messages: str) -> str:
    """Return a file of one batch."""
    return "FHS|^~\\&|LAB\rBHS|^~\\&|LAB\r" + "".join(messages) + f"BTS|{len(messages)}\rFTS|1\r"
