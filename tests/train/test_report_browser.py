"""The report of a comparison in a real browser, without network: no error, every plot visible."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from train.cli import main

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update",
         "--disable-sync"]  # fmt: skip
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: make tools"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of a comparison on yeast where it is, else on the demo."""
    home = tmp_path_factory.mktemp("compared")
    data = os.environ.get("LABELWRIGHT_DATA", "")
    dataset = "yeast" if data and (Path(data) / "yeast").is_dir() else "demo"
    words = ["--dataset", dataset, "--methods", "ce,seal", "--seeds", "2", "--epochs", "2"]
    assert main(["compare", *words, "--out", str(home), "--report", "--no-progress"]) == 0
    return home / "report.html"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as drivers:
        browser = drivers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, report):
    """The page, opened offline; any error and any request but its own fails the test."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.context.set_offline(True)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: errors.append(request.url))
    page.goto(report.as_uri())
    yield page
    page.close()
    # Pictures inside the page are requests too, of their own bytes.
    assert [error for error in errors if not error.startswith("data:image/png")] == [
        report.as_uri()
    ]


def test_every_plot_is_visible(page):
    figures = page.locator("figure svg")
    assert figures.count() > 20
    for place in range(figures.count()):
        box = figures.nth(place).bounding_box()
        assert box["width"] > 300, place
        assert box["height"] > 100, place
        # Something is drawn: shapes that take up room of their own.
        drawn = figures.nth(place).evaluate(
            """svg => [...svg.querySelectorAll("path, use, image")]
                .filter(shape => shape.getBoundingClientRect().width > 0).length"""
        )
        assert drawn > 5, place
    assert page.locator("figure svg text", has_text="$").count() == 0  # no raw mathematics
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0


def test_a_click_on_a_heading_sorts(page):
    table = page.locator("table").first
    heading = table.locator("th", has_text="seconds")
    place = heading.evaluate("heading => heading.cellIndex")

    def seconds():
        cells = table.locator(f"tbody tr td:nth-child({place + 1})").all_inner_texts()
        return [float(cell) for cell in cells]

    heading.locator("button").click()
    assert seconds() == sorted(seconds(), reverse=True)
    heading.locator("button").click()
    assert seconds() == sorted(seconds())
