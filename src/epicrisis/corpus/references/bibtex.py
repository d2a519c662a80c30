r"""Read BibTeX: the values of fields, and the LaTeX in them.

    read_values("author", '{Smith, A} # " and " # jones', {"jones": "Jones, B"})
    # {"author": "Smith, A and Jones, B"}
    decode_latex(r"p {\textless} 0.05")    # "p < 0.05"; `10\textsuperscript{9}` has its number raised

A value is text in braces or quotes, numbers and names of strings, joined by `#`. pylatexenc reads LaTeX. What it drops
is handled here: signs it does not know, macros with arguments, raised numbers. A macro that is known to neither keeps
its argument; one without an argument stays as it is written.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylatexenc.latex2text import LatexNodes2Text

_DOLLARS = re.compile(r"(?<!\\)\$([^$]{0,500})\$|(?<!\\)\$")
_FORMULA = re.compile(r"[\\^_<>=]")
_PER_CENT = re.compile(r"(?<!\\)%")
_AMPERSAND = re.compile(r"(?<!\\)&")
_LOWERED_GROUP = re.compile(r"(?<!\\)_\s?\{((?:[^{}]|\{[^{}]{0,200}\}){0,200})\}")
_LOWERED_LETTER = re.compile(r"(?<!\\)_\s?([A-Za-z0-9])")
_MACRO = re.compile(r"(?<!\\)((?:\\\\)*)\\([A-Za-z]+)(\*?)(?=(\s{0,9}[\[{](?!\s{0,9}\}))?)")
_EMPTY_ACCENT = re.compile(r"\\([\^~])(?=\{\s{0,9}\}|\d)")
_TILDE = re.compile(r"(?<!\\)~")
_JOINED_NUMBERS = re.compile(r"(?<=\d)\}\{(?=\d)")
_SIGNS = {
    "textless": "<",
    "lt": "<",
    "textgreater": ">",
    "gt": ">",
    "textminus": "-",
    "textplus": "+",
    "textequals": "=",
    "textslash": "/",
    "textpercent": r"\%",
    "percent": r"\%",
    "permil": "‰",
    "leqslant": "≤",
    "geqslant": "≥",
    "textmugreek": "μ",
    "micro": "μ",
    "degree": "°",
    "celsius": "°C",
    "degreeCelsius": "°C",
    "textperiodcentered": "·",
    "S": "§",
    "textquotedbl": '"',
    "textinfinity": "∞",
    "textdblhyphen": "-",
    "slash": "/",
    "textbar": "|",
    "textunderscore": r"\_",
}
_UNITS = {
    "pico": "p",
    "nano": "n",
    "milli": "m",
    "centi": "c",
    "deci": "d",
    "kilo": "k",
    "mega": "M",
    "giga": "G",
    "gram": "g",
    "kilogram": "kg",
    "metre": "m",
    "meter": "m",
    "litre": "L",
    "liter": "L",
    "mole": "mol",
    "molar": "M",
    "second": "s",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "hertz": "Hz",
    "joule": "J",
    "watt": "W",
    "volt": "V",
    "pascal": "Pa",
    "newton": "N",
    "kelvin": "K",
    "gray": "Gy",
    "sievert": "Sv",
    "becquerel": "Bq",
    "mmHg": "mmHg",
    "per": "/",
    "squared": r"\textsuperscript{2}",
    "cubed": r"\textsuperscript{3}",
}
"""Units of the package siunitx and what is put before them."""
_OTHER_NAMES = {
    "dfrac": "frac",
    "tfrac": "frac",
    "sfrac": "frac",
    "cfrac": "frac",
    "qty": "SI",
    "unit": "si",
    "sp": "^",
    "sb": "_",
}
_PREFIXES = ("text", "up", "var", "mathrm")
r"""Names such as `\textalpha` and `\upmu` are those of signs with a word before them."""
_FORMATS = frozenset(
    "relax noindent indent par protect xspace newline linebreak nobreak allowbreak centering bf it rm sc sl tt em "  # noqa: SIM905
    "normalfont normalsize small footnotesize scriptsize tiny large Large LARGE huge Huge bfseries itshape rmfamily "
    "sffamily ttfamily upshape mdseries scshape slshape smallskip medskip bigskip hfill vfill displaystyle textstyle "
    "left right middle big Big bigl bigr Bigl Bigr limits nolimits thinspace enspace quad qquad space "
    "nobreakspace".split()
)
"""Macros without text of their own."""
_POINTERS = (
    *("cite", "citet", "citep", "citealt", "citealp", "citenum", "ref", "autoref", "cref", "Cref", "eqref", "label"),
    *("color", "pagecolor", "selectlanguage", "hspace", "vspace"),
)
"""Macros whose argument is no text."""
_STRUCTURE = ("begin", "end", "item", "verb")
_PLAIN_STYLES = ("mathbf", "mathit", "mathsf", "mathtt", "mathcal", "mathscr", "mathfrak", "boldsymbol", "bm")


def decode_latex(text: str) -> str:
    """Return a text with LaTeX's commands as characters, raised and lowered text within `<sup>` and `<sub>`.

    A per cent sign or a price is no command. Raises ValueError for broken LaTeX.
    """
    if not any(sign in text for sign in "\\{}$~"):
        return text
    text = _PER_CENT.sub(r"\\%", text)
    text = _AMPERSAND.sub(r"\\&", text)
    text = _DOLLARS.sub(_escape_prices, text)
    text = _LOWERED_GROUP.sub(r"\\textsubscript{\1}", text)
    text = _EMPTY_ACCENT.sub(lambda match: r"\textasciicircum " if match[1] == "^" else r"\textasciitilde ", text)
    text = _MACRO.sub(_rename_macro, text)
    text = _JOINED_NUMBERS.sub("} {", text)
    decoder, walker = _load_decoder()
    try:
        return str(decoder.latex_to_text(text, latex_context=walker)).replace("ˆ", "^")
    except Exception as error:  # pylatexenc raises errors of many kinds
        raise ValueError("its LaTeX is broken") from error


def decode_address(text: str) -> str:
    """Return a DOI or a web address without LaTeX's commands; `~` is a sign of it. Raises ValueError as above."""
    return decode_latex(_TILDE.sub(r"\\textasciitilde{}", text))


