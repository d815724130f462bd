"""The model card: README.md of a bundle, made of what its manifest says and of nothing else.

Names of data sets, labels and models come from strangers. They stand in code spans alone, where
Markdown means nothing, so that none of them can become a heading, a link or HTML.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from export.manifest import InputSpec, Manifest, Origin

MOST_NAMES = 20
MOST_CHARACTERS = 80
SLICE = re.compile(r"(.+)_(head|torso|tail)")
BY_THRESHOLD = ("example_f1", "micro_f1", "macro_f1", "hamming_accuracy", "subset_accuracy")


def card_of(manifest: Manifest, labels: Sequence[str]) -> str:
    """The page as Markdown."""
    sections = (
        _predicts(manifest, labels),
        _how_well(manifest),
        _data(manifest),
        _making(manifest),
        _calling(manifest),
        _limits(manifest),
    )
    return "\n".join(line for section in sections for line in (*section, ""))


def code(text: str) -> str:
    """Any text as a code span of one line, which nothing inside it can end."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    if len(shown) > MOST_CHARACTERS:
        shown = shown[:MOST_CHARACTERS] + "..."
    ticks = "`" * (_longest_run(shown) + 1)
    pad = " " if not shown.strip() or "`" in (shown[0], shown[-1]) else ""
    return f"{ticks}{pad}{shown or ' '}{pad}{ticks}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _block(language: str, text: str) -> list[str]:
    fence = "`" * max(3, _longest_run(text) + 1)
    return ["", fence + language, text, fence]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return ["", *(f"| {' | '.join(cells)} |" for cells in lines)]


def _cell(text: str) -> str:
    return code(text).replace("|", r"\|")  # a table ends its cells inside code spans, too


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _predicts(manifest: Manifest, labels: Sequence[str]) -> list[str]:
    names = ", ".join(map(code, labels[:MOST_NAMES]))
    rest = len(labels) - MOST_NAMES
    return [
        f"# {code(manifest.name)}",
        "",
        f"Scores each of {manifest.label_count} labels for {_what(manifest)}, from 0 to 1. A row "
        f"is {_row(manifest.input)}. Version {code(manifest.version)}.",
        "",
        f"Labels: {names}{f' and {rest} more, see labels.json' if rest > 0 else ''}.",
    ]


def _what(manifest: Manifest) -> str:
    return "each word of a row" if manifest.input.kind == "words" else "a row"


def _row(spec: InputSpec) -> str:
    if spec.kind == "words":
        marked = ", one of them marked as the predicate" if spec.predicate else ""
        return f"a list of words{marked}, of which the first {spec.max_tokens} tokens count"
    if spec.kind != "text":
        return f"{spec.width} numbers, unscaled"
    if spec.encoding == "tokens":
        return f"a text, of which the first {spec.max_tokens} tokens count"
    return f"a text, of which {spec.width} terms are known"


def _how_well(manifest: Manifest) -> list[str]:
    scores, origin = manifest.test_scores, manifest.origin
    slices = {name for name in scores if SLICE.fullmatch(name)}
    plain = [name for name in scores if name not in {*slices, *BY_THRESHOLD}]
    tested = f"{origin.split['test']} test rows" if origin else "the test rows"
    lines = [
        "## How well",
        "",
        f"Scores of {tested}; definitions are in Labelwright's docs/metrics.md.",
    ]
    lines += _by_threshold(manifest)
    if plain:
        what = "other metrics, at 0.5 where a threshold matters"
        lines += _table((what, "score"), ((_cell(name), _number(scores[name])) for name in plain))
    return lines + (_by_slice(scores) if slices else [])


def _by_threshold(manifest: Manifest) -> list[str]:
    """Set metrics at the thresholds that a client can ask for."""
    measured = (manifest.origin and manifest.origin.scores) or {}
    groups = [manifest.test_scores, measured.get("tuned", {}), measured.get("per_label", {})]
    rows = [
        [_cell(name), *(_number(group.get(name)) for group in groups)]
        for name in BY_THRESHOLD
        if any(name in group for group in groups)
    ]
    head = ("metric", "at 0.5", f"tuned, {manifest.thresholds.tuned:.2f}", "per label")
    unknown = "" if measured else " The training's metrics.json was not there to fill the others."
    note = f"An empty cell was not measured.{unknown}"
    return [*_table(head, rows), "", note] if rows else []


