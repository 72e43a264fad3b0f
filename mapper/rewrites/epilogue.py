"""Bias and activation, fused into the store of a result."""

from __future__ import annotations

from mapper.ast_model.builders import call, identity
from mapper.ast_model.nodes import Node, UserFunction
from mapper.layer_spec import LayerSpec
from mapper.programs.activations import activation_function


class Epilogue:
    """What happens to a total before it is written: bias added, activation applied."""

    def __init__(self, layer: LayerSpec) -> None:
        self.has_bias = layer.bias
        self._activation = activation_function(layer)

    def functions(self) -> tuple[UserFunction, ...]:
        """User functions that the program must define."""
        return () if self._activation is None else (self._activation,)

    def result(self, total: Node, bias: Node | None) -> Node:
        """The result of a total (and the bias of its filter)."""
        value = total if bias is None else call("add", total, bias)
        if self._activation is not None:
            return call(self._activation.name, value)
        return identity(value) if bias is None else value
