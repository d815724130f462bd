"""The documentation is true: its commands run, its links lead somewhere, its tables match the code.

The comment before a fenced block says what becomes of it; CONTRIBUTING.md lists the comments.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import export.cli
import labelwright_client.cli
import serve.cli
import train.cli
from export.bundle import DATA_SUFFIX, ENCODER, ENERGY, MANIFEST, OPTIONAL, REQUIRED, SEARCH
from export.manifest import Manifest
from serve.errors import BUG, TABLE
from serve.score.command import ScoreOptions
from serve.settings import Settings
from serve.telemetry import Telemetry
from tests.docs.pages import DOCS, FENCED, PAGES, ROOT, Block, blocks, each
from train import methods
from train.checkpoint import Checkpoint
from train.compare_command import CompareOptions
from train.config import TEXT_OPTIONS, Monitor, TokenConfig, flag
from train.evidence import Record
from train.metrics import evaluate, propensities
from train.options import DataOptions, SourceOptions
from train.probe import Point
from train.probe_command import ProbeOptions
from train.run import RunFolder
from train.scoring import Judgement
from train.search.command import SearchOptions

LINKING = [*PAGES, *(ROOT / "clients" / name / "README.md" for name in ("python", "typescript"))]
MOST_LINES = 150
DOCUMENTED_ADDRESS = "http://127.0.0.1:8000"


class Shell:
    """Runs the blocks of one page in a folder of its own, with a server if the page starts one."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.folder, self.stack, self.address = home / "page", stack, DOCUMENTED_ADDRESS
        self.output = ""
        self.folder.mkdir()
        python = home / "bin" / "python"
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
        command = python.with_name("labelwright")  # as installing the client would write it
        command.write_text('#!/bin/sh\nexec python -m labelwright_client "$@"\n', "utf-8")
        launcher = python.with_name("torchrun")
        launcher.write_text('#!/bin/sh\nexec python -m torch.distributed.run "$@"\n', "utf-8")
        for program in (python, command, launcher):
            program.chmod(0o755)
        known = {k: v for k, v in os.environ.items() if not k.startswith("LABELWRIGHT_")}
        self.environment = known | {
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, [ROOT, ROOT / "clients" / "python" / "src"])),
            "XDG_CACHE_HOME": str(home / "cache"),
            "OMP_NUM_THREADS": "1",
            "LABELWRIGHT_REPORT": "off",
            "NO_PROXY": "127.0.0.1",
        }

    def file(self, block: Block) -> None:
        (self.folder / block.argument).write_text(block.text, "utf-8")

    def run(self, block: Block) -> None:
        script = block.text.replace(DOCUMENTED_ADDRESS, self.address)
        interpreter = {
            "sh": ["bash", "-euo", "pipefail", "-c"],
            "python": [sys.executable, "-c"],
        }[block.language]
        done = subprocess.run(
            [*interpreter, script],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        self.output = done.stdout

    def serve(self, block: Block) -> None:
        self.address = self.stack.enter_context(self._server(block.text.strip()))

    @contextmanager
    def _server(self, command: str) -> Iterator[str]:
        with subprocess.Popen(
            ["bash", "-c", f"exec {command} --port 0"],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True,
        ) as server:  # fmt: skip
            try:
                announced = server.stdout.readline()
                assert announced.startswith("serving "), command
                yield announced.split()[-1]
            finally:
                server.terminate()
                assert server.wait(30) == 0

    def answer(self, block: Block) -> None:
        assert shape_of(json.loads(self.output)) == shape_of(json.loads(block.text)), self.output


def shape_of(value: object) -> object:
    """Keys and kinds of a JSON value; of a list those of its first item; an error with its type."""
    if isinstance(value, dict):
        return {key: item if key == "type" else shape_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape_of(item) for item in value[:1]]
    return "number" if isinstance(value, (int, float)) else type(value).__name__


RUNNABLE = [page for page in PAGES if any(block.mark in ("run", "serve") for block in blocks(page))]


@each(RUNNABLE)
def test_commands_run(page, tmp_path):
    content = blocks(page)
    if any("curl " in block.text for block in content) and shutil.which("curl") is None:
        pytest.skip("needs curl")
    with ExitStack() as stack:
        shell = Shell(tmp_path, stack)
        for block, after in zip(content, [*content[1:], None], strict=True):
            if block.mark in ("file", "run", "serve", "answer"):
                getattr(shell, block.mark)(block)
            if block.mark == "run" and not (after and after.mark == "answer"):
                assert '{"error":' not in shell.output


@each(PAGES)
def test_every_shell_block_says_what_becomes_of_it(page):
    for block in blocks(page):
        allowed = {"sh": ("run", "serve", "run short", "checked"), "python": ("run", "file", "")}
        assert block.mark in allowed.get(block.language, ("file", "answer", "")), block.text


@each([page for page in DOCS if page.name != "results.md"])  # as long as there are results
def test_pages_are_short(page):
    assert len(page.read_text("utf-8").splitlines()) <= MOST_LINES


def prose(page: Path) -> str:
    """The page without code, in which brackets mean other things."""
    return re.sub(r"`[^`\n]+`", "", FENCED.sub("", page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each(LINKING)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_links_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / link).resolve()
        for link in re.findall(r"\]\(([^)\s]+)\)", index.read_text())
    }
    assert {page for page in DOCS if page != index} <= linked


@pytest.fixture(scope="module")
def known_flags() -> set[str]:
    """Every flag that some --help shows."""
    commands = [(export.cli.main, []), (serve.cli.main, []), (serve.cli.main, ["bench"])]
    commands += [(serve.cli.main, [word]) for word in ("key", "score")]
    commands += [(train.cli.main, ["data", word]) for word in ("check", "show")]
    around = ("compare", "fill", "report", "results", "probe", "search")
    commands += [(train.cli.main, [word]) for word in around]
    commands += [(train.cli.main, [name]) for name in methods.available()]
    commands += [(labelwright_client.cli.main, [word]) for word in ("predict", "embed", "compare")]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as shown:
        patch.setenv("COLUMNS", "200")
        for main, words in commands:
            with pytest.raises(SystemExit):
                main([*words, "--help"])
    return flags_in(shown.getvalue())


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text))


