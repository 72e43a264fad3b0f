"""Activations as user functions of the IR, applied where a result is stored."""

from __future__ import annotations

from mapper.ast_model.nodes import Apply, FunctionExpr, Op, UserFunction
from mapper.layer_spec import Activation, LayerSpec

_RELU = Apply(Op.MAX, ("x", 0.0))
_FIXED: dict[Activation, FunctionExpr] = {
    Activation.RELU: _RELU,
    Activation.RELU6: Apply(Op.MIN, (_RELU, 6.0)),
    # exp overflows to infinity for x below -88, and 1 / infinity is the limit, 0.
    Activation.SIGMOID: Apply(
        Op.DIV, (1.0, Apply(Op.ADD, (1.0, Apply(Op.EXP, (Apply(Op.SUB, (0.0, "x")),)))))
    ),
}


def activation_function(layer: LayerSpec) -> UserFunction | None:
    """The layer's activation, which a program must list among its functions; None for none."""
    match layer.activation:
        case Activation.NONE:
            return None
        case Activation.LEAKY_RELU:
            # The larger of the two as long as the slope is at most 1, and it is.
            body = Apply(Op.MAX, ("x", Apply(Op.MUL, (float(layer.activation_slope), "x"))))
        case Activation.RELU | Activation.RELU6 | Activation.SIGMOID:
            body = _FIXED[layer.activation]
    return UserFunction(str(layer.activation), ("x",), body)
