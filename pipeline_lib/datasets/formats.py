"""From the readers of files to what the catalogue's ``reader.format`` names, options included.

A format is a function of the files by role and keyword options; it returns a `Loaded`. Options that
it does not know are refused by `read_format`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets import generators
from pipeline_lib.datasets.arff import read_mulan
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.espgame import read_esp
from pipeline_lib.datasets.hdf5 import read_hdf5
from pipeline_lib.datasets.hvecs import read_vecs
from pipeline_lib.datasets.image_folder import SUFFIXES, read_image_classes
from pipeline_lib.datasets.layout import Kind
from pipeline_lib.datasets.libsvm import read_libsvm
from pipeline_lib.datasets.loaded import (
    Files,
    Loaded,
    as_features,
    matrix,
    only_file,
    tagged,
)
from pipeline_lib.datasets.matlab import read_features_and_labels
from pipeline_lib.datasets.mirflickr import read_annotations
from pipeline_lib.datasets.mirflickr import read_tags as read_flickr_tags
from pipeline_lib.datasets.npz import read_array_table
from pipeline_lib.datasets.nuswide import (
    read_concept_csv,
    read_features,
    read_ground_truth,
    read_tags,
)
from pipeline_lib.datasets.own_formats import embeddings, libsvm_text, table, tagged_pictures
from pipeline_lib.datasets.reading import (
    read_number_table,
    read_words,
    refuse_label_leak,
    require_binary,
    require_rows,
)
from pipeline_lib.datasets.tag_csv import TagTable
from pipeline_lib.errors import InputError


def image_set(
    files: Files,
    seed: int,
    *,
    features: str | None = None,
    labels: str | None = None,
    samples: Literal["rows", "columns"] | None = None,
    rows: Sequence[int] | None = None,
    n_features: int | None = None,
    classes: Literal["folder", "prefix"] = "folder",
    separator: str = ".",
    size: Sequence[int] | None = None,
    image: Mapping[str, Any] | None = None,
) -> Loaded:
    """Labelled vectors from ``.mat``, ``.h5``, libsvm text, or pictures, told apart by suffix.

    Parameters
    ----------
    files : mapping
        Role ``data``: one file, or the pictures of all classes.
    features, labels, samples : optional
        Variable names and orientation (``.mat``), dataset names (``.h5``).
    rows : (int, int), optional
        First row, and row after the last, of the part inside the file.
    n_features : int, optional
        Columns of libsvm text.
    classes, separator, size : optional
        See `image_folder.read_image_classes`.
    image : mapping, optional
        ``height``, ``width`` and ``order`` (``"C"`` row by row, ``"F"`` column by column) of the
        picture in a row; recorded, for thumbnails.
    """
    paths = files.get("data", ())
    suffix = paths[0].suffix.lower() if paths else ""
    if suffix == ".mat":
        X, y = read_features_and_labels(
            only_file(files), features=features, labels=labels, samples=samples
        )
    elif suffix in (".h5", ".hdf5"):
        if features is None or labels is None:
            raise InputError("HDF5 needs the options features and labels", path=paths[0])
        X, y = read_hdf5(only_file(files), features=features, labels=labels)
    elif suffix in (".bz2", ".t", ".libsvm", ".svm"):
        X, y = read_libsvm(only_file(files), n_features=n_features)
    else:
        if not paths:
            raise InputError("no pictures", expected="files with the role data")
        paths = tuple(path for path in paths if not path.name.startswith("."))
        if classes == "folder":
            # Notes and lists lie beside pictures; classes by prefix have no suffix to go by.
            paths = tuple(path for path in paths if path.suffix.lower() in SUFFIXES)
            if not paths:
                raise InputError("no pictures", expected=" or ".join(SUFFIXES))
        root = paths[0].parents[1] if classes == "folder" else paths[0].parent
        found = read_image_classes(
            root,
            files=paths,
            classes=classes,
            separator=separator,
            size=None if size is None else _pair(size),
        )
        shape = {"height": found.shape[0], "width": found.shape[1], "order": "C"}
        return matrix(
            found.X, found.y, classes=found.classes, ids=found.ids, findings={"image": shape}
        )
    if rows is not None:
        first, last = _pair(rows)
        if not 0 <= first < last <= len(X):
            raise InputError(f"rows {first} to {last} of {len(X)}", path=paths[0])
        X, y = X[first:last], y[first:last]
    if image is not None and image["height"] * image["width"] != X.shape[1]:
        raise InputError(
            f"{X.shape[1]} features", path=paths[0], expected=f"{image['height']}x{image['width']}"
        )
    return matrix(X, y, findings={} if image is None else {"image": dict(image)})


def _pair(values: Sequence[int]) -> tuple[int, int]:
    if len(values) != 2:
        raise InputError(f"{list(values)} is not a pair of numbers")
    return int(values[0]), int(values[1])


def mulan(files: Files, seed: int) -> Loaded:
    """MULAN's ARFF (role ``data``) and label list (role ``labels``); rows are numbered from 1.

    Several ARFF files are set below each other.
    """
    parts = []
    for path in files.get("data", ()):
        X, Y, tags = read_mulan(path, only_file(files, "labels"))
        ids = tuple(str(i) for i in range(1, len(X) + 1))
        parts.append(tagged(TagTable(ids, Y, tags), X))
    return _below_each_other(parts, files.get("data", ()))


def annotation_files(files: Files, seed: int) -> Loaded:
    """Annotation matrix (role ``annotations``: ``.hvecs`` or ``.csv``) with what belongs to it.

    Roles ``dictionary``, ``images`` (one name a line) and ``features`` (any number of ``.hvecs``,
    ``.hvecs32`` and ``.fvec``, set side by side) are optional. An undeclared dictionary or image list
    is looked for beside the annotation under the release's names (``corel5k_dictionary.txt``,
    ``corel5k_train_list.txt``); without one, tags or images are numbered.

    Several annotations are set below each other; image lists and features then stand in their order,
    equally many for each.
    """
    paths = files.get("annotations", ())
    shares: dict[str, list[tuple[Path, ...]]] = {}
    for role in ("images", "features"):
        found = files.get(role, ())
        each, rest = divmod(len(found), max(1, len(paths)))
        if rest:
            raise InputError(
                f"{len(found)} files with the role {role!r} for {len(paths)} annotations",
                expected="equally many for each",
            )
        shares[role] = [found[i * each : (i + 1) * each] for i in range(len(paths))]
    parts = [
        _annotation(
            {
                "annotations": (path,),
                "dictionary": files.get("dictionary", ()),
                "images": shares["images"][i],
                "features": shares["features"][i],
            }
        )
        for i, path in enumerate(paths)
    ]
    return _below_each_other(parts, paths)


def _below_each_other(parts: Sequence[Loaded], paths: Sequence[Path]) -> Loaded:
    """Tag tables of the same tags as one; rows that were numbered are numbered anew."""
    if not parts:
        raise InputError("no file to read", expected="at least one")
    first = parts[0].data
    if len(parts) == 1:
        return parts[0]
    for part, path in zip(parts, paths):
        if part.data.tags != first.tags:
            raise InputError("has other tags", path=path, expected=f"those of {paths[0].name}")
    features = [part.data.X for part in parts if part.data.X is not None]
    if len({X.shape[1] for X in features}) > 1 or len(features) not in (0, len(parts)):
        raise InputError("features of different widths", path=paths[0])
    ids = [name for part in parts for name in cast("NDArray[Any]", part.data.ids).tolist()]
    if len(set(ids)) != len(ids):
        ids = [str(i) for i in range(1, len(ids) + 1)]
    Y = np.vstack([cast("NDArray[np.uint8]", part.data.Y) for part in parts])
    findings = {
        f"{path.name}: {key}": value
        for part, path in zip(parts, paths)
        for key, value in part.data.info.items()
    }
    X = np.vstack(features) if features else None
    return tagged(TagTable(tuple(ids), Y, first.tags), X, findings)


def _annotation(files: Files) -> Loaded:
    path = only_file(files, "annotations")
    if path.suffix.lower() == ".hvecs":
        values: NDArray[Any] = read_vecs(path)
    else:
        values = read_number_table(path, delimiter=",", dtype=np.int64)
    Y = require_binary(values, path)
    findings: dict[str, Any] = {}
    stem = path.stem.removesuffix("_annot")
    tags = _beside(files, "dictionary", path, f"{stem.rpartition('_')[0]}_dictionary.txt", findings)
    ids = _beside(files, "images", path, f"{stem}_list.txt", findings)
    if tags is None:
        tags = tuple(f"tag{j:03d}" for j in range(Y.shape[1]))
    if ids is None:
        ids = tuple(str(i) for i in range(1, len(Y) + 1))
    require_rows(len(tags), Y.shape[1], path, "words in the dictionary")
    require_rows(len(ids), len(Y), path, "images in the list")
    X = None
    blocks = []
    for file in files.get("features", ()):
        block = read_vecs(file)
        require_rows(len(block), len(Y), file, "records")
        blocks.append(as_features(block))
    if blocks:
        X = np.hstack(blocks)
        refuse_label_leak(X, Y, path)
    return tagged(TagTable(ids, Y, tags), X, findings)


def _beside(
    files: Files, role: str, path: Path, name: str, findings: dict[str, Any]
) -> tuple[str, ...] | None:
    what = "word" if role == "dictionary" else "image"
    if files.get(role):
        return read_words(only_file(files, role), what=what)
    if (path.parent / name).is_file():
        findings["words" if role == "dictionary" else "names"] = f"read from {name}"
        return read_words(path.parent / name, what=what)
    findings[role] = f"{name} is not there: {what}s are numbered"
    return None


def esp_mat(files: Files, seed: int, *, part: Literal["all", "train", "test"] = "all") -> Loaded:
    """``esp_data.mat``; ``part`` takes the images whose numbers it lists, in order of number."""
    esp = read_esp(only_file(files))
    if part not in ("all", "train", "test"):
        raise InputError(f"part {part!r} of esp_data.mat", expected="all, train or test")
    rows = np.arange(len(esp.ids)) if part == "all" else getattr(esp, part)
    ids = tuple(esp.ids[i] for i in rows)
    neither = len(esp.ids) - esp.train.size - esp.test.size
    findings = {"images in neither train nor test": neither} if part == "all" else {}
    return tagged(TagTable(ids, esp.Y[rows], esp.tags), findings=findings)


def nuswide(
    files: Files,
    seed: int,
    *,
    known_strays: Sequence[Sequence[int]] = (),
    part: str = "",
    features: str | None = None,
) -> Loaded:
    """NUS-WIDE, by the roles that are there.

    ``table`` is a concept CSV or zip; ``labels`` are the official ``Labels_<concept>_<part>.txt`` with
    ``concepts``; ``tags`` is a 0/1 table with ``tag-list``. ``images`` (names) and ``features`` (a
    ``.dat`` table; ``features`` names its kind) go with the last two.
    """
    X = None
    findings: dict[str, Any] = {}
    if "table" in files:
        strays = [(int(line), int(column), int(value)) for line, column, value in known_strays]
        found = read_concept_csv(only_file(files, "table"), known_strays=strays)
        table, findings = found.table, found.findings
    else:
        images = only_file(files, "images") if "images" in files else None
        if "tags" in files:
            table = read_tags(only_file(files, "tags"), only_file(files, "tag-list"), images)
        else:
            if not files.get("labels"):
                raise InputError("no labels of NUS-WIDE", expected="a role table, tags or labels")
            folder = files["labels"][0].parent
            table = read_ground_truth(folder, only_file(files, "concepts"), part, images)
    if "features" in files:
        file = only_file(files, "features")
        X = read_features(file, features)
        require_rows(len(X), len(table.ids), file, "lines")
        refuse_label_leak(X, table.Y, file)
        X = X.astype(np.float32) if X.size > 2**24 else X
    return tagged(table, X, findings=findings)


def mirflickr(
    files: Files,
    seed: int,
    *,
    labels: Literal["tags", "annotations"] = "tags",
    min_images: int = 20,
    n_images: int = 25_000,
    relevant: bool = False,
) -> Loaded:
    """MIRFlickr's tag files (role ``tags``) or annotation lists (role ``annotations``)."""
    if labels not in ("tags", "annotations") or not files.get(labels):
        raise InputError(f"no files of MIRFlickr for {labels!r}", expected="tags or annotations")
    folder = files[labels][0].parent
    if labels == "tags":
        return tagged(read_flickr_tags(folder, min_images=min_images))
    Y, concepts = read_annotations(folder, n_images, relevant=relevant)
    return tagged(TagTable(tuple(f"im{i}" for i in range(1, n_images + 1)), Y, concepts))


