"""What a kernel's text may hold that comes from a server: the C that nestmap generates.

A second wall before the sandbox (:mod:`worker.measuring.sandbox`): a compiler has words that have
no place in a kernel, and faults of its own. What generated kernels contain is permitted; a list of
what is harmful would never be whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from mapper.errors import InputError, Problem

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
#: What ends a comment, or begins a directive, after the compiler has joined lines.
_JOINED = re.compile(r"\\[ \t\v\f\r]*\n|\?\?/")
_DIRECTIVE = re.compile(r"^[ \t]*#(.*)$", re.MULTILINE)
_DIRECTIVES = re.compile(
    r"pragma unroll( \d+)?|pragma OPENCL EXTENSION cl_khr_(fp16|fp64) : enable"
    r"|if defined\(__x86_64__\) \|\| defined\(__aarch64__\)|else|endif"
)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(\s*(\w+)\s*\(([\w\s,]*)\)\s*\)\)")
_ATTRIBUTES = frozenset({"reqd_work_group_size", "work_group_size_hint", "aligned"})
#: Digraphs, trigraphs, attributes as in C++.
_SPELT = re.compile(r"%:|<:|<%|\?\?[=/'()!<>-]|\[\s*\[")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|\S")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NEVER = frozenset("#@$`\"'\\")
_QUALIFIERS = frozenset({"__kernel", "__global", "__local", "__constant", "__private"})
_WORDS = frozenset({"asm", "extern", "_Pragma", "goto", "register", "typeof", "constructor"})
_BEFORE_PARENTHESES = frozenset({"if", "for", "while", "switch", "return", "sizeof"})
#: Functions of OpenCL C (6.13 of its specification) that only compute, or order accesses.
_FUNCTIONS = re.compile(
    r"get_(?:global|local)_(?:id|size|offset)|get_(?:group_id|num_groups|work_dim)"
    r"|barrier|mem_fence|dot|fma|mad|f?min|f?max|clamp|mix|step|sign|select|abs|mad24|mul24|mad_hi"
    r"|(?:native_)?(?:exp2?|exp10|log2?|log10|sqrt|rsqrt|recip|divide|powr|sin|cos|tan)|expm1|log1p"
    r"|tanh|sinh|cosh|erf|pow|fabs|floor|ceil|round|trunc|rint|fmod|isnan|isinf|isfinite|signbit"
    r"|vloada?(?:_half)?\d*|vstorea?(?:_half)?\d*(?:_rt[ezpn])?|vload\d+|vstore\d+"
    r"|(?:as|convert)_(?:u?(?:char|short|int|long)|float|half|double)\d*(?:_sat)?(?:_rt[ezpn])?"
)


def refuse_foreign_text(source: str) -> None:
    """InputError for a source that holds what no generated kernel does.

    Directives and attributes other than ours, declarations without a body, calls of what is neither
    defined in the text nor a function of OpenCL C, texts and characters in quotes, words for
    assembly and linking. Takes time in proportion to the text.
    """
    if found := _JOINED.search(source):
        raise _foreign("joined lines", source, found.start())
    text = _COMMENT.sub(_blank, source)
    for directive in _DIRECTIVE.finditer(text):
        if not _DIRECTIVES.fullmatch(" ".join(directive[1].split())):
            raise _foreign("a directive", text, directive.start())
    text = _DIRECTIVE.sub(" ", text)
    for attribute in _ATTRIBUTE.finditer(text):
        if attribute[1] not in _ATTRIBUTES:
            raise _foreign("an attribute", text, attribute.start())
    text = _ATTRIBUTE.sub(" ", text)
    if found := _SPELT.search(text):
        raise _foreign("another spelling", text, found.start())
    tokens = [(token.group(), token.start()) for token in _TOKEN.finditer(text)]
    for token, at in tokens:
        if token in _NEVER or not token.isascii():
            raise _foreign("a character", text, at)
        if token in _WORDS or (token.startswith("__") and token not in _QUALIFIERS):
            raise _foreign("a word", text, at)
    defined = set(_defined(tokens, text))
    for (token, at), (follower, _) in pairwise(tokens):
        if (
            follower == "("
            and _NAME.fullmatch(token)
            and token not in defined
            and token not in _BEFORE_PARENTHESES
            and not _FUNCTIONS.fullmatch(token)
        ):
            raise _foreign("a call", text, at)


def _blank(comment: re.Match[str]) -> str:
    """What is left of a comment: its lines, so that what follows is found where it stands."""
    text = comment.group()
    if text.startswith("/*") and not (text.endswith("*/") and len(text) > 3):
        raise _foreign("a comment without an end", comment.string, comment.start())
    return " " + "\n" * text.count("\n")


def _defined(tokens: list[tuple[str, int]], text: str) -> Iterator[str]:
    """Names of the functions that a text defines; InputError where one is only declared."""
    braces = parentheses = 0
    name, began = "", 0
    for place, (token, at) in enumerate(tokens):
        if token == "{":
            braces += 1
        elif token == "}":
            braces -= 1
        elif token == "(":
            if not braces and not parentheses and place:
                name, began = tokens[place - 1]
            parentheses += 1
        elif token == ")":
            parentheses -= 1
            if not braces and not parentheses:
                follower = tokens[place + 1][0] if place + 1 < len(tokens) else ""
                if follower != "{" or not _NAME.fullmatch(name):
                    raise _foreign("a declaration", text, began)
                yield name
        if braces < 0 or parentheses < 0:
            raise _foreign("brackets that do not fit", text, at)


def _foreign(what: str, text: str, at: int) -> InputError:
    line = text.count("\n", 0, at) + 1
    shown = text[at : at + 60].strip().splitlines() or [""]
    return InputError(
        Problem(
            "/plan/source",
            f"holds {what} that no generated kernel has",
            f"{shown[0]!a} near line {line}",
            "what nestmap generates (nestmap kernel)",
        )
    )
