"""Who looks on at a stream sees its observations, whoever pushed them."""

import pytest
from websockets.exceptions import ConnectionClosed

from serving import arrow


def test_onlookers_are_shown_observations_before_the_windows_that_they_end(server, name):
    with server.socket(f"/v1/streams/{name}?observations=true") as onlooker:
        onlooker.receive()
        body = {"times": [0.0, 1.0], "values": [[1, None], [2, 1]]}
        server.http.post(f"/v1/streams/{name}/push", json=body)
        assert onlooker.receive() == {"type": "observations", "id": name, **body}
        with server.socket("/v1/streams") as many:
            many.receive()
            many.send(type="open", id="another")
            many.receive()
            many.push_to(name, [1.5], [[0, 0]])
            assert onlooker.receive()["times"] == [1.5]
            table = {"stream": ["another", name], "time": [0.0, 2.5], "hr": [7.0, 8.0]}
            many.raw.send(arrow(table))
            seen = onlooker.receive()
            assert (seen["times"], seen["values"]) == ([2.5], [[8.0, None]])
            assert onlooker.receive()["type"] == "window"
            # What is refused is not shown; the onlooker's own is not told to itself.
            many.push_to(name, [0.5], [[0, 0]])
            windows, ack = onlooker.push([3.0], [[1, 1]])
            assert (windows, ack["accepted"]) == ([], 5)
            many.send(type="close", id="another")
            many.receive()


def test_a_wish_for_observations_that_is_none_is_refused(server, name):
    with server.socket(f"/v1/streams/{name}?observations=perhaps") as socket:
        assert "true or false" in socket.receive()["message"]
        with pytest.raises(ConnectionClosed):
            socket.receive()
        assert socket.raw.close_code == 4400
