"""The page at `/` as people use it, in headless Chromium."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from tests.serve.conftest import PER_LABEL, TUNED, Linear
from tests.serve.page.acts import (
    as_text,
    choose_rule,
    load_example,
    press,
    shown,
    slide,
    type_row,
)
from tests.serve.test_kinds import TEXTS

HOSTILE = "<img src=x onerror=\"document.title='broken'\"> & <script>document.title='broken'"


@pytest.fixture(params=["protocol", "asgi"])
def http(request):
    return request.param


def test_an_example_row_is_predicted(open_page, serving, bundle_path, model, http):
    with serving(bundle_path, http=http) as server:
        page = open_page(server.url)
        load_example(page)
        row = np.array(model.rows(3, seed=99), np.float32)[0].astype(float).tolist()
        typed = json.loads(page.get_by_label("Row", exact=True).input_value())
        assert typed == pytest.approx(row)
        assert shown(page, 5) == as_text(model.expected(row, 5))
        expect(page.locator("#example-state")).to_have_text("Test row 1 of 3.")
        for number in (2, 3, 1):
            press(page, "Example row")
            expect(page.locator("#example-state")).to_have_text(f"Test row {number} of 3.")


def test_the_page_works_with_several_workers(open_page, start_server, bundle_path, second_path):
    with start_server(bundle_path, second_path, "--workers", 2) as server:
        page = open_page(server.url)
        for _ in range(3):
            load_example(page)
        press(page, "Compare")
        expect(page.locator("#answers article")).to_have_count(2)
        expect(page.locator("#speeds tr")).to_have_count(2)


def test_lists_and_objects_can_be_typed(open_page, server, model):
    page = open_page(server.url)
    row = [0.5, -1, 0, 2, 0.25, 0]
    type_row(page, row)
    press(page, "Predict")
    assert shown(page, 5) == as_text(model.expected(row, 5))
    sparse = [0, 0, 0, 1.5, 0, 0]
    type_row(page, {"3": 1.5})
    expect(page.locator("#bars li")).to_have_count(0)  # they were about another row
    press(page, "Predict")
    assert shown(page, 5) == as_text(model.expected(sparse, 5))


def test_sparse_models_get_objects(open_page, serving, sparse_path):
    with serving(sparse_path) as server:
        page = open_page(server.url)
        load_example(page)
        press(page, "Example row")
        expect(page.get_by_label("Row", exact=True)).to_have_value('{"3":2}')
        shown(page, 4)


def test_texts_are_sent_as_they_are(open_page, serving, tokens_path):
    with serving(tokens_path) as server:
        page = open_page(server.url)
        expect(page.locator("#row-help")).to_have_text("A text to label.")
        load_example(page)
        expect(page.get_by_label("Row", exact=True)).to_have_value(TEXTS[0])
        type_row(page, '["red" apple')
        press(page, "Predict")
        shown(page, 4)


@pytest.mark.parametrize(
    ("typed", "sentence", "status"),
    [
        ([1, 2], "row 0 must have 6 numbers, got 2", 422),
        ({"6": 1}, "6", 422),
        ("[1, 2", "the row is not JSON", None),
    ],
)
def test_mistakes_are_shown_in_the_server_s_words(open_page, server, typed, sentence, status):
    page = open_page(server.url, failures=[status])
    type_row(page, typed)
    press(page, "Predict")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text(sentence)
    if status is not None:
        expected = server.post({"inputs": [typed]}).json()["error"]["message"]
        expect(alert).to_have_text(expected)
    load_example(page)
    expect(alert).to_be_empty()


def test_a_server_that_is_gone_is_said_to_be(open_page, server):
    page = open_page(server.url)
    type_row(page, {"0": 1})
    page.evaluate("() => { window.fetch = async () => { throw new TypeError('gone'); }; }")
    press(page, "Predict")
    expect(page.get_by_role("alert")).to_have_text(
        "the server cannot be reached: see whether it runs"
    )


def test_k_is_live(open_page, server, model):
    page = open_page(server.url)
    row = [1, 0, 0, 0, 0, 0]
    type_row(page, row)
    press(page, "Predict")
    shown(page, 5)
    for k in (8, 1, 3):
        slide(page, "Labels shown", k)
        assert shown(page, k) == as_text(model.expected(row, k))
        expect(page.locator("#k-shown")).to_have_text(str(k))
    assert page.get_by_role("slider", name="Labels shown").get_attribute("max") == "8"


def verdicts(page):
    return dict(
        zip(
            page.locator("#bars .name").all_text_contents(),
            page.locator("#bars .verdict").all_text_contents(),
            strict=True,
        )
    )


def test_thresholds_are_live_and_those_of_the_model(open_page, server, model):
    page = open_page(server.url)
    row = [1, 0, 0, 0, 0, 0]
    slide(page, "Labels shown", 8)
    type_row(page, row)
    press(page, "Predict")
    shown(page, 8)
    scores = dict(model.expected(row, 8))

    def expected(limits):
        return {
            label: f"{'reaches' if score >= limits[label] else 'below'} {limits[label]:.2f}"
            for label, score in scores.items()
        }

    assert verdicts(page) == expected(dict.fromkeys(model.names, TUNED))
    choose_rule(page, "per-label")
    per_label = dict(zip(model.names, PER_LABEL, strict=True))
    assert verdicts(page) == expected(per_label)
    slide(page, "Threshold as a number", 0.8)
    expect(page.get_by_role("combobox", name="Threshold")).to_have_value("number")
    assert verdicts(page) == expected(dict.fromkeys(model.names, 0.8))
    reached = sum(score >= 0.8 for score in scores.values())
    expect(page.locator("#answer-state")).to_contain_text(
        f"{reached} of 8 shown reach the threshold"
    )
    choose_rule(page, "none")
    expect(page.locator("#bars .verdict")).to_have_count(0)


def test_labels_that_differ_are_marked(
    open_page, serving, bundle_path, second_path, model, second_model
):
    row = [1, 0, 0, 0, 0, 0]
    with serving(bundle_path, second_path) as server:
        page = open_page(server.url)
        type_row(page, row)
        choose_rule(page, "none")
        slide(page, "Labels shown", 3)
        press(page, "Compare")
        articles = page.locator("#answers article")
        expect(articles).to_have_count(2)
        sets = [{label for label, _ in one.expected(row, 3)} for one in (model, second_model)]
        assert sets[0] != sets[1]
        for number, labels in enumerate(sets):
            article = articles.nth(number)
            assert set(article.locator(".name").all_text_contents()) == labels
            different = set(article.locator("mark").all_text_contents())
            assert different == labels - sets[1 - number]
        expect(page.locator("#compare-state")).to_contain_text(f": {len(sets[0] ^ sets[1])}.")
        slide(page, "Labels shown", 8)  # and now both have all labels
        expect(page.locator("#compare-state")).to_contain_text("all give the same labels")
        expect(page.locator("#answers mark")).to_have_count(0)


def test_a_model_that_cannot_take_the_row_says_so_in_its_column(
    open_page, serving, bundle_path, other_path
):
    with serving(bundle_path, other_path) as server:
        page = open_page(server.url)
        boxes = page.get_by_role("checkbox")
        expect(boxes).to_have_count(2)
        assert [box.is_checked() for box in boxes.all()] == [True, False]
        page.get_by_label("other").check()
        type_row(page, [0] * 6)
        press(page, "Compare")
        failure = page.locator("#answers article", has_text="other").locator(".failure")
        expect(failure).to_have_text("row 0 must have 3 numbers, got 6")


def test_speeds_are_live_until_paused_or_out_of_sight(open_page, serving, bundle_path, second_path):
    asked = []
    with serving(bundle_path, second_path) as server:
        page = open_page(server.url)
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        load_example(page)
        cells = page.locator("#speeds tr").first.locator("td")
        expect(cells.nth(1)).to_have_text("1")
        for number in (2, 3, 4):  # p50, p95, p99
            expect(cells.nth(number)).to_have_text(re.compile(r"^\d+\.\d\d$"))
        expect(cells.nth(7)).to_have_text("0")
        ratios = page.locator("#ratios .number")
        expect(ratios).to_have_text(["1.00 \N{MULTIPLICATION SIGN}", "\N{EN DASH}"])
        press(page, "Compare")
        expect(ratios.nth(1)).to_have_text(re.compile(r"^\d+\.\d\d .$"))

        press(page, "Pause")
        expect(page.locator("#live-state")).to_have_text("Paused.")
        assert is_quiet(page, asked)
        press(page, "Pause")
        expect(page.locator("#live-state")).to_have_text("Every 2 seconds.")
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        assert is_quiet(page, asked)
        asked.clear()
        page.evaluate(
            "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
        )
        expect(page.locator("#live-state")).to_have_text("Every 2 seconds.")
        assert "/compare" in asked


def is_quiet(page, asked):
    """Whether nothing is asked for longer than two looks are apart."""
    page.wait_for_timeout(200)  # for an answer that was under way
    asked.clear()
    page.wait_for_timeout(2500)
    return "/compare" not in asked


def test_the_card_says_what_the_model_is(open_page, server):
    page = open_page(server.url)
    card = page.locator("#card")
    terms = card.locator("dt").all_text_contents()
    facts = dict(zip(terms, card.locator("dd").all_text_contents(), strict=True))
    about = server.service.models["tiny"].manifest
    assert facts["Data set"] == "demo"
    assert (facts["Method"], facts["Version"]) == ("bce", about.version)
    assert facts["Tuned threshold"] == "0.45"
    assert facts["Thresholds per label"] == "0.10 to 0.90"
    assert facts["Made with"] == f"onnx {about.versions['onnx']}"
    assert card.locator("tr").first.all_text_contents() == ["micro_f10.5000"]


def test_another_model_can_be_chosen_and_new_ones_are_seen(
    open_page, serving, bundle_path, other_path, other_model
):
    with serving(bundle_path, other_path) as server:
        page = open_page(server.url)
        load_example(page)
        page.get_by_role("combobox", name="Model").select_option("other")
        expect(page.locator("#card h3")).to_have_text("other")
        expect(page.locator("#bars li")).to_have_count(0)
        load_example(page)
        shown(page, other_model.label_count)
        assert server_unloads(server, "tiny") == 200
        expect(page.get_by_role("combobox", name="Model").locator("option")).to_have_count(1)
        expect(page.get_by_role("combobox", name="Model")).to_have_value("other")


def test_a_model_that_comes_slowly_is_waited_for(open_page, serving, bundle_path, other_path):
    with serving(bundle_path, other_path) as server:
        page = open_page(server.url)
        load_example(page)
        held = []
        page.route("**/models/other", lambda route: held.append(route))  # noqa: PLW0108
        page.get_by_role("combobox", name="Model").select_option("other")
        press(page, "Example row")
        page.wait_for_timeout(200)
        expect(page.locator("#bars li")).to_have_count(0)
        held[0].continue_()
        shown(page, 4)
        expect(page.locator("#answer-state")).to_contain_text("other, version")


def server_unloads(server, name):
    return httpx.post(f"{server.url}/v2/repository/models/{name}/unload").status_code


def test_names_of_labels_are_text_and_nothing_else(open_page, serving, write, tmp_path):
    class Hostile(Linear):
        @property
        def names(self):
            return [HOSTILE, *super().names[1:]]

    path = write(tmp_path / "hostile", Hostile.random(6, 8, seed=1), name=HOSTILE, dataset=HOSTILE)
    with serving(path) as server:
        page = open_page(server.url)
        slide(page, "Labels shown", 8)
        load_example(page)
        assert HOSTILE in dict(shown(page, 8))
        press(page, "Compare")
        expect(page.locator("#answers h3")).to_have_text(HOSTILE)
        expect(page.locator("#ratios .name")).to_have_text(f"{HOSTILE} (baseline)")
        assert page.title() == "Labelwright"
        assert page.locator("img, body script").count() == 0
