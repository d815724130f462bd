"""models.toml beside running requests: aliases, default, versions on trial, limits."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager

import httpx
import pytest

from serve.app import create_app
from serve.library import sources_of
from serve.settings import Settings
from tests.serve.conftest import Linear
from tests.serve.live import live
from tests.serve.test_bench import rewritten
from train.errors import ConfigError

PLAN = """
default = "prod"
[aliases]
prod = "demo"
first = "demo@1"
[canary.demo]
version = "2"
share = 0.25
[limits.other]
max_rows = 2
"""


@pytest.fixture(scope="module")
def versions():
    return {str(number): Linear.random(width=6, labels=8, seed=number) for number in range(1, 4)}


@pytest.fixture
def repository(tmp_path, versions, write):
    folder = tmp_path / "models"
    write(folder / "demo" / "1", versions["1"])
    write(folder / "demo" / "2", versions["2"])
    write(folder / "other" / "1", versions["3"])
    return folder


@contextmanager
def served(**options):
    settings = Settings(**options)
    app = create_app(settings, [source.open(settings) for source in sources_of(settings)])
    with live(app, settings) as server:
        yield server


def put(repository, text):
    """Move a whole file into place."""
    draft = repository / ".models.toml"
    draft.write_text(text)
    draft.rename(repository / "models.toml")


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never became true")


def predict(url, row, **fields):
    return httpx.post(f"{url}/predict", json={"inputs": [row], "top_k": 3, **fields})


def infer(url, row, path):
    tensor = {"name": "features", "datatype": "FP32", "shape": [1, len(row)], "data": row}
    return httpx.post(f"{url}/v2/models/{path}/infer", json={"inputs": [tensor]})


def check(versions, answer, row):
    """The version that an answer names, after a look at whether it is that version's answer."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["model"]["name"] == "demo"
    expected = [name for name, _ in versions[body["model"]["version"]].expected(row, 3)]
    assert body["predictions"][0]["labels"] == expected
    return body["model"]["version"]


@pytest.mark.parametrize("http", ["protocol", "asgi"])
def test_both_levels_follow_the_plan(repository, versions, http):
    put(repository, PLAN)
    row = versions["1"].rows(1)[0]
    with served(repository=repository, http=http) as server:
        url = server.url
        asked = [{}, {"model": "prod"}, {"model": "demo"}]
        seen = [check(versions, predict(url, row, **asked[i % 3]), row) for i in range(12)]
        assert seen == ["1", "1", "1", "2"] * 3
        assert check(versions, predict(url, row, model="first"), row) == "1"
        assert check(versions, predict(url, row, model="demo@2"), row) == "2"

        # The same turns through the slow parser and as bytes: one each, never two.
        text = json.dumps({"inputs": [{"0": 1.0}], "model": "demo"}).encode()
        sparse = [
            httpx.post(f"{url}/predict", content=text).json()["model"]["version"] for _ in "1234"
        ]
        assert sparse == ["1", "1", "1", "2"]
        wide = [httpx.post(f"{url}/predict", json={"inputs": [[1.0]]}).status_code for _ in "1234"]
        assert wide == [422] * 4
        octets = {"content-type": "application/octet-stream"}
        got = [httpx.post(f"{url}/predict", content=bytes(24), headers=octets) for _ in "1234"]
        assert [one.json()["model"]["version"] for one in got] == ["1", "1", "1", "2"]

        got = [infer(url, row, "prod").json() for _ in range(4)]
        assert [one["model_version"] for one in got] == ["1", "1", "1", "2"]
        assert {one["model_name"] for one in got} == {"demo"}
        assert infer(url, row, "demo/versions/2").json()["model_version"] == "2"
        assert infer(url, row, "demo/versions/3").status_code == 404
        assert predict(url, row, model="nobody").status_code == 404
        about = httpx.get(f"{url}/v2/models/prod").json()
        assert (about["name"], sorted(about["versions"])) == ("demo", ["1", "2"])

        too_many = httpx.post(f"{url}/predict", json={"inputs": [row] * 3, "model": "other"})
        assert too_many.status_code == 413
        assert "at most 2 rows" in too_many.json()["error"]["message"]


