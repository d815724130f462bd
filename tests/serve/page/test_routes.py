"""The page's files, its headers and its routes; what it does is in test_use."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from serve.page import FOLDER
from tests.serve.conftest import ROOT
from tests.serve.test_kinds import DENSE, TEXTS

FILES = sorted(file.name for file in FOLDER.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]


def test_the_page_may_load_nothing_from_elsewhere_and_stand_in_no_frame(app):
    answer = app.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-request-id"]
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == "'none'"
    assert policy.pop("base-uri") == policy.pop("form-action") == "'none'"
    assert policy == dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'")


@pytest.mark.parametrize("name", [name for name in FILES if name != "index.html"])
def test_every_file_is_served_as_what_it_is(app, name):
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    answer = app.get(f"/page/{name}")
    assert answer.status_code == 200
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/page/", "/page/none.js", "/page/..%2fapp.py", "/page/../app.py"]
)
def test_no_other_file_is_served(app, path):
    answer = app.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found"


def test_the_page_takes_no_post(app):
    answer = app.request("POST", "/")
    assert (answer.status_code, answer.json()["error"]["type"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_from_the_server_is_never_read_as_html(name):
    script = (FOLDER / name).read_text("utf-8")
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|Function\("
    assert not re.search(ways, script)


def test_the_wheel_has_the_page(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"serve/static/{name}" for name in FILES} <= packed


def example(app, name, query=""):
    return app.get(f"/models/{name}/example{query}")


def test_examples_are_the_rows_of_the_probe(app, model):
    rows = np.array(model.rows(3, seed=99), np.float32)
    for number, row in enumerate(rows):
        answer = example(app, "tiny", f"?row={number}").json()
        assert (answer["row"], answer["rows"]) == (number, 3)
        np.testing.assert_array_equal(np.float32(answer["input"]), row)
    assert example(app, "tiny").json() == example(app, "tiny", "?row=0").json()


def test_examples_of_wide_rows_are_objects_and_of_texts_strings(
    serve_app, sparse_path, tokens_path
):
    sparse = serve_app(sparse_path)
    for number, row in enumerate(DENSE):
        values = {str(column): float(row[column]) for column in np.flatnonzero(row)}
        assert example(sparse, "kinds", f"?row={number}").json()["input"] == values
    texts = serve_app(tokens_path)
    assert [example(texts, "kinds", f"?row={i}").json()["input"] for i in range(5)] == TEXTS


def test_texts_of_counted_words_are_shown_as_texts(serve_app, terms_path):
    assert example(serve_app(terms_path), "kinds", "?row=2").json()["input"] == TEXTS[2]


def test_every_example_can_be_sent_back(serve_app, sparse_path, bundle_path, tokens_path):
    for path, name in ((sparse_path, "kinds"), (bundle_path, "tiny"), (tokens_path, "kinds")):
        app = serve_app(path)
        rows = [example(app, name, f"?row={number}").json()["input"] for number in range(3)]
        scored = app.predict({"inputs": rows, "threshold": 0}).json()["predictions"]
        expected = app.app.state.service.models[name].predictor.bundle.probe_scores[:3]
        best = [prediction["scores"] for prediction in scored]
        np.testing.assert_allclose(best, -np.sort(-expected, axis=1), atol=1e-5)


@pytest.mark.parametrize("row", ["3", "-1", "1.5", "x", "", "9" * 5000, "٣", "%00"])
def test_rows_that_are_not_there_are_refused_in_a_sentence(app, row):
    answer = example(app, "tiny", f"?row={row}")
    assert answer.status_code == 422
    assert '"row" must be a whole number from 0 to 2, got' in answer.json()["error"]["message"]
    assert len(answer.json()["error"]["message"]) < 300


def test_an_example_of_no_model_is_refused(app):
    assert example(app, "tinny").status_code == 404


def test_rows_that_wait_are_counted_in_the_comparison(app):
    service = app.app.state.service
    service.telemetry.watch(lambda: 7, "queued_rows", "tiny", "bce")
    (measured,) = app.get("/compare").json()["models"]
    assert measured["queued_rows"] == 7
