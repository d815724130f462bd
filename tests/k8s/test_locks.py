"""The locks that images and CI install from: whole, hashed, and the versions that are tested."""

from __future__ import annotations

import base64
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
DEVELOPING = re.search(r"^DEVELOPING := (.+)$", MAKEFILE, re.M)[1].split(",")
LOCKS = {
    "serve.lock": ["serve", "otel", "sign"],
    "serve-gpu.lock": ["serve-gpu", "otel", "sign"],
    "dev.lock": DEVELOPING,
}
ENTRY = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.M)
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "python_full_version": "3.11.14"}
CUDA = re.compile("torch|triton|nvidia-.+|cuda-.+")


def pins(name):
    text = (ROOT / "requirements" / name).read_text("utf-8")
    found = {canonicalize_name(entry[1]): entry[2] for entry in ENTRY.finditer(text)}
    assert found
    # Nothing is left over: every line is a comment or part of an entry with a hash.
    assert [line for line in ENTRY.sub("", text).splitlines() if line and line[0] != "#"] == []
    assert "://" not in text
    return found


def constraints():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def wanted(extras):
    """What the project asks for under these extras, its own extras followed."""
    for line in [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            yield from wanted(requirement.extras)
        elif requirement.marker is None or requirement.marker.evaluate(LINUX):
            yield requirement


@pytest.mark.parametrize("name", [*LOCKS, "build.lock"])
def test_versions_are_those_of_the_constraints(name):
    tested = constraints()
    assert {key: version for key, version in pins(name).items() if tested.get(key) != version} == {}


@pytest.mark.parametrize("name", LOCKS)
def test_everything_that_the_project_asks_for_is_locked(name):
    locked = pins(name)
    for requirement in wanted(LOCKS[name]):
        key = canonicalize_name(requirement.name)
        if not (name == "dev.lock" and key == "torch"):  # installed before, see overrides.txt
            assert requirement.specifier.contains(locked[key]), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_what_they_ask_for_is_locked_too(name):
    """As far as what is installed here says what it needs."""
    locked, seen = pins(name), 0
    for key in locked:
        try:
            needs = distribution(key).requires or []
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, needs):
            if requirement.marker is None or requirement.marker.evaluate({**LINUX, "extra": ""}):
                needed = canonicalize_name(requirement.name)
                # Both are there before: see overrides.txt, and every venv of 3.11 has setuptools.
                assert needed in locked or needed in ("torch", "setuptools"), (key, requirement)
                seen += 1
    assert seen > 20


def test_servers_have_no_torch_and_nobody_cuda_libraries():
    assert [key for name in LOCKS for key in pins(name) if CUDA.fullmatch(key)] == []


def test_the_hash_of_a_package_is_that_of_its_file():
    """One that everybody has: its wheel on PyPI, known from elsewhere."""
    text = (ROOT / "requirements/serve.lock").read_text("utf-8")
    (h11,) = [entry[3] for entry in ENTRY.finditer(text) if entry[1] == "h11"]
    digest = base64.b16decode("63CF8BBE7522DE3BF65932FDA1D9C2772064FFB3DAE62D55932DA54B31CB6C86")
    assert digest.hex() in h11