def test_the_lists_show_it_and_comparing_takes_no_turns(repository, versions):
    put(repository, PLAN)
    row = versions["1"].rows(1)[0]
    with served(repository=repository) as server:
        listed = httpx.get(f"{server.url}/models").json()
        assert [model["name"] for model in listed.pop("models")] == ["demo@2", "demo", "other"]
        assert listed == {
            "default": "prod",
            "aliases": {"prod": "demo", "first": "demo@1"},
            "canary": {"demo": {"version": "2", "share": 0.25}},
        }
        assert httpx.get(f"{server.url}/models/prod").json()["version"] == "1"
        assert httpx.get(f"{server.url}/models/demo@2").json()["version"] == "2"
        for _ in range(3):
            names = {"models": ["prod", "demo@2"], "inputs": [row]}
            answers = httpx.post(f"{server.url}/compare", json=names).json()["answers"]
            assert [one["answer"]["model"]["version"] for one in answers] == ["1", "2"]
        predict(server.url, row)
        measured = httpx.get(f"{server.url}/compare").json()["models"]
        requests = {one["name"]: one["requests"] for one in measured}
        assert requests == {"demo@2": 3, "demo": 4, "other": 0}
        index = httpx.post(f"{server.url}/v2/repository/index").json()
        found = [(one["name"], one["version"]) for one in index]
        assert found == [("demo", "2"), ("demo", "1"), ("other", "1")]


def test_changes_are_followed_and_a_wrong_file_leaves_the_old_one(repository, versions, caplog):
    row = versions["1"].rows(1)[0]
    with served(repository=repository) as server:
        url = server.url
        assert check(versions, predict(url, row, model="demo"), row) == "2"
        assert predict(url, row).status_code == 422
        put(repository, PLAN)
        wait_until(lambda: predict(url, row).status_code == 200)
        seen = [check(versions, predict(url, row), row) for _ in range(8)]
        assert seen.count("2") == 2

        put(repository, '[aliases]\nprod = "nobody"\n')
        wait_until(lambda: httpx.get(f"{url}/readyz").json()["problems"])
        problem = httpx.get(f"{url}/readyz").json()["problems"]["models.toml"]
        assert "alias 'prod' is 'nobody', which is no model" in problem
        assert server.metric("labelwright_load_problems") == 1
        seen = [check(versions, predict(url, row), row) for _ in range(8)]
        assert seen.count("2") == 2
        time.sleep(1.5)
        said = [record for record in caplog.records if "nobody" in record.message]
        assert len(said) == 1

        # The trial is over: its version takes all, and the one beside it goes.
        put(repository, 'default = "demo"\n[limits.demo]\nmax_rows = 1\n')
        wait_until(lambda: "demo@2" not in server.service.models)
        assert httpx.get(f"{url}/readyz").json()["problems"] == {}
        assert {check(versions, predict(url, row), row) for _ in range(4)} == {"2"}
        assert predict(url, row, model="prod").status_code == 404
        assert predict(url, row, inputs=[row, row]).status_code == 413

        (repository / "models.toml").unlink()
        wait_until(lambda: predict(url, row).status_code == 422)
        assert predict(url, row, model="demo", inputs=[row, row]).status_code == 200


def test_a_plan_may_come_before_the_version_that_it_puts_on_trial(repository, versions, write):
    """So that a new version never gets all requests."""
    row = versions["1"].rows(1)[0]
    shutil.rmtree(repository / "demo" / "2")
    with served(repository=repository) as server:
        put(repository, PLAN)
        wait_until(lambda: httpx.get(f"{server.url}/readyz").json()["problems"])
        write(repository / "demo" / "2", versions["2"])
        seen = []

        def is_on_trial():
            seen.append(check(versions, predict(server.url, row, model="demo"), row))
            return "2" in seen

        wait_until(is_on_trial)
        seen += [check(versions, predict(server.url, row, model="demo"), row) for _ in range(40)]
        assert seen[-40:].count("2") == 10


