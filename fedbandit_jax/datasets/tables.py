"""Tables in text files: small ones and JSON row by row, large ones in pieces through pyarrow."""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fedbandit_jax.datasets.files import Block, Member, Source, numbered_lines

ARROW_TYPES = {int: pa.int64(), float: pa.float64()}


def split(line: str, separator: str) -> list[str]:
    """Cells of a line; only where the separator is a comma may they be quoted."""
    try:
        return next(csv.reader([line])) if separator == "," else line.split(separator)
    except csv.Error:
        return [line]  # too few cells, which is then said


def read_rows(
    source: Source,
    member: Member,
    wanted: Sequence[str],
    *,
    separator: str,
    header: bool = True,
    encoding: str = "utf-8",
) -> Iterator[list[str]]:
    """The wanted cells of each row of a small table; the first of them must be a whole number, the id.

    Without a header the table has exactly the wanted columns.
    """
    names = None if header else list(wanted)
    for number, line in source.lines(member, encoding):
        cells = split(line, separator)
        if names is None:
            names = check_header(source, member, cells, wanted)
            continue
        if problem := wrong_row(cells, names, {wanted[0]: int}):
            raise ValueError(f"{source.place(member, number)} {problem}")
        yield [cells[names.index(name)] for name in wanted]
    if names is None:
        check_header(source, member, [], wanted)


def read_pieces(
    source: Source,
    member: Member,
    task: str,
    wanted: Mapping[str, type],
    *,
    separator: str,
    names: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The wanted columns (int or float) of a large table, a block of the file at a time.

    `names` are the columns of a file without a header.
    """
    has_header = names is None
    columns = list(names or ())
    for block in source.blocks(member, task):
        if has_header and block.first_line == 1:
            header, _, rest = block.data.partition(b"\n")
            cells = split(header.decode("utf-8-sig").strip(), separator)
            columns = check_header(source, member, cells, list(wanted))
            block = Block(2, rest)
        if block.data.strip():
            yield parse(source, member, block, wanted, separator, columns)
    if not columns:
        check_header(source, member, [], list(wanted))


def parse(
    source: Source, member: Member, block: Block, wanted: Mapping[str, type], separator: str, columns: list[str]
) -> pa.RecordBatch:
    data, delimiter = block.data, separator
    if len(separator) > 1:  # pyarrow takes one character only, and numbers hold no comma
        data, delimiter = data.replace(separator.encode(), b","), ","
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=columns),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char='"' if separator == "," else False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: ARROW_TYPES[kind] for name, kind in wanted.items()},
                include_columns=list(wanted),
                null_values=[],
            ),
        )
        if not all(all_finite(table[name]) for name, kind in wanted.items() if kind is float):
            raise pa.ArrowInvalid("a number is not finite")
    except pa.ArrowInvalid as error:
        # pyarrow does not say in which line.
        for number, line in numbered_lines(block):
            if problem := wrong_row(split(line, separator), columns, wanted):
                raise ValueError(f"{source.place(member, number)} {problem}") from error
        raise ValueError(f"{source.place(member, block.first_line)} or one after it is wrong: {error}") from error
    return table.combine_chunks().to_batches()[0]


def parse_object(source: Source, member: Member, number: int, line: str) -> dict[str, Any]:
    """The JSON object that a line is."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{source.place(member, number)} is not valid JSON ({error.msg})") from error
    if not isinstance(found, dict):
        raise ValueError(f"{source.place(member, number)} is not a JSON object")
    return found


def wrong_row(cells: Sequence[str], columns: Sequence[str], kinds: Mapping[str, type]) -> str:
    """What is wrong with a row, as the end of a sentence; empty if nothing is."""
    if len(cells) != len(columns):
        return f"has {len(cells)} columns; it must have {len(columns)} ({', '.join(columns)})"
    for name, kind in kinds.items():
        cell = cells[columns.index(name)].strip()
        if kind is int and not cell.isdecimal():
            return f"has {name} {cell!r}; it must be a whole number"
        if kind is float and not is_finite(cell):
            return f"has {name} {cell!r}; it must be a number"
    return ""


def all_finite(column: pa.ChunkedArray) -> bool:
    """Also of an empty column."""
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def is_finite(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def check_header(source: Source, member: Member, found: list[str], wanted: Sequence[str]) -> list[str]:
    """The names of the columns, among them those wanted."""
    if missing := [name for name in wanted if name not in found]:
        named = ", ".join(found) if any(found) else "nothing"
        raise ValueError(
            f"{source.place(member, 1)} names the columns {named}; it must name {' and '.join(missing)} too"
        )
    return found
