"""Models that change while requests are answered."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serve.library import scan, sources_of, wanted
from serve.plan import Plan
from serve.settings import Settings
from tests.serve.conftest import Linear
from tests.serve.live import live
from train.errors import ConfigError


@pytest.fixture(scope="module")
def versions():
    """The same model with different weights, by version."""
    return {str(number): Linear.random(width=6, labels=8, seed=number) for number in range(1, 12)}


@pytest.fixture
def repository(tmp_path, versions, write):
    folder = tmp_path / "models"
    write(folder / "demo" / "9", versions["9"], name="of the manifest")
    return folder


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never became true")


def answer(server, row, model="demo"):
    got = httpx.post(f"{server.url}/predict", json={"inputs": [row], "model": model, "top_k": 3})
    if got.status_code != 200:
        return got.status_code
    body = got.json()
    return body["model"]["version"], body["predictions"][0]["labels"]


def expected(versions, version, row):
    return version, [name for name, _ in versions[version].expected(row, 3)]


def test_the_newest_version_of_each_model_is_found(repository, versions, write):
    write(repository / "demo" / "10", versions["10"])
    write(repository / "other" / "v1.9", versions["1"])
    write(repository / "other" / "v1.10", versions["2"])
    write(repository / ".hidden" / "1", versions["1"])
    write(repository / "demo" / ".11.draft", versions["11"])
    (repository / "demo" / "12").mkdir()
    (repository / "empty").mkdir()
    (repository / "file").write_text("")
    sources = wanted(scan(repository), Plan())
    found = {name: (source.name, source.version) for name, source in sources.items()}
    assert found == {"demo": ("demo", "10"), "other": ("other", "v1.10")}


def test_a_repository_must_be_there_and_hold_something(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        sources_of(Settings(repository=tmp_path / "none"))
    with pytest.raises(ConfigError, match="holds no bundle yet"):
        sources_of(Settings(repository=tmp_path))


def test_a_repository_is_followed(start_server, repository, versions, write):
    row = versions["9"].rows(1)[0]
    with start_server("--repository", repository, "--workers", 2) as server:
        assert server.line.startswith("serving demo on ")
        assert answer(server, row) == expected(versions, "9", row)

        write(repository / "demo" / "10", versions["10"])
        wait_until(lambda: all(answer(server, row)[0] == "10" for _ in range(8)))
        assert answer(server, row) == expected(versions, "10", row)

        write(repository / "new" / "1", versions["1"])
        wait_until(lambda: all(answer(server, row, "new") != 404 for _ in range(8)))
        assert answer(server, row, "new") == expected(versions, "1", row)

        broken = write(repository / "demo" / "11", versions["11"])
        (broken / "model.onnx").write_bytes(b"")
        time.sleep(2)
        assert answer(server, row) == expected(versions, "10", row)

        shutil.rmtree(repository / "demo" / "11")
        shutil.rmtree(repository / "demo" / "10")
        wait_until(lambda: all(answer(server, row)[0] == "9" for _ in range(8)))
        assert answer(server, row) == expected(versions, "9", row)

        shutil.rmtree(repository / "new")
        wait_until(lambda: all(answer(server, row, "new") == 404 for _ in range(8)))


@pytest.mark.parametrize("slow", [False, True], ids=["in the loop", "in a thread"])
@pytest.mark.parametrize("http", ["protocol", "asgi"])
def test_a_switch_under_load_fails_no_request_and_mixes_no_versions(
    repository, versions, write, http, slow
):
    """Every answer is wholly that of the version it names, and none is an error."""
    from serve.app import create_app

    settings = Settings(repository=repository, http=http)
    predictors = [source.open(settings) for source in sources_of(settings)]
    for predictor in predictors:
        predictor.seconds_per_batch = 1.0 if slow else 1e-6
    row = versions["9"].rows(1)[0]
    wanted = {version: expected(versions, version, row) for version in versions}
    body = json.dumps({"inputs": [row], "top_k": 3}).encode()
    stop = threading.Event()

    def ask(url):
        seen = []
        with httpx.Client(base_url=url, timeout=30) as client:
            while not stop.is_set():
                got = client.post("/predict", content=body)
                assert got.status_code == 200, got.text
                version = got.json()["model"]["version"]
                assert (version, got.json()["predictions"][0]["labels"]) == wanted[version]
                seen.append(version)
        return seen

    with live(create_app(settings, predictors), settings) as server, ThreadPoolExecutor(3) as pool:
        results = [pool.submit(ask, server.url) for _ in range(3)]
        current = "9"
        for number in (10, 11, 10, 11, 10):
            shutil.rmtree(repository / "demo" / current)
            current = str(number)
            write(repository / "demo" / current, versions[current])
            load = server.service.library.load("demo")
            asyncio.run_coroutine_threadsafe(load, server.loop).result(30)
            assert server.service.models["demo"].manifest.version == current
        stop.set()
        seen = [version for result in results for version in result.result(30)]
    assert set(seen) >= {"10", "11"}


def test_a_bundle_that_fails_to_load_by_name_says_why(repository, versions, write, tmp_path):
    from serve.app import create_app

    settings = Settings(repository=repository)
    app = create_app(settings, [source.open(settings) for source in sources_of(settings)])
    with live(app, settings) as server:
        broken = write(repository / "demo" / "10", versions["10"])
        (broken / "model.onnx").write_bytes(b"")
        for _ in range(2):
            got = httpx.post(f"{server.url}/v2/repository/models/demo/load")
            assert got.status_code == 422
            assert "model.onnx" in got.json()["error"]
        assert server.service.models["demo"].manifest.version == "9"
