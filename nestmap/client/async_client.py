"""``nestmap.AsyncClient``: the HTTP API for asyncio; its methods are those of ``Client``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

import httpx

from nestmap.client import calls, documents, flows, replies
from nestmap.client.address import base_url, token_of
from nestmap.client.calls import Call, Listing, SubjectLike
from nestmap.client.errors import ServiceError
from nestmap.client.flows import Flow, Patience, Pause
from nestmap.client.replies import Reply
from nestmap.client.streams import EventLines, MappingLines, RunEvent
from nestmap.client.transport import (
    Body,
    common_headers,
    head_deadline_s,
    is_stream,
    naming_failures,
    reply_of,
    request_of,
)

T = TypeVar("T")


class AsyncClient:
    """As :class:`~nestmap.client.sync_client.Client`, for one event loop.

    Lists, streams and events are asynchronous iterators. A task that is cancelled while it waits
    for an operation cancels the operation.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        timeout_s: float = 30.0,
        patience: Patience | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = base_url(url)
        self._timeout_s = timeout_s
        self._patience = patience or Patience()
        headers = common_headers(token_of(token, token_file))
        # Redirects are not followed: the token is for this service.
        self._http = httpx.AsyncClient(headers=headers, transport=transport, follow_redirects=False)

    def __repr__(self) -> str:
        return f"AsyncClient({self._base!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    # What is asked about a subject

    async def describe(
        self, subject: SubjectLike, **about: Unpack[calls.About]
    ) -> documents.SubjectDescription:
        """Kernels with their nests of maps, the variables of a mapping and their values."""
        return await self._exchange(calls.describe(subject, about))

    async def constraints(
        self, subject: SubjectLike, **about: Unpack[calls.About]
    ) -> documents.ConstraintList:
        """Every constraint with its rule, maps, predicate, source and reason."""
        return await self._exchange(calls.constraints(subject, about))

    async def waterfall(
        self, subject: SubjectLike, *, joint: bool = False, **about: Unpack[calls.About]
    ) -> documents.Waterfall:
        """How many mappings are left after each rule."""
        return await self._awaited(calls.waterfall(subject, about, joint))

    async def count(
        self, subject: SubjectLike, **question: Unpack[calls.CountQuestion]
    ) -> documents.Count:
        """How many valid mappings there are."""
        return await self._awaited(calls.count(subject, question))

    async def sample(
        self, subject: SubjectLike, **question: Unpack[calls.SampleQuestion]
    ) -> documents.Sample:
        """Some valid mappings, equally likely; one seed gives the same ones."""
        return await self._awaited(calls.sample(subject, question))

    async def best(
        self, subject: SubjectLike, **question: Unpack[calls.BestQuestion]
    ) -> documents.BestPredicted:
        """The mappings that are predicted to be fastest, and what none is predicted below."""
        return await self._awaited(calls.best(subject, question))

    async def check(
        self,
        subject: SubjectLike,
        mapping: Mapping[str, Any],
        **question: Unpack[calls.CheckQuestion],
    ) -> documents.Verdict:
        """Whether a mapping is valid, what it breaks, and the nearest one that is."""
        return await self._awaited(calls.check(subject, mapping, question))

    async def explain(
        self, subject: SubjectLike, **about: Unpack[calls.Restricted]
    ) -> documents.Conflict:
        """Why no mapping is valid: what cannot hold together."""
        return await self._awaited(calls.explain(subject, about))

    async def derive(
        self,
        subject: SubjectLike,
        schedule: str | Mapping[str, Any],
        **question: Unpack[calls.DeriveQuestion],
    ) -> documents.Derivation:
        """A program after each step of a schedule (text or document); a step that does not apply
        is a refusal, with ``partial`` the answer's ``refusal``."""
        return await self._awaited(calls.derive(subject, schedule, question))

    async def sketches(
        self, subject: SubjectLike, **question: Unpack[calls.SketchesQuestion]
    ) -> documents.SketchList:
        """The schedules worth having of a program on a device, each with its reason."""
        return await self._awaited(calls.sketches(subject, question))

    async def kernel(
        self, subject: SubjectLike, **question: Unpack[calls.KernelQuestion]
    ) -> documents.KernelDocument:
        """OpenCL source, host plan and memory of a mapping."""
        return await self._exchange(calls.kernel(subject, question))

    async def kernel_of_hash(self, kernel_hash: str) -> documents.KernelDocument:
        """A kernel that was asked for before."""
        return await self._exchange(calls.kernel_of_hash(kernel_hash))

    async def add_layer(self, layer: Mapping[str, Any]) -> documents.LayerDocument:
        """Store a layer; ``{"id": …}`` with its id is then a subject."""
        return await self._exchange(calls.add_layer(layer))

    async def add_program(self, program: str | Mapping[str, Any]) -> documents.ProgramDocument:
        """Store a program (text or document), a nest tree or a tuning space."""
        return await self._exchange(calls.add_program(program))

    # Runs

    async def create_run(
        self,
        device: str,
        subject: SubjectLike,
        *,
        idempotency_key: str | None = None,
        **question: Unpack[calls.RunQuestion],
    ) -> documents.RunDocument:
        """Tune a subject on a device. A key is made, so that a lost answer makes no second run."""
        return await self._exchange(calls.create_run(device, subject, question, idempotency_key))

    def runs(self, **filters: Unpack[calls.RunFilters]) -> AsyncIterator[documents.RunDocument]:
        """Runs, newest first."""
        return self._listed(calls.runs(filters))

    async def run(self, run: str) -> documents.RunDocument:
        """A run's state and how far it is."""
        return await self._exchange(calls.run(run))

    async def pause_run(self, run: str) -> documents.RunDocument:
        """Give out no more candidates."""
        return await self._exchange(calls.step_run(run, "pause"))

    async def resume_run(self, run: str) -> documents.RunDocument:
        """Go on."""
        return await self._exchange(calls.step_run(run, "resume"))

    async def cancel_run(self, run: str) -> documents.RunDocument:
        """Drop what is queued; what was measured stays."""
        return await self._exchange(calls.step_run(run, "cancel"))

    async def run_series(self, run: str) -> documents.Series:
        """How the run got better."""
        return await self._exchange(calls.run_series(run))

    async def run_baselines(self, run: str) -> documents.BaselinesDocument:
        """Other ways to compute the run's layer on its device, beside its best kernel."""
        return await self._exchange(calls.run_baselines(run))

    # What was measured

    def measurements(
        self, *, newest_first: bool = False, **filters: Unpack[calls.Filters]
    ) -> AsyncIterator[documents.MeasurementDocument]:
        """Measurements in the order in which they were stored."""
        return self._listed(calls.measurements(filters, newest_first))

    async def front(self, **filters: Unpack[calls.FrontFilters]) -> documents.Front:
        """The time-memory front, within the bounds given."""
        return await self._exchange(calls.front(filters))

    async def candidate(self, candidate: str) -> documents.CandidateDocument:
        """What was chosen."""
        return await self._exchange(calls.candidate(candidate))

    def studies(self) -> AsyncIterator[documents.StudyDocument]:
        """Every search for a program on a device, oldest first."""
        return self._listed(calls.studies())

    async def study(self, study: int) -> documents.StudyDocument:
        """One of them."""
        return await self._exchange(calls.study(study))

    # Devices

    def devices(self, *, state: str | None = None) -> AsyncIterator[documents.DeviceDocument]:
        """Boards and hosts that agents serve, newest first."""
        return self._listed(calls.devices(state))

    async def device(self, device: str) -> documents.DeviceDocument:
        """One device."""
        return await self._exchange(calls.device(device))

    async def set_device(
        self, device: str, step: calls.DeviceStep, reason: str | None = None
    ) -> documents.DeviceDocument:
        """Take a device out of work (with a reason) or back in; for admins."""
        return await self._exchange(calls.set_device(device, step, reason))

    def strikes(self, device: str) -> AsyncIterator[documents.StrikeDocument]:
        """What of a device does not count, oldest first, lifted ones included."""
        return self._listed(calls.strikes(device))

    async def strike(
        self, device: str, reason: str, *, since: str | None = None, until: str | None = None
    ) -> documents.StrikeDocument:
        """Take measurements of a device, by when they began (RFC 3339), off fronts, best kernels
        and what searches learn from; for admins."""
        return await self._exchange(calls.strike(device, reason, since, until))

    async def lift_strike(self, device: str, strike: int) -> documents.StrikeDocument:
        """Have struck measurements count again; for admins."""
        return await self._exchange(calls.lift_strike(device, strike))

    async def create_enrolment(
        self, profile: str | None = None, valid_s: float | None = None
    ) -> documents.CodeAnswer:
        """A one-time code for a board's agent; for admins."""
        return await self._exchange(calls.create_enrolment(profile, valid_s))

    async def profiles(self) -> list[documents.ProfileDocument]:
        """Limits of devices, shipped with the service."""
        return await self._exchange(calls.profiles())

    async def version(self) -> documents.Version:
        """What runs there."""
        return await self._exchange(calls.version())

    # Streams

    def mappings(
        self, subject: SubjectLike, **question: Unpack[calls.MappingsQuestion]
    ) -> AsyncMappingStream:
        """Valid mappings as they are found; closing the stream stops the solver."""
        return AsyncMappingStream(self._pieces(calls.mappings(subject, question)))

    def export(
        self, format_: calls.ExportFormat, **filters: Unpack[calls.Filters]
    ) -> AsyncIterator[bytes]:
        """Measurements as the bytes of a file, as they come."""
        return self._pieces(calls.export(format_, filters))

    async def run_events(self, run: str, after: int = 0) -> AsyncIterator[RunEvent]:
        """What happens to a run until it has ended; goes on by itself after lost connections."""
        events = EventLines(after)
        while True:
            events.again()
            failure: ServiceError | None = None
            try:
                reply = await self._opened(calls.run_events(run, events.last))
                if reply.opened is None:
                    return  # 204: everything was heard
                async with aclosing(self._body(reply)) as pieces:
                    async for piece in pieces:
                        for found in events.feed(piece):
                            yield found
                            if events.ended:
                                return
            except ServiceError as error:
                failure = error
            await asyncio.sleep(flows.again_after_s(events, self._patience, failure))

    # How flows are carried out

    async def _exchange(self, call: Call[T]) -> T:
        return await self._carry_out(flows.exchange(call, self._patience))

    async def _awaited(self, call: Call[T]) -> T:
        return await self._carry_out(flows.awaited(call, self._patience))

    async def _listed(self, listing: Listing[T]) -> AsyncIterator[T]:
        call: Call[documents.Page] | None = listing.first
        while call is not None:
            page = await self._exchange(call)
            for item in page["items"]:
                yield replies.checked(listing.shape, item)
            call = listing.after(call, page)

    async def _carry_out(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                try:
                    reply = await self._take(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            flow.close()

    async def _take(self, step: Call[Any] | Pause) -> Reply | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        with naming_failures(self._base):
            request = request_of(self._http, self._base, step, self._timeout_s)
            try:
                async with asyncio.timeout(head_deadline_s(step, self._timeout_s)):
                    response = await self._http.send(request, stream=True)
            except TimeoutError:
                raise httpx.ReadTimeout("the head of the answer took too long") from None
            kept = False
            try:
                if is_stream(step, response):
                    kept = True
                    return reply_of(response, opened=response)
                body = Body()
                async for piece in response.aiter_raw():
                    body.add(piece)
                return reply_of(response, body.bytes())
            finally:
                if not kept:
                    await response.aclose()

    async def _opened(self, call: Call[Any]) -> Reply:
        return await self._carry_out(flows.opened(call, self._patience))

    async def _pieces(self, call: Call[Any]) -> AsyncGenerator[bytes, None]:
        """The pieces of a body as they come; closing the generator hangs up."""
        reply = await self._opened(call)
        async with aclosing(self._body(reply)) as pieces:
            async for piece in pieces:
                yield piece

    async def _body(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        response: httpx.Response = reply.opened
        try:
            with naming_failures(self._base):
                async for piece in response.aiter_raw():
                    yield piece
        finally:
            await response.aclose()


class AsyncMappingStream:
    """Mappings one by one; an asynchronous context manager, since the solver works until it is
    closed.

    ``end`` is there after the last one: how many there were, and whether there are more.
    """

    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self._lines = MappingLines()
        self._pieces = pieces
        self._found = self._read()

    def __aiter__(self) -> AsyncIterator[documents.MappingDocument]:
        return self._found

    async def __anext__(self) -> documents.MappingDocument:
        return await anext(self._found)

    @property
    def end(self) -> documents.StreamEnd | None:
        """What the last line says; None before it was read."""
        return self._lines.end

    async def aclose(self) -> None:
        """Read no more."""
        await self._found.aclose()
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _read(self) -> AsyncGenerator[documents.MappingDocument, None]:
        async for piece in self._pieces:
            for found in self._lines.feed(piece):
                yield found
        self._lines.finish()
