"""Manifests as kubectl renders them, which is what a cluster gets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
FOLDERS = sorted(str(path.parent.relative_to(K8S)) for path in K8S.rglob("kustomization.yaml"))

Object = dict[str, Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `folder` meets every folder that kustomize can build."""
    if "folder" in metafunc.fixturenames:
        metafunc.parametrize("folder", FOLDERS)


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Object]]:
    """The objects of a folder; those of a component that only changes others on top of the base."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl, which renders the manifests")
    known: dict[str, list[Object]] = {}

    def build(folder: str) -> list[Object]:
        path = K8S / folder
        settings = yaml.safe_load((path / "kustomization.yaml").read_text("utf-8"))
        if not settings.keys() & {"resources", "components"}:
            path = on_base(path, tmp_path_factory.mktemp("on-base"))
        done = subprocess.run(
            [kubectl, "kustomize", str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    def cached(folder: str) -> list[Object]:
        if folder not in known:
            known[folder] = build(folder)
        return known[folder]

    return cached


def on_base(component: Path, home: Path) -> Path:
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(K8S / "base", home)],
        "components": [os.path.relpath(component, home)],
    }
    (home / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    return home


@pytest.fixture
def objects(render: Callable[[str], list[Object]], folder: str) -> list[Object]:
    return render(folder)


def pods_of(thing: Object) -> Iterator[Object]:
    """The pod templates inside an object, each with `metadata` and `spec`."""
    spec = thing.get("spec", {})
    if thing["kind"] in ("Deployment", "Job"):
        yield spec["template"]
    elif thing["kind"] == "PyTorchJob":
        yield from (replica["template"] for replica in spec["pytorchReplicaSpecs"].values())
    elif thing["kind"] == "RayJob":
        cluster = spec["rayClusterSpec"]
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        yield from (group["template"] for group in groups)
    elif thing["kind"] == "ServingRuntime":
        pod = {key: spec[key] for key in ("containers", "volumes")}
        yield {"metadata": {"labels": thing["metadata"]["labels"]}, "spec": pod}


@pytest.fixture
def pods(objects: list[Object]) -> list[Object]:
    return [pod for thing in objects for pod in pods_of(thing)]


@pytest.fixture
def containers(pods: list[Object]) -> list[Object]:
    return [
        container
        for pod in pods
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    ]


@pytest.fixture(scope="session")
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs promtool with these words, and fails if it does."""
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("needs promtool, which Debian's package prometheus has")

    def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [path, *map(str, words)], capture_output=True, text=True, check=False, **options
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
