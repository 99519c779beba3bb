"""Weka's ARFF, dense and sparse, and MULAN's XML list of the attributes that are labels.

Nominal and numeric attributes are read. Sparse rows write only what differs from code 0, and the
code 0 of a nominal attribute is its *first declared* value: for ``{1,0}`` an omitted value is 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.datasets.reading import (
    PathLike,
    existing_file,
    parse_number,
    read_text,
    refuse_label_leak,
    require_dense_size,
    shorten,
    split_lines,
)
from pipeline_lib.errors import InputError

# One token: quoted with escapes, or bare up to a delimiter.
_TOKEN = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,{}%'\"]+"
_CELL = re.compile(rf"\s*({_TOKEN})\s*(?:,|$)")
_ATTRIBUTE = re.compile(rf"@attribute\s+({_TOKEN})\s+(.*?)\s*$", re.IGNORECASE)
_PAIR = re.compile(rf"\s*(\d+)\s+({_TOKEN})\s*(?:,|$)")
_NUMERIC = {"numeric", "real", "integer"}


@dataclass(frozen=True)
class Attribute:
    """A column: ``values`` are the declared values of a nominal one, empty for a numeric one."""

    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArffTable:
    """What an ARFF file holds.

    Attributes
    ----------
    relation : str
    attributes : tuple of Attribute
    codes : scipy.sparse.csr_array of shape (n, attributes), float64
        A number, or the position of a nominal value among the declared ones.
    """

    relation: str
    attributes: tuple[Attribute, ...]
    codes: sparse.csr_array

    def numbers(self, path: PathLike) -> NDArray[np.float64]:
        """The dense table, nominal codes replaced by their declared values read as numbers."""
        n, d = self.codes.shape
        require_dense_size(n, d, self.codes.nnz, path, "a table")
        dense = self.codes.toarray()
        for j, attribute in enumerate(self.attributes):
            if attribute.values:
                declared = [parse_number(value) for value in attribute.values]
                if None in declared:
                    raise InputError(
                        f"attribute {attribute.name!r} has the values "
                        f"{shorten(','.join(attribute.values))}",
                        path=path,
                        expected="numbers",
                    )
                # The usual {0,1} is its own code.
                if declared != list(range(len(declared))):
                    table = np.asarray(declared, dtype=np.float64)
                    dense[:, j] = table[dense[:, j].astype(np.intp)]
        return dense


def _unquote(token: str) -> str:
    if token[:1] in {"'", '"'}:
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    return token


def _tokens(text: str, path: PathLike, line: int) -> list[str]:
    """Split a comma-separated list; quotes are kept off the fast road."""
    if not any(mark in text for mark in "'\"{}%"):
        tokens = [token.strip() for token in text.split(",")]
        if "" in tokens or any(len(token.split()) != 1 for token in tokens):
            column = next(i for i, t in enumerate(tokens, 1) if len(t.split()) != 1)
            raise InputError(
                f"{shorten(tokens[column - 1])} is not one value",
                path=path,
                line=line,
                column=column,
            )
        return tokens
    tokens, position = [], 0
    while position < len(text):
        match = _CELL.match(text, position)
        if match is None:
            raise InputError(
                f"cannot read {shorten(text[position:])}",
                path=path,
                line=line,
                column=len(tokens) + 1,
                expected="values separated by commas",
            )
        tokens.append(_unquote(match[1]))
        position = match.end()
    if not tokens or text.rstrip().endswith(","):
        raise InputError("a value is missing", path=path, line=line, column=len(tokens) + 1)
    return tokens


def _parse_attribute(text: str, path: PathLike, line: int) -> Attribute:
    match = _ATTRIBUTE.match(text)
    if match is None:
        raise InputError(
            f"cannot read {shorten(text)}",
            path=path,
            line=line,
            expected="@attribute NAME numeric or @attribute NAME {value,value}",
        )
    name, kind = _unquote(match[1]), match[2]
    if kind.lower() in _NUMERIC:
        return Attribute(name)
    if not (kind.startswith("{") and kind.endswith("}")):
        raise InputError(
            f"attribute {name!r} has the type {shorten(kind)}",
            path=path,
            line=line,
            expected="numeric, real, integer or {value,value}",
        )
    values = tuple(_tokens(kind[1:-1], path, line))
    if len(set(values)) != len(values):
        raise InputError(f"attribute {name!r} declares a value twice", path=path, line=line)
    return Attribute(name, values)


def read_arff(path: PathLike) -> ArffTable:
    """Read an ARFF file, dense or sparse rows (also mixed).

    Raises
    ------
    InputError
        With line, and column where there is one: an unknown declaration, string, date or
        relational attributes, missing values (``?``), instance weights, undeclared nominal values,
        numbers that are not finite, rows of another length.
    """
    lines = split_lines(read_text(path))
    relation, attributes, start = _parse_header(lines, path)
    tables = [
        {value: code for code, value in enumerate(attribute.values)} for attribute in attributes
    ]
    indptr, indices, values = [0], [np.empty(0, dtype=np.int64)], [np.empty(0)]
    n_stored = 0
    for number, line in enumerate(lines[start:], start=start + 1):
        text = line.strip()
        if not text or text.startswith("%"):
            continue
        if text.startswith("{"):
            columns, codes = _sparse_row(text, tables, path, number)
        else:
            row = np.asarray(_dense_row(text, tables, attributes, path, number))
            columns = np.flatnonzero(row)
            codes = row[columns]
        indices.append(columns)
        values.append(codes)
        n_stored += len(columns)
        indptr.append(n_stored)
    codes_table = sparse.csr_array(
        (np.concatenate(values), np.concatenate(indices), np.asarray(indptr)),
        shape=(len(indptr) - 1, len(attributes)),
    )
    return ArffTable(relation, attributes, codes_table)


def _parse_header(lines: list[str], path: PathLike) -> tuple[str, tuple[Attribute, ...], int]:
    relation: str | None = None
    attributes: list[Attribute] = []
    names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        keyword = text.split(None, 1)[0].lower() if text else ""
        if not text or text.startswith("%"):
            continue
        if keyword == "@relation":
            relation = _unquote(text[len(keyword) :].strip())
        elif keyword == "@attribute":
            attribute = _parse_attribute(text, path, number)
            if attribute.name in names:
                raise InputError(
                    f"attribute {attribute.name!r} is declared twice", path=path, line=number
                )
            names.add(attribute.name)
            attributes.append(attribute)
        elif keyword == "@data":
            if relation is None or not attributes:
                raise InputError(
                    "@data comes before @relation and @attribute", path=path, line=number
                )
            return relation, tuple(attributes), number
        else:
            raise InputError(
                f"cannot read {shorten(text)}",
                path=path,
                line=number,
                expected="@relation, @attribute or @data",
            )
    raise InputError("there is no @data line", path=path, line=len(lines) or 1)


def _code(token: str, table: dict[str, int], path: PathLike, line: int, column: int) -> float:
    if table:
        if token in table:
            return table[token]
        expected = "one of " + shorten(",".join(table))
    else:
        value = parse_number(token)
        if value is not None:
            return value
        expected = "a finite number"
    what = "a missing value" if token == "?" else shorten(token)
    raise InputError(what, path=path, line=line, column=column, expected=expected)


def _dense_row(
    text: str,
    tables: list[dict[str, int]],
    attributes: tuple[Attribute, ...],
    path: PathLike,
    line: int,
) -> list[float]:
    # Bare values of nominal attributes, the whole of MULAN's files, need one lookup each.
    tokens = text.split(",")
    if len(tokens) == len(tables):
        try:
            return [table[token] for table, token in zip(tables, tokens)]
        except KeyError:
            pass
    tokens = _tokens(text, path, line)
    if len(tokens) != len(attributes):
        raise InputError(
            f"{len(tokens)} values", path=path, line=line, expected=f"{len(attributes)}"
        )
    return [
        _code(token, table, path, line, column)
        for column, (token, table) in enumerate(zip(tokens, tables), start=1)
    ]


def _sparse_row(
    text: str, tables: list[dict[str, int]], path: PathLike, line: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if not text.endswith("}"):
        raise InputError(
            "the row does not end in }", path=path, line=line, expected="{index value, ...}"
        )
    body = text[1:-1]
    columns: list[int] = []
    codes: list[float] = []
    position = 0
    while position < len(body) and body[position:].strip():
        match = _PAIR.match(body, position)
        if match is None:
            raise InputError(
                f"cannot read {shorten(body[position:])}",
                path=path,
                line=line,
                column=len(columns) + 1,
                expected="an index, a blank and a value",
            )
        column = int(match[1]) if len(match[1]) < 10 else len(tables)
        if column >= len(tables):
            raise InputError(
                f"index {match[1][:20]}",
                path=path,
                line=line,
                expected=f"0 to {len(tables) - 1} (indices count from 0)",
            )
        if columns and column <= columns[-1]:
            raise InputError(
                f"index {column} after {columns[-1]}", path=path, line=line, expected="rising ones"
            )
        columns.append(column)
        codes.append(_code(_unquote(match[2]), tables[column], path, line, column + 1))
        position = match.end()
    return np.asarray(columns, dtype=np.int64), np.asarray(codes, dtype=np.float64)


def read_label_names(path: PathLike) -> tuple[str, ...]:
    """Names of the ``label`` elements of MULAN's XML file, in document order.

    Document types and entities are refused: a label list has none, and they are how a small XML
    file becomes a large one.
    """
    path = existing_file(path)
    names: list[str] = []
    parser = expat.ParserCreate()

    def place() -> dict[str, Any]:
        return {"line": parser.CurrentLineNumber, "column": parser.CurrentColumnNumber + 1}

    def refuse(*_: object) -> None:
        raise InputError("a document type or entity declaration", path=path, **place())

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(":")[2] == "label":
            if not attributes.get("name"):
                raise InputError("a label without a name", path=path, **place())
            names.append(attributes["name"])
        elif tag.rpartition(":")[2] != "labels":
            raise InputError(f"element {shorten(tag)}", path=path, expected="label", **place())

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise InputError(
            f"not well-formed XML ({expat.ErrorString(error.code)})",
            path=path,
            line=error.lineno,
            column=error.offset + 1,
        ) from None
    except (LookupError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"unknown encoding ({error})", path=path, expected="UTF-8") from None
    if not names:
        raise InputError("no label in the file", path=path, expected="<label name=...> elements")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"label {twice!r} stands twice", path=path)
    return tuple(names)


def read_mulan(
    arff: PathLike, xml: PathLike
) -> tuple[NDArray[np.float64], NDArray[np.uint8], tuple[str, ...]]:
    """Read one part of a MULAN dataset.

    Parameters
    ----------
    arff, xml : path
        The table, and the list saying which of its attributes are labels.

    Returns
    -------
    X : ndarray of shape (n, d), float64
        The attributes that are not labels, in file order.
    Y : ndarray of shape (n, tags), uint8
        The labels, in the order of the XML list.
    tags : tuple of str
    """
    tags = read_label_names(xml)
    table = read_arff(arff)
    position = {attribute.name: j for j, attribute in enumerate(table.attributes)}
    missing = [tag for tag in tags if tag not in position]
    if missing:
        raise InputError(
            f"label {missing[0]!r} of {xml} is not an attribute ({len(missing)} such)",
            path=arff,
            expected="every label among the attributes",
        )
    numbers = table.numbers(arff)
    columns = [position[tag] for tag in tags]
    labels = numbers[:, columns]
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(
            f"label {tags[column]!r} is {labels[row, column]} in row {row + 1}",
            path=arff,
            expected="0 or 1",
        )
    is_feature = np.ones(len(table.attributes), dtype=bool)
    is_feature[columns] = False
    X = np.ascontiguousarray(numbers[:, is_feature])
    Y = labels.astype(np.uint8)
    refuse_label_leak(X, Y, arff)
    return X, Y, tags
