"""What the distribution promises: its names, its errors, its types, its README."""

from __future__ import annotations

import inspect
import pickle  # noqa: TID251 - what process pools do, with our own bytes
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import labelwright_client
from labelwright_client import (
    AsyncClient,
    BadAnswer,
    Client,
    ClientError,
    DeadlineExceeded,
    InvalidArgument,
    InvalidInput,
    RequestTimedOut,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    StatusError,
)
from labelwright_client.cli import _parser

DISTRIBUTION = Path(__file__).parents[2] / "clients" / "python"
BLOCKS = re.findall(r"```python\n(.*?)```", (DISTRIBUTION / "README.md").read_text("utf-8"), re.S)

ERRORS = [
    InvalidArgument("words"),
    ServerUnreachable("words", "id"),
    RequestTimedOut("words", "id"),
    BadAnswer("words", "id"),
    InvalidInput("words", "id", 422, "invalid_input"),
    ServerBusy("words", "id", 503, "busy", 2.0),
    DeadlineExceeded("words", "id", 504, "deadline"),
    ServerFailed("words", None, 500, "internal"),
]


def test_all_is_exactly_what_is_importable():
    importable = {
        name
        for name, value in vars(labelwright_client).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert importable | {"__version__"} == set(labelwright_client.__all__)
    assert labelwright_client.__all__ == sorted(labelwright_client.__all__)


def test_every_error_class_is_public_and_covered_here():
    defined = {
        name
        for name, value in vars(labelwright_client._errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert defined <= set(labelwright_client.__all__)
    assert defined == {type(error).__name__ for error in ERRORS} | {"ClientError", "StatusError"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_between_processes(error):
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


def test_the_tree_is_as_drawn():
    kinds = [type(error) for error in ERRORS]
    nodes = {*kinds, ClientError, StatusError, ValueError}
    bases = {kind: set(kind.__mro__[1:]) & nodes for kind in kinds}
    assert bases == {
        InvalidArgument: {ClientError, ValueError},
        ServerUnreachable: {ClientError},
        RequestTimedOut: {ClientError},
        BadAnswer: {ClientError},
        InvalidInput: {StatusError, ClientError},
        ServerBusy: {StatusError, ClientError},
        DeadlineExceeded: {StatusError, RequestTimedOut, ClientError},
        ServerFailed: {StatusError, ClientError},
    }
    for kind in bases:
        assert kind.__name__ in labelwright_client._errors.__doc__


def public_signatures(kind: type) -> dict[str, list[tuple[str, object, object]]]:
    return {
        name: [(p.name, p.kind, p.default) for p in inspect.signature(member).parameters.values()]
        for name, member in vars(kind).items()
        if not name.startswith("_") and name not in {"close", "aclose"}
    }


def test_both_clients_have_the_same_methods_with_the_same_arguments():
    assert public_signatures(Client) == public_signatures(AsyncClient)
    assert set(public_signatures(Client)) == {
        "predict",
        "predict_many",
        "models",
        "model",
        "embed",
        "embed_many",
        "segment",
        "spans",
        "compare",
        "speeds",
        "is_ready",
        "wait_until_ready",
    }


def test_the_distribution_needs_httpx_alone_and_is_typed():
    project = tomllib.loads((DISTRIBUTION / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "labelwright-client"
    assert project["dependencies"] == ["httpx>=0.28"]
    assert (Path(labelwright_client.__file__).parent / "py.typed").is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+", labelwright_client.__version__)


def test_every_method_is_in_the_table_of_the_readme():
    readme = (DISTRIBUTION / "README.md").read_text("utf-8")
    documented = set(re.findall(r"`(\w+)\(", "".join(re.findall(r"^\| `\w+\(.*?\|", readme, re.M))))
    assert documented == set(public_signatures(Client)) | {"close", "aclose"}


def test_the_commands_of_the_readme_are_commands():
    readme = (DISTRIBUTION / "README.md").read_text("utf-8")
    commands = re.findall(r"^labelwright (.+)$", readme, re.M)
    assert {words.split()[0] for words in commands} == {"models", "predict", "embed", "compare"}
    for words in commands:
        assert callable(_parser().parse_args(words.split()).run)


@pytest.mark.parametrize("block", BLOCKS, ids=["predict", "pictures", "many", "asyncio", "errors"])
def test_the_examples_of_the_readme_run(server, monkeypatch, capsys, tmp_path, block):
    monkeypatch.setenv("LABELWRIGHT_URL", server.url)
    monkeypatch.chdir(tmp_path)
    Path("horse.png").write_bytes(b"a picture, to a server that does not look at it")
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 - our own text
    assert capsys.readouterr().out
    assert any(seen.path == "/predict" for seen in server.seen)
