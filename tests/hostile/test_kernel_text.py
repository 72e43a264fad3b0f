"""Kernel texts of a server are those that nestmap generates, or nothing is compiled."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.errors import InputError
from mapper.kernel_gen.header import INDEX_TYPE
from worker.measuring.golden import golden_kernel
from worker.measuring.kernel_text import INDEX_BLOCK, refuse_foreign_text

GOLDEN = Path(__file__).resolve().parents[1] / "golden/kernels"
HEAD = "__kernel void k(__global float *b) {\n"

FOREIGN = {
    "assembly": HEAD + '__asm__ volatile ("syscall"); }',
    "assembly without its underscores": HEAD + "asm(b); }",
    "an include": '#include "/etc/passwd"\n' + HEAD + "b[0] = 0; }",
    "an include behind a comment": "/* x */ # /* y */ include </etc/passwd>\n" + HEAD + "}",
    "an include over two lines": "#inc\\\nlude </etc/passwd>\n" + HEAD + "}",
    "an include in a trigraph": "??=include </etc/passwd>\n" + HEAD + "}",
    "an include in a digraph": "%:include </etc/passwd>\n" + HEAD + "}",
    "an include that a comment hides": "/* *\\\n/\n#include </etc/passwd>\n/* */\n" + HEAD + "}",
    "a macro": "#define f system\n" + HEAD + "}",
    "an outside function": "int system(__constant char *);\n" + HEAD + "}",
    "an outside function within": HEAD + "int system(__constant char *); }",
    "an outside function in brackets": "int (system)(__constant char *);\n" + HEAD + "}",
    "an outside function by a type": "typedef int F(int);\nF system;\n" + HEAD + "}",
    "an outside variable": "extern int environ;\n" + HEAD + "}",
    "a call of what is nowhere": HEAD + "system(0); }",
    "a builtin of the compiler": HEAD + "b[0] = __builtin_readcyclecounter(); }",
    "a text": HEAD + 'printf("x"); }',
    "printf": HEAD + "printf(0); }",
    "another pragma": "#pragma clang attribute push\n" + HEAD + "}",
    "another extension": "#pragma OPENCL EXTENSION all : enable\n" + HEAD + "}",
    "a pragma as a word": HEAD + "_Pragma(unroll) b[0] = 0; }",
    "another attribute": "__attribute__((constructor)) void f(void) { }\n" + HEAD + "}",
    "an attribute with more": "__attribute__((aligned(4), section(x))) int f;\n" + HEAD + "}",
    "an attribute as in C++": "[ [gnu::constructor]] void f(void) { }\n" + HEAD + "}",
    "a comment without an end": HEAD + "} /* x",
    "brackets that do not fit": HEAD + "} }",
    "an include behind a return of the carriage": "// x\r#include </etc/passwd>\n" + HEAD + "}",
    "a declaration behind a return in a comment": "// x\rint system(int);\n" + HEAD + "}",
    "a pragma with a comment of two lines": (
        "#pragma unroll /*\n*/ void system(int x) { }\n" + HEAD + "int system(int); system(0); }"
    ),
    "a condition of its own": "#if defined(__x86_64__) || defined(__aarch64__)\n#endif\n"
    + HEAD
    + "}",
    "a block for one machine": INDEX_TYPE.replace("index_t;\n#else", "index_t; /*\n#else")
    + HEAD
    + "}",
    "a block with more in one branch": (
        INDEX_TYPE.replace("#else", "void system(int x) {\n#else\n}") + HEAD + "system(0); }"
    ),
    "the block twice": INDEX_TYPE + INDEX_TYPE + HEAD + "}",
    "a line's number": '#line 1 "x"\n' + HEAD + "}",
    "a question for a file": "#if __has_include(</etc/passwd>)\n#endif\n" + HEAD + "}",
    "pasted assembly": "#define a(x, y) x##y\n" + HEAD + 'a(as, m)("nop"); }',
    "assembly by the number of a letter": HEAD + "\\u0061sm(b); }",
    "assembly in another spelling": HEAD + "__asm(b); }",
    "assembly over two lines": HEAD + 'as\\\nm("nop"); }',
    "a line that a trigraph joins": "// x ??/\n#include </etc/passwd>\n" + HEAD + "}",
    "a pragma with more": "#pragma unroll 4\n" + HEAD + "}",
    "an assertion": HEAD + "_Static_assert(1, 0); }",
    "a function by the type of another": HEAD + "typedef int dot(int); dot system; (system)(0); }",
    "a function behind a star": HEAD + "float *(system)(int); *(system)(0); }",
    "a function by a pointer": HEAD + "float (*p)(int); (*p)(0); }",
    "a function of an array": HEAD + "b[0](0); }",
    "letters that are none": HEAD + "int \u0430sm = 0; }",
}

#: What some reader of C takes for the end of a line, or for nothing at all.
CONTROLS = [chr(number) for number in (*range(9), *range(11, 32), 127, 0x85, 0x200B, 0x2028, 0x2029,
                                       0xFEFF, 0xD800)]  # fmt: skip


@pytest.mark.parametrize("character", CONTROLS, ids=lambda one: f"U+{ord(one):04X}")
@pytest.mark.parametrize("text", ["// {}\n", "/* {} */", "{}", "#pragma {}unroll\n"])
def test_control_characters_are_refused_even_in_comments(character: str, text: str) -> None:
    with pytest.raises(InputError, match="control character"):
        refuse_foreign_text(text.format(character) + HEAD + "}")


def test_the_block_that_is_known_is_the_one_that_is_printed() -> None:
    assert INDEX_TYPE.endswith("*/\n" + INDEX_BLOCK)


def test_casts_are_no_calls_and_comments_may_have_letters_of_any_kind() -> None:
    body = "b[0] = (float)(b[1]) + ((__global const float4 *)(b))[0].s0; if (b[0]) (b)[1] = 0; }"
    refuse_foreign_text("/* Schicht für Bögen, 層 */\n" + HEAD + body)


def test_a_place_is_named_behind_comments_and_directives() -> None:
    with pytest.raises(InputError, match="near line 7"):
        refuse_foreign_text("/*\n\n*/\n" + HEAD + "#pragma unroll\n/*\n*/ asm; }")


@pytest.mark.parametrize("name", FOREIGN)
def test_what_no_generated_kernel_has_is_refused(name: str) -> None:
    with pytest.raises(InputError) as refused:
        refuse_foreign_text(FOREIGN[name])
    assert "/plan/source" in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.cl")), ids=lambda path: path.stem)
def test_what_nestmap_generates_is_permitted(path: Path) -> None:
    refuse_foreign_text(path.read_text())


def test_the_golden_kernel_is_permitted() -> None:
    refuse_foreign_text(golden_kernel().plan.source)


@pytest.mark.parametrize(
    "piece", ["/*", "/**/", "#", "(", "a(", "__attribute__((", "[ ", "\\ ", "//"]
)
def test_time_follows_the_length_of_the_text(piece: str) -> None:
    """A job may bring sixteen megabytes: a quadratic pattern would take hours."""
    began = time.thread_time()
    try:
        refuse_foreign_text(piece * (1_000_000 // len(piece)))
    except InputError as refused:
        assert len(str(refused)) < 1000
    assert time.thread_time() - began < 5


@given(st.sampled_from(sorted(GOLDEN.glob("*.cl"))), st.randoms(use_true_random=False))
def test_one_foreign_word_anywhere_in_the_code_is_found(path: Path, random: object) -> None:
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    places = [found.start() for found in re.finditer(r"(?<=[;{}])\n", text)]
    place = random.choice(places)  # type: ignore[attr-defined]
    with pytest.raises(InputError):
        refuse_foreign_text(text[:place] + ' asm("nop"); ' + text[place:])
