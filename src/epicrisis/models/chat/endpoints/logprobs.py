"""How probable each option is as the next token, from the tokens that an endpoint tells. Pure; knows no wire.

House rule: probabilities told under a grammar are those before its mask, so they are never asked for with a schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from epicrisis.protocols import OptionLogprobs

# SentencePiece's blank, byte-level BPE's blank, line end and tab; then what models put around a letter.
_MARKS = "▁Ġ Ċĉ\"'“”‘’`()[]{}<>*_.,:;"


def compute_option_logprobs(options: Sequence[str], tokens: Iterable[tuple[str, float]]) -> OptionLogprobs:
    """Renormalised over the options among `tokens` (text, natural logarithm of its probability).

    A token stands for an option where it is the same without the blanks, marks and quotes around it; in another case of
    letters too, where no other option differs by case alone. All tokens that stand for an option are summed.
    """
    known = {option: option for option in options}
    folded: dict[str, list[str]] = {}
    for option in options:
        folded.setdefault(option.casefold(), []).append(option)
    known |= {fold: names[0] for fold, names in folded.items() if len(names) == 1 and fold not in known}
    sums: dict[str, float] = {}
    for token, logprob in tokens:
        bare = token.strip().strip(_MARKS).strip()
        meant = known.get(bare) or known.get(bare.casefold())
        # An impossible token is told as minus infinity, or as -9999.
        if meant is not None and -1000 < logprob < 0.001:
            sums[meant] = sums.get(meant, 0.0) + math.exp(min(logprob, 0.0))
    mass = sum(sums.values())
    values = {option: math.log(sums[option] / mass) for option in options if sums.get(option)}
    return OptionLogprobs(values, min(mass, 1.0), tuple(option for option in options if option not in values))
