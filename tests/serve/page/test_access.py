"""The page on narrow screens, in the dark, by keyboard and for screen readers."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.serve.conftest import Linear
from tests.serve.page.acts import load_example, press, shown, slide

LUMINANCE = """
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
"""
BRIGHTNESS = f"""() => {{ {LUMINANCE}
  return luminance(getComputedStyle(document.documentElement).backgroundColor);
}}"""
CONTRASTS = f"""() => {{ {LUMINANCE}
  const behind = (element) => {{
    const colour = getComputedStyle(element).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" ? behind(element.parentElement) : colour;
  }};
  const found = {{}};
  for (const element of document.querySelectorAll("body *")) {{
    const has = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!has || !element.checkVisibility()) continue;
    const [text, ground] = [getComputedStyle(element).color, behind(element)].map(luminance);
    found[`${{element.tagName}}.${{element.className}} ${{element.textContent.slice(0, 30)}}`] =
      (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
  }}
  return found;
}}"""


@pytest.mark.parametrize("width", [320, 768, 1200])
def test_nothing_sticks_out_at_the_side(open_page, serving, bundle_path, write, tmp_path, width):
    class Wordy(Linear):
        @property
        def names(self):
            return ["w" * 200 if column == 0 else f"label {column}" for column in range(8)]

    wordy = write(tmp_path / "wordy", Wordy.random(6, 8, seed=1), name="a" * 100)
    with serving(bundle_path, wordy) as server:
        page = open_page(server.url, width=width)
        page.get_by_role("combobox", name="Model").select_option("a" * 100)
        slide(page, "Labels shown", 8)
        load_example(page)
        press(page, "Compare")
        expect(page.locator("#answers article")).to_have_count(2)
        page.locator("summary").click()
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(open_page, server, scheme):
    page = open_page(server.url, color_scheme=scheme)
    load_example(page)
    page.evaluate("document.getElementById('problem').textContent = 'wrong'")
    brightness = page.evaluate(BRIGHTNESS)
    assert (brightness < 0.2) == (scheme == "dark")
    ratios = page.evaluate(CONTRASTS)
    assert len(ratios) > 20
    assert min(ratios.values()) >= 4.5, ratios  # WCAG 2.2, 1.4.3


def test_the_keyboard_is_enough(open_page, serving, bundle_path, second_path):
    with serving(bundle_path, second_path) as server:
        page = open_page(server.url)

        def tab_to(name):
            for _ in range(40):
                page.keyboard.press("Tab")
                if (
                    page.evaluate("document.activeElement.id || document.activeElement.value")
                    == name
                ):
                    break
            focused = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert focused == "solid", name  # where the focus is can be seen

        tab_to("model")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#card h3")).to_have_text("second")
        tab_to("row")
        page.keyboard.type('{"0": 1}')
        tab_to("predict")
        page.keyboard.press("Enter")
        shown(page, 5)
        tab_to("k")
        page.keyboard.press("ArrowRight")
        shown(page, 6)
        tab_to("rule")
        tab_to("threshold")
        page.keyboard.press("End")
        expect(page.locator("#bars .below")).to_have_count(6)
        tab_to("tiny")
        page.keyboard.press("Space")
        expect(page.locator("#compared :checked")).to_have_count(1)
        page.keyboard.press("Space")
        page.keyboard.press("Enter")
        expect(page.locator("#answers article")).to_have_count(2)


def test_everything_that_can_be_used_has_a_name(open_page, serving, bundle_path, second_path):
    with serving(bundle_path, second_path) as server:
        page = open_page(server.url)
        load_example(page)
        used = page.locator("a, button, input, select, textarea, summary, [tabindex]")
        assert used.count() >= 14
        for control in used.all():
            tree = control.aria_snapshot()
            assert re.match(r'- [a-z]+ ".+"|- text: .+', tree.splitlines()[0]), tree
        headings = page.locator("h1, h2, h3").evaluate_all("all => all.map(one => +one.tagName[1])")
        assert headings[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(headings))
        assert page.locator("html").get_attribute("lang") == "en"
        for live_region in ("#problem", "#answer-state", "#compare-state", "#live-state"):
            assert page.locator(live_region).get_attribute("role") in ("alert", "status")
