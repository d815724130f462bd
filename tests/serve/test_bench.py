"""`python -m serve bench`: the table and the plot; how fast anything is, is not tested."""

from __future__ import annotations

import pytest

from export.bundle import EnergyGraph, load_bundle, write_bundle
from serve.bench import BenchOptions, Speed, bench_command, measure, speed_table
from train.errors import ConfigError


def test_every_bundle_is_measured_and_the_slowest_comes_first(bundle_path, other_path):
    options = BenchOptions(bundles=(bundle_path, other_path), rows=40, batch=7, rounds=3)
    speeds = measure(options)
    assert {(speed.name, speed.method) for speed in speeds} == {("tiny", "bce"), ("other", "seal")}
    assert speeds[0].seconds >= speeds[1].seconds > 0
    assert all(speed.rows_per_second == pytest.approx(40 / speed.seconds) for speed in speeds)


def test_an_energy_network_in_a_bundle_is_measured_beside_its_model(bundle_path, tmp_path):
    bundle = load_bundle(bundle_path)
    path = tmp_path / "two.bundle"
    write_bundle(
        path,
        bundle.manifest,
        model=bundle.model_path.read_bytes(),
        labels=bundle.labels,
        probe_features=bundle.probe_features,
        probe_scores=bundle.probe_scores,
        energy=EnergyGraph(model=bundle.model_path.read_bytes(), probe_scores=bundle.probe_scores),
    )
    speeds = measure(BenchOptions(bundles=(path,), rows=8, rounds=1))
    assert {speed.name for speed in speeds} == {"tiny", "tiny, energy"}


def test_the_ratio_is_that_to_the_slowest():
    slow = Speed(name="a", method="dvn", seconds=2.0, rows_per_second=10.0)
    fast = Speed(name="b", method="ce", seconds=0.5, rows_per_second=40.0)
    table = speed_table([slow, fast], BenchOptions(bundles=(None,)))
    assert list(table.columns[-1].cells) == ["1.00", "4.00"]


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
