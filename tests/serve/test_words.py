"""Models of words over HTTP, with a graph and a tokenizer written by hand: rows in, spans out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.bundle import MODEL, TOKENIZER, Contents, drafted, write_bundle
from export.manifest import InputSpec, Manifest, Thresholds
from train.decoding import constrained_marks
from train.spans import spans_of
from train.word_pieces import WordEncoder, WordRow

LABELS = ["O", "B-A0", "I-A0", "B-V"]
VOCABULARY = ["[UNK]", "red", "green", "blue", "run", "##ning"]
TABLE = np.random.default_rng(3).normal(0, 2, size=(len(VOCABULARY), len(LABELS)))
PREDICATE = np.array([0, 0, 0, 9.0])
"""Added to the logits of the word that is marked."""
ROWS = [
    {"tokens": ["red", "green", "running", "blue"], "predicate": 2},
    {"tokens": ["run"], "predicate": 0},
    {"tokens": ["blue", "red", "red", "green", "green", "run", "red"] * 3, "predicate": 5},
]
MAX_TOKENS = 24


def tokenizer_json() -> str:
    return json.dumps(
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None, "decoder": None,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100,
                      "vocab": {word: number for number, word in enumerate(VOCABULARY)}},
        }
    )  # fmt: skip


def graph() -> bytes:
    """The logits of a word are those of its first piece, and of the predicate."""
    value, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("Sub", ["word_pieces", "one"], ["before"]),
        node("Max", ["before", "zero"], ["place"]),
        node("GatherElements", ["input_ids", "place"], ["token"], axis=1),
        node("GatherElements", ["predicate_mask", "place"], ["is_marked"], axis=1),
        node("Gather", ["table", "token"], ["of_token"]),
        node("Cast", ["is_marked"], ["marked"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["marked", "last"], ["marks"]),
        node("Mul", ["marks", "predicate"], ["of_predicate"]),
        node("Add", ["of_token", "of_predicate"], ["raw"]),
        node("Greater", ["word_pieces", "zero"], ["is_word"]),
        node("Unsqueeze", ["is_word", "last"], ["is_there"]),
        node("Where", ["is_there", "raw", "absent"], ["words"]),
        node("Reshape", ["words", "flat"], ["logits"]),
        node("Sigmoid", ["logits"], ["scores"]),
        node("ReduceMax", ["words"], ["top"], axes=[2], keepdims=0),
        node("Sigmoid", ["top"], ["top_scores"]),
        node("ArgMax", ["words"], ["best"], axis=2, keepdims=0),
        node("Shape", ["best"], ["shape"]),
        node("Gather", ["shape", "one_alone"], ["count"]),
        node("Range", ["zero_alone", "count", "one_alone"], ["numbers"]),
        node("Mul", ["numbers", "labels"], ["first"]),
        node("Add", ["best", "first"], ["top_labels"]),
        # The mask of attention is an input of every such graph.
        node("Identity", ["attention_mask"], ["unused"]),
    ]
    inputs = [
        value(name, TensorProto.INT64, ["n", axis])
        for name, axis in (("input_ids", "m"), ("attention_mask", "m"), ("predicate_mask", "m"),
                           ("word_pieces", "w"))
    ]  # fmt: skip
    outputs = [
        value("scores", TensorProto.FLOAT, ["n", "cells"]),
        value("top_scores", TensorProto.FLOAT, ["n", "w"]),
        value("top_labels", TensorProto.INT64, ["n", "w"]),
    ]
    arrays = {
        "one": np.array([1]), "zero": np.array([0]), "last": np.array([2]),
        "one_alone": np.array(1), "zero_alone": np.array(0), "labels": np.array(len(LABELS)),
        "flat": np.array([0, -1]), "absent": np.array([-100], np.float32),
        "table": TABLE.astype(np.float32), "predicate": PREDICATE.astype(np.float32),
    }  # fmt: skip
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    made = helper.make_graph(
        nodes, "g", [*inputs, value("k", TensorProto.INT64, [])], outputs, initializers
    )
    return helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    ).SerializeToString()


def scores_of(row: dict) -> np.ndarray:
    """(words, labels), word by word."""
    found = []
    for place, word in enumerate(row["tokens"]):
        first = "run" if word == "running" else word
        token = VOCABULARY.index(first) if first in VOCABULARY else 0
        logits = TABLE[token] + (PREDICATE if place == row["predicate"] else 0)
        found.append(1 / (1 + np.exp(-logits)))
    return np.array(found)


def expected(row: dict, threshold: float = 0.0) -> list[dict]:
    scores = scores_of(row)
    marks = [LABELS[best] for best in scores.argmax(1)]
    spans = []
    for role, start, end in spans_of(marks):
        score = scores[start : end + 1].max(1).min()
        if score >= threshold:
            spans.append({"role": role, "start": start, "end": end,
                          "words": row["tokens"][start : end + 1],
                          "score": pytest.approx(score, abs=1e-5)})  # fmt: skip
    return spans


def write(path, *, predicate: bool = True, constrained: bool = False):
    encoder = WordEncoder(tokenizer_json(), MAX_TOKENS)
    probe = ROWS if predicate else [{"tokens": row["tokens"]} for row in ROWS]
    feed = encoder.encode([WordRow.from_values(row) for row in probe])
    width = feed["word_pieces"].shape[1]
    scores = np.zeros((len(ROWS), width, len(LABELS)), np.float32)
    for number, row in enumerate(ROWS):
        marked = row if predicate else {**row, "predicate": None}
        scores[number, : len(row["tokens"])] = scores_of(marked)
    manifest = Manifest(
        name="roles", version="", method="ce", task="tagging", dataset="demo",
        input=InputSpec(kind="words", max_tokens=MAX_TOKENS, predicate=predicate),
        label_count=len(LABELS), thresholds=Thresholds(tuned=0.5, per_label=[0.5] * len(LABELS)),
        test_scores={"span_f1": 0.5}, largest_difference=0.0, versions={}, constrained=constrained,
    )  # fmt: skip
    with drafted(path) as folder:
        (folder / MODEL).write_bytes(graph())
        (folder / TOKENIZER).write_text(tokenizer_json(), encoding="utf-8")
        contents = Contents(
            labels=LABELS,
            probe=feed,
            probe_texts=probe,
            probe_scores=scores.reshape(len(ROWS), -1),
        )
        write_bundle(folder, manifest, contents)
    return path


@pytest.fixture
def roles(tmp_path, serve_app):
    return serve_app(write(tmp_path / "roles.bundle"))


def test_words_give_their_spans(roles):
    answer = roles.predict({"inputs": ROWS})
    assert answer.status_code == 200, answer.text
    assert answer.json()["predictions"] == [{"spans": expected(row)} for row in ROWS]
    assert any(prediction["spans"] for prediction in answer.json()["predictions"])
    for row in ROWS:  # alone as beside others
        alone = roles.predict({"inputs": [row]}).json()["predictions"]
        assert alone == [{"spans": expected(row)}]


def test_constrained_spans_are_those_of_the_likeliest_allowed_labels(tmp_path, serve_app):
    app = serve_app(write(tmp_path / "roles.bundle", constrained=True))
    answer = app.predict({"inputs": ROWS})
    assert answer.status_code == 200, answer.text
    for row, prediction in zip(ROWS, answer.json()["predictions"], strict=True):
        seen = scores_of(row)[:MAX_TOKENS].astype(np.float32)
        columns = constrained_marks(seen, LABELS)
        spans = list(spans_of([LABELS[column] for column in columns]))
        assert [(s["role"], s["start"], s["end"]) for s in prediction["spans"]] == spans
        for span, (_, start, end) in zip(prediction["spans"], spans, strict=True):
            worst = min(seen[word, columns[word]] for word in range(start, end + 1))
            assert span["score"] == pytest.approx(worst, abs=1e-5)
        assert [s["role"] for s in prediction["spans"]].count("A0") <= 1
    plain = [[s["role"] for s in expected(row)].count("A0") for row in ROWS]
    assert max(plain) > 1  # it makes a difference here
    sure = app.predict({"inputs": ROWS, "threshold": 0.9}).json()["predictions"]
    assert all(span["score"] >= 0.9 for prediction in sure for span in prediction["spans"])


def test_a_text_is_cut_into_words(roles):
    text = {"text": "Red, green running!", "predicate": 3}
    tokens = {"tokens": ["Red", ",", "green", "running", "!"], "predicate": 3}
    found = [roles.predict({"inputs": [row]}).json()["predictions"] for row in (text, tokens)]
    assert found[0] == found[1]


def test_spans_below_the_threshold_are_left_out(roles):
    scores = [span["score"].expected for row in ROWS for span in expected(row)]
    threshold = float(np.median(scores))
    answer = roles.predict({"inputs": ROWS, "threshold": threshold}).json()
    assert answer["predictions"] == [{"spans": expected(row, threshold)} for row in ROWS]
    assert answer["predictions"] != [{"spans": expected(row)} for row in ROWS]


def test_words_that_are_cut_off_bear_nothing(roles):
    row = {"tokens": ["red"] * (MAX_TOKENS + 6), "predicate": 0}
    spans = roles.predict({"inputs": [row, *ROWS]}).json()["predictions"][0]["spans"]
    assert all(span["end"] < MAX_TOKENS for span in spans)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("red", "row 0 must be an object"),
        ({"words": ["red"], "predicate": 0}, "fields words, predicate"),
        ({"predicate": 0}, 'either "tokens" or "text"'),
        ({"tokens": ["red"], "text": "red", "predicate": 0}, 'either "tokens" or "text"'),
        ({"tokens": [], "predicate": 0}, "must have words"),
        ({"tokens": ["red", " "], "predicate": 0}, "no empty one"),
        ({"tokens": ["red", 3], "predicate": 0}, "must be a list of words"),
        ({"tokens": "red", "predicate": 0}, "must be a list of words"),
        ({"text": 3, "predicate": 0}, "must be a text"),
        ({"text": "red " * 100_000, "predicate": 0}, "shorten it"),
        ({"tokens": ["red"]}, '"predicate" must be the place of a word, 0 to 0'),
        ({"tokens": ["red"], "predicate": 1}, "0 to 0"),
        ({"tokens": ["red"], "predicate": True}, "0 to 0"),
        ({"tokens": ["red"], "predicate": -1}, "0 to 0"),
    ],
)
def test_other_rows_are_refused_in_one_sentence(row, words, roles):
    answer = roles.predict({"inputs": [row]})
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"top_k": 3}, 'leave "top_k" out'),
        ({"mask": "png"}, 'leave "mask" out'),
        ({"threshold": "tuned"}, "must be a number from 0 to 1"),
        ({"threshold": 2}, "must be a number from 0 to 1"),
    ],
)
def test_other_options_are_refused_in_one_sentence(option, words, roles):
    answer = roles.predict({"inputs": ROWS, **option})
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


def test_a_model_without_predicates_takes_none(tmp_path, serve_app):
    plain = serve_app(write(tmp_path / "plain.bundle", predicate=False))
    assert plain.predict({"inputs": [{"tokens": ["red"]}]}).status_code == 200
    answer = plain.predict({"inputs": [{"tokens": ["red"], "predicate": 0}]})
    assert 'takes no "predicate"' in answer.json()["error"]["message"]


def test_the_model_says_what_it_takes(roles):
    (model,) = roles.get("/models").json()["models"]
    assert model["input"] == {
        "kind": "words", "width": None, "max_tokens": MAX_TOKENS, "predicate": True,
    }  # fmt: skip
    assert roles.get("/models/roles/example?row=0").json()["input"] == ROWS[0]


def test_arrays_and_tensors_are_refused(roles):
    array = roles.predict_raw(
        np.zeros((1, 3), np.float32).tobytes(),
        headers={"content-type": "application/octet-stream"},
    )
    assert "this model takes words: send JSON" in array.json()["error"]["message"]
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["red"]}
    answer = roles.request("POST", "/v2/models/roles/infer", json={"inputs": [tensor]})
    assert "POST /predict" in answer.text
