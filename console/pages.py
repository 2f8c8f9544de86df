"""The pages of the console, and what its buttons do.

A page is made for each request, from one look at the store and at most one question. Names and texts of the store are
data: the templates escape them, and a look has already removed control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..dispatch.explain.texts import age_text, plural
from ..dispatch.remote.requests import BROWSE_MAX, DATA_LOGS_MAX, SKIP_MAX
from ..dispatch.screen.lines import clock_text
from ..dispatch.screen.view import NoView, StoreView, printable
from ..pages.rendering import STYLE_SHEET, environment
from ..store.errors import ForebayError, SettingsError
from .answers import cause_rows, data_log_rows, message_rows, text, whole
from .guard import CHALLENGE, PASSWORD, Access, Guard
from .pictures import curve_picture, live_looks, memory_parts, short_size, squares
from .sources import ConsoleSource

QUESTIONS_MAX: Final = 4
"""Most requests to the store at a time. The store answers one after the other; further browsers are told to wait."""
FORM_BYTES_MAX: Final = 16 << 10
FIELDS_MAX: Final = 20
AGAIN_SECONDS: Final = 5
"""Seconds after which a page reloads itself, if it only reads the status file."""

_HERE: Final = Path(__file__).parent
_FILES: Final = {STYLE_SHEET: "text/css", _HERE / "static" / "console.js": "text/javascript"}


def console(source: ConsoleSource, access: Access, bodies: bool) -> ASGIApp:
    """Return the console of one store. bodies: whether the beginnings of message bodies are shown."""
    pages = Pages(source, access, bodies)
    get, post = ["GET"], ["POST"]
    routes = [
        Route("/", pages.memory, methods=get),
        Route("/queues", pages.queues, methods=get),
        Route("/queue", pages.queue, methods=get),
        Route("/messages", pages.messages, methods=get),
        Route("/journal", pages.journal, methods=get),
        Route("/healthz", pages.healthz, methods=get),
        Route("/metrics", pages.metrics, methods=get),
        *(Route(f"/{file.name}", pages.file, methods=get) for file in _FILES),
        *(Route(f"/{name}", pages.act, methods=post) for name in _ACTIONS),
    ]
    handlers: Any = {ForebayError: pages.refused, HTTPException: pages.failed, Exception: pages.broken}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), access, pages.problem)


class Pages:
    """Answers requests about one store."""

    def __init__(self, source: ConsoleSource, access: Access, bodies: bool) -> None:
        self._source = source
        self._access = access
        self._bodies = bodies
        self._questions = 0
        self._files = {file.name: (file.read_bytes(), kind) for file, kind in _FILES.items()}
        filters: dict[str, Callable[..., str]] = {
            "size": short_size,
            "whole": lambda found: f"{found:,d}",
            "count": lambda found: f"{found:,.0f}",
            "rate": lambda found: f"{found:,.1f}" if 0 < found < 10 else f"{found:,.0f}",
            "age": lambda seconds: age_text(seconds) if seconds is not None else "\u2013",
            "clock": clock_text,
            "query": lambda fields: urlencode(fields),
        }
        self._templates = environment(_HERE / "templates", filters)

    # ------------------------------------------------------------------ pages

    async def memory(self, request: Request) -> Response:
        seen = await self._read()
        if isinstance(seen, NoView):
            return self._silent(request, seen)
        fields = {"parts": memory_parts(seen), "curve": curve_picture(seen)}
        return self._page(request, "memory.html", seen, fields, every=AGAIN_SECONDS)

    async def queues(self, request: Request) -> Response:
        seen = await self._read()
        if isinstance(seen, NoView):
            return self._silent(request, seen)
        return self._page(request, "queues.html", seen, {}, every=AGAIN_SECONDS)

    async def queue(self, request: Request) -> Response:
        """Return the page of one queue: its figures, who holds its messages, and the actions on it."""
        name = _name_in(request)
        seen = await self._read()
        if isinstance(seen, NoView):
            return self._silent(request, seen)
        explained, problem = await self._ask({"do": "explain", "queue": name})
        fields = {
            "name": name,
            "queue": next((one for one in seen.queues if one.name == name), None),
            "consumers": [one for one in seen.consumers if one.queue == name],
            "sentence": text(explained, "sentence"),
            "causes": cause_rows(explained),
            "problem": problem,
        }
        return self._page(request, "queue.html", seen, fields)

    async def messages(self, request: Request) -> Response:
        """Return a page of the pending messages of a queue, for clients that may see headers and bodies."""
        if not self._access.may_read_messages(request):
            refusal = self.problem(request, 401, "What messages say is shown to who has the token.", PASSWORD)
            refusal.headers["www-authenticate"] = CHALLENGE
            return refusal
        name, skip = _name_in(request), _number_in(request, "skip", SKIP_MAX)
        seen = await self._read()
        if isinstance(seen, NoView):
            return self._silent(request, seen)
        told, problem = await self._ask({"do": "browse", "queue": name, "skip": skip, "bodies": self._bodies})
        behind = skip + BROWSE_MAX if told.get("is_more") is True and skip + BROWSE_MAX <= SKIP_MAX else None
        fields = {
            "name": name,
            "rows": message_rows(told),
            "skip": skip,
            "before": max(skip - BROWSE_MAX, 0) if skip else None,
            "behind": behind,
            "is_cut": told.get("is_more") is True and behind is None,
            "bodies": self._bodies,
            "most": BROWSE_MAX,
            "problem": problem,
        }
        return self._page(request, "messages.html", seen, fields)

    async def journal(self, request: Request) -> Response:
        """Return the page of the data logs, with what keeps each of them."""
        after = _number_in(request, "after", 1 << 62)
        seen = await self._read()
        if isinstance(seen, NoView):
            return self._silent(request, seen)
        told, problem = await self._ask({"do": "data_logs", "after": after})
        rows = data_log_rows(told)
        fields = {
            "squares": list(squares(seen.data_logs or [row.view for row in rows])),
            "looks": live_looks(),
            "rows": rows,
            "after": after,
            "next": rows[-1].data_log if rows and whole(told, "more") else None,
            "most": DATA_LOGS_MAX,
            "problem": problem,
        }
        return self._page(request, "journal.html", seen, fields)

    async def healthz(self, request: Request) -> Response:
        """Return 200 if the store has no problem, else 503 with a line for each problem."""
        seen = await self._read()
        problems = (seen.sentence,) if isinstance(seen, NoView) else seen.problems
        return PlainTextResponse("\n".join(problems or ("ok",)) + "\n", 503 if problems else 200)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in the text format of Prometheus."""
        content = await run_in_threadpool(self._source.metrics)
        return Response(content, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def file(self, request: Request) -> Response:
        content, kind = self._files[request.url.path.rpartition("/")[2]]
        return Response(content, media_type=kind)

    # ------------------------------------------------------------------ actions

    async def act(self, request: Request) -> Response:
        """Do what a form asks for, if it has the token, and return a page with the result."""
        form = await _form_of(request)
        if not (self._access.has_bearer(request) or self._access.is_token(form.get("token", ""))):
            advice = "It is printed where the console was started, or given by whoever mounted it."
            return self.problem(request, 403, "Nothing was changed: the token is missing or wrong.", advice)
        make_request, say = _ACTIONS[request.url.path.rpartition("/")[2]]
        asked = make_request(form)
        told = await self._question(asked)
        fields = {"said": say(asked, told), "queue": asked.get("queue")}
        return self._html(request, "done.html", fields)

    # ------------------------------------------------------------------ refusals

    def problem(self, request: Request, status: int, sentence: str, advice: str) -> Response:
        """Return a page that states the problem and what the user can do."""
        return self._html(request, "problem.html", {"sentence": sentence, "advice": advice}, status)

    async def refused(self, request: Request, error: Exception) -> Response:
        """Return a page with the error of a request that the store refused."""
        status = 400 if isinstance(error, SettingsError) else 409
        return self.problem(request, status, printable(error), "")

    async def failed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = self.problem(request, error.status_code, error.detail, "")
        response.headers.update(error.headers or {})
        return response

    async def broken(self, request: Request, error: Exception) -> Response:
        """Return a page for an unexpected error. The page hides the error, because the server logs it."""
        return self.problem(request, 500, "The console made a mistake, and logged it.", "The store is not affected.")

    # ------------------------------------------------------------------ parts

    async def _read(self) -> StoreView | NoView:
        return await run_in_threadpool(self._source.read)

    async def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the answer of the store, and the reason if there is none: the page then shows the rest."""
        try:
            return await self._question(request), ""
        except ForebayError as error:
            return {}, printable(error)

    async def _question(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._questions >= QUESTIONS_MAX:
            sentence = "The store is answering others: try again in a moment."
            raise HTTPException(503, sentence, {"retry-after": "1"})
        self._questions += 1
        try:
            return await run_in_threadpool(self._source.ask, request)
        finally:
            self._questions -= 1

    def _silent(self, request: Request, silence: NoView) -> Response:
        return self.problem(request, 503, silence.sentence, silence.advice)

    def _page(
        self, request: Request, template: str, view: StoreView, fields: Mapping[str, Any], every: int | None = None
    ) -> Response:
        return self._html(request, template, {"view": view, **fields}, every=every)

    def _html(
        self, request: Request, template: str, fields: Mapping[str, Any], status: int = 200, every: int | None = None
    ) -> Response:
        """Render a template. every: seconds after which the page reloads itself; None: it does not."""
        path: str = request.scope["path"]
        around: dict[str, Any] = {
            "base": request.scope.get("root_path", ""),
            "here": path.rpartition("/")[2],
            "subject": printable(self._source.broker),
            "every": every,
            "view": None,
        }
        return HTMLResponse(self._templates.get_template(template).render(around | dict(fields)), status)


# ---------------------------------------------------------------------- what a request says


def _name_in(request: Request) -> str:
    name = request.query_params.get("name", "")
    if not name:
        raise HTTPException(400, "Name a queue: ?name=orders")
    return name


def _number_in(request: Request, name: str, most: int) -> int:
    given = request.query_params.get(name, "0")
    if not (given.isascii() and given.isdigit() and len(given) < 20 and int(given) <= most):
        raise HTTPException(400, f"{name} must be a whole number up to {most:,}")
    return int(given)


async def _form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. Of several fields with one name, the last counts."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Send the fields of a form (application/x-www-form-urlencoded).")
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > FORM_BYTES_MAX:
            raise HTTPException(413, "The form is too long.")
    try:
        found = parse_qs(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise HTTPException(400, "The form makes no sense.") from None
    return {name: values[-1] for name, values in found.items()}


# ---------------------------------------------------------------------- what a form asks for

_Form = Mapping[str, str]
_Told = Mapping[str, Any]


def _field(form: _Form, name: str, what: str) -> str:
    given = form.get(name, "").strip()
    if not given:
        raise SettingsError(f"say {what}")
    return given


def _queue_of(form: _Form) -> str:
    if not form.get("queue"):
        raise SettingsError("say which queue")
    return form["queue"]


def _resize(form: _Form) -> dict[str, Any]:
    return {"do": "resize", "memory_limit": _field(form, "memory_limit", 'the new limit, such as "16MiB"')}


def _pause(form: _Form) -> dict[str, Any]:
    return {"do": "pause", "queue": _queue_of(form)}


def _resume(form: _Form) -> dict[str, Any]:
    return {"do": "resume", "queue": _queue_of(form)}


def _purge(form: _Form) -> dict[str, Any]:
    if form.get("sure") != "yes":
        raise SettingsError("nothing was purged: tick that you are sure, for purged messages never come again")
    return {"do": "purge", "queue": _queue_of(form)}


def _move(form: _Form) -> dict[str, Any]:
    asked: dict[str, Any] = {"do": "move", "queue": _queue_of(form), "to": _field(form, "to", "which queue to move to")}
    if form.get("selector", "").strip():
        asked["selector"] = form["selector"].strip()
    limit = form.get("limit", "").strip()
    if limit:
        if not (limit.isascii() and limit.isdigit() and len(limit) < 16):
            raise SettingsError("the most messages to move is a whole number")
        asked["limit"] = int(limit)
    return asked


def _resized(asked: _Told, told: _Told) -> str:
    settled = "" if told.get("is_settled") is True else "; it falls as consumers settle what is in flight"
    limit, held = (short_size(whole(told, name)) for name in ("limit_bytes", "held_bytes"))
    return f"The memory limit is {limit}, {held} are held{settled}."


def _messages(told: _Told) -> str:
    messages = whole(told, "messages")
    return f"{messages:,} message{plural(messages)}"


_ACTIONS: Final[Mapping[str, tuple[Callable[[_Form], dict[str, Any]], Callable[[_Told, _Told], str]]]] = {
    "resize": (_resize, _resized),
    "pause": (_pause, lambda asked, told: f"{asked['queue']} hands out nothing."),
    "resume": (_resume, lambda asked, told: f"{asked['queue']} hands out again."),
    "purge": (_purge, lambda asked, told: f"{_messages(told)} removed from {asked['queue']}."),
    "move": (_move, lambda asked, told: f"{_messages(told)} moved from {asked['queue']} to {asked['to']}."),
}
"""By path: the request that a form makes to the store, and the sentence to show when it is done."""
