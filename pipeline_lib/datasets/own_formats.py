"""Formats of the user's own data: named columns, embeddings, tagged pictures, sparse text."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.image_folder import match_tags
from pipeline_lib.datasets.layout import Kind
from pipeline_lib.datasets.libsvm import read_libsvm
from pipeline_lib.datasets.loaded import Files, Loaded, matrix, only_file, tagged, texts
from pipeline_lib.datasets.tables import UserTable, numbered_alike, read_embeddings, read_table
from pipeline_lib.datasets.tag_csv import TagTable, read_tag_csv
from pipeline_lib.errors import InputError


def table(
    files: Files,
    seed: int,
    *,
    features: Sequence[str] | None = None,
    label: str | None = None,
    query: str | None = None,
    id: str | None = None,
    tags: str | Sequence[str] | None = None,
    separator: str = ";",
) -> Loaded:
    """A user's CSV or Parquet with named columns; see `tables.read_table`.

    Files with the role ``set`` are the other parts: classes and tags are numbered alike in all.
    """

    def read(path: Path) -> UserTable:
        return read_table(
            path,
            features=features,
            label=label,
            query=query,
            id=id,
            tags=tags,
            separator=separator,
        )

    path = only_file(files)
    found = read(path)
    others = {other: read(other) for other in files.get("set", ())}
    return _from_user(numbered_alike(found, others, path), path)


def embeddings(files: Files, seed: int, *, separator: str = ";") -> Loaded:
    """A user's ``.npy`` or ``.npz`` with a ``labels`` or ``tags`` file; see `tables.read_embeddings`."""
    beside = {
        role: only_file(files, role) if role in files else None for role in ("labels", "tags")
    }
    return _from_user(
        read_embeddings(only_file(files), separator=separator, **beside), only_file(files)
    )


def _from_user(found: UserTable, path: Path) -> Loaded:
    kind: Kind
    if found.qid is not None:
        if found.y is None or found.X is None or found.classes:
            raise InputError(
                "a table with queries needs features and a whole-number label", path=path
            )
        kind = "ltr"
    elif found.Y is not None:
        kind = "tags"
    elif found.X is not None:
        kind = "matrix"
    else:
        raise InputError("no column is a feature or a tag", path=path)
    qid = None if found.qid is None else np.array(found.qid, dtype=object)
    data = Dataset(
        "",
        "",
        X=found.X,
        y=found.y,
        qid=qid,
        Y=found.Y,
        tags=found.tags,
        ids=texts(found.ids),
    )
    return Loaded(data, kind, features=found.features, classes=found.classes)


def tagged_pictures(
    files: Files,
    seed: int,
    *,
    scratch: Path | None = None,
    folder: str | None = None,
    descriptor: str = "colour-histogram",
    separator: str = ";",
) -> Loaded:
    """A user's tag CSV (role ``tags``) with the pictures below a folder (role ``pictures``).

    The folder is that of the CSV unless ``folder`` says otherwise. Features are computed with a
    descriptor of `features.image_descriptors` (extra ``images``); finished ones are kept in
    ``scratch``. Files with the role ``set`` are the CSVs of the other parts: tags are numbered alike
    in all.
    """
    from pipeline_lib.features.image_descriptors import StaleCheckpointError, describe_pictures

    tags = only_file(files, "tags")
    place = tags.parent if folder is None else Path(folder)
    pictures, found, without = match_tags(place, tags, separator=separator)
    others = {
        other: UserTable(tags=read_tag_csv(other, separator=separator).tags)
        for other in files.get("set", ())
    }
    alike = numbered_alike(UserTable(Y=found.Y, tags=found.tags), others, tags)
    found = TagTable(found.ids, cast("NDArray[np.uint8]", alike.Y), alike.tags)
    try:
        X, names = describe_pictures(pictures, descriptor, seed=seed, checkpoint=scratch)
    except StaleCheckpointError:
        # What was kept belongs to an earlier state of the pictures or of the code.
        shutil.rmtree(cast("Path", scratch))
        X, names = describe_pictures(pictures, descriptor, seed=seed, checkpoint=scratch)
    if len(X) > 1 and not np.ptp(X, axis=0).any():
        raise InputError(
            f"the {descriptor} of all {len(X):,} pictures is the same",
            path=place,
            remedy="choose another --descriptor, such as hog",
        )
    findings = {"pictures without a row in the tag table": without} if without else {}
    loaded = tagged(found, X, findings=findings)
    return Loaded(loaded.data, "tags", features=names)


def libsvm_text(files: Files, seed: int, *, n_features: int | None = None) -> Loaded:
    """A user's libsvm text: a class and ``index:value`` pairs a line; see `libsvm.read_libsvm`."""
    X, y = read_libsvm(only_file(files), n_features=n_features)
    return matrix(X, y)
