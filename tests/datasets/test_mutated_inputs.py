"""Every reader, on damaged copies of a good file: success or an InputError, never anything else.

Each damaged copy may use at most 1.5 GiB more address space than the process has, and all copies
of a format together a bounded time.
"""

from __future__ import annotations

import bz2
import io
import random
import resource
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from pipeline_lib.datasets import (
    archives,
    arff,
    canonical,
    espgame,
    hdf5,
    hvecs,
    image_folder,
    libsvm,
    matlab,
    mirflickr,
    npz,
    nuswide,
    own_files,
    pictures,
    readers,
    reading,
    splits,
    tables,
    tag_csv,
)
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError

NASTY = [
    b"nan",
    b"inf",
    b"1e999",
    b"-1",
    b"999999999999",
    b"\xff\xfe",
    b"\x00",
    b'"',
    b"'",
    b"{",
    b"}",
    b",",
    b"\n",
    b"\r\n",
    b":",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\x7f",
    b"0x10",
    b"1_0",
    b"%",
    b"#",
    b"",
]


def mutate(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(out) + 1)
        length = rng.choice([1, 1, 2, 4, 16])
        kind = rng.randrange(7)
        if kind == 0 and out:
            out[min(at, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at : at + length] = rng.randbytes(length)
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = rng.choice(NASTY)
        elif kind == 4:
            out[at : at + length] = rng.choice(NASTY)
        elif kind == 5:
            del out[at:]
        else:
            out[at:at] = out[at : at + rng.randrange(40)]
    return bytes(out)


def saved(writer, *args, **kwargs) -> bytes:
    buffer = io.BytesIO()
    writer(buffer, *args, **kwargs)
    return buffer.getvalue()


def zip_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def picture_bytes(kind: str) -> bytes:
    image = pytest.importorskip("PIL.Image").fromarray(
        np.random.default_rng(0).integers(0, 255, (9, 7, 3), dtype=np.uint8)
    )
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def hdf5_bytes() -> bytes:
    h5py = pytest.importorskip("h5py")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["train/data"] = np.arange(24.0).reshape(6, 4)
        file["train/target"] = np.arange(6)
    return buffer.getvalue()


def esp_bytes() -> bytes:
    words = np.array([["cat"], ["dog"], ["red"]], dtype=object)
    data = np.zeros((1, 3), dtype=[("keywords", "O"), ("file", "O")])
    for i, keys in enumerate([[1, 2], [3], []]):
        data[0, i] = (np.array([keys], dtype=np.uint8), f"{i}.jpg")
    return saved(
        scipy.io.savemat,
        {"dict": words, "data": data, "train": [[1, 2]], "test": [[3]]},
        do_compression=False,
    )


X = np.arange(12.0).reshape(4, 3)
MAT = {"fea": X, "gnd": np.array([[1], [1], [2], [2]])}
ARFF = b"""% comment
@relation 'a b'
@attribute f1 {0,1}
@attribute 'f 2' numeric
@attribute cat {1,0}
@data
0,1.5,1
1,-2e3,0
{1 4.5, 2 0}
{}
"""
PARQUET_FRAME = {"a": [1.0, 2.0, 3.0], "label": [0, 1, 1], "tags": ["x;y", "", "NA"]}


def parquet_bytes() -> bytes:
    import polars as pl

    buffer = io.BytesIO()
    pl.DataFrame(PARQUET_FRAME).write_parquet(buffer)
    return buffer.getvalue()


def tar_bytes() -> bytes:
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("a.txt", "b/c.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            archive.addfile(info, io.BytesIO(b"hello"))
    return buffer.getvalue()


def unpack_elsewhere(path):
    target = path.parent / f"out{random.randrange(10**12)}"
    try:
        return archives.unpack(path, target)
    except InputError:
        assert not target.exists()  # nothing half-written
        assert not list(path.parent.glob(".out*"))
        raise


def beside(path, name: str, text: str):
    other = path.with_name(name)
    if not other.exists():
        other.write_text(text)
    return other


def vectors_beside(path):
    other = path.with_name("vectors.npy")
    if not other.exists():
        np.save(other, X)
    return other


def pgm_beside(path):
    other = path.with_name("a.pgm")
    if not other.exists():
        other.write_bytes(b"P5 3 2 255\n" + bytes(range(6)))
    return other


def splits_bytes() -> bytes:
    folds = splits.query_folds(np.repeat(np.arange(6), 3), n_folds=3, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        splits.write_splits(Path(folder) / "s.parquet", folds)
        return (Path(folder) / "s.parquet").read_bytes()


def canonical_bytes() -> bytes:
    data = Dataset("d", "p", X=X, y=np.arange(4), ids=np.array(list("abcd"), dtype=object))
    with tempfile.TemporaryDirectory() as folder:
        canonical.write_canonical(Path(folder) / "c.parquet", readers.table_of(data, "matrix"))
        return (Path(folder) / "c.parquet").read_bytes()


def own_text(path):
    """What `own.declare` looks at before any reader does."""
    part = own_files.own_part(path, own_files.OwnOptions())
    return own_files.same_in_all({"all": part})


HVECS = np.hstack([np.full((4, 1), 3), np.arange(12).reshape(4, 3)]).astype("<u2").tobytes()
# Name of the file, its good content, the reader.
CASES = {
    "hvecs": ("a.hvecs", lambda: HVECS, hvecs.read_vecs),
    "hvecs32": (
        "a.hvecs32",
        lambda: np.frombuffer(HVECS, "<u2").astype("<u4").tobytes(),
        hvecs.read_vecs,
    ),
    "fvec": (
        "a.fvec",
        lambda: b"".join(np.int32(3).tobytes() + row.astype("<f4").tobytes() for row in X),
        hvecs.read_vecs,
    ),
    "arff": ("a.arff", lambda: ARFF, lambda path: arff.read_arff(path).numbers(path)),
    "xml": (
        "a.xml",
        lambda: (
            b'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://x">'
            b'<label name="cat"></label><label name="dog"/></labels>'
        ),
        arff.read_label_names,
    ),
    "mat": ("a.mat", lambda: saved(scipy.io.savemat, MAT), matlab.read_features_and_labels),
    "mat-compressed": (
        "a.mat",
        lambda: saved(scipy.io.savemat, MAT, do_compression=True),
        matlab.read_features_and_labels,
    ),
    "mat-sparse": (
        "a.mat",
        lambda: saved(scipy.io.savemat, {**MAT, "fea": scipy.sparse.csc_matrix(X)}),
        matlab.read_features_and_labels,
    ),
    "mat-esp": ("a.mat", esp_bytes, espgame.read_esp),
    "tag-csv": (
        "a.csv",
        lambda: b'image,tags\na,"x;y"\nb,NA\nc,\n',
        tag_csv.read_tag_csv,
    ),
    "binary-csv": (
        "a.csv",
        lambda: b"image,x,y,z\na,0,1,0\nb,1,1,1\n",
        tag_csv.read_tag_csv,
    ),
    "concept-csv": (
        "a.csv",
        lambda: b"image,sky,water,waterfall\r\na\\1.jpg,0,1,0\r\nb\\2.jpg,1,1,1\r\n",
        nuswide.read_concept_csv,
    ),
    "concept-zip": (
        "a.zip",
        lambda: zip_bytes({"t.csv": b"image,sky,sun\na,0,1\nb,1,1\n"}),
        nuswide.read_concept_csv,
    ),
    "dat": ("a.dat", lambda: b"0.1 0.2 \n0.3 4e-1 \n", nuswide.read_features),
    "npy": ("a.npy", lambda: saved(np.save, X), npz.read_npy),
    "npz": (
        "a.npz",
        lambda: saved(
            np.savez_compressed,
            X=X,
            Y_indices=np.array([0, 1, 1]),
            Y_indptr=np.array([0, 2, 2, 3, 3]),
            tags=np.array(["a", "NA"]),
            ids=np.array(["p", "q", "r", "s"]),
        ),
        npz.read_array_table,
    ),
    "libsvm": ("a.t", lambda: b"1 1:0.5 3:-1e-2\n2 2:1 # note\n1\n", libsvm.read_libsvm),
    "libsvm-bz2": (
        "a.bz2",
        lambda: bz2.compress(b"1 1:0.5 3:-1e-2\n2 2:1\n" * 20),
        libsvm.read_libsvm,
    ),
    "hdf5": (
        "a.h5",
        hdf5_bytes,
        lambda path: hdf5.read_hdf5(path, features="train/data", labels="train/target"),
    ),
    "pgm-ascii": ("a.pgm", lambda: b"P2 # c\n3 2\n255\n1 2 3\n4 5 255\n", pictures.read_picture),
    "pgm-binary": ("a.pgm", lambda: b"P5 3 2 3000\n" + bytes(range(12)), pictures.read_picture),
    "png": ("a.png", lambda: picture_bytes("png"), pictures.read_picture),
    "jpeg": ("a.jpg", lambda: picture_bytes("jpeg"), pictures.read_picture),
    "gif": ("a.gif", lambda: picture_bytes("gif"), pictures.read_picture),
    "table-csv": (
        "a.csv",
        lambda: b"q,a,b,label\n1,0.5,2,0\n1,0.25,3,1\n2,1,4,1\n",
        lambda path: tables.read_table(path, label="label", query="q"),
    ),
    "table-parquet": (
        "a.parquet",
        parquet_bytes,
        lambda path: tables.read_table(path, label="label", tags="tags"),
    ),
    "mirflickr-tags": (
        "tags1.txt",
        lambda: "sky\nnull\nflügel\n".encode(),
        lambda path: mirflickr.read_tags(path.parent, min_images=1),
    ),
    "mirflickr-annotations": (
        "sky.txt",
        lambda: b"1\n5\n9\n",
        lambda path: mirflickr.read_annotations(path.parent, 9),
    ),
    "image-folder": (
        "a.pgm",
        lambda: b"P5 3 2 255\n" + bytes(range(6)),
        lambda path: image_folder.read_image_classes(path.parent),
    ),
    "annotation-csv": (
        "a.csv",
        lambda: b"0,1,0\n1,1,0\n0,0,1\n",
        lambda path: reading.require_binary(
            reading.read_number_table(path, delimiter=",", dtype=np.int64), path
        ),
    ),
    "words": ("a.txt", lambda: b"sky\nnull\nNA\nsea\n", reading.read_words),
    "nuswide-labels": (
        "Labels_sky_Train.txt",
        lambda: b"0\n1\n0\n1\n",
        lambda path: nuswide.read_ground_truth(
            path.parent, beside(path, "concepts.txt", "sky\n"), "Train"
        ),
    ),
    "nuswide-tags": (
        "Train_Tags1k.dat",
        lambda: b"0 1 0 \n1 1 0 \n",
        lambda path: nuswide.read_tags(path, beside(path, "list.txt", "a\nb\nc\n")),
    ),
    "mulan-pair": (
        "a.xml",
        lambda: b'<labels><label name="cat"></label></labels>',
        lambda path: arff.read_mulan(beside(path, "a.arff", ARFF.decode()), path),
    ),
    "label-file": (
        "a.txt",
        lambda: b"cat\ndog\ncat\neel\n",
        lambda path: tables.read_embeddings(vectors_beside(path), labels=path),
    ),
    "label-npy": (
        "labels.npy",
        lambda: saved(np.save, np.array(["cat", "dog", "cat", "eel"])),
        lambda path: tables.read_embeddings(vectors_beside(path), labels=path),
    ),
    "tag-lines": (
        "a.txt",
        lambda: b"cat;red\n\nNA\nnull; cat\n",
        lambda path: tables.read_embeddings(vectors_beside(path), tags=path),
    ),
    "table-tsv": (
        "a.tsv",
        lambda: b"name\ta\tlabel\nx\t0.5\tcat\ny\t1\tdog\n",
        lambda path: tables.read_table(path, label="label", id="name"),
    ),
    "picture-tags": (
        "tags.csv",
        lambda: b"picture,tags\na,red;NA\n",
        lambda path: image_folder.match_tags(pgm_beside(path).parent, path),
    ),
    "canonical": ("a.parquet", canonical_bytes, canonical.read_canonical),
    "splits": ("a.parquet", splits_bytes, splits.read_splits),
    "bmp": ("a.bmp", lambda: picture_bytes("bmp"), pictures.read_picture),
    "tiff": ("a.tif", lambda: picture_bytes("tiff"), pictures.read_picture),
    "webp": ("a.webp", lambda: picture_bytes("webp"), pictures.read_picture),
    "own-text": ("a.txt", lambda: b"1 1:0.5 3:2\n2 1:1\n", own_text),
    "own-ranking": ("a.txt", lambda: b"1 qid:1 1:0.5\n0 qid:1 1:1\n", own_text),
    "zip": (
        "a.zip",
        lambda: zip_bytes({"a.txt": b"hello", "b/c.txt": b"x" * 99}),
        unpack_elsewhere,
    ),
    "tar": ("a.tar.gz", tar_bytes, unpack_elsewhere),
}


@pytest.fixture
def bounded_memory():
    with open("/proc/self/statm") as handle:
        pages = int(handle.read().split()[0])
    used = pages * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 3 * 2**29, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def survive(format_name: str, folder, n_mutations: int) -> None:
    name, make, read = CASES[format_name]
    good = make()
    path = folder / name
    path.write_bytes(good)
    read(path)  # the good file is read
    rng = random.Random(format_name)
    refused = 0
    started = time.perf_counter()
    for trial in range(n_mutations):
        damaged = mutate(good, rng)
        path.write_bytes(damaged)
        try:
            read(path)
        except InputError as error:
            assert error.path is not None, f"mutation {trial}: {error} names no file"
            refused += 1
        except BaseException as error:
            error.add_note(f"mutation {trial} of {format_name}: {damaged[:3000]!r}")
            raise
    assert refused > n_mutations // 20
    assert time.perf_counter() - started < 0.05 * n_mutations + 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format_name", CASES)
def test_damaged_files_end_in_success_or_an_input_error(format_name, tmp_path, bounded_memory):
    survive(format_name, tmp_path, 200)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format_name", CASES)
def test_two_thousand_damaged_files(format_name, tmp_path, bounded_memory):
    survive(format_name, tmp_path, 2000)
