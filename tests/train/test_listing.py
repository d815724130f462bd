from __future__ import annotations

from rich.console import Console

from train import methods
from train.data.registry import known
from train.listing import dataset_table, method_table


def text_of(table, width: int) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    console.file.close()
    return console.export_text()


def test_every_method_is_listed():
    text = text_of(method_table(), 80)
    assert all(name in text for name in methods.available())


def test_every_data_set_is_listed_whole_in_80_columns():
    text = text_of(dataset_table(80), 80)
    assert all(f" {name} " in text for name in known())
    assert "…" not in text
    assert "https://" not in text


def test_a_wide_window_shows_where_they_come_from():
    assert "https://github.com/tsoumakas/mulan" in text_of(dataset_table(160), 160)
    assert "not to be had" in text_of(dataset_table(160), 160)
