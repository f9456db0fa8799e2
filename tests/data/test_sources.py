"""Finding and downloading. There is no internet in a test: a small web server on this machine plays the publisher."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import pickle
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
from small_files import write_idx_folder

from mixupmp.core.errors import BadData, DataNotFound, InvalidArgument
from mixupmp.core.files import replacing
from mixupmp.data import cifar, idx, load
from mixupmp.data.download import Remote, fetch, unpack
from mixupmp.data.files import locate, roots


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news."""

    def do_GET(self) -> None:
        if self.path.startswith("/cut/"):  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
        else:
            super().do_GET()


@pytest.fixture
def publisher(tmp_path):
    """(folder, address) of a web server's files."""
    folder = tmp_path / "published"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*")) if folder.exists() else []


def test_roots_come_in_the_promised_order(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MIXUPMP_DATA", str(tmp_path / "env"))
    assert roots("given") == [Path("given"), tmp_path / "env", tmp_path / "cache" / "mixupmp"]
    monkeypatch.delenv("MIXUPMP_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert roots() == [tmp_path / ".cache" / "mixupmp"]


def test_the_first_root_that_is_complete_is_taken(empty_root, tmp_path, monkeypatch):
    monkeypatch.setenv("MIXUPMP_DATA", str(tmp_path / "env"))
    write_idx_folder(tmp_path / "cache" / "mixupmp" / "MNIST" / "raw")
    assert locate(idx.MNIST, empty_root) == tmp_path / "cache" / "mixupmp" / "MNIST" / "raw"
    write_idx_folder(tmp_path / "env" / "mnist")
    assert locate(idx.MNIST, empty_root) == tmp_path / "env" / "mnist"
    write_idx_folder(empty_root / "MNIST")
    assert locate(idx.MNIST, empty_root) == empty_root / "MNIST"
    (empty_root / "MNIST" / "train-labels-idx1-ubyte").unlink()
    assert locate(idx.MNIST, empty_root) == tmp_path / "env" / "mnist"


def test_what_is_missing_is_told_with_places_and_remedy(empty_root):
    write_idx_folder(empty_root / "mnist")
    (empty_root / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataNotFound) as caught:
        load("mnist", empty_root)
    message = str(caught.value)
    assert f"{empty_root / 'MNIST/raw'} (no such folder)" in message
    assert f"{empty_root / 'mnist'} (incomplete: no t10k-labels-idx1-ubyte)" in message
    assert "--download" in message
    assert "yann.lecun.com" in message
    assert "MIXUPMP_DATA" in message
    with pytest.raises(DataNotFound, match=r"train, test, meta into .*cifar-100-python"):
        load("cifar100", empty_root)
    with pytest.raises(DataNotFound, match="/usr/share/datasets/fashion-mnist"):
        locate(dataclasses.replace(idx.FASHION_MNIST, files=("no such file",)), empty_root)


def test_idx_files_are_downloaded_checked_and_read(empty_root, publisher, monkeypatch):
    folder, address = publisher
    images = write_idx_folder(folder / "plain")
    remotes = []
    for path in sorted((folder / "plain").iterdir()):
        content = gzip.compress(path.read_bytes())
        (folder / f"{path.name}.gz").write_bytes(content)
        remotes.append(Remote(f"{path.name}.gz", md5(content), (address,)))
    monkeypatch.setattr(idx, "MNIST", dataclasses.replace(idx.MNIST, remotes=tuple(remotes)))
    dataset = load("mnist", empty_root, download=True)
    assert np.array_equal(dataset.train.inputs[:, 0].numpy(), images)
    assert names(empty_root / "MNIST" / "raw") == sorted(r.file for r in remotes)
    folder.rename(folder.with_name("gone"))  # what is there is not asked for again
    assert len(load("mnist", empty_root, download=True).train) == 30


def cifar_archive() -> bytes:
    """An archive as CIFAR's publisher packs it, with unwelcome company."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:

        def add(name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), kind, link
            tar.addfile(member, io.BytesIO(content))

        batch = {b"fine_labels": list(range(20)), b"data": np.zeros((20, 3072), np.uint8)}
        add("../../escaped", b"!")
        add("/etc/escaped", b"!")
        add("cifar-100-python/readme.html", b"hello")
        add("cifar-100-python/link", b"", tarfile.SYMTYPE, "/etc/passwd")
        add("cifar-100-python/meta", pickle.dumps({b"fine_label_names": [b"c%d" % k for k in range(20)]}, 2))
        add("cifar-100-python/train", pickle.dumps(batch, 2))
        add("cifar-100-python/../../test", pickle.dumps(batch, 2))
    return raw.getvalue()


def test_an_archive_is_downloaded_and_only_its_known_files_unpacked(empty_root, publisher, monkeypatch):
    folder, address = publisher
    content = cifar_archive()
    (folder / "c.tar.gz").write_bytes(content)
    remote = Remote("c.tar.gz", md5(content), (address + "nowhere/", address))
    monkeypatch.setattr(cifar, "CIFAR100", dataclasses.replace(cifar.CIFAR100, remotes=(remote,)))
    assert len(load("cifar100", empty_root, download=True).classes) == 20
    assert names(empty_root) == ["cifar-100-python", "meta", "test", "train"]
    assert names(empty_root.parent) == sorted({*names(empty_root), "published", "root", "c.tar.gz"})


def test_an_archive_that_lies_there_is_used_and_kept(empty_root, monkeypatch):
    content = cifar_archive()
    (empty_root / "c.tar.gz").write_bytes(content)
    remote = Remote("c.tar.gz", md5(content), ("http://127.0.0.1:9/",))
    monkeypatch.setattr(cifar, "CIFAR100", dataclasses.replace(cifar.CIFAR100, remotes=(remote,)))
    load("cifar100", empty_root, download=True)
    assert (empty_root / "c.tar.gz").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [("wrong", "its MD5 is"), ("missing", "404"), ("cut/short", "after 10 of 1000 bytes|IncompleteRead|MD5")],
)
def test_a_download_that_fails_says_so_and_leaves_nothing(tmp_path, publisher, file, message):
    folder, address = publisher
    (folder / "wrong").write_bytes(b"other bytes")
    target = tmp_path / "target"
    base, name = (address + "cut/", "short") if file.startswith("cut") else (address, file)
    with pytest.raises(DataNotFound, match=message) as caught:
        fetch(Remote(name, md5(b"the right bytes"), (base,)), target)
    assert base + name in str(caught.value)
    assert str(target) in str(caught.value)
    assert names(target) == []


def test_a_download_without_end_is_stopped(tmp_path, publisher, monkeypatch):
    folder, address = publisher
    (folder / "endless").write_bytes(bytes(3000))
    monkeypatch.setattr("mixupmp.data.download.LIMIT", 2000)
    with pytest.raises(DataNotFound, match="more than 2000 bytes"):
        fetch(Remote("endless", md5(bytes(3000)), (address,)), tmp_path / "target")
    assert names(tmp_path / "target") == []


def test_a_full_disk_is_told_and_not_a_traceback(tmp_path, publisher, monkeypatch):
    folder, address = publisher
    (folder / "file").write_bytes(b"content")
    monkeypatch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(DataNotFound, match="No space left on device"):
        fetch(Remote("file", md5(b"content"), (address,)), tmp_path / "target")
    assert names(tmp_path / "target") == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(tmp_path, publisher, monkeypatch, capsys):
    folder, address = publisher
    content = bytes(3_000_000)
    (folder / "zeros").write_bytes(content)
    remote = Remote("zeros", md5(content), (address,))
    fetch(remote, tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    fetch(remote, tmp_path / "shown")
    assert "zeros" in terminal.getvalue()
    assert "3.0/3.0 MB" in terminal.getvalue()


def test_no_server_and_no_other_scheme(tmp_path):
    with pytest.raises(DataNotFound, match="could not download a"):
        fetch(Remote("a", "0" * 32, ("http://127.0.0.1:9/",)), tmp_path)
    with pytest.raises(InvalidArgument, match="http"):
        fetch(Remote("passwd", "0" * 32, ("file:///etc/",)), tmp_path)


def test_archives_that_are_none_or_lack_a_file(tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(b"no archive")
    with pytest.raises(BadData, match=r"a\.tar\.gz could not be unpacked"):
        unpack(path, tmp_path / "out", ("train",))
    path.write_bytes(cifar_archive())
    with pytest.raises(BadData, match="does not hold other"):
        unpack(path, tmp_path / "out", ("train", "other"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadData, match="could not be unpacked"):
        unpack(path, tmp_path / "cut", ("train", "test"))


def test_an_atomic_file_is_whole_or_as_before(tmp_path):
    path = tmp_path / "folder" / "file"
    with replacing(path) as file:
        file.write(b"first")
        assert not path.exists()
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"second", "no bytes"])
    assert path.read_bytes() == b"first"
    assert names(path.parent) == ["file"]


def test_published_addresses_are_complete():
    sources = [idx.MNIST, idx.FASHION_MNIST, cifar.CIFAR10, cifar.CIFAR100]
    remotes = [remote for source in sources for remote in source.remotes]
    assert len({remote.md5 for remote in remotes}) == len(remotes) == 10
    assert all(len(remote.md5) == 32 and remote.bases for remote in remotes)
