"""The spaces that a child has derived, so that the next request about one need not.

Deriving a layer's space and taking it apart takes a second, a page of its mappings milliseconds.
Spaces are kept by what was asked, latest use last, until the process grows too large.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from mapper.ast_model.json_reader import JsonObject
from mapper.constraint_rules.compiled import CompiledPredicates
from mapper.pipeline import Assignment
from mapper.solver.limits import Watch
from mapper.solver.restrictions import narrowed
from mapper.solver.solutions import Solutions, solutions_of
from mapper.solver.space import Space, check
from nestmap.choosing import DefaultVariant
from nestmap.finding import without_symmetric
from nestmap.requests import Request, request_about, with_stated
from nestmap.restrictions import read_restrictions
from nestmap.stated import Stated
from nestmap.tasks.limits import resident_bytes
from nestmap.tasks.request_fields import (
    ABOUT,
    RestrictionTexts,
    read_device,
    read_mode,
    read_stated,
    read_subject,
)

_MOST_SPACES = 32
_MOST_PARTS = 8
_MOST_LISTINGS = 4
# Judging some together costs little more than judging one.
_FIRST_BATCH = 32
_BATCH = 64


@dataclass(slots=True)
class Listing:
    """A listing of mappings under way; those ``ahead`` are judged, but not given yet."""

    found: Iterator[Assignment]
    ahead: deque[Assignment] = field(default_factory=deque[Assignment])


@dataclass(slots=True)
class KnownPart:
    """A space under some restrictions, with what was computed of it.

    ``watch`` is the one that its solutions hold: each request lends it its own limits.
    """

    request: Request
    space: Space
    watch: Watch
    solutions: Solutions | None = None
    compiled: CompiledPredicates | None = None
    counts: dict[bool, int] = field(default_factory=dict[bool, int])
    listings: OrderedDict[int, Listing] = field(default_factory=OrderedDict[int, Listing])

    def lend(self, watch: Watch) -> None:
        """Keep to the limits of a request from now on."""
        self.watch.limits, self.watch.cancelled = watch.limits, watch.cancelled
        self.watch.progress, self.watch.started = watch.progress, watch.started

    def solved(self) -> Solutions:
        """Its solutions; LimitError and Cancelled as the watch says."""
        if self.solutions is None:
            self.solutions = solutions_of(self.space, self.watch)
        return self.solutions

    def counted(self, joint: bool) -> int:
        """Its mappings, or assignments (``joint``), counted once; raises as :meth:`solved`."""
        if joint not in self.counts:
            solutions = self.solved()
            self.counts[joint] = solutions.count_joint() if joint else solutions.count_mappings()
        return self.counts[joint]

    def listed(self, skip: int) -> Iterator[Assignment]:
        """Mappings with values from the place ``skip`` on, each judged by code that shares
        nothing with the solver. A page goes on where the last one ended."""
        listing = self.listings.pop(skip, None) or Listing(self.solved().completed(skip))
        size = _FIRST_BATCH
        while True:
            if not listing.ahead:
                listing.ahead.extend(islice(listing.found, size))
                self._judge(listing.ahead)
                size = min(2 * size, _BATCH)
            if not listing.ahead:
                return
            found = listing.ahead.popleft()
            self.listings.pop(skip, None)
            skip += 1
            # Whoever stops here goes on behind this one.
            self.listings[skip] = listing
            if len(self.listings) > _MOST_LISTINGS:
                self.listings.popitem(last=False)
            yield found

    def _judge(self, batch: Collection[Assignment]) -> None:
        if self.compiled is None:
            order = [variable for variable, _ in self.space.variables]
            predicates = [constraint.predicate for constraint in self.space.constraints]
            self.compiled = CompiledPredicates(predicates, order)
        if not self.compiled.all_hold([tuple(found.values()) for found in batch]):
            broken = {v.constraint for found in batch for v in check(self.space, found)}
            raise AssertionError(f"the solver's answer breaks {', '.join(sorted(broken))}")


class KnownSpace:
    """A subject on a device under a mode, and its parts by what users leave of it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._parts: OrderedDict[str, KnownPart] = OrderedDict()

    def part(self, texts: RestrictionTexts, symmetric: bool, watch: Watch) -> KnownPart:
        """What the restrictions leave; InputError where they do not fit.

        ``symmetric``: with mappings that differ by permuted dimensions.
        """
        key = _hash([*map(list, (texts.pins, texts.forbids, texts.prefers)), symmetric])
        known = self._parts.get(key)
        if known is None:
            full = self.request
            restrictions = read_restrictions(full.space, texts.pins, texts.forbids, texts.prefers)
            request = replace(full, restrictions=restrictions)
            if not symmetric:
                # Part of the request, so that it has its place in the reason for an empty space.
                request = replace(request, space=without_symmetric(full, full.space))
            space = narrowed(request.space, restrictions)
            known = self._parts[key] = KnownPart(request, space, Watch())
            if len(self._parts) > _MOST_PARTS:
                self._parts.popitem(last=False)
        self._parts.move_to_end(key)
        known.lend(watch)
        return known

    def forget_parts(self) -> None:
        """Leave the space alone."""
        self._parts.clear()


class KnownSpaces:
    """Spaces by the SHA-256 of what was asked about, the latest used ones."""

    def __init__(self, most: int = _MOST_SPACES) -> None:
        self._most = most
        self._spaces: OrderedDict[str, KnownSpace] = OrderedDict()

    def of(self, fields: JsonObject) -> KnownSpace:
        """The space that a request is about, derived if it is not known.

        InputError, DeviceError and LimitError say what is wrong with it.
        """
        key = _hash({name: fields.get(name) for name in ABOUT})
        known = self._spaces.get(key)
        if known is None:
            stated = read_stated(fields)
            if stated.where:
                # A program is derived once, whatever is stated of it.
                plain = {name: value for name, value in fields.items() if name != "where"}
                request = with_stated(self.of(plain).request, stated, "/mode")
            else:
                request = _derived(fields, stated)
            known = self._spaces[key] = KnownSpace(request)
            if len(self._spaces) > self._most:
                self._spaces.popitem(last=False)
        self._spaces.move_to_end(key)
        return known

    def shrink(self, most_bytes: int) -> None:
        """Forget what was used longest ago for as long as the process holds more than this."""
        while self._spaces and resident_bytes() > most_bytes:
            if len(self._spaces) == 1:
                next(iter(self._spaces.values())).forget_parts()
                self._spaces.clear()
            else:
                self._spaces.popitem(last=False)
            gc.collect()

    def forget_parts(self, fields: JsonObject) -> None:
        """Drop what was computed for a request that did not end well: it may be half done."""
        known = self._spaces.get(_hash({name: fields.get(name) for name in ABOUT}))
        if known is not None:
            known.forget_parts()


def _derived(fields: JsonObject, stated: Stated) -> Request:
    # The device and mode first: they are the cheaper ones to be wrong.
    device, mode = read_device(fields.get("device", "pocl")), read_mode(fields.get("mode"))
    default = DefaultVariant()
    subject = read_subject(fields, default, device)
    return request_about(subject, device, mode, "/mode", default.reason, stated)


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
