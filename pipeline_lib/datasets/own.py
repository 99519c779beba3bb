"""A dataset of the user's own: told once what its columns and files are, then used by name.

`declare` writes a declaration into the folder ``catalogue`` of the data root, reads every part once
so that what is wrong is said now, and leaves the files where they are.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline_lib.datasets import catalogue
from pipeline_lib.datasets.acquire import DATA_FILE, ingest_part
from pipeline_lib.datasets.catalogue import DatasetSpec, forget_declarations, parse_declaration
from pipeline_lib.datasets.own_files import OwnOptions, OwnPart, own_part, same_in_all
from pipeline_lib.datasets.pictures import MAX_PIXELS
from pipeline_lib.datasets.rawfiles import raw_root, scratch_of
from pipeline_lib.datasets.splits import query_folds, write_splits
from pipeline_lib.errors import InputError

_NAME = re.compile("[a-z0-9-]+")
_PART = re.compile("[a-z0-9_.-]+(/[a-z0-9_.-]+)*")
_ROLES = ("train", "vali", "test")


def declare(
    name: str,
    paths: str | Path | Mapping[str, str | Path],
    *,
    label: str | None = None,
    query: str | None = None,
    id: str | None = None,
    tags: str | Sequence[str] | Path | None = None,
    features: Sequence[str] | None = None,
    labels_file: Path | None = None,
    separator: str = ";",
    size: tuple[int, int] | None = None,
    descriptor: str = "colour-histogram",
    folds: int = 5,
    seed: int = 0,
    root: Path | None = None,
    replace: bool = False,
    scratch: Path | None = None,
    report: Callable[[str], None] | None = None,
) -> Path:
    """Declare a dataset of the user's own under a name.

    Parameters
    ----------
    name : str
        Lower-case letters, digits and hyphens; not a name of the project's catalogue.
    paths : path, or mapping of part name to path
        A single path is the part ``all``. What a path is decides how it is read:

        - ``.csv``, ``.tsv``, ``.parquet``: columns by name (``label``, ``query``, ``id``, ``tags``,
          ``features``; see `tables.read_table`);
        - ``.npy``, ``.npz``: embeddings, with ``labels_file`` or the file ``tags`` beside them unless
          the ``.npz`` holds ``y`` or ``Y`` (see `tables.read_embeddings`);
        - ``.mat``, ``.h5``: an image set, with ``fea`` and ``gnd`` or ``X`` and ``Y`` in MATLAB files, else
          ``features`` and ``label`` name the variables; ``size`` is the height and width of the picture
          in a row, column by column in MATLAB files;
        - a folder with ``tags`` (a CSV that names pictures, in the folder or elsewhere): a tagged
          picture collection, described by ``descriptor`` (see `features.image_descriptors`);
        - a folder of folders of pictures: one class per folder, pixels (resampled to ``size``);
        - ``.txt`` and the like, compressed or not: LETOR text where lines have ``qid:``, libsvm text
          where they have not.

        Classes, tags and feature indices mean the same in all parts.
    tags : str, sequence of str, or path
        A tag column (values separated by ``separator``), tag columns of 0 and 1, or a tag file.
    folds : int, default 5
        A ranking in one path gets, beside ``all``, the parts ``fold1/train``, ``fold1/vali``,
        ``fold1/test``, ...: whole queries, drawn with ``seed`` and stored beside the declaration. Parts
        called ``train``, ``vali`` and ``test`` are ``fold1``.
    root : path, optional
        Data root that gets the declaration; by default ``data/raw``.
    replace : bool, default False
        Overwrite an earlier declaration of the same name.
    scratch : path, optional
        Where descriptors of pictures are kept, a folder a part; see `acquire.ingest`.
    report : callable, optional
        Gets a line on each part once it is read.

    Returns
    -------
    path
        The declaration.

    Raises
    ------
    InputError
        A name that is taken, or anything the reader does not accept; nothing is written then.
    """
    target = _target(name, root, replace)
    single = isinstance(paths, str | Path)
    given = {"all": Path(paths)} if isinstance(paths, str | Path) else _named(name, paths)
    options = OwnOptions(label, query, id, tags, features, labels_file, separator, size, descriptor)
    _within_bounds(options)
    if not single and len(given) > 1 and labels_file is not None:
        raise InputError("one labels file for several parts", remedy="put y into each .npz")
    parts = same_in_all({part: own_part(_absolute(path), options) for part, path in given.items()})
    if next(iter(parts.values())).kind == "ltr" and not single:
        parts = _as_folds(parts)
    text = _toml_text(name, parts)
    qid = _check(parse_declaration(text, target), scratch, report or (lambda line: None))
    split = target.with_suffix(".folds.parquet")
    splits = None
    if qid is not None and single:
        splits = query_folds(qid, n_folds=folds, seed=seed, dataset=name)
        text = _toml_text(name, parts, split, len(splits))
        parse_declaration(text, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if splits is not None:
        write_splits(split, splits)
    temporary = target.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, target)
    forget_declarations()
    if splits is None:
        split.unlink(missing_ok=True)
    return target


def _within_bounds(options: OwnOptions) -> None:
    if not options.separator:
        raise InputError("an empty separator", expected="the character between tags")
    if options.size is not None and not 0 < options.size[0] * options.size[1] <= MAX_PIXELS:
        raise InputError(f"pictures of {options.size[0]} x {options.size[1]} pixels are too large")


def _target(name: str, root: Path | None, replace: bool) -> Path:
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"dataset name {name!r}", expected="lower-case letters, digits and hyphens"
        )
    target = (Path(root) if root is not None else raw_root()) / "catalogue" / f"{name}.toml"
    if name in catalogue.names() and not (replace and target.is_file()):
        raise InputError(
            f"dataset {name!r} exists already", remedy="choose another name, or replace your own"
        )
    return target


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))


def _named(name: str, paths: Mapping[str, str | Path]) -> dict[str, Path]:
    if not paths:
        raise InputError(f"dataset {name!r} has no part")
    for part in paths:
        if _PART.fullmatch(part) is None:
            raise InputError(
                f"part name {part!r}", expected="lower-case letters, digits, '-', '_', '.' and '/'"
            )
    return {part: Path(path) for part, path in paths.items()}


def _as_folds(parts: dict[str, OwnPart]) -> dict[str, OwnPart]:
    """Rankings are learned, chosen and tested on separate queries: every fold has three parts."""
    named = {part if "/" in part else f"fold1/{part}": files for part, files in parts.items()}
    for fold in dict.fromkeys(part.rpartition("/")[0] for part in named):
        lacking = [role for role in _ROLES if f"{fold}/{role}" not in named]
        if lacking:
            raise InputError(
                f"{fold} of a ranking has no part {', '.join(lacking)}",
                expected="train, vali and test",
                remedy="or give all queries as one path, and folds are drawn",
            )
    return named


def _check(
    spec: DatasetSpec, scratch: Path | None, report: Callable[[str], None]
) -> list[str] | None:
    """Read every part and hold them against each other; returns the queries of the last."""
    qid: list[str] | None = None
    first: tuple[str, Any] | None = None
    for part in spec.part_names():
        kept = None if scratch is None else scratch_of(scratch, spec.name, part)
        with tempfile.TemporaryDirectory(prefix="affinity-own-") as folder:
            info = ingest_part(spec.part(part), Path(folder), scratch=kept)
            file = Path(folder) / DATA_FILE
            columns = pq.read_schema(file).names
            if info["layout"] == "ltr":
                qid = pq.read_table(file, columns=["qid"])["qid"].to_pylist()
        counts = info["counts"]
        if not {"labels", "tags"} & set(counts):
            raise InputError(
                f"{spec.name} {part} has neither labels nor tags: there is nothing to score by",
                remedy="name a label column or a tag column, or a file with labels or tags",
            )
        seen = (info["classes"], [c for c in columns if c.startswith(("x:", "tag:"))])
        first = first or (part, seen)
        if seen != first[1]:
            raise InputError(
                f"parts {first[0]} and {part} of {spec.name} differ in their classes, features or tags",
                expected="the same in all parts",
            )
        report(f"{spec.name} {part}: {_in_words(counts)}")
    return qid


def _in_words(counts: Mapping[str, Any]) -> str:
    found = [f"{counts['rows']:,} rows", f"{counts['features']:,} features"]
    if "queries" in counts:
        found.append(f"{counts['queries']:,} queries")
    if "labels" in counts:
        found.append(f"{len(counts['labels']):,} different labels")
    if "tags" in counts:
        found.append(f"{counts['tags']:,} tags ({counts['tag_entries']:,} given)")
    return ", ".join(found)


def _toml_text(
    name: str, parts: Mapping[str, OwnPart], split: Path | None = None, folds: int = 0
) -> str:
    first = next(iter(parts.values()))
    lines = [
        f"name = {_toml(name)}",
        f"title = {_toml(name + ', your own')}",
        f"kind = {_toml(first.kind)}",
        'licence = "your own"',
        'folders = ["/"]',
        "",
        "[reader]",
        f"format = {_toml(first.format)}",
    ]
    for part_name, part in parts.items():
        lines += _part_lines(part_name, part)
    for fold in range(folds):
        for role in _ROLES:
            assert split is not None
            whole = OwnPart(
                first.format, first.kind, [*first.files, ("split", split)], first.options
            )
            lines += _part_lines(f"fold{fold + 1}/{role}", whole)
            lines.append(f"subset = {_toml({'trial': fold, 'part': role})}")
    return "\n".join(lines) + "\n"


def _part_lines(name: str, part: OwnPart) -> list[str]:
    entries = [{"name": str(file).lstrip("/"), "role": role} for role, file in part.files]
    lines = ["", "[[parts]]", f"name = {_toml(name)}", f"files = {_toml(entries)}"]
    return lines + ([f"options = {_toml(part.options)}"] if part.options else [])


def _toml(value: Any) -> str:
    """A value as TOML, inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    # Control characters have no place in a basic string; tabs and the like are escaped.
    escaped = "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped)
    return f'"{escaped}"'
