"""Labels: the title of an algorithm, with the hyperparameters in which those of its title differ."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

Texts = dict[Hashable, str]  # how the values of a hyperparameter are written


def labels_of(variants: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The label of each (title, hyperparameters).

    Those of the same text, such as of two functions that are both called <lambda>, are told apart by number.
    """
    by_title: dict[str, list[Mapping[str, Any]]] = {}
    for title, own in variants:
        by_title.setdefault(title, []).append(own)
    differing = {title: differences(same) for title, same in by_title.items()}
    found = [write(title, own, differing[title]) for title, own in variants]
    count, seen = Counter(found), Counter[str]()
    for i, label in enumerate(found):
        seen[label] += 1
        if count[label] > 1:
            found[i] = f"{label} ({seen[label]})"
    return found


def write(title: str, own: Mapping[str, Any], differing: Mapping[str, Texts]) -> str:
    named = (f"{name}={differing[name][identity(value)]}" for name, value in own.items() if name in differing)
    return " ".join([title, *named])


def differences(same: Sequence[Mapping[str, Any]]) -> dict[str, Texts]:
    """The hyperparameters in which some algorithms differ, and how their values are written."""
    names = dict.fromkeys(name for own in same for name in own)
    texts = {name: texts_of(own.get(name) for own in same) for name in names}
    return {name: found for name, found in texts.items() if len(found) > 1}


def texts_of(values: Iterable[Any]) -> Texts:
    """Numbers are written in short, if that still tells all values apart."""
    different = {identity(value): value for value in values}
    short = {key: f"{value:g}" if is_number(value) else str(value) for key, value in different.items()}
    if len(set(short.values())) == len(different):
        return short
    return {key: str(value) for key, value in different.items()}


def identity(value: Any) -> Hashable:
    """What tells a value from others: 1 is 1.0, and functions of the same name differ."""
    return value if is_number(value) else repr(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def fields_that_vary(worlds: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields in which some worlds differ; one that not all of them have is one."""
    names = dict.fromkeys(name for world in worlds for name in world)
    return [name for name in names if len({identity(world.get(name)) for world in worlds}) > 1]
