"""Finding, verifying and downloading the files of known data sets; the server is a real one."""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from train.data import load_dataset
from train.data.registry import (
    DataFile,
    DatasetInfo,
    cache_dir,
    download,
    find_files,
    find_info,
    known,
    provide_files,
    sha256_of,
)
from train.data.sources import READERS
from train.errors import DataError

CONTENT = b"1,0,1\n" * 200


class Handler(BaseHTTPRequestHandler):
    """`/good` whole, `/packed` the same in gzip, `/cut` ends early; the rest does not exist."""

    def do_GET(self) -> None:
        body = {"good": CONTENT, "cut": CONTENT, "packed": gzip.compress(CONTENT)}.get(
            urlsplit(self.path).path.split("/")[1]
        )
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:7] if self.path.startswith("/cut") else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join()


def toy(url: str = "", *, sha256: str = hashlib.sha256(CONTENT).hexdigest()) -> DatasetInfo:
    file = DataFile(role="all", name="toy.csv", sha256=sha256, url=url)
    return DatasetInfo(
        name="toy",
        title="Toy",
        page="https://example.org",
        licence="-",
        folder="toy",
        files=(file,),
    )


def put(root: Path, name: str = "toy.csv", content: bytes = CONTENT) -> Path:
    path = root / "toy" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# --- the list itself

GENERATED = ("demo", "synthetic")


@pytest.mark.parametrize("info", known().values(), ids=known())
def test_every_entry_is_complete(info: DatasetInfo):
    assert info.title
    assert info.licence
    assert info.page.startswith(("https://", "http://")) or info.name in GENERATED
    assert info.split == "published" or sum(map(int, info.split.split("/"))) == 100
    assert len({file.role for file in info.files}) == len(info.files)
    assert not info.note or info.note.endswith(".")
    if info.files:
        assert info.reader in READERS
    elif info.name not in GENERATED:
        assert info.note, "an entry without files has to say why"
        assert not info.reader


@pytest.mark.parametrize("info", known().values(), ids=known())
def test_every_file_can_be_had_or_says_from_where(info: DatasetInfo):
    for file in info.files:
        assert re.fullmatch(r"[0-9a-f]{64}|", file.sha256)
        assert "/" not in file.name
        if file.url:
            assert re.match(
                r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/", file.url
            )
            assert file.url.rsplit("/", 1)[1].removesuffix(".gz") == file.name


def test_names_are_found_in_any_spelling():
    assert find_info("EURLEX-EV") is find_info("eurlex_ev")
    assert find_info("spo_FUN").folder == "spo_FUN"


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(DataError, match=r"no data set 'delicous'.*did you mean 'delicious'"):
        find_info("delicous")


def test_propensity_constants_are_those_of_the_literature():
    assert find_info("delicious").propensity == (0.55, 1.5)
    assert find_info("wikilshtc_325k").propensity == (0.5, 0.4)
    assert find_info("yeast").propensity is None


# --- where files are looked for


