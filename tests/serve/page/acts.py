"""What people do on the page, and what they see."""

from __future__ import annotations

import json

from playwright.sync_api import expect


def press(page, name):
    page.get_by_role("button", name=name).click()


def load_example(page):
    press(page, "Example row")
    expect(page.locator("#bars li").first).to_be_visible()


def type_row(page, value):
    page.get_by_label("Row", exact=True).fill(
        value if isinstance(value, str) else json.dumps(value)
    )


def slide(page, name, value):
    page.get_by_role("slider", name=name).fill(str(value))


def choose_rule(page, value):
    page.get_by_role("combobox", name="Threshold").select_option(value)


def shown(page, count):
    """Labels and scores as they stand on the page, once there are so many."""
    expect(page.locator("#bars li")).to_have_count(count)
    names = page.locator("#bars .name").all_text_contents()
    return list(zip(names, page.locator("#bars .number").all_text_contents(), strict=True))


def as_text(pairs):
    return [(label, f"{score:.3f}") for label, score in pairs]
