"""A dataset of the user's own: told once what its columns and files are, then used by name.

`declare` writes a declaration into the folder ``catalogue`` of the data root, reads every part once
so that what is wrong is said now, and leaves the files where they are.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.datasets import catalogue
from pipeline_lib.datasets.acquire import ingest
from pipeline_lib.datasets.image_folder import find_pictures
from pipeline_lib.datasets.layout import Kind
from pipeline_lib.datasets.rawfiles import raw_root
from pipeline_lib.errors import InputError

_TABLES = (".csv", ".tsv", ".parquet", ".pq")
_ARRAYS = (".npy", ".npz")
_NAME = re.compile("[a-z0-9-]+")


def declare(
    name: str,
    paths: Path | Mapping[str, Path],
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
    root: Path | None = None,
    replace: bool = False,
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
        - a folder with ``tags`` (a CSV inside it that names pictures): a tagged picture collection,
          described by ``descriptor`` (see `features.image_descriptors`);
        - a folder of folders of pictures: one class per folder, pixels (resampled to ``size``);
        - ``.txt``, ``.gz``: LETOR text.
    tags : str, sequence of str, or path
        A tag column (values separated by ``separator``), tag columns of 0 and 1, or a tag file.
    root : path, optional
        Data root that gets the declaration; by default ``data/raw``.
    replace : bool, default False
        Overwrite an earlier declaration of the same name.

    Returns
    -------
    path
        The declaration.

    Raises
    ------
    InputError
        A name that is taken, or anything the reader does not accept; nothing is written then.
    """
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"dataset name {name!r}", expected="lower-case letters, digits and hyphens"
        )
    folder = (Path(root) if root is not None else raw_root()) / "catalogue"
    target = folder / f"{name}.toml"
    if name in catalogue.names() and not (replace and target.is_file()):
        raise InputError(
            f"dataset {name!r} exists already", remedy="choose another name, or replace your own"
        )
    parts = {"all": Path(paths)} if isinstance(paths, str | Path) else dict(paths)
    if not parts:
        raise InputError(f"dataset {name!r} has no part")
    options: dict[str, Any] = {
        "label": label,
        "query": query,
        "id": id,
        "tags": tags,
        "features": features,
        "labels_file": labels_file,
        "separator": separator,
        "size": size,
        "descriptor": descriptor,
    }
    described = [_describe(Path(path).expanduser().resolve(), options) for path in parts.values()]
    formats = {format_name for format_name, *_ in described}
    kinds = {kind for _, kind, *_ in described}
    if len(formats) > 1 or len(kinds) > 1:
        raise InputError(f"parts of different formats: {', '.join(sorted(formats))}")
    lines = [
        f"name = {_toml(name)}",
        f"title = {_toml(name + ', your own')}",
        f"kind = {_toml(kinds.pop())}",
        'licence = "your own"',
        'folders = ["/"]',
        "",
        "[reader]",
        f"format = {_toml(formats.pop())}",
    ]
    for part, (_, _, files, part_options) in zip(parts, described):
        entries = [{"name": str(file).lstrip("/"), "role": role} for role, file in files]
        lines += ["", "[[parts]]", f"name = {_toml(part)}", f"files = {_toml(entries)}"]
        if part_options:
            lines.append(f"options = {_toml(part_options)}")
    return _write_checked(name, list(parts), target, "\n".join(lines) + "\n")


def _write_checked(name: str, parts: Sequence[str], target: Path, text: str) -> Path:
    """Write the declaration, read every part through it, and take it back when one fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    earlier = target.read_bytes() if target.is_file() else None
    target.write_text(text, encoding="utf-8")
    catalogue._read_declaration.cache_clear()
    try:
        with tempfile.TemporaryDirectory(prefix="affinity-own-") as scratch:
            for part in parts:
                ingest(name, part, Path(scratch))
    except BaseException:
        if earlier is None:
            target.unlink(missing_ok=True)
        else:
            target.write_bytes(earlier)
        catalogue._read_declaration.cache_clear()
        raise
    return target


def _describe(
    path: Path, options: Mapping[str, Any]
) -> tuple[str, Kind, list[tuple[str, Path]], dict[str, Any]]:
    """Format, kind, files by role, and reader options of one part."""
    suffix = path.suffix.lower()
    tags = options["tags"]
    if path.is_dir():
        if tags is not None:
            # Naming the pictures, level by level, makes their content part of the data's identity.
            levels = sorted({len(p.relative_to(path).parts) for p in find_pictures(path)})
            pictures = [("pictures", path.joinpath(*["*"] * (n - 1), "*.*")) for n in levels]
            chosen = {"descriptor": options["descriptor"], "separator": options["separator"]}
            return "tagged-pictures", "tags", [("tags", path / str(tags)), *pictures], chosen
        files = [("data", path / "*" / "*.*")]
        size = {} if options["size"] is None else {"size": list(options["size"])}
        return "image-set", "matrix", files, size
    if not path.is_file():
        raise InputError("no such file or folder", path=path)
    if suffix in _TABLES:
        names = ("features", "label", "query", "id", "tags")
        chosen = {key: options[key] for key in names if options[key] is not None}
        if tags is not None:
            chosen["separator"] = options["separator"]
        kind: Kind = "ltr" if options["query"] else "tags" if tags is not None else "matrix"
        return "table", kind, [("data", path)], chosen
    if suffix in _ARRAYS:
        files = [("data", path)]
        if options["labels_file"] is not None:
            files.append(("labels", Path(options["labels_file"]).expanduser().resolve()))
        if tags is not None:
            files.append(("tags", Path(str(tags)).expanduser().resolve()))
        tagged = tags is not None or (suffix == ".npz" and _has_tags(path))
        return "embeddings", "tags" if tagged else "matrix", files, {}
    if suffix in (".txt", ".gz", ".letor"):
        return "letor", "ltr", [("data", path)], {}
    raise InputError(
        f"unknown kind of file {path.suffix!r}",
        path=path,
        expected=", ".join((*_TABLES, *_ARRAYS, ".txt")) + " or a folder of pictures",
    )


def _has_tags(path: Path) -> bool:
    from pipeline_lib.datasets.npz import read_npz

    return bool({"Y", "Y_indices"} & set(read_npz(path)))


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
