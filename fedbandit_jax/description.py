"""Facts about a catalog that print as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

LABELS = {
    "name": "data set",
    "key_terms": "key terms",
    "dim": "dimensions",
    "raw": "in the raw data",
    "singular_values": "singular values",
    "held_out_log_loss": "held-out log-loss",
    "norms": "norms before scaling",
    "key_term_rank": "key terms span",
    "realised_C": "realised C",
}
COUNTS = ("raw", "dropped", "matrix")


class Description(dict[str, Any]):
    """What `Catalog.describe` finds, by name."""

    def __str__(self) -> str:
        rows = [(LABELS.get(key, key), self.line(key, value)) for key, value in self.items() if key != "key_terms_span"]
        width = max((len(label) for label, _ in rows), default=0)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)

    __repr__ = __str__

    def line(self, key: str, value: Any) -> str:
        if key == "key_term_rank":
            return f"{value} of {self['dim']} dimensions" + ("" if self["key_terms_span"] else ": not all of R^d")
        if key == "realised_C":
            return f"{value:.4g} (the least over many unit vectors v of max |k.v|)"
        if key == "norms":
            spread = "{} {:.3g} to {:.3g}, median {:.3g}"
            return "; ".join(spread.format(LABELS.get(of, of), *value[of][::2], value[of][1]) for of in value)
        if key in COUNTS:
            return ", ".join(f"{number:,} {of}" for of, number in value.items() if number) or "nothing"
        return in_words(value)


def in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(part)}" for key, part in value.items())
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        texts = [in_words(part) for part in value]
        return ", ".join(texts if len(texts) <= 6 else [*texts[:3], "...", *texts[-2:], f"{len(texts)} in all"])
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
