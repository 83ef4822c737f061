"""What is said where there is no Ray, or no cluster."""

import sys
from unittest import mock

import pytest

from command import fails
from roughformer.io import make_sine, write_table


@pytest.fixture
def data(tmp_path):
    make_sine(12, n_classes=2, length=30).save(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


@pytest.mark.parametrize("command", ["tune", "train"])
def test_a_missing_package_is_named_with_its_extra(data, tmp_path, command):
    with mock.patch.dict(sys.modules, {"ray": None}):
        said = fails(command, data, "--out", tmp_path / "out", "--engine", "ray", "-q")
    assert "pip install 'roughformer[ray]'" in said


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
@pytest.mark.parametrize("command", ["tune", "train"])
def test_an_address_where_nobody_answers_is_named(data, tmp_path, command, address):
    pytest.importorskip("ray.train", reason="ray is missing: pip install 'roughformer[ray]'")
    out = tmp_path / "out"
    said = fails(command, data, "--out", out, "--engine", "ray", "--address", address, "-q")
    assert f"no Ray cluster answers at '{address}'" in said
    assert not out.exists()


def test_features_name_the_silent_address_too(tmp_path):
    pytest.importorskip("ray.train", reason="ray is missing: pip install 'roughformer[ray]'")
    write_table(make_sine(12, n_classes=2, length=30), tmp_path / "rows.parquet")
    where = ["--out", tmp_path / "store", "--engine", "ray", "--address", "127.0.0.1:9"]
    said = fails("features", tmp_path / "rows.parquet", "--windows", 4, *where)
    assert "no Ray cluster answers at '127.0.0.1:9'" in said


def test_options_of_a_cluster_need_the_engine(data, tmp_path):
    out = tmp_path / "out"
    assert "--engine ray" in fails("train", data, "--out", out, "--workers", 2, code=2)
    assert "local or ray" in fails("train", data, "--out", out, "--engine", "spark", code=2)
