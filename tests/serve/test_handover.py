"""Connections pass from one process to another whole or not at all, and nobody waits."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from roughformer.serve.handover import Mailbox, hand_over

LARGE = b"x" * (1 << 20)  # more than a Unix socket takes while nobody reads


class Taken(asyncio.Protocol):
    """Answers with what came along."""

    def __init__(self, data, taken):
        self.data = data
        taken.append(data)

    def connection_made(self, transport):
        transport.write(self.data[-4:])
        transport.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "box"


def run_alone(coroutine):
    """In a thread of its own: tests of the page leave a running loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


def test_a_connection_is_passed_whole_while_the_other_process_does_not_read(path):
    # Both ends are of one thread: were the sender to wait for the reader, it would wait for ever.
    async def run():
        taken = []
        mailbox = Mailbox(path, lambda data: Taken(data, taken))
        client, server = socket.socketpair()
        with client, server:
            hand_over(server, LARGE + b"last", path)
        await until(lambda: taken)
        mailbox.close()
        return taken

    assert run_alone(run()) == [LARGE + b"last"]


def test_what_is_refused_was_not_passed(path):
    async def run():
        taken, passed = [], []
        mailbox = Mailbox(path, lambda data: Taken(data, taken))
        mailbox._box.listen(4)
        clients = []
        for k in range(50):  # more than may wait
            client, server = socket.socketpair()
            clients.append(client)
            try:
                hand_over(server, b"%04d" % k, path)
            except OSError:
                server.close()
                break
            server.close()
            passed.append(b"%04d" % k)
        await until(lambda: len(taken) == len(passed))
        await asyncio.sleep(0.1)
        mailbox.close()
        answers = [client.recv(4) for client in clients]
        for client in clients:
            client.close()
        return taken, passed, answers

    taken, passed, answers = run_alone(run())
    assert sorted(taken) == passed
    assert answers == [*passed, b""]  # the last one is closed by whom it was refused


def test_who_ends_half_way_or_says_nothing_keeps_nobody_waiting(path):
    async def run():
        taken = []
        mailbox = Mailbox(path, lambda data: Taken(data, taken))
        with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as ended:
            silent.connect(str(path))
            ended.connect(str(path))
            ended.close()
            client, server = socket.socketpair()
            with client, server:
                hand_over(server, b"here", path)
                await until(lambda: taken)
        await asyncio.sleep(0.05)
        mailbox.close()
        return taken

    errors = []

    async def watched():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        return await run()

    assert run_alone(watched()) == [b"here"]
    assert not errors
