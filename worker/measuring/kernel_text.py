"""What a kernel's text may hold that comes from a server: the C that nestmap generates.

A second wall before the sandbox (:mod:`worker.measuring.sandbox`): a compiler has words that have
no place in a kernel, and faults of its own. What generated kernels contain is permitted; a list of
what is harmful would never be whole. Both must read the same text: whatever one compiler takes for
the end of a line and another does not is refused before anything else, and there is nothing
conditional in it but one block, which is known to the letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from mapper.errors import InputError, Problem

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
#: What ends a comment, or begins a directive, after the compiler has joined lines.
_JOINED = re.compile(r"\\[ \t\v\f\r]*\n|\?\?/")
#: The only text in two versions that a kernel has, as :mod:`mapper.kernel_gen.header` prints it.
INDEX_BLOCK = """\
#if defined(__x86_64__) || defined(__aarch64__)
typedef long index_t;
#else
typedef int index_t;
#endif
"""
_INDEX_BLOCK = re.compile(rf"^[ \v]*{re.escape(INDEX_BLOCK)}", re.MULTILINE)
#: A line that the compiler has joined: where a comment had line ends, ``\v`` stands for them.
_DIRECTIVE = re.compile(r"^[ \t\v]*#.*$", re.MULTILINE)
_UNROLL = "#pragma unroll"
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(\s*(\w+)\s*\(([\w\s,]*)\)\s*\)\)")
_ATTRIBUTES = frozenset({"reqd_work_group_size", "aligned"})
#: Digraphs, trigraphs, attributes as in C++.
_SPELT = re.compile(r"%:|<:|<%|\?\?[=/'()!<>-]|\[\s*\[")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|\S")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NEVER = frozenset("#@$`\"'\\")
_QUALIFIERS = frozenset({"__kernel", "__global", "__local", "__constant", "__private"})
_WORDS = frozenset(
    {"asm", "auto", "constructor", "extern", "goto", "inline", "register", "static", "struct",
     "typedef", "typeof", "union"}
)  # fmt: skip
#: Of the compiler and its library: ``__asm``, ``_Pragma``, ``__has_include``.
_RESERVED = re.compile(r"_[A-Z_]")
_BEFORE_PARENTHESES = frozenset({"if", "for", "while", "switch", "return", "sizeof"})
_BEFORE_STATEMENTS = frozenset({"if", "for", "while", "switch"})
#: What a cast has between its parentheses.
_OF_TYPES = re.compile(
    r"(?:u?(?:char|short|int|long)|float|half|double)(?:2|3|4|8|16)?|unsigned|signed|bool|void"
    r"|size_t|ptrdiff_t|index_t|const|restrict|volatile|\*|__(?:global|local|constant|private)"
)
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

    Control characters, directives and attributes other than ours, declarations without a body,
    calls of what is neither defined in the text nor a function of OpenCL C, nor by a name at all,
    texts and characters in quotes, words for assembly and linking. Takes time in proportion to the
    text.
    """
    if not source.isprintable():
        for at, character in enumerate(source):
            if not character.isprintable() and character not in "\n\t":
                raise _foreign("a control character", source, at)
    if found := _JOINED.search(source):
        raise _foreign("joined lines", source, found.start())
    text = _COMMENT.sub(_blank, source)
    text = _INDEX_BLOCK.sub(_blank_lines, text, count=1)
    for directive in _DIRECTIVE.finditer(text):
        if directive.group().strip() != _UNROLL:
            raise _foreign("a directive", text, directive.start())
    text = _DIRECTIVE.sub(_blank_lines, text)
    for attribute in _ATTRIBUTE.finditer(text):
        if attribute[1] not in _ATTRIBUTES:
            raise _foreign("an attribute", text, attribute.start())
    text = _ATTRIBUTE.sub(_blank_lines, text)
    if found := _SPELT.search(text):
        raise _foreign("another spelling", text, found.start())
    tokens = [(token.group(), token.start()) for token in _TOKEN.finditer(text)]
    for token, at in tokens:
        if token in _NEVER or not token.isascii():
            raise _foreign("a character", text, at)
        if token in _WORDS or (_RESERVED.match(token) and token not in _QUALIFIERS):
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
    _refuse_calls_without_names(tokens, text)


def _refuse_calls_without_names(tokens: list[tuple[str, int]], text: str) -> None:
    """InputError for ``(f)(x)``, ``a[i](x)`` and what declares such an ``f``."""
    opened: list[int] = []
    closed = False
    for place, (token, at) in enumerate(tokens):
        before = tokens[place - 1][0] if place else ""
        if token == "(":
            if before == "]" or (before == ")" and not closed):
                raise _foreign("a call without a name", text, at)
            opened.append(place)
        elif token == ")" and opened:
            began = opened.pop()
            closed = (began > 0 and tokens[began - 1][0] in _BEFORE_STATEMENTS) or all(
                _OF_TYPES.fullmatch(inner) for inner, _ in tokens[began + 1 : place]
            )


def _blank_lines(found: re.Match[str]) -> str:
    return " " + "\n" * found.group().count("\n") + "\v" * found.group().count("\v")


def _blank(comment: re.Match[str]) -> str:
    """What is left of a comment: one line, as for a compiler, in which its own are counted."""
    text = comment.group()
    if text.startswith("/*") and not (text.endswith("*/") and len(text) > 3):
        raise _foreign("a comment without an end", comment.string, comment.start())
    return " " + "\v" * text.count("\n")


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
    line = text.count("\n", 0, at) + text.count("\v", 0, at) + 1
    shown = text[at : at + 60].strip(" \t\v\n").split("\n") or [""]
    return InputError(
        Problem(
            "/plan/source",
            f"holds {what} that no generated kernel has",
            f"{shown[0]!a} near line {line}",
            "what nestmap generates (nestmap kernel)",
        )
    )
