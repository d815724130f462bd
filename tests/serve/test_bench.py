"""`python -m serve bench`: the table and the plot; how fast anything is, is not tested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from export.bundle import ENERGY, MODEL, Contents, drafted, load_bundle, write_bundle
from serve import bench
from serve.bench import BenchOptions, bench_command, load, speed_table
from train.errors import ConfigError


def rewritten(source: Path, path: Path, *, with_energy: bool = False, **changes: str) -> Path:
    """Copy a bundle with other values in its manifest, or with its own graph as energy network."""
    bundle = load_bundle(source)
    model = bundle.model_path.read_bytes()
    with drafted(path) as folder:
        (folder / MODEL).write_bytes(model)
        if with_energy:
            (folder / ENERGY).write_bytes(model)
        contents = Contents(
            labels=bundle.labels,
            probe=bundle.probe,
            probe_scores=bundle.probe_scores,
            energy_scores=bundle.probe_scores if with_energy else None,
        )
        write_bundle(folder, replace(bundle.manifest, **changes), contents)
    return path


def test_every_bundle_is_measured_and_the_slowest_comes_first(bundle_path, other_path):
    options = BenchOptions(bundles=(bundle_path, other_path), rows=40, batch=7, rounds=3)
    speeds = bench.measure(load(options), options)
    assert {speed.name for speed in speeds} == {"tiny", "other"}
    assert speeds[0].seconds >= speeds[1].seconds > 0
    assert [speed.ratio for speed in speeds] == [1.0, speeds[0].seconds / speeds[1].seconds]
    assert all(speed.rows_per_second == pytest.approx(40 / speed.seconds) for speed in speeds)


def test_an_energy_network_in_a_bundle_is_measured_beside_its_model(bundle_path, tmp_path):
    path = rewritten(bundle_path, tmp_path / "two.bundle", with_energy=True)
    options = BenchOptions(bundles=(path,), rows=8, rounds=1)
    speeds = bench.measure(load(options), options)
    assert {speed.name for speed in speeds} == {"tiny", "tiny, energy"}


def test_the_ratio_is_that_to_the_slowest_of_the_same_data_set(bundle_path, tmp_path, monkeypatch):
    elsewhere = rewritten(bundle_path, tmp_path / "b", name="elsewhere", dataset="other-data")
    monkeypatch.setattr(
        bench,
        "_seconds",
        lambda predictor, *_: {"tiny": 2.0, "elsewhere": 8.0}[predictor.manifest.name],
    )
    options = BenchOptions(bundles=(bundle_path, elsewhere), rows=8, rounds=1)
    speeds = bench.measure(load(options), options)
    assert [(speed.name, speed.ratio) for speed in speeds] == [("tiny", 1.0), ("elsewhere", 1.0)]
    assert list(speed_table(speeds, options).columns[-1].cells) == ["1.00", "1.00"]


def test_the_command_prints_a_table_and_writes_a_plot(bundle_path, tmp_path, capsys):
    plot = tmp_path / "speed.png"
    words = [str(bundle_path), "--rows", "8", "--rounds", "1", "--plot", str(plot)]
    assert bench_command(words) == 0
    assert "tiny" in capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("flag", ["--rows", "--batch", "--rounds", "--threads"])
def test_numbers_below_one_are_refused(bundle_path, flag):
    with pytest.raises(ConfigError, match=f"{flag} must be at least 1"):
        bench_command([str(bundle_path), flag, "0"])


def test_a_plot_that_cannot_be_written_is_told(bundle_path, tmp_path):
    words = [str(bundle_path), "--rows", "8", "--rounds", "1", "--plot", str(tmp_path / "no.xyz")]
    with pytest.raises(ConfigError, match=r"give another \.png or \.svg"):
        bench_command(words)
