"""`python -m export sign`: put the signature beside the manifest of a bundle."""

from __future__ import annotations

from pathlib import Path

from export.bundle import MANIFEST, BundleError, load_bundle
from export.signature import SIGNATURE, signature_of


def sign_bundle(path: Path, key: Path) -> None:
    """Sign a bundle that is whole with the private key in a file."""
    load_bundle(path)
    try:
        signature = signature_of((path / MANIFEST).read_bytes(), key)
        draft = path / f".{SIGNATURE}"
        draft.write_bytes(signature)
        draft.rename(path / SIGNATURE)
    except OSError as error:
        raise BundleError(f"cannot sign {path}: {error.strerror}; free some space") from error
