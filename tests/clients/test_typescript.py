"""The TypeScript client: its types are those of the interface, it compiles, and it works."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import serving

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients" / "typescript"
SOURCE = (FOLDER / "labelwright.ts").read_text("utf-8")
SCHEMAS = json.loads((ROOT / "serve/openapi.json").read_text("utf-8"))["components"]["schemas"]
INTERFACES = re.findall(r"export interface (\w+) \{\n(.*?)\n\}", SOURCE, re.S)
WORDS = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}

# The compiler fails if the marked line is right.
WRONG = """import { Labelwright } from "./labelwright.js";
// @ts-expect-error
await new Labelwright().predict({ inputs: ["a"], topk: 1 });
"""


def type_of(schema: dict) -> str:
    """A schema in the words of TypeScript; parts of a union in alphabetical order."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return union(type_of(part) for part in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return union(json.dumps(word) for word in schema.get("enum") or [schema["const"]])
    if schema["type"] == "array":
        item = type_of(schema["items"])
        return f"({item})[]" if " " in item else f"{item}[]"
    if schema["type"] == "object":
        return f"Record<string, {type_of(schema['additionalProperties'])}>"
    return WORDS[schema["type"]]


def union(parts) -> str:
    flat = [word for part in parts for word in part.split(" | ")]
    return " | ".join(sorted(set(flat)))


@pytest.mark.parametrize(("name", "body"), INTERFACES, ids=[name for name, _ in INTERFACES])
def test_types_are_those_of_the_interface(name, body):
    schema = SCHEMAS[name]
    written = re.findall(r"^  (\w+)(\??): (.+);$", body, re.M)
    assert len(written) == len(body.splitlines())
    required = set(schema.get("required", ()))
    assert {field: mark == "" for field, mark, _ in written} == {
        field: field in required for field in schema["properties"]
    }
    for field, _, kind in written:
        if field != "inputs":  # `Row[]`, which may mix what the schema keeps apart
            assert union([kind]) == type_of(schema["properties"][field]), field


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the folder with the compiler installed."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("typescript") / "project"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("node_modules", "build"))
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]
    try:
        done = subprocess.run(
            npm, cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not get the compiler within a minute")
    if done.returncode and re.search(r"ENOTFOUND|ECONN|EAI_AGAIN|network", done.stderr):
        pytest.skip("needs the package index of npm, to get the compiler")
    assert done.returncode == 0, done.stderr
    return folder


def run_example(project, **environment):
    return subprocess.run(
        ["node", "build/example.js"], cwd=project, capture_output=True, text=True,
        env={**os.environ, **environment}, timeout=60, check=False,
    )  # fmt: skip


def test_the_example_compiles_and_runs(project, address):
    (project / "wrong.ts").write_text(WRONG)
    built = subprocess.run(
        ["npm", "run", "build"], cwd=project, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout
    done = run_example(project, LABELWRIGHT_URL=address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "two ce features 2", "L 0.731", "R 0.731", "example-1", "404 unknown_model",
    ]  # fmt: skip


def test_a_key_is_shown_where_it_is_given(project, bundle, tmp_path):
    (tmp_path / "keys").write_text(f"ann:{hashlib.sha256(b'a-secret').hexdigest()}\n")
    subprocess.run(["npm", "run", "build"], cwd=project, capture_output=True, check=True)
    with serving(bundle, "--api-keys", tmp_path / "keys") as address:
        refused = run_example(project, LABELWRIGHT_URL=address)
        assert refused.returncode
        assert "401 unauthorized" in refused.stderr
        done = run_example(project, LABELWRIGHT_URL=address, LABELWRIGHT_API_KEY="a-secret")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "404 unknown_model"
