"""Sources are escaped, coloured by classes alone, and compared line by line."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from api.dashboard.views.sources import highlighted_lines, source_diff

KERNEL = """/* two
lines */
kernel void k_a(global const float4 *restrict x) {
    int i = get_global_id(0); // <script>
    if (i < 3 && x[i].x > 0.5f) barrier(CLK_LOCAL_MEM_FENCE);
}
"""
LINES = st.lists(st.sampled_from(["a", "b", "<c>", "d & e", "", "    f"]), max_size=40)


def plain(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def test_lines_are_the_source_without_inline_styles():
    lines = highlighted_lines(KERNEL)
    assert [plain(line) for line in lines] == KERNEL.splitlines()
    text = "".join(lines)
    assert "style=" not in text and "<script>" not in text
    assert '<span class="hl-k">kernel</span>' in text
    assert '<span class="hl-kt">float4</span>' in text
    assert '<span class="hl-nb">get_global_id</span>' in text
    # A comment over several lines is coloured on each, so that lines may stand by themselves.
    assert all(line.count("<span") == line.count("</span>") for line in lines)


def test_a_source_that_is_too_long_to_be_coloured_is_escaped_all_the_same():
    source = "x < y\n" * 100_000
    lines = highlighted_lines(source)
    assert len(lines) == 100_000 and lines[0] == "x &lt; y"


@given(LINES, LINES)
def test_a_diff_tells_both_sources(before, after):
    found = source_diff("\n".join(before), "\n".join(after))
    first, second = "\n".join(before).splitlines(), "\n".join(after).splitlines()
    assert found.is_same == (first == second)
    for row in found.rows:
        if row.before is not None:
            assert first[row.before - 1] == row.text and row.kind in ("same", "removed")
        if row.after is not None:
            assert second[row.after - 1] == row.text and row.kind in ("same", "added")
    removed = [(row.before or 0) - 1 for row in found.rows if row.kind == "removed"]
    added = [row.text for row in found.rows if row.kind == "added"]
    assert (len(removed), len(added)) == (found.removed, found.added)
    kept = [line for number, line in enumerate(first) if number not in removed]
    assert sorted(kept + added) == sorted(second)


def test_sources_that_are_too_long_are_said_not_to_be_compared():
    long = "\n".join(map(str, range(7_000)))
    found = source_diff(long, long + "\nmore")
    assert not found.compared and not found.is_same and found.rows == ()
    assert source_diff(long, long).is_same
