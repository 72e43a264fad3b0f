"""A call of torch as a CUDA graph of several of them, so that no launch from the host is timed."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

#: Milliseconds that the calls of one graph should take together, and the most calls.
_GRAPH_MS = 0.5
_MOST_CALLS = 20
_WARM_CALLS = 5


class GraphCall:
    """Raises torch's RuntimeError where the call does not run, or cannot be captured."""

    def __init__(self, torch: Any, call: Callable[[], Any]) -> None:
        self._torch = torch
        self._call = call
        with torch.no_grad():
            self._call()
            self.calls = self._calls_of_a_graph()
            self._graph = self._captured()

    def _calls_of_a_graph(self) -> int:
        self._timed(self._call)
        once_ms = min(self._timed(self._call) for _ in range(3))
        return max(1, min(_MOST_CALLS, ceil(_GRAPH_MS / max(once_ms, 1e-3))))

    def _captured(self) -> Any:
        torch = self._torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_CALLS):
                self._call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(self.calls):
                self.result = self._call()
        return graph

    def _timed(self, call: Callable[[], Any]) -> float:
        torch = self._torch
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def times_ms(self, count: int, warmup: int) -> list[float]:
        """GPU milliseconds of one call, ``count`` times, each the mean over a graph."""
        with self._torch.no_grad():
            for _ in range(warmup):
                self._graph.replay()
            self._torch.cuda.synchronize()
            return [self._timed(self._graph.replay) / self.calls for _ in range(count)]

    def per_call_ms(self, count: int) -> list[float]:
        """The same by events around plain calls, launches from the host included."""
        with self._torch.no_grad():
            self._call()
            return [self._timed(self._call) for _ in range(count)]
