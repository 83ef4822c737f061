"""The service: ``roughformer serve RUN`` answers over HTTP and WebSocket.

bodies, series, tables    what clients send -> checked arrays, or a ``Refusal`` with the place
worker                    one thread owns the model and the streams; waiting requests go together
streams, snapshots        open streams, their alarms, and how they survive a restart
service                   all of it behind asynchronous calls
routes, sockets, guard    HTTP, WebSocket, and what surrounds them: token, limits, errors
server                    uvicorn, signals, the graceful stop

Needs the extra ``serve``; nothing here is imported by ``import roughformer``.
"""
