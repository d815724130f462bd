"""The Dockerfiles, which nothing here can build: what they name exists, and a linter is content."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from serve.settings import Settings

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FILES = ["serve/Dockerfile", "serve/Dockerfile.gpu", "train/Dockerfile"]
LOCKS = {"serve/Dockerfile": "serve.lock", "serve/Dockerfile.gpu": "serve-gpu.lock"}
INSTALLED = re.compile(r"\.\[([^\]]+)\]")


class Dockerfile:
    """Instructions as (word, rest) in their order, continued lines joined, arguments filled in."""

    def __init__(self, name):
        text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text("utf-8"), flags=re.M)
        lines = text.replace("\\\n", " ").splitlines()
        self.steps = [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]
        self.arguments = dict(rest.split("=", 1) for rest in self.all("ARG"))
        start = max(i for i, (word, _) in enumerate(self.steps) if word == "FROM")
        self.last_stage = self.steps[start:]

    def all(self, word):
        return [rest for found, rest in self.steps if found == word]

    def final(self, word):
        """What the last stage says last of this kind."""
        return next((rest for found, rest in reversed(self.last_stage) if found == word), None)

    def filled(self, text):
        return re.sub(r"\$\{(\w+)\}", lambda found: self.arguments[found[1]], text)


@pytest.fixture(params=FILES)
def name(request):
    return request.param


@pytest.fixture
def image(name):
    return Dockerfile(name)


def test_bases_are_pinned_to_a_release(image):
    stages = {rest.split(" AS ")[1] for rest in image.all("FROM") if " AS " in rest}
    bases = [rest.split()[0] for rest in image.all("FROM")]
    foreign = [base for base in bases if base not in stages]
    assert len(bases) > len(set(foreign)) > 0
    for base in foreign:
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+-[\w.-]+", base)


def test_the_python_is_one_that_the_project_allows(name):
    found = re.search(r"python:(\d+)\.(\d+)", (ROOT / name).read_text("utf-8"))
    lowest = re.fullmatch(r">=3\.(\d+)", PROJECT["requires-python"])
    assert found is None or (int(found[1]), int(found[2])) >= (3, int(lowest[1]))


def test_it_runs_as_nobody_special(image):
    user, _, group = image.final("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_everything_copied_is_in_the_repository_and_sent_to_the_builder(image):
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in ignored
    copied = [rest.split()[:-1] for rest in image.all("COPY") if not rest.startswith("--from=")]
    for source in (word for words in copied for word in words):
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored
    for rest in image.all("COPY"):
        if rest.startswith("--from="):
            stage = rest.split()[0].removeprefix("--from=")
            assert any(line.endswith(f" AS {stage}") for line in image.all("FROM"))


def test_all_packages_of_the_wheel_are_copied(name, image):
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    copied = {word for rest in image.all("COPY") for word in rest.split()[:-1]}
    needed = {*wheel["targets"]["wheel"]["packages"], PROJECT["readme"], *PROJECT["license-files"]}
    versions = "requirements" if name in LOCKS else "constraints.txt"
    assert needed | {"pyproject.toml", versions} <= copied


def test_extras_exist():
    image = Dockerfile("train/Dockerfile")
    groups = [group for rest in image.all("RUN") for group in INSTALLED.findall(image.filled(rest))]
    assert groups == ["export"]
    assert "export" in PROJECT["optional-dependencies"]


def test_every_install_keeps_to_the_tested_versions(name, image):
    """Servers: what is fetched has a known hash. Training: torch comes from an index of its own."""
    installs = [part for rest in image.all("RUN") for part in rest.split("&&") if "/pip " in part]
    assert installs
    for part in filter(re.compile("pip (install|wheel)").search, installs):
        assert "--no-cache-dir" in part
        if name not in LOCKS:
            assert "--constraint constraints.txt" in part
        elif "--no-index" not in part:
            assert "--require-hashes" in part
    locks = set(re.findall(r"requirements/(\S+\.lock)", " ".join(installs)))
    assert locks == ({"build.lock", LOCKS[name]} if name in LOCKS else set())
    assert all((ROOT / "requirements" / lock).is_file() for lock in locks)


def test_the_server_brings_no_torch():
    pinned = " ".join(PROJECT["optional-dependencies"]["serve"])
    assert "torch" not in pinned
    assert "torch" not in " ".join(Dockerfile("serve/Dockerfile").all("RUN"))


def test_it_starts_a_command_of_the_project_without_a_shell(name, image):
    (entry,) = json.loads(image.final("ENTRYPOINT"))
    assert entry == f"labelwright-{name.split('/')[0]}"
    assert entry in PROJECT["scripts"]
    assert isinstance(json.loads(image.final("CMD")), list)
    assert not image.all("HEALTHCHECK")  # Kubernetes has probes


@pytest.mark.parametrize("server", ["serve/Dockerfile", "serve/Dockerfile.gpu"])
def test_the_port_and_flags_are_the_servers(server):
    image = Dockerfile(server)
    defaults = Settings(bundles=(Path("model.bundle"),))
    assert int(image.final("EXPOSE")) == defaults.port
    bundle, *flags = json.loads(image.final("CMD"))
    assert bundle.startswith("/models/")
    assert flags == ["--host", "0.0.0.0"]  # noqa: S104 - in a container of its own
    done = subprocess.run(
        [sys.executable, "-m", "serve", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--host" in done.stdout


def test_labels_say_what_it_is(image):
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', image.final("LABEL")))
    assert image.filled(labels["version"]) == PROJECT["version"]
    assert labels["licenses"] == PROJECT["license"]
    assert {"title", "description", "revision"} <= labels.keys()


def test_the_linter_is_content(name):
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = str(beside) if beside.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint, for which PyPI has no wheel on this platform")
    done = subprocess.run([hadolint, str(ROOT / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
