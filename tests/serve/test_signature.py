"""Signed bundles, and servers that take no others."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import export.cli
from export.bundle import MANIFEST, MODEL, load_bundle
from export.signature import SIGNATURE, SignatureError
from export.signing import sign_bundle
from train.errors import ConfigError


def write_pair(folder, name, key):
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture
def pair(tmp_path):
    return write_pair(tmp_path, "ours", Ed25519PrivateKey.generate())


@pytest.fixture
def other_pair(tmp_path):
    return write_pair(tmp_path, "theirs", Ed25519PrivateKey.generate())


@pytest.fixture
def bundle(write, model, tmp_path):
    return write(tmp_path / "signed.bundle", model)


def test_a_signed_bundle_is_loaded_and_no_other(bundle, pair, other_pair, tmp_path, capsys):
    private, public = pair
    with pytest.raises(SignatureError, match="is not signed"):
        load_bundle(bundle, public)
    assert export.cli.main(["sign", str(bundle), "--key", str(private)]) == 0
    assert load_bundle(bundle, public).manifest.name == "tiny"
    assert load_bundle(bundle).manifest.name == "tiny"
    with pytest.raises(SignatureError, match="a key that is not in"):
        load_bundle(bundle, other_pair[1])
    both = tmp_path / "both.pub"
    both.write_bytes(other_pair[1].read_bytes() + public.read_bytes())
    assert load_bundle(bundle, both).manifest.name == "tiny"


def test_whoever_changes_a_file_and_its_hash_is_found_out(bundle, pair):
    private, public = pair
    sign_bundle(bundle, private)
    manifest = json.loads((bundle / MANIFEST).read_text())
    manifest["thresholds"]["tuned"] = 0.99
    (bundle / MANIFEST).write_text(json.dumps(manifest))
    load_bundle(bundle)  # hashes alone do not see it
    with pytest.raises(SignatureError, match="was changed after it was signed"):
        load_bundle(bundle, public)


@pytest.mark.parametrize("content", [b"", b"AAAA\n", b"\xff" * 5000, b"A" * 88, b"no base64!"])
def test_what_is_no_signature_is_refused(bundle, pair, content):
    (bundle / SIGNATURE).write_bytes(content)
    with pytest.raises(SignatureError, match="was changed after it was signed"):
        load_bundle(bundle, pair[1])


def test_a_damaged_bundle_is_not_signed(bundle, pair, capsys):
    graph = (bundle / MODEL).read_bytes()
    (bundle / MODEL).write_bytes(graph[:-1] + b"x")
    assert export.cli.main(["sign", str(bundle), "--key", str(pair[0])]) == 2
    assert "sha256 differs" in capsys.readouterr().err
    assert not (bundle / SIGNATURE).exists()


def test_files_that_are_no_keys_are_told(bundle, pair, tmp_path):
    curve = write_pair(tmp_path, "curve", generate_private_key(SECP256R1()))
    for wrong in (tmp_path / "none.pem", pair[1], bundle / MODEL, curve[0]):
        with pytest.raises(ConfigError, match="openssl genpkey -algorithm ed25519"):
            sign_bundle(bundle, wrong)
    for wrong in (tmp_path / "none.pub", pair[0], bundle / MODEL, curve[1]):
        with pytest.raises(ConfigError, match=r"--trusted-key .+ (must hold|cannot be read)"):
            load_bundle(bundle, wrong)


def test_keys_of_openssl_are_taken(bundle, tmp_path):
    private, public = tmp_path / "a.pem", tmp_path / "a.pub"
    make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", private]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    sign_bundle(bundle, private)
    assert load_bundle(bundle, public).manifest.name == "tiny"


def test_a_server_refuses_what_nobody_signed(run_server, bundle, pair):
    for workers in (1, 2):
        refused = run_server(bundle, "--trusted-key", pair[1], "--workers", workers, "--port", 0)
        assert refused.returncode == 2
        assert "is not signed" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_repository_loads_a_version_once_it_is_signed(start_server, write, model, pair, tmp_path):
    private, public = pair
    repository = tmp_path / "repository"
    first = write(repository / "tiny" / "1", model)
    sign_bundle(first, private)
    flags = ["--repository", repository, "--trusted-key", public, "--workers", 1]
    with start_server(*flags) as server:
        second = write(repository / "tiny" / "2", model)
        problems = wait(lambda: httpx.get(f"{server.url}/readyz").json()["problems"])
        assert "is not signed" in problems["tiny"]
        assert version(server) == "1"
        sign_bundle(second, private)
        wait(lambda: version(server) == "2")


def version(server):
    return httpx.get(f"{server.url}/models/tiny").json()["version"]


def wait(find):
    for _ in range(600):
        if found := find():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came")