@each([page for page in PAGES if page.parent.name != "k8s"])  # it has flags of kubectl and docker
def test_flags_exist(page, known_flags):
    of_pip = {"--no-deps"}
    of_torchrun = {
        "--standalone", "--nnodes", "--nproc-per-node", "--max-restarts",
        "--rdzv-backend", "--rdzv-endpoint", "--node-rank",
    }  # fmt: skip
    assert flags_in(page.read_text("utf-8")) <= known_flags | of_pip | of_torchrun


def table(page: str, first_column: str) -> list[list[str]]:
    """The cells of all tables of the page whose first column is called so."""
    rows, is_inside = [], False
    for line in (ROOT / page).read_text("utf-8").splitlines():
        is_head = line.startswith(f"| {first_column} |")
        is_inside = is_head or (is_inside and line.startswith("|"))
        if is_inside and not is_head and not line.startswith("|--"):
            rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    assert rows
    return rows


def code_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def first_cells(page: str, first_column: str) -> set[str]:
    return {word for row in table(page, first_column) for word in code_in(row[0])}


def fields_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_method_has_a_page_and_every_page_a_method():
    assert [page.stem for page in DOCS if page.parent.name == "methods"] == methods.available()


@pytest.mark.parametrize("name", methods.available())
def test_options_of_a_method_are_those_of_its_config(name):
    config = methods.load(name).Config()
    defaults = {
        flag(field): " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for field in sorted(fields_of(type(config)) - set(TEXT_OPTIONS))
        for value in [getattr(config, field)]
    }
    rows = table(f"docs/methods/{name}.md", "option")
    assert {code_in(row[0])[0]: row[1] for row in rows} == defaults


@pytest.mark.parametrize("name", methods.available())
def test_method_pages_have_the_same_headings(name):
    text = (ROOT / "docs" / "methods" / f"{name}.md").read_text("utf-8")
    headings = ["Overview", "Usage", "Options", "Logged values", "Implementation details"]
    assert re.findall(r"^## (.+)$", text, re.M) == [*headings, "Results"]


def test_options_for_texts_are_documented():
    documented = {code_in(row[0])[0]: row[1] for row in table("docs/text.md", "option")}
    config = TokenConfig()
    assert documented == {flag(name): str(getattr(config, name)) for name in TEXT_OPTIONS}


def test_data_options_are_those_of_the_command_line():
    expected = {flag(name) for name in fields_of(DataOptions) - {"dataset"}}
    assert first_cells("docs/data.md", "option") == expected


def test_options_and_columns_of_comparisons_are_documented():
    own = {flag(name) for name in fields_of(CompareOptions) - fields_of(SourceOptions)}
    assert first_cells("docs/compare.md", "flag") == own
    documented = first_cells("docs/compare.md", "column") - {"fixed.example_f1"}
    assert documented == fields_of(Record) - {"scores"}


def test_options_of_the_search_are_documented():
    own = {flag(name) for name in fields_of(SearchOptions) - {"method"}}
    assert first_cells("docs/search.md", "flag") == own


def test_options_of_scoring_are_documented():
    own = {flag(name) for name in fields_of(ScoreOptions) - {"bundle"}}
    assert first_cells("docs/scoring.md", "flag") == own


