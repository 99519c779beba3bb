from __future__ import annotations

import bz2
import io
import tarfile
import zipfile

import pytest

from pipeline_lib.datasets.archives import Limits, read_compressed, unpack
from pipeline_lib.errors import InputError


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def make_tar(path, *entries, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content, kind in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "/etc/passwd"
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("form", ["a.zip", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"])
def test_archives_are_unpacked(tmp_path, form):
    path = tmp_path / form
    if form == "a.zip":
        make_zip(path, [("a.txt", "hello"), ("d/", ""), ("d/b.txt", "x" * 1000)])
    else:
        entries = [("a.txt", b"hello"), ("d/b.txt", b"x" * 1000)]
        mode = "w:" + form.removeprefix("a.tar").removeprefix(".")
        make_tar(path, *((*entry, tarfile.REGTYPE) for entry in entries), mode=mode)
    names = unpack(path, tmp_path / "out")
    assert [str(name) for name in names] == ["a.txt", "d/b.txt"]
    assert (tmp_path / "out" / "a.txt").read_text() == "hello"
    assert (tmp_path / "out" / "d" / "b.txt").read_text() == "x" * 1000
    with pytest.raises(InputError, match="is there already"):
        unpack(path, tmp_path / "out")


def test_a_single_compressed_file(tmp_path):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(b"1 1:1\n"))
    assert [str(name) for name in unpack(path, tmp_path / "out")] == ["usps"]
    assert (tmp_path / "out" / "usps").read_bytes() == b"1 1:1\n" == read_compressed(path)


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/etc/evil", "C:\\evil", "\\\\host\\evil", "a\\..\\..\\evil"],
)
@pytest.mark.parametrize("form", ["zip", "tar"])
def test_paths_that_leave_the_folder_are_refused(tmp_path, name, form):
    path = tmp_path / f"in.{form}"
    if form == "zip":
        make_zip(path, [("good", "x"), (name, "x")])
    else:
        make_tar(path, ("good", b"x", tarfile.REGTYPE), (name, b"x", tarfile.REGTYPE), mode="w")
    with pytest.raises(InputError, match=r"absolute path|leaves the folder"):
        unpack(path, tmp_path / "deep" / "out")
    # Nothing half-written, nothing outside.
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["deep", path.name]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.BLKTYPE]
)
def test_links_and_devices_are_refused(tmp_path, kind):
    path = make_tar(tmp_path / "a.tar", ("evil", b"", kind), mode="w")
    with pytest.raises(InputError, match="'evil' is a link or device"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_zip_links_and_encryption_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("evil")
    link.external_attr = 0o120777 << 16
    make_zip(path, [(link, "/etc/passwd")])
    with pytest.raises(InputError, match="link or device"):
        unpack(path, tmp_path / "out")
    make_zip(path, [("a", "x")])
    raw = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + offset] |= 1
    path.write_bytes(raw)
    with pytest.raises(InputError, match="encrypted"):
        unpack(path, tmp_path / "out")


def test_swelling_is_stopped_while_unpacking(tmp_path):
    limits = Limits(max_bytes=10**6, max_files=3, max_ratio=50, ratio_from=10**5)
    for name, pack in [
        ("a.zip", lambda path: make_zip(path, [("a", "0" * 500_000)])),
        ("a.bz2", lambda path: path.write_bytes(bz2.compress(b"0" * 500_000))),
        (
            "a.tar.gz",
            lambda path: make_tar(path, ("a", b"0" * 500_000, tarfile.REGTYPE)),
        ),
    ]:
        pack(tmp_path / name)
        with pytest.raises(InputError, match="swells"):
            unpack(tmp_path / name, tmp_path / "out", limits)
    many = make_zip(tmp_path / "m.zip", [(f"{i}", "x") for i in range(4)])
    with pytest.raises(InputError, match="more than 3 files"):
        unpack(many, tmp_path / "out", limits)
    assert not (tmp_path / "out").exists()


def test_repeated_names_and_other_files_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", [("A.txt", "x"), ("a.TXT", "y")])
    with pytest.raises(InputError, match="stands twice"):
        unpack(path, tmp_path / "out")
    rar = tmp_path / "MQ2008.rar"
    rar.write_bytes(b"Rar!\x1a\x07\x00")
    with pytest.raises(InputError, match="unpack it by hand"):
        unpack(rar, tmp_path / "out")