def test_given_folder_comes_before_environment_before_cache(tmp_path: Path):
    environ = {"LABELWRIGHT_DATA": str(tmp_path / "env"), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    (tmp_path / "env").mkdir()
    cached = put(cache_dir(environ))
    assert find_files(toy(), None, environ) == {"all": cached}
    in_environment = put(tmp_path / "env")
    assert find_files(toy(), None, environ) == {"all": in_environment}
    given = put(tmp_path / "given")
    assert find_files(toy(), tmp_path / "given", environ) == {"all": given}


def test_the_cache_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir({}) == tmp_path / ".cache" / "labelwright"
    assert cache_dir({"XDG_CACHE_HOME": ""}) == tmp_path / ".cache" / "labelwright"
    assert cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/labelwright")


def test_a_packed_twin_counts_and_has_the_hash_of_its_original(tmp_path: Path):
    packed = put(tmp_path, "toy.csv.gz", gzip.compress(CONTENT))
    environ = {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    assert provide_files(toy(), tmp_path, environ) == {"all": packed}
    assert sha256_of(packed) == hashlib.sha256(CONTENT).hexdigest()


def test_a_file_other_than_the_published_one_is_refused(tmp_path: Path):
    path = put(tmp_path, content=b"something else")
    with pytest.raises(DataError, match=f"{path} is not the published toy.csv.*replace it"):
        provide_files(toy(), tmp_path, {})


def test_a_file_without_known_hash_is_taken_as_it_is(tmp_path: Path):
    path = put(tmp_path, content=b"something else")
    assert provide_files(toy(sha256=""), tmp_path, {}) == {"all": path}


@pytest.mark.parametrize("source", ["--data-dir", "LABELWRIGHT_DATA"])
def test_a_folder_that_does_not_exist_is_named(source: str, tmp_path: Path):
    gone = tmp_path / "gone"
    data_dir = gone if source == "--data-dir" else None
    environ = {} if data_dir else {source: str(gone)}
    with pytest.raises(DataError, match=f"{source} is {gone}, which is not a folder"):
        find_files(toy(), data_dir, environ)


# --- download


def test_download_verifies_keeps_and_is_not_repeated(server: str, tmp_path: Path):
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    files = provide_files(toy(f"{server}/good/toy.csv"), None, environ)
    assert files == {"all": cache_dir(environ) / "toy" / "toy.csv"}
    assert files["all"].read_bytes() == CONTENT
    assert provide_files(toy(f"{server}/gone/toy.csv"), None, environ) == files


def test_a_packed_source_is_kept_packed(server: str, tmp_path: Path):
    files = download(toy(f"{server}/packed/toy.csv.gz"), tmp_path)
    assert files == {"all": tmp_path / "toy" / "toy.csv.gz"}
    assert gzip.decompress(files["all"].read_bytes()) == CONTENT


def test_only_the_missing_files_are_fetched(server: str, tmp_path: Path):
    info = toy()
    fetched = DataFile(role="more", name="more.csv", url=f"{server}/good/more.csv")
    both = DatasetInfo(**{**vars(info), "files": (*info.files, fetched)})
    present = put(tmp_path / "given")
    files = provide_files(both, tmp_path / "given", {"XDG_CACHE_HOME": str(tmp_path)})
    assert files == {"all": present, "more": tmp_path / "labelwright" / "toy" / "more.csv"}


@pytest.mark.parametrize(
    ("path", "sha256", "reason"),
    [
        ("gone/toy.csv", None, "answers 404"),
        ("cut/toy.csv", "", f"ended after 7 of {len(CONTENT)} bytes"),
        ("good/toy.csv", "0" * 64, "its sha256 differs"),
        ("cut/toy.csv.gz", None, "could not be fetched"),
    ],
)
def test_a_failed_download_says_where_to_put_the_file_and_leaves_nothing(
    server: str, tmp_path: Path, path: str, sha256: str | None, reason: str
):
    info = toy(f"{server}/{path}") if sha256 is None else toy(f"{server}/{path}", sha256=sha256)
    with pytest.raises(DataError) as caught:
        download(info, tmp_path)
    assert reason in str(caught.value)
    assert f"put the file at {tmp_path / 'toy' / 'toy.csv'}" in str(caught.value)
    assert list((tmp_path / "toy").iterdir()) == []


def test_a_dead_address_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        port = http.server_address[1]
    with pytest.raises(DataError, match=r"toy needs toy\.csv, but .* could not be fetched"):
        download(toy(f"http://127.0.0.1:{port}/good/toy.csv"), tmp_path)


def test_a_cache_that_cannot_be_written_is_one_sentence(server: str, tmp_path: Path):
    (tmp_path / "toy").write_text("a file where a folder should be")
    with pytest.raises(DataError, match=r"toy needs toy\.csv"):
        download(toy(f"{server}/good/toy.csv"), tmp_path)


def test_a_file_without_address_names_the_page(tmp_path: Path):
    with pytest.raises(DataError, match=r"by hand from https://example\.org: put the file at"):
        download(toy(), tmp_path)


def test_a_data_set_that_is_not_to_be_had_says_why():
    with pytest.raises(DataError, match=r"nyt cannot be fetched: The corpus is sold.*catalog\.ldc"):
        load_dataset("nyt")


# --- names and paths


def test_demo_needs_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LABELWRIGHT_DATA", str(tmp_path / "gone"))
    data, info = load_dataset("demo"), find_info("demo")
    assert (data.n_rows, data.n_features, data.n_labels) == (info.rows, info.features, info.labels)
    assert round(data.mean_labels, 2) == info.mean_labels


def test_a_string_with_an_ending_or_separator_is_a_path(tmp_path: Path):
    path = tmp_path / "own.csv"
    path.write_text("a,label_x,label_y\n1.5,0,1\n2,1,1\n")
    data = load_dataset(str(path))
    assert (data.n_rows, data.labels) == (2, ("x", "y"))
    with pytest.raises(DataError, match="delicious"):
        load_dataset("delicious.csv")


def test_a_folder_named_like_a_known_data_set_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_dataset("demo").name == "demo"


def test_an_unknown_name_is_no_path():
    with pytest.raises(DataError, match="there is no data set 'delicous'"):
        load_dataset("delicous")
