"""Signatures of bundles by ed25519: over the manifest, which has the hash of every other file.

manifest.sig holds the 64 bytes in base64. Keys are PEM files, as OpenSSL writes them.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from train.errors import ConfigError, UserError, needs_extra

SIGNATURE = "manifest.sig"
MOST_BYTES = 1024
"""That are read of a signature; one has 89."""
PUBLIC_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.S)


class SignatureError(UserError):
    """A bundle that nobody trusted has signed as it is."""


def signature_of(manifest: bytes, key: Path) -> bytes:
    """The content of manifest.sig, made with the private key in a file."""
    return base64.b64encode(_private_key(key).sign(manifest)) + b"\n"


def check_signature(path: Path, manifest: bytes, trusted: Path) -> None:
    """Refuse a bundle whose manifest is signed by none of the public keys in a file.

    Raises:
        SignatureError: It is not signed, or by somebody else, or was changed afterwards.
        ConfigError: The file has no such keys.
    """
    keys = _public_keys(trusted)
    signature = _read(path / SIGNATURE)
    if signature is None:
        raise SignatureError(
            f"{path} is not signed, and --trusted-key {trusted} wants it to be: "
            "`python -m export sign BUNDLE --key private.pem` signs it"
        )
    if not any(_is_by(key, signature, manifest) for key in keys):
        raise SignatureError(
            f"{path} was changed after it was signed, or signed with a key that is not in "
            f"--trusted-key {trusted}: get it again from whoever signs bundles"
        )


def _read(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(MOST_BYTES)


def _is_by(key: Any, signature: bytes, manifest: bytes) -> bool:  # noqa: ANN401 - cryptography's
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - the caller has it

    try:
        key.verify(base64.b64decode(signature.strip(), validate=True), manifest)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private_key(path: Path) -> Any:  # noqa: ANN401 - cryptography's
    with needs_extra("sign", "signing"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PrivateKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_private_key,
        )
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--key {path} cannot be used ({error}): give a private key in PEM without a password, "
            "which `openssl genpkey -algorithm ed25519` makes"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"--key {path} is a key of another kind: `openssl genpkey -algorithm ed25519` makes one"
        )
    return key


def _public_keys(path: Path) -> list[Any]:
    with needs_extra("sign", "--trusted-key"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PublicKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_public_key,
        )
    try:
        keys = [load_pem_public_key(text) for text in PUBLIC_KEY.findall(path.read_bytes())]
    except (OSError, ValueError) as error:
        raise ConfigError(f"--trusted-key {path} cannot be read: {error}") from error
    if not keys or not all(isinstance(key, Ed25519PublicKey) for key in keys):
        raise ConfigError(
            f"--trusted-key {path} must hold public ed25519 keys in PEM, which "
            "`openssl pkey -in private.pem -pubout` writes"
        )
    return keys