def test_options_of_the_probe_are_documented():
    own = {flag(name) for name in fields_of(ProbeOptions) - fields_of(DataOptions) - {"model"}}
    assert first_cells("docs/probe.md", "flag") == own
    assert first_cells("docs/probe.md", "point") == fields_of(Point)


def test_errors_are_those_of_the_server():
    rows = {(int(row[0]), *code_in(row[1])) for row in table("docs/http.md", "status")}
    ours = {(int(status), kind) for status, kind in [*TABLE.values(), BUG]}
    assert rows == ours | {(404, "not_found"), (405, "method_not_allowed")}


def test_prometheus_metrics_are_those_of_the_server():
    exposed = {metric.name for metric in Telemetry().registry.collect()}
    documented = first_cells("docs/serving.md", "name")
    assert {re.sub("_(total|info)$", "", name) for name in documented} == exposed


def test_every_fault_is_a_test():
    code = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = [name for row in table("docs/faults.md", "fault") for name in code_in(row[-1])]
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in code] == []


def test_settings_are_those_of_the_server():
    rows = table("docs/operations.md", "setting")
    ours = Settings(bundles=(Path("model.bundle"),))
    defaults = {flag(name): getattr(ours, name) for name in fields_of(Settings) - {"bundles"}}
    assert {code_in(row[0])[0]: row[1] for row in rows} == {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in defaults.items()
    }


def test_files_and_fields_of_the_formats_are_documented():
    run_files = {path.name for path in RunFolder(Path()).files()}
    assert first_cells("docs/bundle.md", "run file") == run_files
    documented = first_cells("docs/bundle.md", "bundle file")
    own_data = {ENCODER + DATA_SUFFIX, SEARCH + DATA_SUFFIX, ENERGY + DATA_SUFFIX}
    assert documented == {MANIFEST, *REQUIRED, *OPTIONAL} - own_data
    assert first_cells("docs/bundle.md", "field") == fields_of(Checkpoint)
    assert first_cells("docs/bundle.md", "manifest field") == fields_of(Manifest)


def test_every_metric_is_documented():
    rng = np.random.default_rng(0)
    scores, truth = rng.random((40, 6)), np.ones((40, 6))
    truth[::2, :3] = 0
    counts = np.array([200, 150, 50, 30, 10, 5])
    values = evaluate(
        scores, truth, thresholds=0.5, train_counts=counts, propensity=propensities(counts, 500)
    )
    keys = {re.sub(r"@\d", "@k", key) for key in values}
    documented = {code_in(row[0])[0] for row in table("docs/metrics.md", "key")}
    assert documented | first_cells("docs/metrics.md", "keys") == keys


def test_groups_of_scores_are_documented():
    expected = fields_of(Judgement) - {"threshold", "label_thresholds"}
    assert first_cells("docs/metrics.md", "group") == expected


def test_monitors_are_documented():
    assert first_cells("docs/metrics.md", "monitor") == set(get_args(Monitor))


def shown_means(first: str, kind: str, columns: list[str]) -> list[tuple[list[str], list[float]]]:
    """Rows of a table of docs/choosing.md, with the means of their columns in train/results."""
    found = []
    for cells in table("docs/choosing.md", f"{first} | {kind}"):
        data_set, name = cells[:2]
        method, _, preset = name.removesuffix(")").partition(" (preset ")
        with (ROOT / "train/results" / f"{data_set}.csv").open() as file:
            runs = [row for row in csv.DictReader(file) if row["method"] == method]
        runs = [run for run in runs if float(run["fraction"]) == 1]
        # Those without parts of their method stand elsewhere.
        runs = [run for run in runs if not run["changed"]] or runs
        # The best of a search stands by itself.
        runs = [run for run in runs if (run["preset"] == "best") == (preset == "best")]
        splits = {"scene": "80/10/10", "yeast": "80/10/10", "spo_fun": "published"}
        runs = [run for run in runs if run["split"] == splits.get(data_set, "60/20/20")]
        assert runs, cells
        found.append((cells, [np.mean([float(run[name]) for run in runs]) for name in columns]))
    return found


@pytest.mark.parametrize(
    ("kind", "columns"),
    [("method", ["tuned.micro_f1", "fixed.precision@1"]),
     ("kind", ["fixed.example_f1", "tuned.example_f1", "tuned.micro_f1"])],
)  # fmt: skip
def test_evidence_for_choosing_is_in_our_results(kind, columns):
    for cells, means in shown_means("data set", kind, columns):
        # Two digits are shown, and a further seed may move the mean by as much.
        assert [float(cell) for cell in cells[2:]] == pytest.approx(means, abs=0.01), cells


def test_make_targets_are_documented():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.M)) - {"help"}
    assert first_cells("CONTRIBUTING.md", "target") == {f"make {target}" for target in targets}
