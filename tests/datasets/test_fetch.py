from __future__ import annotations

import bz2
import hashlib
import http.server
import io
import re
import threading
import zipfile

import numpy as np
import pytest

pytest.importorskip("pooch")

from pipeline_lib.datasets import catalogue
from pipeline_lib.datasets import fetch as module
from pipeline_lib.datasets.fetch import fetch
from pipeline_lib.datasets.libsvm import write_libsvm
from pipeline_lib.errors import DataMissingError

CONTENT: dict[str, bytes] = {}
REQUESTS: list[tuple[str, str | None]] = []
CUT: dict[str, int] = {}


class Handler(http.server.BaseHTTPRequestHandler):
    """A file server that knows ranges, and cuts a file once after some bytes when told to."""

    def do_GET(self):
        wanted = self.headers.get("Range")
        REQUESTS.append((self.path, wanted))
        content = CONTENT.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = CUT.pop(self.path, len(content))
        self.wfile.write(content[start:stop])

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()


@pytest.fixture
def declared(tmp_path, monkeypatch, server):
    """A catalogue of its own, with one dataset of two files behind the server."""
    REQUESTS.clear()
    CUT.clear()
    rng = np.random.default_rng(0)
    write_libsvm(tmp_path / "t", rng.random((5000, 6)), np.arange(5000) % 5)
    CONTENT["/a.bz2"] = bz2.compress((tmp_path / "t").read_bytes())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inner/b.bz2", CONTENT["/a.bz2"])
    CONTENT["/b.zip"] = packed.getvalue()
    folder = tmp_path / "catalogue"
    folder.mkdir()

    def declare(url="a.bz2", extra="", sha=None):
        sha = sha or hashlib.sha256(CONTENT["/a.bz2"]).hexdigest()
        (folder / "toy.toml").write_text(
            f"""
name = "toy"
title = "A toy"
kind = "matrix"
licence = "ask first"
homepage = "{server}/"
citation = "none"
folders = ["toy"]
[[sources]]
url = "{server}/{url}"
files = "a.bz2"
hash = "sha256:{sha}"
{extra}
[[sources]]
url = "{server}/b.zip"
files = "b.zip"
hash = "sha256:{hashlib.sha256(CONTENT["/b.zip"]).hexdigest()}"
folder = "sub"
[reader]
format = "image-set"
[[parts]]
name = "a"
files = [{{ name = "a.bz2" }}]
options = {{ n_features = 6 }}
expect = {{ rows = 5000, features = 6 }}
[[parts]]
name = "b"
files = [{{ name = "sub/inner/b.bz2" }}]
options = {{ n_features = 6 }}
expect = {{ rows = 5000, features = 6 }}
"""
        )
        catalogue.forget_declarations()

    monkeypatch.setattr(catalogue, "catalogue_dir", lambda: folder)
    declare()
    yield declare
    catalogue.forget_declarations()


def test_files_are_fetched_verified_unpacked_and_imported(declared, tmp_path):
    seen = []
    lines = fetch("toy", tmp_path / "raw", report=seen.append)
    assert seen == lines and "licence: ask first" in lines[0]
    assert lines[-2:] == ["toy a: 5,000 rows (official)", "toy b: 5,000 rows (official)"]
    assert (tmp_path / "raw" / "toy" / "a.bz2").read_bytes() == CONTENT["/a.bz2"]
    found = sorted(str(p.relative_to(tmp_path / "raw")) for p in (tmp_path / "raw").rglob("*.bz2"))
    assert found == ["toy/a.bz2", "toy/sub/inner/b.bz2"]
    assert not list((tmp_path / "raw").glob(".fetch-*"))


def test_dry_run_connects_to_nothing_and_writes_nothing(declared, tmp_path):
    lines = fetch("toy", tmp_path / "raw", dry_run=True)
    assert any("a.bz2" in line and "sha256:" in line for line in lines)
    assert "ask first" in lines[0] and REQUESTS == [] and not (tmp_path / "raw").exists()


def test_an_interrupted_download_goes_on(declared, tmp_path):
    size = len(CONTENT["/a.bz2"])
    declared(extra=f"bytes = {size}")
    CUT["/a.bz2"] = 150_000
    with pytest.raises(DataMissingError, match="affinity data import toy PATH"):
        fetch("toy", tmp_path / "raw")
    assert not (tmp_path / "raw" / "toy").exists()
    fetch("toy", tmp_path / "raw")
    assert ("/a.bz2", "bytes=131072-") in REQUESTS  # whole blocks of what had arrived
    assert (tmp_path / "raw" / "toy" / "a.bz2").read_bytes() == CONTENT["/a.bz2"]


def test_mirrors_are_tried_in_order(declared, tmp_path, server):
    declared(url="gone/a.bz2", extra=f'mirrors = ["{server}/nothing", "{server}/a.bz2"]')
    lines = fetch("toy", tmp_path / "raw")
    assert [path for path, _ in REQUESTS[:3]] == ["/gone/a.bz2", "/nothing", "/a.bz2"]
    assert "toy a: 5,000 rows (official)" in lines


def test_another_checksum_is_refused(declared, tmp_path):
    declared(sha="0" * 64)
    with pytest.raises(DataMissingError, match="differs from its pinned checksum"):
        fetch("toy", tmp_path / "raw")
    assert not (tmp_path / "raw" / "toy").exists()
    assert not list((tmp_path / "raw").rglob("*.part"))


def test_offline_fails_at_once_with_address_names_and_command(declared, tmp_path, monkeypatch):
    declared(url="x", extra="")
    text = (catalogue.catalogue_dir() / "toy.toml").read_text()
    # A port nobody listens on.
    closed = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", text)
    (catalogue.catalogue_dir() / "toy.toml").write_text(closed)
    catalogue.forget_declarations()
    with pytest.raises(DataMissingError) as caught:
        fetch("toy", tmp_path / "raw")
    message = str(caught.value)
    for piece in ("http://127.0.0.1:9/x", "a.bz2", "affinity data import toy PATH", "ask first"):
        assert piece in message


def test_hand_downloads_and_made_data_say_so():
    with pytest.raises(
        DataMissingError, match=r"orl is downloaded by hand.*ORL_32x32\.mat"
    ) as caught:
        fetch("orl")
    assert "affinity data import orl PATH" in str(caught.value)
    assert fetch("two-moons") == ["two-moons needs no files: it is made by generated"]
    lines = fetch("usps", dry_run=True)
    assert any("usps.t.bz2" in line and "md5:" in line for line in lines)
    assert module.fetch is fetch
