"""The benchmark of replacing a model under load, in a short form."""

from __future__ import annotations

from benchmarks.serving.swap import Options, measure


def test_every_answer_under_load_is_that_of_the_version_it_names(tmp_path):
    _, changed, swapping = measure(Options(requests=500, swaps=2, workers=2), tmp_path)
    assert set(changed.statuses) == {200}
    assert changed.statuses[200] >= 500
    assert changed.wrong == 0
    assert set(swapping.answered) == {"1", "2", "3"}


def test_a_wrong_answer_is_noticed(tmp_path):
    _, _, swapping = measure(Options(requests=1, swaps=0, workers=1), tmp_path)
    label = swapping.expected["1"][0][0][0, 0]
    body = b'{"model":{"version":"1"},"predictions":[{"labels":["label-%d"],"scores":[0.5]}]}'
    assert not swapping.is_right(0, body % (label + 1))
