"""How much stack PoCL takes for the private memory of a work-group.

    python bench/pocl_stack.py

Finds by halving the smallest stack (``ulimit -s``) with which a kernel runs, for two sizes of its
private memory, and prints what a further byte of private memory costs. docs/decisions/0016 has the
result and what follows from it.
"""

from __future__ import annotations

import subprocess
import sys

_RUN = """
import sys, pyopencl as cl
platform = next(p for p in cl.get_platforms() if "Portable" in p.name)
context = cl.Context([platform.get_devices()[0]])
queue = cl.CommandQueue(context)
buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20) for _ in range(2)]
kernel = cl.Program(context, sys.argv[1]).build().k
kernel.set_args(*buffers)
cl.enqueue_nd_range_kernel(queue, kernel, (int(sys.argv[2]),), (int(sys.argv[2]),))
queue.finish()
"""
_FILL = "for (int i = 0; i < N; ++i) a[i] = x[(i*7 + l + k) % 99]; "
_SUM = "for (int i = 0; i < N; ++i) s += a[(i*l + 3) % N]; "
_COPY = "t[l] = x[k + l]; barrier(CLK_LOCAL_MEM_FENCE); "
_DONE = "barrier(CLK_LOCAL_MEM_FENCE); "


def _registers(n: int, text: str) -> str:
    return "".join(text.replace("#", str(i)) for i in range(n))


def _accumulating(n: int, loops: str, copies: int, end: str) -> str:
    step = _COPY + _registers(n, "r# += t[(l + #) % G]*x[k*#]; ") + _DONE
    return (
        "__local float t[G]; int k = 0; float s = 0; "
        + _registers(n, "float r# = 0; ")
        + loops
        + step * copies
        + end
        + _registers(n, "s = s*1.5f + r#; ")
    )


def _bodies(n: int) -> dict[str, str]:
    array = "float a[N]; " + _FILL + _SUM
    loop = "for (k = 0; k < 9; ++k) { "
    return {
        "an array": "int k = 0; float s = 0; { " + array + "}",
        "an array in a loop": "int k; float s = 0; for (k = 0; k < 4; ++k) { " + array + "}",
        "two arrays in blocks of their own": "int k = 0; float s = 0; "
        + ("{ " + array + "k = 1; } ") * 2,
        "variables, barriers in a loop": _accumulating(n, loop, 1, "} "),
        "variables, barriers in two loops": _accumulating(
            n, "for (int z = 0; z < 3; ++z) { " + loop, 1, "} } "
        ),
        "variables, two sums in a loop": _accumulating(n, loop, 2, "} "),
    }


def _runs(source: str, group: int, kibibytes: int) -> bool:
    limited = ["bash", "-c", 'ulimit -s "$0" && exec "$@"', str(kibibytes)]
    command = [*limited, sys.executable, "-c", _RUN, source, str(group)]
    return subprocess.run(command, capture_output=True).returncode == 0


def _least_stack(name: str, n: int, group: int) -> int:
    """The least stack in KiB, to 32."""
    source = (
        f"#define N {n}\n#define G {group}\n__attribute__((reqd_work_group_size({group}, 1, 1)))\n"
        "__kernel void k(__global const float *x, __global float *y) {\n"
        f"int l = get_local_id(0); {_bodies(n)[name]} y[l] = s; }}\n"
    )
    low, high = 64, 65_536
    if not _runs(source, group, high):
        sys.exit(f"{name}: does not run with {high} KiB of stack either")
    while high - low > 32:
        middle = (low + high) // 2
        if _runs(source, group, middle):
            high = middle
        else:
            low = middle
    return high


def main() -> None:
    """Print the table."""
    print(f"{'kernel':34} {'group':>5} {'bytes':>12} {'stack (KiB)':>12} {'copies':>7}")
    for name in _bodies(1):
        group, sizes = (256, (1024, 2048)) if "array" in name else (1024, (32, 64))
        few, many = (_least_stack(name, n, group) for n in sizes)
        more = 4 * (sizes[1] - sizes[0]) * group / 1024
        bytes_ = f"{4 * sizes[0]}, {4 * sizes[1]}"
        print(
            f"{name:34} {group:>5} {bytes_:>12} {f'{few}, {many}':>12} {(many - few) / more:7.2f}"
        )


if __name__ == "__main__":
    main()
