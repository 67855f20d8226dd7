"""The key: everything needs it but what says whether the service is well."""

from __future__ import annotations

import base64
import binascii
import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from hgclr.serving.problems import answer_with

__all__ = ["OPEN", "KeyCheck"]

OPEN = frozenset({"/livez", "/readyz", "/metrics"})
"""What is answered without the key: orchestrators and Prometheus ask it, and it tells nothing of texts or labels."""

CHALLENGE = 'Basic realm="hgclr", charset="UTF-8", Bearer realm="hgclr"'


class KeyCheck:
    """Let nobody in without the key, wherever they want to go, but to what is :data:`OPEN`.

    Programs show it as ``Authorization: Bearer KEY``. For browsers, which ask for a name and a password, it is the
    password, and any name will do.

    Args:
        app: what is behind the door.
        key: the key.
    """

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        self._app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with 401 before anything of its body is read."""
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._shown(scope):
            await self._app(scope, receive, send)
            return
        answer = answer_with(scope, "unauthorised", "this service needs a key", headers={"WWW-Authenticate": CHALLENGE})
        await answer(scope, receive, send)

    def _shown(self, scope: Scope) -> bool:
        """Tell whether the key is shown, in a time that does not depend on how much of it is right."""
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, credentials = shown.partition(b" ")
        if scheme.lower() == b"basic":
            try:
                _, _, credentials = base64.b64decode(credentials.strip(), validate=True).partition(b":")
            except binascii.Error:
                return False
        elif scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(credentials.strip(), self._key)
