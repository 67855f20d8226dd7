"""``POST /predict`` and ``POST /explain``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from hgclr.errors import InputError
from hgclr.inference import PredictedLabel
from hgclr.serving.answers import json_answer, problems
from hgclr.serving.engine import Answer, Failure
from hgclr.serving.explanations import methods_of
from hgclr.serving.messages import ExplainAnswer, ExplainRequest, PredictAnswer, PredictRequest
from hgclr.serving.problems import Problem, error_of
from hgclr.serving.service import ClientGoneError, Service
from hgclr.serving.strict_json import strict_route
from hgclr.serving.text_limits import PROBABILITIES, check_lengths, fault_of
from hgclr.serving.waiting_room import RoomFullError

__all__ = ["predicting_routes"]

DIGITS = 6
"""Decimal places of a probability: finer than what a text's neighbours in its batch change in it."""
CLIENT_GONE = 499
"""The status, in metrics and log, of an answer that nobody was there to take."""


def predicting_routes(service: Service) -> APIRouter:
    """Return what labels and explains texts."""

    def before(request: Request) -> None:
        service.require_ready()
        if request.url.path == "/predict" and service.engine.full:
            raise _overloaded(service)

    router = APIRouter(route_class=strict_route(before))
    ids = set(service.classifier.taxonomy.ids)
    methods = methods_of(service.classifier)

    @router.post(
        "/predict",
        summary="Label texts",
        response_model=PredictAnswer,
        responses=problems("overloaded", "invalid", "deadline", "not_ready"),
    )
    async def predict(wanted: PredictRequest, request: Request) -> Response:
        """Give one text, or several, labels from the tree.

        The answers are in the order of the texts. Of several texts, one that cannot be labelled fails alone: it has an
        error in its place.
        """
        alone = "text" in wanted.model_fields_set
        texts = [wanted.text] if alone else wanted.texts
        request.state.texts = len(texts)
        check_lengths(texts, service.settings, alone=alone)
        if wanted.probabilities and len(texts) * len(ids) > PROBABILITIES:
            raise Problem("invalid", f"more than {PROBABILITIES} probabilities are asked for", field="probabilities")
        try:
            decisions = service.decisions(wanted.decode, wanted.threshold, wanted.paths, wanted.sure)
            ticket = service.engine.submit(texts, decisions, probabilities=wanted.probabilities)
        except RoomFullError:
            raise _overloaded(service) from None
        try:
            answers = await service.wait_for(ticket.future, request, lambda why: service.engine.drop(ticket, why))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        return _predictions(service, answers, request, alone=alone)

    @router.post(
        "/explain",
        summary="Explain labels",
        response_model=ExplainAnswer,
        responses=problems("overloaded", "invalid", "deadline", "not_ready"),
    )
    async def explain(wanted: ExplainRequest, request: Request) -> Response:
        """Tell which words of a text carry its labels, and whether those words alone would do.

        Explanations are made one at a time, beside the predictions.
        """
        check_lengths([wanted.text], service.settings, alone=True)
        if fault := fault_of(wanted.text):
            raise Problem("invalid", fault, field="text")
        for place, label in enumerate(wanted.labels or ()):
            if label not in ids:
                raise Problem("invalid", f"the model has no label with the id {label!r:.80}", field=f"labels.{place}")
        if wanted.method not in ("auto", *methods):
            raise Problem("invalid", f"this model has the methods {', '.join(methods)}", field="method")
        try:
            call = service.explanations.submit(wanted.text, wanted.labels, wanted.method, wanted.keep)
        except RoomFullError:
            raise Problem("overloaded", "too many explanations wait", retry_after=1) from None
        try:
            explanation = await service.wait_for(call.future, request, lambda _: call.drop())
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except InputError as error:
            raise Problem("invalid", str(error), field="text") from None
        return json_answer(explanation)

    return router


def _overloaded(service: Service) -> Problem:
    return Problem(
        "overloaded",
        f"{service.engine.waiting} texts wait, and no more than {service.settings.max_queue} may",
        retry_after=service.engine.wait,
    )


def _predictions(service: Service, answers: Sequence[Answer], request: Request, *, alone: bool) -> Response:
    """Return the answer to a request; if no text has labels and it is our fault, or the only text's own, an error."""
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    internal = [failure for failure in failures if failure.kind == "internal"]
    if len(internal) == len(answers):
        raise Problem("internal", internal[0].message)
    if alone and failures:
        raise Problem("invalid", failures[0].message, field="text")
    for failure in failures:
        service.metrics.errors.labels(failure.kind).inc()
    return json_answer(
        {
            "predictions": [_text_answer(service, answer) for answer in answers],
            "seconds": round(time.monotonic() - request.state.arrived, 6),
        }
    )


def _text_answer(service: Service, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return error_of(answer.kind, answer.message)
    fields = {
        "labels": [_label(label) for label in answer.prediction.labels],
        "doubtful": [_label(label) for label in answer.prediction.doubtful],
        "truncated": answer.truncated,
    }
    if answer.probabilities is not None:
        values = answer.probabilities.round(DIGITS).astype(float).round(DIGITS).tolist()
        fields["probabilities"] = dict(zip(service.classifier.taxonomy.ids, values, strict=True))
    return fields


def _label(label: PredictedLabel) -> dict[str, Any]:
    return {"id": label.id, "path": label.path, "probability": round(label.probability, DIGITS)}
