"""The page of a server with keys: it asks for one, keeps it in its tab and shows it."""

from __future__ import annotations

import hashlib

import pytest
from playwright.sync_api import expect

from tests.serve.page.acts import load_example, press


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"ann:{hashlib.sha256(b'a-secret').hexdigest()}\n")
    return path


def use_key(page, key):
    page.get_by_label("Key", exact=True).fill(key)
    press(page, "Use this key")


def test_the_page_asks_for_a_key_and_shows_it(open_page, serving, bundle_path, keys):
    with serving(bundle_path, api_keys=keys) as server:
        page = open_page(server.url, shows="#door", failures=(401,))
        field = page.get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        assert field.get_attribute("type") == "password"
        use_key(page, "wrong")
        expect(page.locator("#problem")).to_contain_text("wants a key")
        use_key(page, "a-secret")
        load_example(page)
        expect(page.locator("#door form")).to_have_count(0)
        expect(page.locator("#problem")).to_be_empty()
        page.reload()
        load_example(page)
        stored = "[localStorage.length, sessionStorage.length, document.cookie]"
        assert page.evaluate(stored) == [0, 1, ""]
        # Another tab has to be told anew.
        open_page(server.url, shows="#door", failures=(401,))


def test_a_page_without_keys_asks_for_none(open_page, server):
    page = open_page(server.url)
    load_example(page)
    expect(page.locator("#door form")).to_have_count(0)
