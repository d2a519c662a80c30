"""Which encodings a file from outside may name: those of web browsers.

Python knows more, some of them traps: `punycode` takes hours for a megabyte, `unicode_escape` makes other text of it.
"""

from __future__ import annotations

import codecs

_NAMES = (
    "ascii utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp866 cp874 koi8-r koi8-u mac-roman "
    "mac-cyrillic gbk gb2312 gb18030 hz big5 big5hkscs cp950 euc_jp iso2022_jp shift_jis cp932 euc_kr cp949 cp437 cp850"
)
_WEB = {
    *_NAMES.split(),
    *(f"iso8859-{part}" for part in range(1, 17)),
    *(f"cp125{part}" for part in range(9)),
}


def text_encoding(name: str) -> str:
    """Return Python's name of an encoding. Raises LookupError for one that is not known, or not in use for text."""
    encoding = codecs.lookup(name).name
    if encoding not in _WEB:
        raise LookupError(name)
    return encoding