def test_a_broken_version_on_trial_leaves_all_requests_to_the_other(repository, versions):
    row = versions["1"].rows(1)[0]
    shutil.move(repository / "demo" / "2", repository / "two")
    with served(repository=repository) as server:
        (repository / "two" / "model.onnx").write_bytes(b"")
        put(repository, PLAN)
        shutil.move(repository / "two", repository / "demo" / "2")
        wait_until(lambda: "demo@2" in httpx.get(f"{server.url}/readyz").json()["problems"])
        assert {check(versions, predict(server.url, row), row) for _ in range(8)} == {"1"}
        shutil.rmtree(repository / "demo" / "2")
        wait_until(
            lambda: list(httpx.get(f"{server.url}/readyz").json()["problems"]) == ["models.toml"]
        )
        assert check(versions, predict(server.url, row), row) == "1"


def test_a_pinned_version_stays_when_a_newer_one_comes(repository, versions, write):
    row = versions["1"].rows(1)[0]
    put(repository, '[aliases]\nprod = "demo@2"\n')
    with served(repository=repository) as server:
        assert list(server.service.models) == ["demo", "other"]
        write(repository / "demo" / "3", versions["3"])
        seen = []

        def is_new():
            seen.append(check(versions, predict(server.url, row, model="prod"), row))
            return check(versions, predict(server.url, row, model="demo"), row) == "3"

        wait_until(is_new)
        seen.append(check(versions, predict(server.url, row, model="prod"), row))
        assert set(seen) == {"2"}


def test_limits_of_a_model_hold_for_its_queue(repository, versions):
    put(repository, "[limits.demo]\nmax_queue_rows = 3\nmax_wait_ms = 7\n")
    with served(repository=repository) as server:
        demo, other = (server.service.models[name].batcher for name in ("demo", "other"))
        assert (demo._max_queue_rows, other._max_queue_rows) == (3, 4096)
        assert (demo._max_wait_seconds, other._max_wait_seconds) == (0.007, 1.0)
        rows = versions["1"].rows(4)
        got = httpx.post(f"{server.url}/predict", json={"inputs": rows, "model": "demo"})
        assert got.status_code == 413


def test_plain_bundles_take_a_file_too(bundle_path, other_path, tmp_path, model):
    path = tmp_path / "plan.toml"
    path.write_text('default = "tiny"\n[aliases]\nprod = "other"\n')
    row = model.rows(1)[0]
    with served(bundles=(bundle_path, other_path), models=path) as server:
        assert predict(server.url, row).json()["model"]["name"] == "tiny"
        assert predict(server.url, [0, 0, 0], model="prod").json()["model"]["name"] == "other"
        path.write_text('default = "other"\n')
        wait_until(lambda: predict(server.url, [0, 0, 0]).status_code == 200)


def test_all_workers_follow(start_server, repository, versions):
    put(repository, PLAN)
    row = versions["1"].rows(1)[0]
    with start_server("--repository", repository, "--workers", 2) as server:
        for _ in range(4):
            # One connection is one worker, whose share is exact.
            with httpx.Client(base_url=server.url) as client:
                body = {"inputs": [row], "top_k": 3}
                seen = [check(versions, client.post("/predict", json=body), row) for _ in range(8)]
            assert seen.count("2") == 2
        put(repository, '[aliases]\nlive = "demo@1"\n')
        wait_until(
            lambda: all(predict(server.url, row, model="live").status_code == 200 for _ in range(8))
        )


def test_a_wrong_file_at_the_start_is_one_sentence(run_server, repository, tmp_path, bundle_path):
    put(repository, '[canary.other]\nversion = "2"\nshare = 0.5\n')
    done = run_server("--repository", repository, "--workers", 1, "--port", 0)
    assert done.returncode == 2
    assert "canary of 'other' needs version '2' and another one" in done.stderr
    assert done.stderr.count("\n") == 1
    with pytest.raises(ConfigError, match="is no file"):
        Settings(bundles=(bundle_path,), models=tmp_path / "none.toml")


def test_energy_networks_of_a_repository_stay_and_follow(bundle_path, tmp_path, model):
    folder = tmp_path / "models"
    rewritten(bundle_path, folder / "tiny" / "1", with_energy=True)
    row = model.rows(1)[0]
    with served(repository=folder, energy=True) as server:
        assert list(server.service.models) == ["tiny", "tiny-energy"]
        rewritten(bundle_path, folder / "tiny" / "2", with_energy=True)
        wait_until(lambda: server.service.models["tiny-energy"].manifest.version == "2")
        assert predict(server.url, row, model="tiny-energy").status_code == 200
