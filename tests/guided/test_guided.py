"""The parsers of strangers' bytes under a fuzzer that follows coverage; what it found stays."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import Linear, write_linear
from tests.serve.fuzzing import SCALE
from tests.train.data.test_fuzz import FILES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNS = 3_000 * SCALE
CORPUS = {
    "json": [
        b'{"inputs":[[1,2,3,4,5,6]]}',
        b'{"inputs":[[-0.5,1e3,2E-2,0,1.25,6],[1,2,3,4,5,6]],"top_k":2,"threshold":"tuned"}',
        b'{"model":"tiny","inputs":[{"0":1,"5":-2.5}]}',
    ],
    "arff": [FILES["x.arff"], FILES["sparse.arff"]],
    "xc": [FILES["x.txt"]],
}
WORDS = {
    "json": ['"inputs"', '"top_k"', '"threshold"', '"model"', '"per-label"', "[[", "1e999", "null"],
    "arff": ["@attribute", "@data", "@relation", "numeric", "{0,1}", "-C", "'", "?"],
    "xc": ["0:", "1:0.5", ",", "1e", "nan", "-1"],
}


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * SCALE)
@pytest.mark.parametrize("target", CORPUS)
def test_what_coverage_leads_to_is_read_or_refused(tmp_path, target):
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no wheel for this Python or machine")
    write_linear(tmp_path / "tiny.bundle", Linear.random(width=6, labels=8, seed=1))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, content in enumerate(CORPUS[target]):
        (corpus / str(number)).write_bytes(content)
    (tmp_path / "words").write_text("".join(f"{quoted(word)}\n" for word in WORDS[target]))
    options = [f"-runs={RUNS}", "-seed=1", "-max_len=2048", "-timeout=20", "-rss_limit_mb=4096"]
    options += [f"-dict={tmp_path / 'words'}", f"-artifact_prefix={tmp_path}/", str(corpus)]
    done = subprocess.run(
        [sys.executable, HERE / "fuzz.py", target, tmp_path, *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    found = [path.read_bytes() for path in tmp_path.glob("crash-*")]
    assert done.returncode == 0, f"{found}\n{done.stdout[-3000:]}\n{done.stderr[-1000:]}"
    assert int(re.findall(r"^Done (\d+) runs", done.stderr, re.M)[-1]) >= RUNS
    # It does follow coverage: what it kept reaches more than what it began with.
    assert len(list(corpus.iterdir())) > 3 * len(CORPUS[target])


def quoted(word):
    return '"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"'
