"""What is said where there is no Ray, or no cluster."""

import sys
from unittest import mock

import pytest

from command import fails
from roughformer.io import write_table
from small import make_sine


@pytest.fixture
def features(tmp_path):
    write_table(make_sine(12, n_classes=2, length=30), tmp_path / "rows.parquet")
    return ["features", tmp_path / "rows.parquet", "--windows", 4, "--out", tmp_path / "store"]


def test_a_missing_package_is_named_with_its_extra(features):
    with mock.patch.dict(sys.modules, {"ray": None}):
        said = fails(*features, "--engine", "ray")
    assert "pip install 'roughformer[ray]'" in said


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_an_address_where_nobody_answers_is_named(features, address):
    pytest.importorskip("ray.cluster_utils", reason="ray is missing: pip install roughformer[ray]")
    said = fails(*features, "--engine", "ray", "--address", address)
    assert f"no Ray cluster answers at '{address}'" in said
