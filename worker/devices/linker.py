"""A linker for PoCL where the machine has none.

PoCL calls the program ``ld`` to make a shared object of each kernel, and aborts the process if
there is none. A machine with Python alone has none; the package ziglang from PyPI brings LLVM's,
which a small script named ``ld`` then calls. ``make`` installs that package where it is needed.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from mapper.errors import DeviceError, Problem

# Libraries of a C compiler that may not be there either; what kernels need of them is in the
# process that loads them.
_LEFT_OUT = "a for a in sys.argv[1:] if not a.startswith(('-l', '-L')) and 'as-needed' not in a"


def has_linker() -> bool:
    """True if PoCL will find a linker."""
    return shutil.which("ld") is not None


def provide_linker() -> bool:
    """Put a linker on PATH if there is none and one can be had; True if PoCL will find one."""
    if has_linker():
        return True
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return False
    zig = Path(spec.origin).parent / "zig"
    folder = Path(tempfile.mkdtemp(prefix="nestmap-linker-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "ld"
    script.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"zig = {str(zig)!r}\n"
        f"os.execv(zig, [zig, 'ld.lld', *({_LEFT_OUT})])\n",
        encoding="utf-8",
    )
    script.chmod(0o700)
    os.environ["PATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PATH", ""))))
    return True


def require_linker() -> None:
    """DeviceError if PoCL would find no linker."""
    if not provide_linker():
        raise DeviceError(
            Problem(
                "device",
                "PoCL needs the program ld to link kernels, and would abort without it",
                "no ld on PATH",
                remedy="apt-get install binutils gcc, or pip install ziglang",
            )
        )
