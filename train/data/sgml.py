"""Reuters-21578: SGML files of news items, ModApte split, the 90 topics of both its parts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from train.data.assemble import consecutive_parts, named_labels
from train.data.dataset import MultiLabelData
from train.data.files import open_text
from train.errors import DataError

DOCUMENT = re.compile(r"<REUTERS\b([^>]*)>(.*?)</REUTERS>", re.DOTALL)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.DOTALL)
TOPIC = re.compile(r"<D>(.*?)</D>", re.DOTALL)
TEXT = re.compile(r"<TEXT\b[^>]*>(.*?)</TEXT>", re.DOTALL)
TITLE = re.compile(r"<TITLE>(.*?)</TITLE>", re.DOTALL)
BODY = re.compile(r"<BODY>(.*?)</BODY>", re.DOTALL)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PARTS = {"TRAIN": "train", "TEST": "test"}


def read_reuters(paths: Sequence[Path], *, name: str = "reuters21578") -> MultiLabelData:
    """Read the items of the ModApte split that have a topic occurring in both of its parts.

    An item's text is its title and its body; an item that was never marked up keeps its whole text.

    Raises:
        DataError: A file is no such SGML, or the files hold no item of one of the parts.
    """
    items: dict[str, list[tuple[str, set[str]]]] = {"train": [], "test": []}
    for path in paths:
        for part, text, topics in _items(path):
            items[part].append((text, topics))
    used = {part: {topic for _, topics in rows for topic in topics} for part, rows in items.items()}
    shared = used["train"] & used["test"]
    if not shared:
        raise DataError(
            f"the files of {name} hold no topic that is in both the training and the test part: "
            f"all of reut2-000.sgm to reut2-021.sgm are needed"
        )
    kept = {
        part: [(text, topics & shared) for text, topics in rows if topics & shared]
        for part, rows in items.items()
    }
    rows = kept["train"] + kept["test"]
    labels, targets = named_labels([topics for _, topics in rows])
    return MultiLabelData(
        name=name,
        inputs=[text for text, _ in rows],
        targets=targets,
        labels=labels,
        published=consecutive_parts({part: len(rows) for part, rows in kept.items()}),
    )


def _items(path: Path) -> Iterator[tuple[str, str, set[str]]]:
    """Part, text and topics of each item of the ModApte split."""
    with open_text(path, encoding="latin-1") as file:
        content = file.read()
    documents = DOCUMENT.findall(content)
    if not documents or len(documents) != content.count("<REUTERS"):
        raise DataError(
            f"{path} is not a whole Reuters-21578 file: {len(documents)} complete <REUTERS> "
            f"elements found, {content.count('<REUTERS')} begun; fetch it again"
        )
    for head, body in documents:
        attributes = dict(ATTRIBUTE.findall(head))
        part = PARTS.get(attributes.get("LEWISSPLIT", ""))
        if part is not None and attributes.get("TOPICS") == "YES":
            topics = TOPICS.search(body)
            yield part, _text(body), set(TOPIC.findall(topics[1] if topics else ""))


def _text(body: str) -> str:
    element = TEXT.search(body)
    whole = element[1] if element else ""
    pieces = [found[1] for found in (TITLE.search(whole), BODY.search(whole)) if found]
    return CONTROL.sub("", html.unescape("\n".join(pieces or [whole]))).strip()
