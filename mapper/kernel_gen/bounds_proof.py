"""A proof that a printed kernel touches nothing outside of its arrays.

A generated kernel asks for no bound when it runs, so the proof is made of its text before it is
handed out: every index and every loop bound is read back (:mod:`mapper.kernel_gen.printed_index`)
and kept within the bytes of the plan's buffers and the declared lengths of its own arrays. It
shares nothing with what makes the indices. What cannot be read or cannot be shown is refused; a
condition that cannot be read, as on values, bounds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from mapper.elements import BY_TEXT
from mapper.errors import InputError, Problem
from mapper.host_plan import HostPlan, Launch
from mapper.kernel_gen.header import INDEX_TYPE
from mapper.kernel_gen.own_functions import every_function
from mapper.kernel_gen.printed_index import Bounds, Scope, Sum
from mapper.kernel_gen.printed_tree import NotRead, is_unsigned, parsed

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ENUM = re.compile(r"enum \{([^{}]*)\};")
_CONSTANT = re.compile(r"(\w+) = (-?\d+)")
_HEAD = re.compile(r"__kernel void (\w+)\(\n(.*?)\)\n\{\n", re.DOTALL)
_ELEMENT_TYPE = "|".join(BY_TEXT)
_PARAMETER = re.compile(rf"__global (?:const )?({_ELEMENT_TYPE}) \*(?:restrict )?(\w+)")
_FOR = re.compile(
    r"for \(index_t (\w+) = (.+?); \1 < (.+?); (?:\+\+\1|\1 \+= \d+)\) \{(?: /\*.*\*/)?"
)
_IF = re.compile(r"if \((.*)\) \{(?: /\*.*\*/)?")
_BLOCK = re.compile(r"\{(?: /\*.*\*/)?")
#: An index, or whether one is inside; what is loaded may be an int as well.
_INTEGER = re.compile(r"const (?:index_t (?=\w)|int (?=inside_\d))(\w+) = (.*);")
_OWN_ARRAY = re.compile(
    rf"(?:__local )?(?:{_ELEMENT_TYPE})(\d*) (\w+)\[(\d+)\](?: __attribute__.*)?;"
)
_HALF_VIEW = re.compile(r"__local half \*const (\w+) = \(__local half \*\)(\w+);")
_VARIABLES = re.compile(rf"(?:const )?(?:{_ELEMENT_TYPE})\d* \w+(?:, \w+)*;")
_SILENT = re.compile(r"(?:barrier\([\w |]+\);|#pragma unroll|/\*.*\*/)?")
#: What no name is.
_NOTHING = re.compile(r"(?!)")
_ATTRIBUTE = re.compile(r"__attribute__\(\(.*\)\)")
_BETWEEN = re.compile(r"\s*(?:/\*.*?\*/\s*)?(?:__attribute__\(\(.*\)\)\s*)?", re.DOTALL)
#: An element, of an array as it is or of vectors.
_ELEMENT = re.compile(
    rf"(?:\(\(__\w+ (?:const )?(?:{_ELEMENT_TYPE})(\d+) \*\)(\w+)\)|\b([A-Za-z_]\w*))"
    r"\[([^\[\]]+)\]"
)
_CALL = re.compile(rf"\b(v?(?:load|store)a?)(?:_(?:{_ELEMENT_TYPE}))?(\d*)(?:_rte|_private)?\(")
#: A pointer to an array is taken only where an access says how far it goes.
_POINTER = re.compile(r"(\w+)(?: \+ (.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Access:
    """So many elements of an array from an index on, which stands at a place of a statement."""

    array: str
    index: str
    width: int
    #: The index counts vectors of this width.
    step: int
    place: int


def require_in_bounds(plan: HostPlan) -> None:
    """InputError, which names kernel and access, unless all accesses are proven to stay inside."""
    constants = Scope()
    for name, value in _constants(plan.source.partition("__kernel")[0]):
        constants.sums[name] = Sum({}, value)
    launches = {launch.kernel: launch for launch in plan.launches}
    bytes_of = {buffer.name: buffer.bytes for buffer in plan.buffers}
    found = list(_HEAD.finditer(plan.source))
    for position, match in enumerate(found):
        end = found[position + 1].start() if position + 1 < len(found) else len(plan.source)
        body = plan.source[match.end() : end]
        launch = launches.pop(match[1], None)
        if launch is None:
            raise _refused(match[1], "no launch has this kernel", "")
        parameters = _PARAMETER.findall(match[2])
        if len(parameters) != len(launch.arguments):
            raise _refused(match[1], "its parameters are not those of the launch", match[2])
        whole = Scope(constants)
        for (element, name), argument in zip(parameters, launch.arguments, strict=True):
            whole.arrays[name] = (bytes_of[argument] // BY_TEXT[element].bytes, 1)
        _Kernel(match[1], launch, whole).judge(body)
    for name in launches:
        raise _refused(name, "a launched kernel is not in the source", "")


def _constants(head: str) -> Iterator[tuple[str, int]]:
    """The constants of what stands before the first kernel; refused where anything else than the
    type of an index and functions that are known stands there."""
    rest = _COMMENT.sub("", head)
    for text in (_COMMENT.sub("", INDEX_TYPE), *_own_functions()):
        rest = rest.replace(text, "")
    for block in _ENUM.findall(rest):
        for entry in block.split(","):
            constant = _CONSTANT.fullmatch(entry.strip())
            if constant is None:
                raise _refused("source", "text before the first kernel cannot be read back", entry)
            yield constant[1], int(constant[2])
    rest = _ATTRIBUTE.sub("", _ENUM.sub("", rest)).strip()
    if rest:
        raise _refused("source", "text before the first kernel cannot be read back", rest)


@cache
def _own_functions() -> tuple[str, ...]:
    """The definitions of all functions that a source can have of its own."""
    return tuple(function.text for function in every_function())


class _Kernel:
    """Goes through a kernel's lines with the scopes that they open."""

    def __init__(self, name: str, launch: Launch, whole: Scope) -> None:
        self.name = name
        self.bounds = Bounds()
        self.scope = Scope(whole)
        self.whole = whole
        groups = (g // n for g, n in zip(launch.global_size, launch.local_size, strict=True))
        for function, sizes in (
            ("get_global_id", launch.global_size),
            ("get_local_id", launch.local_size),
            ("get_group_id", tuple(groups)),
        ):
            for dimension, size in enumerate(sizes):
                self.bounds.running(whole, f"{function}({dimension})", 0, size - 1)
        self.names: set[str] = set()
        self.mentioned = _NOTHING
        for array, size in whole.arrays.items():
            self.array(array, size)

    def judge(self, body: str) -> None:
        """Every line up to the brace that closes the kernel."""
        position = 0
        for line in body.splitlines(keepends=True):
            text = line.strip()
            position += len(line)
            try:
                if text == "}":
                    if self.scope.outer is self.whole:
                        return self.ended(body[position:])
                    assert self.scope.outer is not None
                    self.scope = self.scope.outer
                else:
                    self.line(text)
            except NotRead as error:
                raise _refused(self.name, f"a line cannot be read back: {error}", text) from error
        raise _refused(self.name, "its text has no end", "")

    def ended(self, rest: str) -> None:
        """What stands behind a kernel is of the next one: a comment and its attribute."""
        if not _BETWEEN.fullmatch(rest):
            raise NotRead("more than one block")

    def line(self, text: str) -> None:
        """One line: a block that begins, a declaration, or a statement."""
        if _SILENT.fullmatch(text):
            return
        if loop := _FOR.fullmatch(text):
            self.opened()
            if is_unsigned(parsed(loop[3])):
                raise NotRead("a loop up to an unsigned number")
            start = self.bounds.bounds(self.sum(loop[2]), self.scope)
            trip = self.bounds.bounds(self.sum(loop[3]), self.scope)
            self.bounds.running(self.scope, loop[1], start[0], max(start[0], trip[1] - 1))
        elif condition := _IF.fullmatch(text):
            self.opened()
            self.scope.facts += self.bounds.facts_of(parsed(condition[1]), self.scope)
        elif _BLOCK.fullmatch(text):
            self.opened()
        elif integer := _INTEGER.fullmatch(text):
            self.bounds.declared(self.scope, integer[1], integer[2])
        elif array := _OWN_ARRAY.fullmatch(text):
            self.array(array[2], (int(array[3]), int(array[1] or 1)))
        elif view := _HALF_VIEW.fullmatch(text):
            self.array(view[1], self.length(view[2]))
        elif not _VARIABLES.fullmatch(text):
            self.statement(text)

    def array(self, name: str, size: tuple[int, int]) -> None:
        """Declare an array in the scope that is open."""
        self.scope.arrays[name] = size
        if name not in self.names:
            self.names.add(name)
            self.mentioned = re.compile(rf"\b(?:{'|'.join(map(re.escape, self.names))})\b")

    def opened(self) -> None:
        self.scope = Scope(self.scope)

    def sum(self, text: str) -> Sum:
        return self.bounds.sum_of(parsed(text), self.scope)

    def length(self, name: str) -> tuple[int, int]:
        """Elements of an array, and lanes of each."""
        for scope in self.scope.chain():
            if name in scope.arrays:
                return scope.arrays[name]
        raise NotRead(f"{name} is no array")

    def statement(self, text: str) -> None:
        """Every access of a statement, under the conditions that it stands behind."""
        if not text.endswith(";"):
            raise NotRead("no statement")
        choices = list(_choices(text)) if "?" in text else []
        accesses = list(_accesses(text))
        if len(accesses) != len(self.mentioned.findall(text)):
            raise NotRead("an array that is used in another way")
        for access in accesses:
            around = [c for c, start, end in choices if start <= access.place < end]
            self.prove(access, tuple(around), text)

    def prove(self, access: _Access, conditions: tuple[str, ...], line: str) -> None:
        """Refuse an access that is not shown to stay inside its array."""
        key = (access.array, access.index + "?".join(conditions), access.width, access.step)
        if key in self.scope.proven:
            return
        scope = self.scope
        for condition in conditions:
            # A comparison of floats, as user functions have them, says nothing of indices.
            with suppress(NotRead):
                scope = Scope(scope, facts=self.bounds.facts_of(parsed(condition), scope))
        count, lanes = self.length(access.array)
        if lanes > 1 and access.width != 1:
            # An array of vectors is indexed by whole ones.
            raise NotRead("a vector of vectors")
        index = self.bounds.sum_of(parsed(access.index), scope)
        last = count - access.width
        low, high = _scaled(self.bounds.bounds(index, scope), access.step)
        if low < 0 or high > last:
            exact = self.bounds.exactly(index, scope)
            if exact is not None:
                low, high = _scaled(exact, access.step)
        if low <= high and (low < 0 or high > last):
            raise _refused(
                self.name,
                f"{access.array} has {count} elements, and of {access.width} from "
                f"{access.index!r} on it is not shown that they lie inside: the first has a "
                f"number from {low} to {high}",
                line,
            )
        self.scope.proven.add(key)


def _scaled(ends: tuple[int, int], step: int) -> tuple[int, int]:
    return ends[0] * step, ends[1] * step


def _accesses(text: str) -> Iterator[_Access]:
    """The elements that a statement touches."""
    for found in _ELEMENT.finditer(text):
        width = int(found[1] or 1)
        yield _Access(found[2] or found[3], found[4], width, width, found.start(4))
    for found in _CALL.finditer(text):
        arguments = list(_arguments(text, found.end()))
        name, width = found[1], int(found[2] or 1)
        if name in ("load", "store"):
            # Functions of the source: (p), and (x, p).
            place, pointer = "0", arguments[-1]
        else:
            # OpenCL's: (place, p), and (x, place, p).
            place, pointer = arguments[-2], arguments[-1]
        parts = _POINTER.fullmatch(pointer)
        if parts is None:
            raise NotRead(pointer)
        base = parts[2] or "0"
        if base == "0":
            yield _Access(parts[1], place, width, width, found.start())
        elif place == "0":
            yield _Access(parts[1], base, width, 1, found.start())
        else:
            yield _Access(parts[1], f"({place})*{width} + ({base})", width, 1, found.start())


def _arguments(text: str, start: int) -> Iterator[str]:
    """The arguments of a call, of which the text behind the parenthesis is given."""
    depth, begun = 0, start
    for position in range(start, len(text)):
        letter = text[position]
        if letter in "([":
            depth += 1
        elif letter in ")]":
            if depth == 0:
                yield text[begun:position].strip()
                return
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begun:position].strip()
            begun = position + 1
    raise NotRead(text)


def _choices(text: str) -> Iterator[tuple[str, int, int]]:
    """Of every choice ``(condition ? a : b)``: the condition, and where a stands."""
    opened: list[int] = []
    asked: list[tuple[int, int, int]] = []
    for position, letter in enumerate(text):
        if letter in "([":
            opened.append(position)
        elif letter in ")]":
            opened.pop()
        elif letter == "?":
            asked.append((opened[-1], position, len(opened)))
        elif letter == ":":
            start, question, depth = asked.pop()
            if depth != len(opened):
                raise NotRead(text)
            yield text[start + 1 : question].strip(), question, position


def _refused(kernel: str, why: str, line: str) -> InputError:
    return InputError(
        Problem(
            f"kernel/{kernel}",
            f"is not handed out: {why}",
            line[:400],
            "accesses that are proven to stay inside of their arrays",
            "report it: a mapping that was called valid has a kernel that may be wrong",
        )
    )