def _escape_prices(match: re.Match[str]) -> str:
    """Return text between two dollar signs, which are escaped unless it is a formula; so is a single one."""
    if match[1] is None:
        return r"\$"
    is_formula = bool(_FORMULA.search(match[1])) or " " not in match[1].strip()
    if not is_formula:
        return f"\\${match[1]}\\$"
    return _LOWERED_LETTER.sub(r"\\textsubscript{\1}", match[0])


def _rename_macro(match: re.Match[str]) -> str:
    """Return a macro that pylatexenc reads rightly, or its text."""
    breaks, name, star = match[1], match[2], match[3]
    name = _OTHER_NAMES.get(name, name)
    if name in _SIGNS:
        return f"{breaks}{{}}{_SIGNS[name]}{{}}"
    if name in _UNITS and match[4] is None:
        return f"{breaks}{{}}{_UNITS[name]}{{}}"
    if name in ("^", "_"):
        return breaks + name
    if name in _STRUCTURE or _load_decoder()[0].latex_context.get_macro_spec(name) is not None:
        return f"{breaks}\\{name}{star}"
    for prefix in _PREFIXES:
        if name.startswith(prefix) and _is_sign(name.removeprefix(prefix)):
            return f"{breaks}\\{name.removeprefix(prefix)}"
    if name in _FORMATS:
        return f"{breaks} "
    has_argument = match[4] is not None
    return breaks if has_argument else f"{breaks}{{\\textbackslash}}{name}"


