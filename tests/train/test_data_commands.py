"""`python -m train data ...` on files that are broken, each in its own way, and on good ones."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from train.data.registry import find_files, find_info
from train.data_commands import data_command
from train.errors import EXIT_OK, EXIT_USAGE, ConfigError, DataError


def run(*argv: str) -> tuple[int, str]:
    """Exit code and output; wide, so that no table breaks its lines."""
    output = io.StringIO()
    code = data_command(Console(file=output, width=200), argv)
    return code, output.getvalue()


def csv_rows(*rows: str, header: str = "a,b,labels,split") -> str:
    """A table whose every row is fine, with these at its end."""
    fine = [
        f"{row}.5,{row * row % 7 + row / 8},{'x|y' if row % 2 else 'y'},{part}"
        for row, part in enumerate(["train"] * 4 + ["validation"] * 2 + ["test"] * 2, start=1)
    ]
    return "\n".join([header, *fine, "9.5,0.25,x,train", "10.5,0.75,x,test", *rows]) + "\n"


MULAN = """\
@relation made-up
@attribute size numeric
@attribute age numeric
@attribute red {0,1}
@attribute green {0,1}
@attribute blue {0,1}
@data
1.5,2.25,1,0,1
2.5,1.25,0,1,1
3.25,4.5,1,1,0
0.5,2.75,1,1,1
7.5,3.5,0,1,0
"""


def xml(*labels: str) -> str:
    return f"<labels>{''.join(f'<label name={name!r}/>' for name in labels)}</labels>"


@dataclass(frozen=True)
class Broken:
    """Files, the first of which is checked, and what the doctor must say."""

    id: str
    files: dict[str, str | bytes]
    says: list[str]
    code: int = EXIT_OK
    argv: list[str] = field(default_factory=list)


BROKEN = [
    Broken(
        "xc_header_promises_more_rows",
        {"my.txt": "3 4 2\n0 0:1 3:2\n1 1:1\n"},
        ["error", "my.txt, line 3", "promises 3 rows, got 2", "check again"],
        EXIT_USAGE,
    ),
    Broken(
        "xc_header_with_too_few_features",
        {"my.txt": "3 2 2\n0 0:1 1:2\n1 1:1\n0,1 2:1\n"},
        ["error", "my.txt, line 4", "feature 2 is out of range", "found 1 error"],
        EXIT_USAGE,
    ),
    Broken(
        "xc_counted_from_one",
        {"my.txt": "3 4 2\n1 1:1 3:2\n2 2:1\n1,2 4:1\n"},
        [
            "the feature numbers of",
            "run from 1 to 4",
            "the label numbers of",
            "subtract 1 from every label number",
        ],
        EXIT_USAGE,
    ),
    Broken(
        "xc_counted_from_one_with_room_for_it",
        {"my.txt": "5 5 3\n1 1:1 3:2\n2 2:1\n1,2 4:1\n1 1:2\n2 2:3\n"},
        ["warning", "feature and label number 0 is never used", "subtract 1"],
    ),
    Broken(
        "mulan_xml_names_an_unknown_attribute",
        {"my.arff": MULAN, "my.xml": xml("red", "green", "yellow")},
        ["error", "names the label 'yellow'"],
        EXIT_USAGE,
    ),
    Broken(
        "mulan_xml_forgets_a_label",
        {"my.arff": MULAN, "my.xml": xml("red", "green")},
        ["warning", "1 attribute stands among the labels", "attribute blue"],
    ),
    Broken(
        "mulan_xml_in_another_order",
        {"my.arff": MULAN, "my.xml": xml("red", "blue", "green")},
        ["note", "another order", "green by column and blue by list"],
    ),
    Broken(
        "arff_row_cut_short",
        {"my.arff": MULAN.removesuffix(",1,0\n"), "my.xml": xml("red", "green", "blue")},
        ["error", "my.arff, line 12", "expected 5 values", "got 3"],
        EXIT_USAGE,
    ),
    Broken(
        "csv_with_nan",
        {"my.csv": csv_rows("nan,1,x,test")},
        ["error", "my.csv, line 12", "'a' must hold numbers", "'nan'"],
        EXIT_USAGE,
    ),
    Broken(
        "csv_with_a_cell_too_many",
        {"my.csv": csv_rows("1,2,3,x,test")},
        ["error", "my.csv, line 12", "expected 4 cells, got 5"],
        EXIT_USAGE,
    ),
    Broken(
        "csv_with_unknown_label_column",
        {"my.csv": csv_rows()},
        ["error", "no column 'labls'", "did you mean 'labels'"],
        EXIT_USAGE,
        ["--label-columns", "labls"],
    ),
    Broken(
        "packed_file_cut_short",
        {"my.csv.gz": gzip.compress(csv_rows().encode())[:-20]},
        ["error", "damaged or cut short"],
        EXIT_USAGE,
    ),
    Broken(
        "rows_in_train_and_test",
        {"my.csv": csv_rows("9.5,0.25,x,test", "10.5,0.75,y,train", "9.5,0.25,x,train")},
        [
            "warning",
            "2 test rows have the same inputs as a train or validation row",
            "with the same labels too: 1 (1 distinct): rows 10, 11",
            "1 row repeats the inputs of an earlier row of the same part (1 in train",
            "1 repeated input has several label sets, in 2 rows: rows 10, 12",
        ],
    ),
    Broken(
        "label_in_test_only",
        {"my.csv": csv_rows("11.5,2,z,test", "12.5,3,z,test", "13.5,4,z,test")},
        ["warning", "1 label has no train row, but rows in test (1)", "label z"],
    ),
    Broken(
        "label_in_one_row",
        {"my.csv": csv_rows("11.5,2,z,train")},
        ["note", "1 label has fewer than 3 rows: label z"],
    ),
    Broken(
        "label_without_rows",
        {
            "my.arff": re.sub("[01]$", "0", MULAN, flags=re.MULTILINE),
            "my.xml": xml("red", "green", "blue"),
        },
        ["warning", "1 label has no row: label blue"],
    ),
    Broken(
        "constant_feature",
        {
            "my.csv": "\n".join(
                f"{line},{'c' if not number else 7}"
                for number, line in enumerate(csv_rows().splitlines())
            )
        },
        ["note", "1 feature has the same value in all train rows: feature c"],
    ),
    Broken(
        "row_number_as_feature",
        {
            "my.csv": "\n".join(
                f"{line},{number or 'id'}" for number, line in enumerate(csv_rows().splitlines())
            )
        },
        ["warning", "a different whole number in every row", "feature id"],
    ),
    Broken(
        "rows_without_labels",
        {"my.csv": csv_rows("11.5,2,,train", "12.5,3,,test")},
        ["warning", "2 rows have no label: rows 11, 12"],
    ),
    Broken(
        "label_named_twice",
        {"my.csv": "a,label_x,label:x\n1.5,1,0\n2.5,0,1\n3.25,1,1\n4.5,1,0\n"},
        ["error", "1 label name is given more than once: label x"],
        EXIT_USAGE,
    ),
    Broken(
        "labels_that_differ_in_case",
        {"my.csv": csv_rows("11.5,2,Y,train")},
        ["warning", "spelled in several ways", "'Y' and 'y'"],
    ),
    Broken(
        "empty_text",
        {
            "my.jsonl": '{"text": "one", "labels": ["x"]}\n{"text": " ", "labels": ["x"]}\n'
            '{"text": "two", "labels": ["y"]}\n'
        },
        ["warning", "1 row has an empty text: row 2"],
    ),
    Broken(
        "too_few_rows_to_split",
        {"my.jsonl": '{"text": "one", "labels": ["x"]}\n'},
        ["error", "1 rows cannot be cut into 3 parts"],
        EXIT_USAGE,
    ),
]


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(raw)
    return folder / next(iter(files))


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.id)
def test_each_broken_file_is_found_out(tmp_path, case):
    code, output = run("check", str(write(tmp_path, case.files)), *case.argv)
    missing = [words for words in case.says if words not in output]
    assert (missing, code) == ([], case.code), output


def test_a_good_file_raises_no_suspicion(tmp_path):
    path = write(tmp_path, {"good.csv": csv_rows("11.5,0.5,x|y,train")})
    code, output = run("check", str(path))
    assert (code, output.splitlines()[-1]) == (EXIT_OK, "found nothing suspicious")


def test_sizes_are_those_of_the_file(tmp_path):
    code, output = run("check", str(write(tmp_path, {"good.csv": csv_rows()})))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines()]
    for row in (
        ["rows", "10"],
        ["features", "2 (dense)"],
        ["labels", "2"],
        ["labels a row", "mean 1.400, min 1, max 2"],
        ["density", "0.70000"],
        ["distinct label sets", "3"],
        ["train", "5", "1.400", "2"],
        ["validation", "2", "1.500", "2"],
        ["test", "3", "1.333", "2"],
        ["head, 100 rows or more", "0", "0.0%"],
        ["tail, fewer than 20", "2", "100.0%"],
    ):
        assert row in cells, row
    assert code == EXIT_OK


def test_the_embedded_data_set_can_be_checked():
    code, output = run("check", "demo")
    assert code == EXIT_OK
    assert "split 60/20/20" in output


# Counted by comparing the lines of the published files as sets.
@pytest.mark.parametrize(
    ("name", "in_both_parts"), [("delicious", 57), ("bibtex", 8), ("reuters_k500", 16)]
)
def test_known_leaks_between_published_parts_are_found(name, in_both_parts):
    info = find_info(name)
    if len(find_files(info, None, os.environ)) != len(info.files):
        pytest.skip(
            f"{name} is not on this machine: LABELWRIGHT_DATA names the folder of data sets"
        )
    _, output = run("check", name, "--split", "published")
    [line] = [line for line in output.splitlines() if "test rows have the same inputs" in line]
    assert f"({in_both_parts} distinct)" in line


def test_a_missing_file_is_an_error():
    code, output = run("check", "nowhere/my.csv")
    assert code == EXIT_USAGE
    assert "does not exist" in output


def test_a_console_without_unicode_gets_ascii():
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert data_command(console, ["check", "demo"]) == EXIT_OK
    assert b" |###" in raw.getvalue()


@pytest.mark.parametrize("has_label", [1, 0])
def test_plot_is_a_picture(tmp_path, has_label):
    table = "a,label_x,label_y\n" + "".join(f"{row}.5,{has_label},0\n" for row in range(4))
    picture = tmp_path / "labels.png"
    run("check", str(write(tmp_path, {"my.csv": table})), "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"--plot .* cannot be written"):
        run("check", "demo", "--plot", str(tmp_path / "missing" / "labels.png"))


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r'pip install "labelwright\[report\]"'):
        run("check", "demo", "--plot", str(tmp_path / "labels.png"))


def test_show_names_features_labels_and_parts(tmp_path):
    _, output = run(
        "show", str(write(tmp_path, {"good.csv": csv_rows()})), "--rows", "2", "--start", "4"
    )
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines()]
    rows = [row for row in cells if row]
    assert rows == [
        ["4", "train", "a=4.5, b=2.5", "y"],
        ["5", "validation", "a=5.5, b=4.625", "x, y"],
    ]


def test_show_shortens_long_rows_and_keeps_brackets(tmp_path):
    path = tmp_path / "wide.npz"
    x = np.arange(1, 61, dtype=np.float32).reshape(6, 10)
    labels = np.array([f"[bold]{number}" for number in range(10)])
    np.savez(path, x=x, y=np.ones((6, 10)), labels=labels)
    _, output = run("show", str(path), "--rows", "1")
    assert "0=1, 1=2, 2=3, 3=4, 4=5 and 5 more" in output
    assert "[bold]7 and 2 more" in output


def test_show_cuts_texts_and_stops_at_the_last_row(tmp_path):
    texts = [f"{row} {'word ' * 50}" for row in range(3)]
    lines = [json.dumps({"text": text, "labels": ["x"]}) for text in texts]
    _, output = run("show", str(write(tmp_path, {"my.jsonl": "\n".join(lines)})), "--start", "3")
    assert f"{texts[2][:120]}..." in output
    assert "│   3 │" in output
    assert "│   2 │" not in output


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["show", "demo", "--start", "3001"], "beyond the 3000 rows"),
        (["show", "demo", "--start", "0"], "--start must be positive"),
        (["show", "demo", "--rows", "0"], "--rows must be positive"),
        (["chek", "demo"], "did you mean 'check'"),
    ],
)
def test_mistakes_are_one_sentence(argv, sentence):
    with pytest.raises(ConfigError, match=sentence):
        run(*argv)


def test_show_leaves_an_unreadable_file_to_the_caller():
    with pytest.raises(DataError, match="does not exist"):
        run("show", "nowhere/my.csv")


@pytest.mark.parametrize("command", ["check", "show"])
def test_help_ends_in_an_example_that_works(command, capsys):
    output = io.StringIO()
    with pytest.raises(SystemExit) as stop:
        data_command(Console(file=output, width=200), [command, "--help"])
    assert stop.value.code == EXIT_OK
    assert "--label-columns" in capsys.readouterr().out
    example = output.getvalue().splitlines()[-1]
    words = example.removeprefix("example: python -m train data ").split()
    assert words[0] == command
    assert run(*words)[0] == EXIT_OK


def test_without_a_command_the_usage_is_shown():
    assert run()[0] == EXIT_USAGE
    code, output = run("--help")
    assert code == EXIT_OK
    assert output.splitlines()[-1] == "example: python -m train data check demo"
