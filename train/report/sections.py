"""What a page is made of: sections of tables, pictures and words."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

from train.report.tables import Table


@dataclass(frozen=True)
class Picture:
    """A figure, and what it shows."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Text:
    """Words as they are, such as a command; or a paragraph."""

    text: str
    is_code: bool = False


@dataclass
class Section:
    """A heading with what stands below it."""

    title: str
    anchor: str
    level: int = 2
    parts: list[Table | Picture | Text] = field(default_factory=list)

    def add(self, *parts: Table | Picture | Text | None) -> None:
        """Append what there is."""
        self.parts += [part for part in parts if part is not None]


def picture(svg: str, caption: str) -> Picture:
    """A figure that this program drew itself, so that its markup can be trusted."""
    return Picture(Markup(svg), caption)  # noqa: S704 - ours
