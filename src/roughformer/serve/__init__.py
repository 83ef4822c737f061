"""The service: ``roughformer serve RUN`` answers over HTTP and WebSocket.

json_bodies, tables             what clients send -> checked arrays, or an ``APIError``
model, worker                   the model and the one thread that owns it
streams                         open streams and their alarms
service                         all of it behind asynchronous calls, and snapshots for a restart
routes, websocket_session       HTTP and WebSocket
middleware, app, server         token, limits and errors; pages; uvicorn and the graceful stop
handover                        connections of streams move to the process that keeps them

Needs the extra ``serve``; nothing here is imported by ``import roughformer``.
"""

from roughformer.serve.app import create_app
from roughformer.serve.config import Limits, Options, StreamOptions
from roughformer.serve.demo import demo_model
from roughformer.serve.model import ServedForecaster, ServedModel, load_served
from roughformer.serve.server import Server, listen, run, run_workers
from roughformer.serve.service import Service
