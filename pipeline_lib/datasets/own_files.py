"""What a path of the user's own is: which format reads it, with which files and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline_lib.datasets.archives import read_compressed
from pipeline_lib.datasets.image_folder import find_pictures
from pipeline_lib.datasets.layout import Kind
from pipeline_lib.datasets.letor import letor_shape
from pipeline_lib.datasets.libsvm import read_libsvm
from pipeline_lib.datasets.npz import read_npz
from pipeline_lib.datasets.reading import decode_text, existing_file, split_lines
from pipeline_lib.errors import InputError

TABLES = (".csv", ".tsv", ".parquet", ".pq")
ARRAYS = (".npy", ".npz")
IMAGE_SETS = (".mat", ".h5", ".hdf5")
TEXTS = (".txt", ".letor", ".libsvm", ".svm", ".t", ".dat", ".gz", ".bz2", ".xz")

Entry = tuple[str, Path]


@dataclass(frozen=True)
class OwnOptions:
    """What the user said of the columns and files; see `own.declare`."""

    label: str | None = None
    query: str | None = None
    id: str | None = None
    tags: str | Sequence[str] | Path | None = None
    features: Sequence[str] | None = None
    labels_file: Path | None = None
    separator: str = ";"
    size: tuple[int, int] | None = None
    descriptor: str = "colour-histogram"


@dataclass(frozen=True)
class OwnPart:
    """One part as the catalogue declares it."""

    format: str
    kind: Kind
    files: list[Entry]
    options: dict[str, Any] = field(default_factory=dict)


def own_part(path: Path, given: OwnOptions) -> OwnPart:
    """Format, kind, files by role and reader options of a path.

    Raises
    ------
    InputError
        No such file, a suffix that no reader takes, or an option that does not go with it.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        _refuse(given, path, "label", "query", "id", "features", "labels_file")
        return _pictures(path, given)
    if not path.is_file():
        raise InputError("no such file or folder", path=path)
    if suffix in TABLES:
        _refuse(given, path, "labels_file", "size")
        return _table(path, given)
    if suffix in ARRAYS:
        _refuse(given, path, "label", "query", "id", "features", "size")
        return _embeddings(path, given)
    if suffix in IMAGE_SETS:
        _refuse(given, path, "query", "id", "tags", "labels_file")
        return _image_set(path, given)
    if suffix in TEXTS:
        _refuse(given, path, "label", "query", "id", "features", "tags", "labels_file", "size")
        if _has_queries(path):
            return OwnPart("letor", "ltr", [("data", path)])
        return OwnPart("libsvm", "matrix", [("data", path)])
    raise InputError(
        f"unknown kind of file {path.suffix!r}",
        path=path,
        expected=", ".join((*TABLES, *ARRAYS, *IMAGE_SETS, ".txt")) + " or a folder of pictures",
    )


def same_in_all(parts: dict[str, OwnPart]) -> dict[str, OwnPart]:
    """Let parts agree on what one file alone cannot say: width of sparse text, names of classes."""
    formats = {part.format for part in parts.values()} | {part.kind for part in parts.values()}
    if len(formats) > 2:
        raise InputError(f"parts of different formats: {', '.join(sorted(formats))}")
    main = {name: part.files[0][1] for name, part in parts.items()}
    first = next(iter(parts.values()))
    shared: dict[str, Any] = {}
    if first.format == "letor":
        shape = letor_shape(list(main.values()))
        shared = {"base": shape.base, "width": shape.width}
    elif first.format == "libsvm":
        shared = {"n_features": max(read_libsvm(path)[0].shape[1] for path in main.values())}
    agreed = {}
    for name, part in parts.items():
        others: list[Entry] = []
        if first.format in ("table", "tagged-pictures"):
            others = [("set", path) for other, path in main.items() if other != name]
        agreed[name] = OwnPart(
            part.format, part.kind, part.files + others, {**part.options, **shared}
        )
    return agreed


