"""Commands that this machine cannot run to their end: all of them that can be checked is.

`<!-- checked: WHY -->` before a block means: its commands go to the real parsers, files and targets
that they name exist, manifests are built. A program that has no check here fails the test.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tyro
import yaml
from torch.distributed.run import get_args_parser

import export.cli
from serve.bench import BenchOptions
from serve.score.command import ScoreOptions
from serve.settings import Settings
from tests.docs.pages import PAGES, ROOT, blocks, each
from train.compare_command import CompareOptions
from train.comparison import drafts
from train.parsing import parse_run
from train.search.command import SearchOptions
from train.search.plan import plan_search

CHECKED = [page for page in PAGES if any(block.mark == "checked" for block in blocks(page))]
Words = Sequence[str]


def check_train(words: Words) -> None:
    """Method, kinds, preset and every flag are known; nothing is loaded."""
    if words[0] == "compare":
        options = tyro.cli(CompareOptions, args=list(words[1:]))
        assert list(drafts(options))
    elif words[0] == "search":
        pytest.importorskip("optuna", reason="the extra search is not installed")
        asked, rest = tyro.cli(SearchOptions, args=list(words[1:]), return_unknown_args=True)
        assert plan_search(asked.method, rest, asked.vary, asked.out).space
    else:
        parse_run(words[0], words[1:])


def check_serve(words: Words) -> None:
    kinds: dict[str, Any] = {"bench": BenchOptions, "score": ScoreOptions}
    kind = kinds.get(words[0], Settings)
    tyro.cli(kind, args=list(words[1:] if words[0] in kinds else words))


def check_python(words: Words) -> None:
    if words[0] == "-c":
        check_statements(words[1])
        return
    assert words[0] == "-m"
    checks: dict[str, Callable[[Words], object]] = {
        "train": check_train,
        "serve": check_serve,
        "export": check_export,
    }
    if words[1].startswith("benchmarks."):
        assert importlib.util.find_spec(words[1])
    else:
        checks[words[1]](words[2:])


def check_export(words: Words) -> None:
    if words[0] == "sign":
        tyro.cli(export.cli.SignOptions, args=list(words[1:]))
    else:
        tyro.cli(export.cli.Options, args=list(words))


def check_torchrun(words: Words) -> None:
    told = get_args_parser().parse_args(list(words))
    assert (told.module, told.training_script) == (True, "train")
    check_train(told.training_script_args)


def check_statements(code: str) -> None:
    """It compiles, and what it imports is there."""
    compile(code, "-c", "exec")
    names: dict[str, object] = {}
    for statement in (part.strip() for part in code.split(";")):
        if statement.startswith(("import ", "from ")):
            exec(statement, names)  # noqa: S102 - our own text


def check_make(words: Words) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def check_pip(words: Words) -> None:
    assert words[0] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    for package in (word for word in words[1:] if not word.startswith("--")):
        own = re.fullmatch(r"\.\[([\w,-]+)\]", package)
        if own:
            assert set(own[1].split(",")) <= set(extras)
        elif importlib.util.find_spec(package.replace("-", "_")) is None:
            pytest.skip(f"needs {package}")


def check_docker(words: Words) -> None:
    """The Dockerfile is there, or comes from stdin; tests/k8s has a linter read it."""
    assert words[0] == "build"
    name = words[words.index("-f") + 1]
    assert name == "-" or (ROOT / name).is_file()


def check_kubectl(words: Words) -> None:
    """What is applied can be built; what is waited for or asked is among it."""
    verb = next(
        word for word in words if word in ("apply", "wait", "port-forward", "delete", "get")
    )
    if verb == "apply":
        assert objects(words[words.index("-k") + 1])
        return
    namespace = words[words.index("-n") + 1]
    kind, _, name = words[words.index(verb) + 1].partition("/")
    assert (kind, namespace, name) in everything()


def objects(folder: str) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    built = subprocess.run(
        ["kubectl", "kustomize", ROOT / folder], check=True, capture_output=True, text=True
    )
    return list(yaml.safe_load_all(built.stdout))


def everything() -> set[tuple[str, str, str]]:
    applied = re.findall(r"kubectl apply -k ([\w/-]+)", (ROOT / "k8s/README.md").read_text("utf-8"))
    return {
        (made["kind"].lower(), made["metadata"].get("namespace", ""), made["metadata"]["name"])
        for folder in set(applied)
        for made in objects(folder)
    }


def check_curl(words: Words) -> None:
    """The server has the route, and its schema the fields of the body."""
    schema = json.loads((ROOT / "serve/openapi.json").read_text("utf-8"))
    url = next(word for word in words if word.startswith("http://"))
    route = schema["paths"]["/" + url.split("/", 3)[3]]["post"]
    body = json.loads(words[words.index("-d") + 1])
    kinds = route["requestBody"]["content"]["application/json"]["schema"]
    named = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(kinds))
    known = {
        field for name in named for field in schema["components"]["schemas"][name]["properties"]
    }
    known |= set(kinds.get("properties", {}))
    assert set(body) <= known


CHECKS: dict[str, Callable[[Words], None]] = {
    "python": check_python,
    "make": check_make,
    "pip": check_pip,
    "docker": check_docker,
    "kubectl": check_kubectl,
    "curl": check_curl,
    "torchrun": check_torchrun,
    "printf": lambda words: None,
    "openssl": lambda words: None,
    ".": lambda words: None,  # an environment that `make` made
}


@each(CHECKED)
def test_commands_are_right_as_far_as_can_be_told(page):
    for block in blocks(page):
        if block.mark == "checked":
            assert block.argument, "say why it is not run"
            subprocess.run(["bash", "-n", "-c", block.text], check=True)
            for line in block.text.replace("\\\n", " ").splitlines():
                for command in re.split(r" && | \| ", line):
                    program, *words = shlex.split(command.rstrip("& "), comments=True)
                    CHECKS[program](words)
