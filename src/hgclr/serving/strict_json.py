"""Read JSON from strangers: what Python takes and JSON has not is refused, and nothing in it can hurt."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from hgclr.serving.problems import Problem

__all__ = ["parse", "strict_route"]


def parse(body: bytes) -> Any:
    """Return what a body says.

    Half of a surrogate pair is let through inside of values: it is the fault of one text, not of all.

    Raises:
        Problem: if it is no JSON, has NaN or an infinity, is nested too deeply or has a number of thousands of digits.
    """
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_fields)
    except RecursionError:
        raise Problem("invalid", "the JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Problem("invalid", f"the body is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise Problem("invalid", f"the body is no JSON at character {error.pos + 1}: {error.msg}") from None
    except ValueError as error:  # one of the two below, or a whole number of more digits than Python reads
        raise Problem("invalid", f"the body is no JSON: {error}") from None


def strict_route(before: Callable[[Request], None]) -> type[APIRoute]:
    """Return a class of routes whose bodies are read by :func:`parse`.

    Args:
        before: told of a request before its body is read; what is to be refused anyway costs next to nothing there.
    """

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def strictly(request: Request) -> Response:
                before(request)
                return await handle(_StrictRequest(request.scope, request.receive))

            return strictly

    return StrictRoute


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parse(await self.body())


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number there")


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, _ in pairs:
        if not name.isascii():  # all of ours are; and others must be quotable in an answer
            raise ValueError("unknown field")
    return dict(pairs)
