"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "k8s/README.md")
PAGES = [*DOCS, *(ROOT / name for name in OTHERS)]
FENCED = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the word and the rest of the comment before it."""

    mark: str
    argument: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = []
    for match in FENCED.finditer(page.read_text("utf-8")):
        mark, _, argument = (match["mark"] or "").partition(": ")
        found.append(Block(mark, argument, match["language"], match["text"]))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def each(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=name_of)
