"""Features as the authors of ConUCB and ConLinUCB publish them: arms, users, and which arm has which key terms."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.datasets.features import key_term_means, term_weights
from fedbandit_jax.datasets.files import Member, Source, open_source
from fedbandit_jax.datasets.tables import parse_object, split, wrong_row
from fedbandit_jax.worlds.catalog import Catalog

ARMS, RELATION, USERS = "arm_info.txt", "arm_suparm_relation.txt", "user_preference.txt"
COLUMNS = ("arm", "key terms")


@dataclass(frozen=True)
class Given:
    """What to change of features that are there already."""

    normalise: bool = False
    user_norm: str | float = "given"
    name: str | None = None

    def __post_init__(self) -> None:
        _checks.flag("normalise", self.normalise)
        norm = _checks.real_or_word("user_norm", self.user_norm, 0, float("inf"), "()", ("unit", "given"))
        object.__setattr__(self, "user_norm", norm)  # a plain number, which `origin` keeps
        name = _checks.plain(self.name)
        object.__setattr__(self, "name", name)
        if name is not None and (not isinstance(name, str) or not name):
            _checks.fail("name", self.name, "it must be a word, or None for the name of the folder")


def conlinucb(
    path: str | Path, *, normalise: bool = False, user_norm: str | float = "given", name: str | None = None
) -> Catalog:
    """A catalog from features in the format of ConLinUCB's public code, which ConUCB's has, too.

    The folder holds arm_info.txt, arm_suparm_relation.txt and user_preference.txt.
    Arms and users are as they are. A key term is the mean of its arms, each of weight 1/n where it has n key terms, and
    is not scaled. With `normalise` arms and then key terms get unit norm. `user_norm` is "given", "unit" or a positive
    number. The catalog has the name of the folder, unless `name` is given.
    """
    options = Given(normalise, user_norm, name)
    with open_source(path) as source:
        return read_conlinucb(source, options)


def read_conlinucb(source: Source, options: Given) -> Catalog:
    members = [source.find(name) for name in (ARMS, RELATION, USERS)]
    arms, lines = read_vectors(source, members[0], "a_id", "fv")
    users, _ = read_vectors(source, members[2], "uid", "preference_v", like=(ARMS, len(next(iter(arms.values())))))
    terms = read_relation(source, members[1], arms)
    for arm, line in lines.items():
        if arm not in terms:
            raise ValueError(f"{source.place(members[0], line)} has a_id {arm}, which {RELATION} does not have")
    ids = sorted({term for listed in terms.values() for term in listed})
    column = {term: i for i, term in enumerate(ids)}
    carried = [np.array([column[term] for term in terms[arm]]) for arm in arms]
    features = np.array(list(arms.values()))
    if options.normalise:  # before the means, which are then those of the catalog's own arms
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    return Catalog.from_arrays(
        features,
        key_term_means(features, carried, len(ids)),
        np.array(list(users.values())),
        weights=term_weights(carried, len(ids)),
        normalise=options.normalise,
        user_norm=options.user_norm,
        name=options.name or name_of(source.path),
        arm_names=[str(arm) for arm in arms],
        key_term_names=[str(term) for term in ids],
        user_ids=[str(user) for user in users],
        origin={
            "files": [ARMS, RELATION, USERS],
            "raw": {"arms": len(arms), "key terms": len(ids), "users": len(users), "links": sum(map(len, carried))},
            "options": {key: value for key, value in asdict(options).items() if key != "name"},
        },
    )


def name_of(path: Path) -> str:
    """The name of a folder, also of ".", or of an archive without its ending."""
    path = path.resolve()
    return (path.name if path.is_dir() else path.stem) or "conlinucb"


def read_vectors(
    source: Source, member: Member, id_name: str, vector_name: str, like: tuple[str, int] | None = None
) -> tuple[dict[int, list[float]], dict[int, int]]:
    """Vectors by id, in the order of the file, and the line of each; all as long as the first, or as `like` says."""
    vectors: dict[int, list[float]] = {}
    lines: dict[int, int] = {}
    for number, line in source.lines(member):
        place = source.place(member, number)
        content = parse_object(source, member, number, line)
        identity = content.get(id_name)
        if not isinstance(identity, int) or isinstance(identity, bool) or identity < 0:
            raise ValueError(f"{place} has {id_name} {_checks.shown(identity)}; it must be a whole number")
        if identity in vectors:
            raise ValueError(f"{place} has {id_name} {identity}, as line {lines[identity]} has")
        vector = entries(content.get(vector_name))
        if not vector:
            raise ValueError(f"{place} has no column of numbers, [[x1], [x2], ...], for {vector_name}")
        like = like or (f"line {number}", len(vector))
        if len(vector) != like[1]:
            must = f"it must have {like[1]}, as {like[0]} has"
            raise ValueError(f"{place} has {len(vector)} numbers in {vector_name}; {must}")
        if not any(vector):
            raise ValueError(f"{place} has only zeros in {vector_name}; every row must have a direction")
        vectors[identity], lines[identity] = vector, number
    if not vectors:
        raise ValueError(f"{source.place(member, 1)} is missing; it must have {id_name} and {vector_name}")
    return vectors, lines


def entries(column: object) -> list[float]:
    """The numbers of [[x1], [x2], ...]; none if it is anything else."""
    rows = column if isinstance(column, list) else []
    if not all(isinstance(row, list) and len(row) == 1 and _checks.is_finite(row[0]) for row in rows):
        return []
    return [float(entry) for (entry,) in rows]


def read_relation(source: Source, member: Member, arms: Mapping[int, Sequence[float]]) -> dict[int, list[int]]:
    """Key terms by arm; a comma follows each of them, the last one too."""
    terms: dict[int, list[int]] = {}
    for number, line in source.lines(member):
        place, cells = source.place(member, number), split(line, "\t")
        if problem := wrong_row(cells, COLUMNS, {"arm": int}):
            raise ValueError(f"{place} {problem}")
        arm, listed = int(cells[0]), [cell.strip() for cell in cells[1].strip().removesuffix(",").split(",")]
        for term in listed:
            if not term.isdecimal():
                raise ValueError(f"{place} has the key term {term!r}; it must be a whole number")
        if arm not in arms:
            raise ValueError(f"{place} has the arm {arm}, which {ARMS} does not have")
        if arm in terms:
            raise ValueError(f"{place} has the arm {arm}, as a line before it has")
        terms[arm] = [int(term) for term in listed]
        if len(set(terms[arm])) < len(listed):
            raise ValueError(f"{place} has a key term twice; the key terms of an arm must differ")
    return terms
