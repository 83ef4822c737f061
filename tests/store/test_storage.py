"""Places: files appear whole, patterns find them, and a lost connection is tried again."""

import os

import pyarrow.fs as fs
import pytest

from roughformer.errors import InputError
from roughformer.store import storage
from roughformer.store.dataset import find_files
from roughformer.store.storage import Place, retrying


@pytest.fixture
def files(tmp_path):
    for name in ("a/x1.parquet", "a/b/x2.parquet", "a/.hidden/x3.parquet", "a/_log/x4.parquet",
                 "a/notes.txt", "x5.pq"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a/b/x2.parquet", "a/x1.parquet"]),
        ("a/*.parquet", ["a/x1.parquet"]),
        ("a/**/*.parquet", ["a/b/x2.parquet", "a/x1.parquet"]),
        ("**", ["a/b/x2.parquet", "a/notes.txt", "a/x1.parquet", "x5.pq"]),
        ("a/x?.par[qr]uet", ["a/x1.parquet"]),
        ("x5.pq", ["x5.pq"]),
    ],
)
def test_directories_and_patterns_find_files(files, pattern, expected):
    for where in (f"{files}/{pattern}", f"file://{files}/{pattern}"):
        found = [place.path[len(str(files)) + 1 :] for place in find_files([where])]
        assert found == expected


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (["a/*.csv"], "no file matches .*a/\\*.csv; check the pattern"),
        (["x5.pq", "x5.pq"], "x5.pq is named twice"),
    ],
)
def test_what_cannot_be_found_is_said(files, what, words):
    with pytest.raises(InputError, match=words):
        find_files([files / one for one in what])
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        find_files([files / "nothing.parquet"])
    (files / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no .parquet file"):
        find_files([files / "empty"])


def test_a_file_that_fails_on_its_way_is_not_seen(tmp_path):
    place = Place.of(tmp_path) / "x"
    assert place.put(b"old") == 3

    def half(stream):
        stream.write(b"half of")
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        place.put(half)
    assert place.read() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]
    place.remove()
    place.remove()
    assert place.listing() == []


class _BadLine:
    """A file system behind a bad line."""

    def __init__(self, failures):
        self.inner, self.left, self.calls = fs.LocalFileSystem(), failures, 0

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls += 1
            if self.left:
                self.left -= 1
                raise OSError("When reading: AWS Error NETWORK_CONNECTION, curlCode: 28")
            return getattr(self.inner, name)(*arguments, **options)

        return call


@pytest.fixture
def quick(monkeypatch):
    waited = []
    monkeypatch.setattr(storage.time, "sleep", waited.append)
    return waited


def test_a_lost_connection_is_tried_again_with_growing_pauses(tmp_path, quick):
    system = _BadLine(3)
    place = Place(system, f"{tmp_path}/x", "s3")
    assert place.put(lambda stream: stream.write(b"all of it")) == 9
    assert system.calls == 4
    assert len(quick) == 3
    assert quick[2] > quick[0]
    system.left = 2
    assert place.read() == b"all of it"
    assert str(place) == f"s3://{tmp_path}/x"


def test_a_connection_that_stays_lost_is_an_error(tmp_path, quick):
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        Place(_BadLine(99), f"{tmp_path}/x", "s3").put(b"x")
    assert len(quick) == 5


@pytest.mark.parametrize("error", [FileNotFoundError("x"), PermissionError("x"), OSError(28, "x")])
def test_answers_are_not_asked_for_again(tmp_path, quick, error):
    calls = []

    def call():
        calls.append(1)
        raise error

    with pytest.raises(OSError, match="x"):
        retrying(call, Place(fs.LocalFileSystem(), str(tmp_path), "s3"))
    assert len(calls) == 1


def test_unknown_kinds_of_places_are_named():
    with pytest.raises(InputError, match=r"nosuch://"):
        Place.of("nosuch://bucket/x")


def test_a_relative_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Place.of("x/y").path == os.path.join(tmp_path, "x/y")
    assert Place.of("x/y").name == "y"
    assert Place.of(Place.of("x")).local
