"""Schemathesis on the whole API: no 5xx, and every answer, errors included, is as the description says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS
from schemathesis.specs.openapi.checks import positive_data_acceptance

from hgclr.serving.app import create_app
from hgclr.serving.service import Settings
from support.fake_service import PATIENCE, make_classifier

KEY = "a-key-for-the-test"
EXAMPLES = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Which labels there are, and that a text must have words, no schema can say.
BEYOND_A_SCHEMA = {"/explain": [positive_data_acceptance]}
WITHOUT_A_KEY = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
]

app = create_app(make_classifier(), Settings(texts_per_request=4, characters_per_text=200, key=KEY))


async def started_once(scope, receive, send) -> None:
    """The application without its start and end, which Schemathesis would ask for around every request."""
    if scope["type"] == "lifespan":
        for done in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{done}.complete"})
    else:
        await app(scope, receive, send)


@pytest.fixture(scope="module", autouse=True)
def _working() -> Iterator[None]:
    service = app.state.service
    service.engine.start()
    assert service.engine.warm.wait(PATIENCE)
    yield
    service.engine.stop(PATIENCE)


schema = schemathesis.openapi.from_dict(app.openapi())
schema.app = started_once


def answer(case: schemathesis.Case) -> None:
    key = {"Authorization": f"Bearer {KEY}"}
    case.call_and_validate(headers=key, excluded_checks=BEYOND_A_SCHEMA.get(case.path, []))


def refusal(case: schemathesis.Case) -> None:
    case.validate_response(case.call(), checks=WITHOUT_A_KEY)


def make_test(
    method: str, path: str, check: Callable[[schemathesis.Case], None]
) -> Callable[[schemathesis.Case], None]:
    """Return the test of one operation, under a name of its own: of tests with one name xdist runs the first alone."""

    def test(case: schemathesis.Case) -> None:
        check(case)

    return pytest.mark.slow(schema.include(path=path, method=method.upper()).parametrize()(EXAMPLES(test)))


OPERATIONS = [(method, path) for path, methods in app.openapi()["paths"].items() for method in methods]
for method, path in OPERATIONS:
    for check in (answer, refusal):
        name = f"test_every_{check.__name__}_of_{method}{path.replace('/', '_').replace('.', '_')}_is_as_described"
        globals()[name] = make_test(method, path, check)