def _is_sign(name: str) -> bool:
    """Return whether a macro stands for one letter or sign."""
    decoder, _ = _load_decoder()
    if decoder.latex_context.get_macro_spec(name) is None:
        return False
    sign = str(decoder.latex_to_text(f"\\{name}"))
    return len(sign) == 1 and not unicodedata.combining(sign)


@cache
def _load_decoder() -> tuple[LatexNodes2Text, Any]:
    """Return the decoder, and the macros with their numbers of arguments."""
    from pylatexenc import latex2text, latexwalker, macrospec

    texts = latex2text.get_default_latex_context_db()
    arguments = latexwalker.get_default_latex_context_db()
    templates = {
        "textsuperscript": "<sup>%s</sup>",
        "textsubscript": "<sub>%s</sub>",
        "href": "%(2)s (%(1)s)",
        "SI": "%(1)s %(2)s",
        "url": "%s",
        **dict.fromkeys(_POINTERS, ""),
        **dict.fromkeys(_PLAIN_STYLES, "%s"),
    }
    counts = {"href": 2, "SI": 2}
    specs = [latex2text.MacroTextSpec(name, simplify_repl=template) for name, template in templates.items()]
    texts.add_context_category("epicrisis", prepend=True, macros=specs)
    with_arguments = [macrospec.std_macro(name, False, counts.get(name, 1)) for name in templates]
    arguments.add_context_category("epicrisis", prepend=True, macros=with_arguments)
    decoder = latex2text.LatexNodes2Text(
        latex_context=texts, math_mode="text", keep_comments=True, strict_latex_spaces=False
    )
    return decoder, arguments


BROKEN = "its braces, quotes or commas are broken"
"""Why an entry cannot be read."""
_BARE = re.compile(r"[^\s#,{}\"=]{1,500}")
_NEXT_FIELD = re.compile(r",?\s{0,200}([A-Za-z][\w+-]{0,60})\s{0,20}=")


def read_values(name: str, value: str, strings: Mapping[str, str]) -> dict[str, str]:
    """Return the value of a field, and those of the fields after it that lack a comma before them.

    `strings` are the file's `@string` values by name in lower case; another name stays as it is. Raises ValueError
    for a value that is not of the form.
    """
    values: dict[str, str] = {}
    position = 0
    while True:
        values[name], position = _read_value(value, position, strings)
        if match := _NEXT_FIELD.match(value, position):
            name, position = match[1].lower(), match.end()
        elif position == len(value):
            return values
        elif len(values) == 1 and value[:1] == '"' and value[-1:] == '"' and "#" not in value[position:]:
            # Quotes within quotes, which BibTeX forbids.
            return {name: value[1:-1]}
        else:
            raise ValueError(BROKEN)


def _read_value(value: str, position: int, strings: Mapping[str, str]) -> tuple[str, int]:
    """Return the joined text of a value, and the position after it and the white space that follows."""
    pieces = []
    while True:
        position = _skip_space(value, position)
        sign = value[position : position + 1]
        if sign in ("{", '"'):
            end = _find_end(value, position)
            pieces.append(value[position + 1 : end])
            position = end + 1
        elif match := _BARE.match(value, position):
            pieces.append(strings.get(match[0].lower(), match[0]))
            position = match.end()
        elif sign:
            raise ValueError(BROKEN)
        position = _skip_space(value, position)
        if value[position : position + 1] != "#":
            return "".join(pieces), position
        position += 1


def _skip_space(value: str, position: int) -> int:
    while value[position : position + 1].isspace():
        position += 1
    return position


def _find_end(value: str, start: int) -> int:
    """Return the position of the brace or quote that closes the one at `start`. Raises ValueError without it."""
    depth = 0
    for position in range(start, len(value)):
        sign = value[position]
        if sign in "{}" and value[position - 1 : position] != "\\":
            depth += 1 if sign == "{" else -1
        is_quote = sign == '"' and position > start and depth == 0
        if (value[start] == "{" and depth == 0) or (value[start] == '"' and is_quote):
            return position
    raise ValueError(BROKEN)
