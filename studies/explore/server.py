"""Serve the explorer's pages: to this machine alone, below a secret path, and without other hosts."""

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check

HOST = "127.0.0.1"
TOKEN_BYTES = 16
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; form-action 'none'"
)
"""Sources that a page may load from: no other host. Vue compiles templates and needs eval."""
HEADERS = {"content-security-policy": POLICY, "referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}


class Guard:
    """ASGI layer that answers only requests to this machine's names, and restricts what a page may load."""

    def __init__(self, app: Any, hosts: tuple[str, ...]):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get("origin", "")
        strange = origin and origin.split("://", 1)[-1] not in self.hosts
        if headers.get("host") not in self.hosts or strange:
            return await _refuse(scope, send)

        scope = {
            **scope,
            "headers": [pair for pair in scope["headers"] if not pair[0].lower().startswith(b"x-forwarded")],
        }

        async def forwarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        await self.app(scope, receive, forwarded)


async def _refuse(scope: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"not for you"})


def check_installed() -> None:
    """Raise UserError where the extra `explore` is not installed."""
    there = find_spec("nicegui") is not None
    check(there, "rftlab explore needs NiceGUI; allowed: with the extra, pip install '.[explore]' in rftlab's folder")


def listening(port: int) -> socket.socket:
    """Return a socket on this machine's own address; port 0 takes a free one. Raises UserError where the port is
    taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise UserError(f"port = {port}: {error.strerror}; allowed: a free port from 1024 on, or 0 for any") from None
    listener.listen(64)
    return listener


def serve(build: Callable[[], None], port: int, ready: Callable[[str], None], end: threading.Event) -> None:
    """Serve pages, one from `build` for each visitor, until `end` is set or Ctrl-C. `ready` is called with the address.

    The server runs in a thread, so that an interrupt has an effect at once, whatever is being computed.
    """
    check_installed()
    import uvicorn
    from fastapi import FastAPI
    from nicegui import ui

    listener = listening(port)
    host, place = f"{HOST}:{listener.getsockname()[1]}", f"/{secrets.token_urlsafe(TOKEN_BYTES)}"
    app = FastAPI(openapi_url=None)
    ui.run_with(app, root=build, title="rftlab explore", mount_path=place, tailwind=False, show_welcome_message=False,
                reconnect_timeout=30, language="en-US")  # fmt: skip
    guarded = Guard(app, (host, host.replace(HOST, "localhost")))
    server = uvicorn.Server(uvicorn.Config(guarded, log_level="error", access_log=False, lifespan="on"))
    # uvicorn installs its own handlers of signals only in the main thread, which is left to Ctrl-C
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True, name="pages")
    thread.start()
    while not server.started and thread.is_alive():
        end.wait(0.01)
    check(thread.is_alive(), "the server of pages did not start")
    ready(f"http://{host}{place}/")
    while thread.is_alive() and not end.wait(0.2):
        pass
    server.should_exit = True