def _by_slice(scores: Mapping[str, float]) -> list[str]:
    metrics = dict.fromkeys(found[1] for name in scores if (found := SLICE.fullmatch(name)))
    parts = ("head", "torso", "tail")
    rows = (
        [_cell(metric), *(_number(scores.get(f"{metric}_{part}")) for part in parts)]
        for metric in metrics
    )
    return _table(("labels by their train rows", *parts), rows)


def _data(manifest: Manifest) -> list[str]:
    lines = ["## Data", "", f"Data set {code(manifest.dataset)}."]
    if manifest.origin is not None:
        split = manifest.origin.split
        share = "" if split["fraction"] == 1 else f", with {split['fraction']} of the train rows"
        lines[-1] += (
            f" Split {code(str(split['rule']))} with seed {split['seed']}{share}: {split['train']} "
            f"train, {split['validation']} validation and {split['test']} test rows."
        )
    return [*lines, "", "Thresholds were chosen on the validation rows."]


def _making(manifest: Manifest) -> list[str]:
    lines = ["## How it was made", "", f"Method {code(manifest.method)}, {code(manifest.task)}."]
    if manifest.origin is not None:
        lines += _training(manifest.origin)
    versions = ", ".join(
        f"{code(name)} {code(number)}" for name, number in manifest.versions.items()
    )
    return [*lines, "", f"Versions: {versions or 'unknown'}."]


def _training(origin: Origin) -> list[str]:
    lines = ["", f"Seed {origin.seed}; the weights are those of epoch {origin.epoch}."]
    if origin.command is None:
        lines[-1] += " The command is unknown: the training's metrics.json was not there."
    else:
        lines += _block("sh", origin.command)
    return [*lines, "", "Hyper-parameters:", *_block("json", json.dumps(origin.config, indent=1))]


def _calling(manifest: Manifest) -> list[str]:
    row, limits = _example(manifest.input)
    body = {"model": manifest.name, "inputs": [row], **limits}
    shell = f"curl -s http://127.0.0.1:8000/predict -d {shlex.quote(json.dumps(body))}"
    lines = [
        "## How to call it",
        "",
        "`python -m serve` with this folder serves it; its page is at http://127.0.0.1:8000.",
        *_block("sh", shell),
    ]
    if manifest.input.kind == "words":  # the client reads labels, not spans
        return lines
    python = (
        "from labelwright_client import Client\n\nwith Client() as client:\n"
        f'    print(client.predict([{row!r}], threshold="tuned", model={manifest.name!a})[0])'
    )
    return [*lines, *_block("python", python)]


def _example(spec: InputSpec) -> tuple[object, dict[str, str]]:
    """A row, and what else is asked."""
    if spec.kind == "words":
        marked = {"predicate": 1} if spec.predicate else {}
        return {"tokens": ["She", "laughed"], **marked}, {}
    return "a text to label" if spec.kind == "text" else {0: 1.0}, {"threshold": "tuned"}


def _limits(manifest: Manifest) -> list[str]:
    lines = [
        "## Limits",
        "",
        "- The scores above are of test rows of the same data set, and of no other rows.",
        "- Scores of the exported graph differ from those of the trained network by at most "
        f"{manifest.largest_difference:.1e} on the test rows that were compared.",
    ]
    if manifest.search is not None:
        search = manifest.search
        lines.append(
            f"- Not every label is scored exactly ({code(search.kind)}): {search.recall:.1%} of "
            f"the 10 best labels of {search.rows} test rows are found."
        )
    if manifest.quantized is not None:
        lines.append(_quality(manifest.quantized))
    return lines


def _quality(quantized: Mapping[str, float]) -> str:
    return (
        f"- Its matrices are in 8 bits: macro-F1 of {quantized['rows']:.0f} test rows is "
        f"{quantized['macro_f1']:.3f} and was {quantized['macro_f1_float32']:.3f} in 32. All other "
        "scores are those in 32 bits, and a row's scores depend on the rows beside it."
    )
