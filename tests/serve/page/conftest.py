"""A browser, servers for it, and what may not happen whatever it does."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from serve.settings import Settings
from tests.serve.conftest import Linear
from tests.serve.live import live
from tests.serve.test_kinds import sparse_path, terms_path, tokens_path  # noqa: F401 - fixtures

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs Debian's package chromium")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """Opens the page; in the end it must have been silent and have asked its own server only."""
    opened, faults = [], []

    def visit(url, *, width=1200, failures=(), shows="#row-help", **options):
        page = chromium.new_page(viewport={"width": width, "height": 800}, **options)
        page.set_default_timeout(20_000)
        opened.append(page)
        origin = urlsplit(url).netloc

        def on_request(request):
            if urlsplit(request.url).netloc != origin:
                faults.append(f"asked {request.url}")

        def on_console(message):
            # Chromium itself writes down every answer that is an error.
            if not any(f"status of {status} " in message.text for status in failures):
                faults.append(message.text)

        page.on("request", on_request)
        page.on("console", on_console)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{url}/")
        expect(page.locator(shows)).not_to_be_empty()
        return page

    yield visit
    for page in opened:
        page.close()
    assert faults == []


@pytest.fixture
def serving(serve_app):
    @contextmanager
    def start(*paths, http="protocol", **settings):
        options = Settings(bundles=paths, http=http, **settings)
        with live(serve_app(*paths, **settings).app, options) as server:
            yield server

    return start


@pytest.fixture
def server(serving, bundle_path):
    with serving(bundle_path) as running:
        yield running


@pytest.fixture
def second_model():
    return Linear.random(6, 8, seed=5)


@pytest.fixture
def second_path(write, second_model, tmp_path):
    return write(tmp_path / "second.bundle", second_model, name="second", method="seal")