def arrays(files: Files, seed: int) -> Loaded:
    """A ``.npz`` with X, Y (or y), tags and ids; see `npz`."""
    table = read_array_table(only_file(files))
    if table.Y is None:
        if table.X is None or table.y is None:
            raise InputError("neither tags nor labels", path=only_file(files), expected="Y or y")
        return matrix(table.X, table.y, classes=table.classes, ids=table.ids)
    ids = table.ids or tuple(str(i) for i in range(1, len(table.Y) + 1))
    return tagged(TagTable(ids, table.Y, table.tags), table.X)


def generated(files: Files, seed: int, *, generator: str, **parameters: Any) -> Loaded:
    """One of the seeded generators, with its parameters."""
    kinds: dict[str, tuple[Kind, Callable[..., Dataset]]] = {
        "two_moons": ("matrix", generators.two_moons),
        "three_rings": ("matrix", generators.three_rings),
        "low_rank_tags": ("tags", generators.low_rank_tags),
        "letor_like": ("ltr", generators.letor_like),
    }
    if generator not in kinds:
        raise InputError(f"unknown generator {generator!r}", expected="one of " + ", ".join(kinds))
    kind, make = kinds[generator]
    for name, value in parameters.items():
        if isinstance(value, list):
            parameters[name] = tuple(value)
    try:
        return Loaded(make(seed=seed, **parameters), kind)
    except TypeError as error:
        raise InputError(f"generator {generator}: {error}") from None


#: Formats by the name that the catalogue uses.
FORMATS: dict[str, Callable[..., Loaded]] = {
    "annotations": annotation_files,
    "arrays": arrays,
    "embeddings": embeddings,
    "esp-mat": esp_mat,
    "generated": generated,
    "image-set": image_set,
    "libsvm": libsvm_text,
    "mirflickr": mirflickr,
    "mulan": mulan,
    "nuswide": nuswide,
    "table": table,
    "tagged-pictures": tagged_pictures,
}


def read_format(
    name: str,
    files: Files,
    options: Mapping[str, Any],
    seed: int = 0,
    scratch: Path | None = None,
) -> Loaded:
    """Run a format of `FORMATS`; options that it does not know are an `InputError`."""
    function = FORMATS[name]
    signature = inspect.signature(function)
    own = {"scratch": scratch} if "scratch" in signature.parameters else {}
    try:
        signature.bind(files, seed, **options, **own)
    except TypeError as error:
        raise InputError(f"format {name}: {error}") from None
    return function(files, seed, **options, **own)
