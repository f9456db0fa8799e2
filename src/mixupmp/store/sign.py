"""Signatures of finished runs: hashes show damage, but only a signature shows who sealed a folder.

Anybody who changes a file can also change its hash in the manifest. An Ed25519 signature of the manifest can be made
only by the holder of the private key, and covers every file through its hash. Keys are files in PEM or OpenSSH format::

    openssl genpkey -algorithm ed25519 -out key.pem
    openssl pkey -in key.pem -pubout -out key.pub.pem
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from mixupmp.core.errors import BadRun, InvalidArgument, extra
from mixupmp.core.files import Directory
from mixupmp.store.manifest import SIGNATURE, Sealed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

Key = TypeVar("Key")
# Signed in front of the manifest, so that the signature holds for no other kind of document.
_PURPOSE = b"mixupmp run manifest 1\n"


class BadSignature(BadRun):
    """A run is not signed, or not by the expected key."""


def sign(folder: str | os.PathLike[str], key: str | os.PathLike[str]) -> None:
    """Sign a finished run or saved posterior, after checking every file in it.

    Parameters
    ----------
    key : file with the Ed25519 private key.
    folder
        Of the run.
    """
    private = _private_key(Path(key))
    manifests: list[bytes] = []
    sealed = Sealed(folder, lambda _, manifest: manifests.append(manifest))  # what is signed is what was checked
    sealed.check_rest(limit=None)
    sealed.write(SIGNATURE, private.sign(_PURPOSE + manifests[0]).hex().encode() + b"\n")


def verify(folder: str | os.PathLike[str], key: str | os.PathLike[str] | None = None) -> int:
    """Check every file of a finished run against its manifest, and the manifest against its signature.

    Parameters
    ----------
    key : file with the Ed25519 public key; None checks the hashes alone.
    folder
        Of the run.

    Returns
    -------
    Number of files. `BadSignature` or `BadRun` is raised where something is not right.
    """
    sealed = Sealed(folder, None if key is None else signed_by(key))
    sealed.check_rest(limit=None)
    return len(sealed.hashes)


def signed_by(key: str | os.PathLike[str]) -> Callable[[Directory, bytes], None]:
    """Check for `Sealed` that a manifest was signed with the private part of this public key."""
    public = _public_key(Path(key))
    from cryptography.exceptions import InvalidSignature

    def authenticate(directory: Directory, manifest: bytes) -> None:
        if not directory.exists(SIGNATURE):
            raise BadSignature(f"{directory.path} is not signed: it has no {SIGNATURE}.")
        try:
            # Read as a plain directory: the signature is the one file that the manifest cannot name.
            signature = bytes.fromhex(Directory(directory.path).read(SIGNATURE, 1000).decode())
            public.verify(signature, _PURPOSE + manifest)
        except (InvalidSignature, ValueError):
            raise BadSignature(f"{directory.path} was not signed with {key}, or was changed since: refused.") from None

    return authenticate


def _private_key(path: Path) -> Ed25519PrivateKey:
    serialization, ed25519 = _cryptography()
    content = _content(path)
    openssh = content.startswith(b"-----BEGIN OPENSSH")
    read = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    return _key(path, lambda: read(content, password=None), ed25519.Ed25519PrivateKey, "private key, without password")


def _public_key(path: Path) -> Ed25519PublicKey:
    serialization, ed25519 = _cryptography()
    content = _content(path)
    read = serialization.load_ssh_public_key if content.startswith(b"ssh-") else serialization.load_pem_public_key
    return _key(path, lambda: read(content), ed25519.Ed25519PublicKey, "public key")


def _key(path: Path, read: Callable[[], object], kind: type[Key], what: str) -> Key:
    from cryptography.exceptions import UnsupportedAlgorithm

    must = f"an Ed25519 {what}, in PEM or OpenSSH format"
    try:
        found = read()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: it needs a password
        raise InvalidArgument("key", str(path), must, str(error)) from None
    if not isinstance(found, kind):
        raise InvalidArgument("key", str(path), must, f"It holds a {type(found).__name__}.")
    return found


def _cryptography() -> tuple[ModuleType, ModuleType]:
    with extra("cryptography", "sign", "A signature of a run"):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    return serialization, ed25519


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument("key", str(path), "a file that can be read", f"{error.strerror}.") from None
