"""Linear layers with weights laid out for a CPU's matrix kernels; inference only.

oneDNN multiplies by a weight in its own blocked layout 1.4 to 2 times as fast as by a plain matrix, in bfloat16 at any
number of rows and in float32 from two rows on; and in bfloat16 a row's result does not depend on how many rows it is
computed with. In float32 a single row is fastest on a plain matrix, stored along its longer side.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class PackedLinear(nn.Module):
    """A linear layer that cannot be trained, moved or cast any more.

    Its state is that of the layer it was made from. Rows of another dtype are cast to the weights'.

    Args:
        linear: on a CPU, in its final dtype.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        # The overload itself: looking it up at every call costs as much as a small product.
        self._multiply = torch.ops.mkldnn._linear_pointwise.default
        self.in_features = linear.in_features
        self._bias = None if linear.bias is None else linear.bias.detach()
        single = weight.dtype == torch.float32
        # The number of rows that the layout is chosen for; measured, few suit all numbers.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8 if single else 1)
        self._plain: torch.Tensor | None = None
        if single:
            wide = linear.out_features > linear.in_features
            self._plain = weight.t().contiguous().t() if wide else weight.contiguous()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out], in the weights' dtype."""
        rows = rows.to(self._packed.dtype)
        if self._plain is not None and rows.numel() == self.in_features:
            return F.linear(rows, self._plain, self._bias)
        product: torch.Tensor = self._multiply(rows, self._packed, self._bias, "none", [], "")
        return product

    def unpacked(self) -> nn.Linear:
        """A plain layer of the same weights, for those who must look into them; inference only."""
        weight = self._packed.to_dense()
        plain = nn.Linear(weight.shape[1], weight.shape[0], bias=self._bias is not None, device="meta")
        plain.weight = nn.Parameter(weight, requires_grad=False)
        if self._bias is not None:
            plain.bias = nn.Parameter(self._bias, requires_grad=False)
        return plain

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self._packed.to_dense()
        if self._bias is not None:
            destination[f"{prefix}bias"] = self._bias

    def _apply(self, *args: Any, **kwargs: Any) -> PackedLinear:
        raise RuntimeError("packed weights can be neither moved nor cast: load the policy anew")


def packing_is_available() -> bool:
    """Whether this PyTorch has oneDNN's packed linear layer."""
    return bool(torch.backends.mkldnn.is_available()) and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]


def pack_linears(module: nn.Module) -> None:
    """Replaces every linear layer below ``module`` by a packed one; does nothing where packing is not available.

    Half precision stays as it is: most processors have no packed kernel for it.
    """
    if not packing_is_available():
        return
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and child.weight.dtype != torch.float16:
            setattr(module, name, PackedLinear(child))
        else:
            pack_linears(child)


def unpack_linears(module: nn.Module) -> None:
    """Replaces every packed layer below ``module`` by a plain one."""
    for name, child in list(module.named_children()):
        if isinstance(child, PackedLinear):
            setattr(module, name, child.unpacked())
        else:
            unpack_linears(child)
