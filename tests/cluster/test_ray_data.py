"""Functions that are mapped with Ray Data: order, killed workers, errors. They take about a minute."""

import os

import pytest

from molslice.files.ray_data import ray_map
from molslice.types import MolsliceError
from tests.cluster import work

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cluster")]


def test_results_are_in_order_and_a_worker_keeps_what_it_has():
    found = list(ray_map(range(3), work.Twice(), split=work.numbers, workers=2))
    assert [item for item, _, _ in found] == list(range(30))
    processes = {process for _, _, process in found}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert sum(max(calls for _, calls, each in found if each == process) for process in processes) == 30


def test_a_killed_worker_loses_and_doubles_nothing(tmp_path):
    again = work.Twice(at=12, mark=str(tmp_path / "killed"))
    found = list(ray_map(range(3), again, split=work.numbers, workers=2))
    assert (tmp_path / "killed").exists()
    assert [item for item, _, _ in found] == list(range(30))


def test_a_killed_reader_loses_and_doubles_nothing(tmp_path):
    split = work.KilledReader(str(tmp_path / "killed"))
    found = list(ray_map(range(3), work.Twice(), split=split, workers=2))
    assert (tmp_path / "killed").exists()
    assert [item for item, _, _ in found] == list(range(30))


def test_an_item_that_kills_every_worker_ends_the_map():
    with pytest.raises(MolsliceError, match="^the workers of one part were killed 4 times"):
        list(ray_map(range(4), work.Twice(at=2, always=True), workers=2))


def test_an_error_keeps_its_text_and_comes_after_the_results_before():
    results = ray_map([5], work.Twice(), split=work.numbers, workers=1)
    assert next(results)[0] == 50
    with pytest.raises(MolsliceError, match="^file 5 is damaged$"):
        next(results)


def test_settings_of_the_caller_are_restored(capfd):
    from ray.data import DataContext

    before = DataContext.get_current().target_max_block_size
    results = ray_map(range(2), work.Twice(), workers=1)
    next(results)
    results.close()
    assert DataContext.get_current().target_max_block_size == before
    assert capfd.readouterr().out == ""
