"""Remove the markup that publishers and databases leave in titles and abstracts: HTML, JATS, PubMed's tags, entities.

    remove_markup("<h3>Results</h3>10<sup>9</sup> cells (p &lt; 0.05)")  # "Results: 10^9 cells (p < 0.05)"

Only known tags are removed, so `p < 0.05` stays. Raised and lowered text and formulas are written as in `xml_text`.
"""

from __future__ import annotations

import html
import re

from epicrisis.corpus.base.xml_text import element_text

KNOWN_TAG = re.compile(
    r"""<(?P<close>/)?(?:(?P<prefix>mml|jats|xlink|ce|m):)?(?P<name>(?(prefix)[a-z-]{1,40}|(?:sup|sub|inf|sc|i|b|u|s|em|strong|small
    |strike|big|tt|italic|bold|underline|monospace|roman|br|hr|break|p|div|span|font|a|ul|ol|li|dl|dt|dd|h[1-6]|table|tbody|thead
    |t[rdh]|img|center|blockquote|section|abstract|xref|ext-link|uri|email|sec|title|label|list|list-item|styled-content
    |named-content|alternatives|graphic|inline-graphic|math|m(?:i|n|o|row|sup|sub|frac|text|style|space|fenced|sqrt)
    |inline-formula|disp-formula|tex-math|abstracttext|copyrightinformation)))
    (?P<attributes>(?:\s{1,3}[\w:-]{1,40}=[^<>]{1,300}|\s)?)(?P<empty>/)?>""",
    re.IGNORECASE | re.VERBOSE,
)
_ESCAPED_TAG = re.compile(r"&(?:amp;){0,3}lt;/?[A-Za-z][\w:-]{0,40}(?:\s[^<>]{0,300})?&(?:amp;){0,3}gt;")
_ESCAPED_ENTITY = re.compile(r"&amp;(?:amp;){0,3}(?:[A-Za-z]{2,8}|#\d{1,5});")
_LABEL = re.compile(r"\blabel=[\"']([^\"'<>]{1,100})[\"']", re.IGNORECASE)
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff\u2028\u2029]")
"""Characters that XML forbids, and those that divide lines here."""
_SPACED_POWER = re.compile(r"(?<![\d.,])10\s(?=<(?:jats:)?sup\b)")
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6", "title"))
_BLOCKS = frozenset(
    "p div br hr break ul ol li dl dt dd table tbody thead tr td th center blockquote section abstract abstracttext "  # noqa: SIM905
    "sec list list-item disp-formula copyrightinformation".split()
)
_EMPTY = frozenset(("br", "hr", "break", "img", "mspace", "graphic", "inline-graphic"))
_MAX_DEPTH = 60
_LINE_END = "\u2028"


def remove_markup(text: str) -> str:
    """Return a text on one line without its markup."""
    return " ".join(split_sections(text))


def split_sections(text: str) -> list[str]:
    """Return the lines of a text without its markup. A heading begins a line: `Background: Few data exist.`"""
    if "<" not in text and "&" not in text:
        lines = [text]
    else:
        for _ in range(2):
            if _ESCAPED_TAG.search(text) or _ESCAPED_ENTITY.search(text):
                text = html.unescape(text)
        if KNOWN_TAG.search(text):
            from lxml import etree

            root = etree.fromstring(_write_xml(_SPACED_POWER.sub("10", text)))
            lines = element_text(root).split(_LINE_END)
        else:
            lines = [html.unescape(text)]
    return [joined for line in lines if (joined := " ".join(line.split())) and joined.casefold() != "abstract:"]


def _write_xml(text: str) -> str:
    """Return the text as well-formed XML: known tags without prefixes and attributes, everything else as characters."""
    pieces = ["<text>"]
    open_names: list[str] = []
    position = 0
    last_text = ""
    for match in KNOWN_TAG.finditer(text):
        pieces.append(_escape(text[position : match.start()]))
        last_text = pieces[-1].strip() or last_text
        position = match.end()
        name = match["name"].lower()
        if match["close"]:
            if name in _HEADINGS and last_text[-1:] not in ("", *":.?!") and text[position:].strip():
                pieces.append(":")
            while name in open_names:
                last = open_names.pop()
                pieces.append(f"</{last}>")
                if last == name:
                    break
            pieces.append(" " if name in _BLOCKS or name in _HEADINGS else "")
            continue
        label = _LABEL.search(match["attributes"]) if name in ("abstracttext", "sec", "p") else None
        pieces.append(_LINE_END if name in _HEADINGS or label else " " if name in _BLOCKS else "")
        if not (match["empty"] or name in _EMPTY or len(open_names) >= _MAX_DEPTH):
            open_names.append(name)
            pieces.append(f"<{name}>")
        if label:
            pieces.append(f"{_escape(label[1].strip().rstrip(':'))}: ")
    pieces.append(_escape(text[position:]))
    pieces += [f"</{name}>" for name in reversed(open_names)]
    return "".join((*pieces, "</text>"))


def _escape(text: str) -> str:
    return html.escape(_FORBIDDEN.sub(" ", html.unescape(_FORBIDDEN.sub(" ", text))), quote=False)
