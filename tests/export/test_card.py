"""The model card says what the manifest says, whatever strangers call their labels."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from export.bundle import BundleError, load_bundle
from export.card import card_of, code
from export.manifest import InputSpec, Origin, Search
from tests.export.test_bundle import MANIFEST, write

ORIGIN = Origin(
    split={
        "rule": "60/20/20",
        "seed": 7,
        "fraction": 1.0,
        "train": 60,
        "validation": 20,
        "test": 21,
    },
    seed=3,
    epoch=5,
    config={"lr": 0.003},
    command="python -m train ce --dataset some",
    scores={"tuned": {"example_f1": 0.61}, "per_label": {"example_f1": 0.62, "macro_f1": 0.55}},
)
SCORES = {"example_f1": 0.5, "macro_f1": 0.4, "precision@1": 0.9, "macro_f1_head": 0.7}
KNOWN = replace(MANIFEST, origin=ORIGIN, test_scores=SCORES)
HOSTILE = [
    "# heading",
    "a\n\n# heading",
    "</code><script>alert(1)</script>",
    "[link](https://example.com)",
    "![image](x.png)",
    "`` ` ```",
    "`",
    "a | b \\| c",
    "https://example.com www.example.com me@example.com",
    "```\n# heading\n```",
    "<!-- ",
    "&lt;b&gt;",
    "\u202eright to left\u2028next",
    "",
    " ",
]


def tables(card):
    """The cells of every table row, by the first cell."""
    lines = [line for line in card.splitlines() if line.startswith("| `")]
    return {cells[1].strip(): [c.strip() for c in cells[2:-1]]
            for cells in (line.split("|") for line in lines)}  # fmt: skip


def test_scores_stand_beside_the_thresholds_they_were_measured_at():
    card = card_of(KNOWN, ["a", "ß"])
    assert "| metric | at 0.5 | tuned, 0.40 | per label |" in card
    rows = tables(card.split("| labels by their train rows")[0])
    assert rows == {
        "`example_f1`": ["0.5000", "0.6100", "0.6200"],
        "`macro_f1`": ["0.4000", "", "0.5500"],
        "`precision@1`": ["0.9000"],
    }
    assert "| `macro_f1` | 0.7000 |  |  |" in card


def test_data_method_versions_and_limits_are_those_of_the_manifest():
    card = card_of(KNOWN, ["a", "ß"])
    for words in (
        "# `some-ce`", "Labels: `a`, `ß`.", "Data set `some`.", "Split `60/20/20` with seed 7",
        "60 train, 20 validation and 21 test rows", "Method `ce`", "Seed 3", "epoch 5",
        "python -m train ce --dataset some", '"lr": 0.003', "`torch` `2`", "1.0e-07",
    ):  # fmt: skip
        assert words in card, words
    assert "8 bits" not in card
    assert "Not every label" not in card


def test_what_is_not_known_is_not_claimed():
    card = card_of(MANIFEST, ["a", "b"])
    assert "metrics.json was not there" in card
    assert not re.search("Split|Seed|Hyper", card)
    alone = card_of(replace(KNOWN, origin=replace(ORIGIN, command=None, scores=None)), ["a", "b"])
    assert "The command is unknown" in alone


def test_faster_graphs_say_what_they_cost():
    search = Search(kind="ivf", recall=0.985, rows=64, nprobe=8)
    quantized = {"rows": 64.0, "macro_f1": 0.5, "macro_f1_float32": 0.501}
    card = card_of(replace(KNOWN, search=search, quantized=quantized), ["a", "b"])
    assert "98.5% of the 10 best labels of 64 test rows" in card
    assert "is 0.500 and was 0.501 in 32" in card


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (InputSpec(kind="text", encoding="tokens", max_tokens=128), "the first 128 tokens count"),
        (InputSpec(kind="text", encoding="tfidf", width=900), "900 terms are known"),
        (InputSpec(kind="sparse", width=5000), "5000 numbers"),
    ],
)
def test_rows_are_described(spec, words):
    card = card_of(replace(KNOWN, input=spec), ["a", "b"])
    assert words in card
    body = json.loads(shlex.split(re.search("curl .*", card)[0])[-1])
    assert isinstance(body["inputs"][0], str if spec.kind == "text" else dict)


def test_many_labels_are_cut_short():
    card = card_of(KNOWN, [f"label {number}" for number in range(1000)])
    assert "`label 19` and 980 more, see labels.json." in card
    assert "`label 20`" not in card


MARKDOWN = MarkdownIt("commonmark").enable("table")


def structure(text):
    """Everything that Markdown makes of a page, but the text inside."""
    found = []
    for token in MARKDOWN.parse(text):
        found.append((token.type, token.tag))
        found += [(child.type, child.tag) for child in token.children or () if child.type != "text"]
    return found


def card_with(name, *, columns=2):
    origin = replace(ORIGIN, command=f"python -m train ce {shlex.quote(name)}", config={"a": name},
                     split={**ORIGIN.split, "rule": name})  # fmt: skip
    manifest = replace(KNOWN, name=name, dataset=name, method=name, task=name, origin=origin,
                       versions={name: name}, test_scores={**SCORES, f"m {name}": 1.0})  # fmt: skip
    return card_of(manifest, [name] * columns)


@given(st.text())
@pytest.mark.filterwarnings("ignore")
def test_no_name_becomes_markdown(name):
    assert structure(card_with(name)) == structure(card_with("plain"))


for text in HOSTILE:
    test_no_name_becomes_markdown = example(text)(test_no_name_becomes_markdown)


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40))
def test_a_name_is_shown_as_it_is(name):
    (inline,) = (token for token in MARKDOWN.parse(code(name)) if token.type == "inline")
    assert [child.content for child in inline.children] == [name]


def test_the_card_is_a_file_of_the_bundle_like_any_other(tmp_path):
    path = tmp_path / "model.bundle"
    manifest = write(path, KNOWN)
    assert "README.md" in manifest.files
    assert (path / "README.md").read_text("utf-8") == card_of(
        replace(manifest, files={}), ["a", "ß"]
    )
    assert load_bundle(path).manifest.origin == ORIGIN
    (path / "README.md").write_text("better", "utf-8")
    with pytest.raises(BundleError, match=r"README\.md has 6 bytes"):
        load_bundle(path)


def test_bundles_without_card_and_origin_are_read(tmp_path):
    path = tmp_path / "model.bundle"
    write(path)
    values = json.loads((path / "manifest.json").read_text("utf-8"))
    del values["origin"], values["files"]["README.md"]
    (path / "manifest.json").write_text(json.dumps(values), "utf-8")
    (path / "README.md").unlink()
    assert load_bundle(path).manifest.origin is None