def _refuse(given: OwnOptions, path: Path, *names: str) -> None:
    for name in names:
        if getattr(given, name) is not None:
            what = "a folder of pictures" if path.is_dir() else f"a {path.suffix} file"
            raise InputError(f"{name.replace('_', ' ')} does not go with {what}", path=path)


def _pictures(path: Path, given: OwnOptions) -> OwnPart:
    if given.tags is None:
        size = {} if given.size is None else {"size": list(given.size)}
        return OwnPart("image-set", "matrix", [("data", path / "*" / "*.*")], size)
    if given.size is not None:
        raise InputError("size goes with folders of classes, not with tags", path=path)
    if not isinstance(given.tags, str | Path):
        raise InputError(f"{len(given.tags)} tag files", path=path, expected="one CSV of tags")
    inside = path / given.tags
    table = inside if inside.is_file() else existing_file(Path(given.tags).expanduser()).resolve()
    # Naming the pictures, level by level, makes their content part of the data's identity.
    levels = sorted({len(p.relative_to(path).parts) for p in find_pictures(path)})
    pictures = [("pictures", path.joinpath(*["*"] * (n - 1), "*.*")) for n in levels]
    options: dict[str, Any] = {"descriptor": given.descriptor, "separator": given.separator}
    if table.parent != path:
        options["folder"] = str(path)
    return OwnPart("tagged-pictures", "tags", [("tags", table), *pictures], options)


def _table(path: Path, given: OwnOptions) -> OwnPart:
    names = ("features", "label", "query", "id", "tags")
    options = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if given.query is not None and given.label is None:
        raise InputError("a query column needs a label column as well", path=path)
    if given.tags is not None:
        if given.query is not None:
            raise InputError("a table has either a query column or tags", path=path)
        options["separator"] = given.separator
    kind: Kind = "ltr" if given.query else "tags" if given.tags is not None else "matrix"
    return OwnPart("table", kind, [("data", path)], options)


def _image_set(path: Path, given: OwnOptions) -> OwnPart:
    options: dict[str, Any] = {}
    if given.label is not None:
        options["labels"] = given.label
    if given.features is not None:
        if len(given.features) != 1:
            raise InputError(
                f"{len(given.features)} feature variables", path=path, expected="one matrix"
            )
        options["features"] = given.features[0]
    if path.suffix.lower() != ".mat" and len(options) < 2:
        raise InputError(
            "HDF5 has no fixed names",
            path=path,
            expected="the paths of the matrix (features) and of the labels (label)",
        )
    if given.size is not None:
        order = "F" if path.suffix.lower() == ".mat" else "C"
        options["image"] = {"height": given.size[0], "width": given.size[1], "order": order}
    return OwnPart("image-set", "matrix", [("data", path)], options)


def _embeddings(path: Path, given: OwnOptions) -> OwnPart:
    files: list[Entry] = [("data", path)]
    if given.labels_file is not None:
        files.append(("labels", existing_file(Path(given.labels_file).expanduser()).resolve()))
    if given.tags is not None:
        if not isinstance(given.tags, str | Path):
            raise InputError(f"{len(given.tags)} tag files", path=path, expected="one file of tags")
        files.append(("tags", existing_file(Path(given.tags).expanduser()).resolve()))
    tagged = given.tags is not None or (path.suffix.lower() == ".npz" and _holds_tags(path))
    options = {"separator": given.separator} if given.tags is not None else {}
    return OwnPart("embeddings", "tags" if tagged else "matrix", files, options)


def _holds_tags(path: Path) -> bool:
    return bool({"Y", "Y_indices"} & set(read_npz(path)))


def _has_queries(path: Path) -> bool:
    """Whether sparse text names queries: LETOR's does on every line, libsvm's on none."""
    text = decode_text(read_compressed(path)[: 1 << 20].rpartition(b"\n")[0] or b"", path)
    lines = (line.partition("#")[0] for line in islice(split_lines(text), 100))
    return any(" qid:" in line.replace("\t", " ") for line in lines)
