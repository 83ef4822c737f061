"""Ray, where it is installed: how a command finds its cluster, and what it says without one."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roughformer.errors import InputError

__all__ = ["connected", "roughformer_ray"]

_SECONDS = 10.0  # that a cluster may take to answer


def roughformer_ray() -> Any:
    """The package ray, or what to install."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no reports of use go to anybody
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise InputError(
            f"--engine ray needs the package ray, which cannot be imported ({error}); install it "
            "with: pip install 'roughformer[ray]'"
        ) from error
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray with a connection to the cluster at ``address``, which is left at the end.

    ``"auto"``: the cluster of this machine; None: one that is started here and ended afterwards.
    A connection that is there already is used and stays.
    """
    ray = roughformer_ray()
    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        _knock(address)
    usual: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **usual)
        else:
            ray.init(address=address, **usual)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise _silent(address, error) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Ray itself tries for minutes where nobody listens."""
    host, _, port = address.rpartition("//")[2].partition("/")[0].rpartition(":")
    if not port.isdigit():
        return  # "auto", "local": Ray knows
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), _SECONDS)):
            return
    except OSError as error:
        raise _silent(address, error) from None


def _silent(address: str | None, error: BaseException) -> InputError:
    first = " ".join(str(error).split())[:200]
    return InputError(
        f"no Ray cluster answers at {address!r}; start one with: ray start --head, and give its "
        f"address, or leave --address out for one on this machine ({first})"
    )
