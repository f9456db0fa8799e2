"""Signatures: only the holder of the key can make a folder that verifies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import mixupmp

from mixupmp import Recipe, deep_ensemble, load, plan_for
from mixupmp.core.errors import BadRun, InvalidArgument, MissingExtra
from mixupmp.store.folder import RunFolder
from mixupmp.store.manifest import SIGNATURE, write_manifest
from mixupmp.store.sign import BadSignature, sign, verify
from mixupmp.train.run import fit
from mixupmp.web.report import read_run
from small_data import small_table

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


def write_keys(folder: Path, name: str, openssh: bool = False) -> tuple[Path, Path]:
    """A new pair of keys: private, public."""
    key = ed25519.Ed25519PrivateKey.generate()
    encoding, private, public = (
        (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.PublicFormat.OpenSSH)
        if openssh
        else (
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
    )
    paths = folder / f"{name}.key", folder / f"{name}.pub"
    paths[0].write_bytes(key.private_bytes(encoding, private, serialization.NoEncryption()))
    encoding = serialization.Encoding.OpenSSH if openssh else encoding
    paths[1].write_bytes(key.public_key().public_bytes(encoding, public))
    return paths


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_keys(tmp_path_factory.mktemp("keys"), "mine")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    plan = plan_for(small_table(), deep_ensemble(2), "mlp", Recipe(epochs=1, learning_rate=0.05))
    fit(plan, engine="inline", run=tmp_path / "run")
    return tmp_path / "run"


def test_a_signed_run_verifies_and_loads(run: Path, keys: tuple[Path, Path]) -> None:
    with pytest.raises(BadSignature, match="is not signed"):
        load(run, verify_key=keys[1])
    sign(run, keys[0])
    assert verify(run, keys[1]) == verify(run) > 5
    assert load(run, verify_key=keys[1]).members == load(run).members == 2


def test_openssh_keys_serve_too(run: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "ssh", openssh=True)
    sign(run, private)
    verify(run, public)


def test_a_resealed_folder_does_not_verify(run: Path, keys: tuple[Path, Path]) -> None:
    """Hashes can be recomputed by anybody who changes a file; the signature cannot."""
    sign(run, keys[0])
    path = run / "members" / "000.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"training_accuracy": 1.0}))
    write_manifest(run)
    verify(run)
    with pytest.raises(BadSignature, match="changed since"):
        verify(run, keys[1])
    with pytest.raises(BadSignature):
        load(run, verify_key=keys[1])


def test_a_pending_manifest_does_not_bypass_the_signature(run: Path, keys: tuple[Path, Path]) -> None:
    sign(run, keys[0])
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "README.md").write_text("forged")
    forged = manifest | {"README.md": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
    (run / "README.md").write_text("")
    (run / ".manifest.pending.json").write_text(json.dumps(forged))
    load(run)  # an update that was interrupted
    with pytest.raises(BadRun, match=r"README\.md is damaged"):
        load(run, verify_key=keys[1])


@pytest.mark.parametrize("content", [b"", b"zz", b"00" * 64, b"\xff\xfe", b"0" * 5000])
def test_an_odd_signature_is_refused(run: Path, keys: tuple[Path, Path], content: bytes) -> None:
    (run / SIGNATURE).write_bytes(content)
    with pytest.raises(BadRun, match=r"was not signed|manifest\.sig has 5000 bytes"):
        verify(run, keys[1])
    load(run)


def test_other_keys_are_refused(run: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    sign(run, keys[0])
    with pytest.raises(BadSignature, match="was not signed with"):
        verify(run, write_keys(tmp_path, "other")[1])
    with pytest.raises(InvalidArgument, match="Ed25519 public key"):
        verify(run, keys[0])
    with pytest.raises(InvalidArgument, match="Ed25519 private key"):
        sign(run, keys[1])
    with pytest.raises(InvalidArgument, match="can be read"):
        sign(run, tmp_path / "nowhere")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "rsa").write_bytes(other.private_bytes(encoding, form, serialization.NoEncryption()))
    with pytest.raises(InvalidArgument, match="It holds a RSAPrivateKey"):
        sign(run, tmp_path / "rsa")
    locked = serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "locked").write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(encoding, form, locked))
    with pytest.raises(InvalidArgument, match="without password"):
        sign(run, tmp_path / "locked")


def test_damage_is_not_signed(run: Path, keys: tuple[Path, Path]) -> None:
    path = run / "members" / "001.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(BadRun, match=r"001\.safetensors is damaged"):
        sign(run, keys[0])
    assert not (run / SIGNATURE).exists()


def test_a_signed_run_is_not_changed(run: Path, keys: tuple[Path, Path]) -> None:
    sign(run, keys[0])
    with pytest.raises(BadRun, match="is signed"):
        RunFolder(run).add_evaluation("test rows", {"acc": 1.0})
    read_run(run, small_table())  # is reported all the same
    verify(run, keys[1])


def test_the_commands_sign_and_verify(run: Path, keys: tuple[Path, Path]) -> None:
    done = mixupmp("sign", run, "--key", keys[0])
    assert done.code == 0, done.err
    done = mixupmp("verify", run, "--key", keys[1])
    assert done.code == 0
    assert "signed with" in done.out
    (run / "README.md").write_text("other")
    done = mixupmp("verify", run)
    assert done.code == 2
    assert "README.md is damaged" in done.err


def test_a_missing_library_is_named(run: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(MissingExtra, match=r"mixupmp\[sign\]"):
        verify(run, keys[1])
    verify(run)  # hashes alone need no library


def test_keys_of_openssl_serve(run: Path, tmp_path: Path) -> None:
    """The commands of the guide."""
    private, public = tmp_path / "key.pem", tmp_path / "key.pub.pem"
    made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], capture_output=True)
    if made.returncode:
        pytest.skip("openssl is not installed")
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    sign(run, private)
    verify(run, public)
