"""Files from strangers: refused with one sentence, without running them or filling the memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("strangers.py")
MOST_MEGABYTES = 100

names = re.findall(r"^@case.*\ndef (\w+)", SCRIPT.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, SCRIPT],
        capture_output=True,
        text=True,
        cwd=tmp_path_factory.mktemp("strangers"),
        env=environment,
        timeout=280,
        check=True,
    )
    return {report["name"]: report for report in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", names)
def test_a_malicious_file_is_refused_in_one_sentence_and_little_memory(reports, name):
    report = reports[name]
    assert report["error"] == "UserError", report
    assert not report["ran"]
    assert report["megabytes"] < MOST_MEGABYTES
    assert 20 < len(report["sentence"]) < 500
    assert "\n" not in report["sentence"]


def test_all_of_them_were_read(reports):
    assert sorted(reports) == sorted(names)
    assert len(names) > 40
