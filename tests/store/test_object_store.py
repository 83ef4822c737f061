"""Feature stores from and to S3, by moto's server; also through a proxy that breaks connections.

The proxy cuts a connection after a random number of bytes, in either direction. Requests are
repeated, and what comes out is the same, byte for byte.
"""

import contextlib
import os
import random
import socket
import threading
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roughformer.store.build import build_store
from roughformer.store.dataset import Sizes, TableColumns
from roughformer.store.storage import Place
from roughformer.tokens import TokenConfig

COLUMNS = TableColumns("series_id", "time", ("x", "y"))
OPTIONS = {"config": TokenConfig(windows=20), "sizes": Sizes(100_000, 100_000, 100_000)}
KEYS = {
    "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": "us-east-1",
}  # fmt: skip


class BreakingProxy:
    """Passes bytes on to ``port``; of the connections, ``share`` are cut at a random moment."""

    def __init__(self, port, share, seed):
        self.target, self.share, self.rng = port, share, random.Random(seed)
        self.connections = self.broken = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self.target))
            cut = self.rng.random() < self.share
            left = [self.rng.randrange(1, 60_000) if cut else None]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(one, other, left), daemon=True).start()

    def _pass(self, one, other, left):
        try:
            while data := one.recv(4096):
                if left[0] is not None:
                    left[0] -= len(data)
                    if left[0] < 0:
                        self.broken += 1
                        left[0] = None
                        break
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self.listener.close()


@pytest.fixture(scope="module")
def server():
    """The port of an S3 server with an empty bucket."""
    moto = pytest.importorskip("moto.server", reason="moto is missing: pip install 'moto[server]'")
    with mock.patch.dict(os.environ, KEYS):
        running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        _, port = running.get_host_and_port()
        import boto3

        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(Bucket="archive")
        yield port
        running.stop()


def uri(port, path):
    return f"s3://archive/{path}?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"


@pytest.fixture(scope="module")
def data(server, tmp_path_factory):
    """A file here, the same one there, and the store that this machine makes of it."""
    where = tmp_path_factory.mktemp("s3")
    rng = np.random.default_rng(0)
    n, length = 200, 200
    table = pa.table(
        {
            "series_id": np.repeat(np.arange(n), length),
            "time": np.tile(np.arange(length, dtype=np.float64), n),
            "x": rng.normal(size=n * length).cumsum(),
            "y": rng.normal(size=n * length).cumsum(),
        }
    )
    pq.write_table(table, where / "x.parquet", row_group_size=2000)
    Place.of(uri(server, "data/x.parquet")).put((where / "x.parquet").read_bytes())
    made = build_store([where / "x.parquet"], where / "store", COLUMNS, **OPTIONS)
    assert made.made > 4
    return where


@pytest.fixture(scope="module")
def straight(server, data):
    """The bytes of a store from S3 to S3, with nothing in between."""
    out = uri(server, "straight")
    build_store([uri(server, "data/x.parquet")], out, COLUMNS, **OPTIONS)
    return shards(out)


def shards(store):
    """Bytes by name; the manifest has the paths of the data in it."""
    place = Place.of(store)
    found = {place.at(info).name: place.at(info) for info in place.listing()}
    return {name: at.read() for name, at in found.items() if name.startswith("shard-")}


def test_a_store_from_s3_to_s3_holds_what_that_of_the_disk_holds(server, data, straight):
    here = shards(data / "store")
    assert straight.keys() == here.keys()
    for name, there in straight.items():  # the key of the data, in the metadata, has their date
        one, other = (pq.read_table(pa.BufferReader(b)) for b in (here[name], there))
        assert other.replace_schema_metadata(None).equals(one.replace_schema_metadata(None))
    place = Place.of(uri(server, "straight"))
    names = {place.at(info).name for info in place.listing()}
    assert names == {*here, "manifest.json"}


def test_a_second_run_does_nothing(server, straight):
    again = build_store(
        [uri(server, "data/x.parquet")], uri(server, "straight"), COLUMNS, **OPTIONS
    )
    assert (again.made, again.kept) == (0, len(straight))


def test_a_directory_of_a_bucket_is_found(server, straight, tmp_path):
    build_store([uri(server, "data")], tmp_path / "out", COLUMNS, **OPTIONS)
    assert shards(tmp_path / "out") == straight


def test_the_endpoint_may_come_from_the_environment(server, straight):
    with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server}"}):
        build_store(["s3://archive/data/x.parquet"], "s3://archive/environment", COLUMNS, **OPTIONS)
        assert shards("s3://archive/environment") == straight


@pytest.mark.parametrize("seed", range(2))
def test_broken_connections_change_nothing(server, straight, seed):
    proxy = BreakingProxy(server, share=0.3, seed=seed)
    try:
        out = uri(proxy.port, f"broken-{seed}")
        build_store([uri(proxy.port, "data/x.parquet")], out, COLUMNS, **OPTIONS)
    finally:
        proxy.close()
    assert proxy.broken > 0
    assert shards(uri(server, f"broken-{seed}")) == straight


@pytest.mark.slow
def test_workers_meet_broken_connections_too(server, straight):
    proxy = BreakingProxy(server, share=0.3, seed=9)
    try:
        out = uri(proxy.port, "workers")
        build_store([uri(proxy.port, "data/x.parquet")], out, COLUMNS, **OPTIONS, workers=2)
    finally:
        proxy.close()
    assert proxy.broken > 0
    assert shards(uri(server, "workers")) == straight


def test_what_is_not_there_is_said_at_once(server):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        build_store([uri(server, "data/nothing.parquet")], uri(server, "no"), COLUMNS, **OPTIONS)


def test_a_server_that_never_answers_ends_with_an_error(server, monkeypatch):
    monkeypatch.setattr("roughformer.store.storage._ATTEMPTS", 1)  # each takes seconds of Arrow's
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    with pytest.raises(OSError, match=r"(?i)connect|curl|network"):
        Place.of(uri(port, "data/x.parquet")).info()
