"""What a forward of the language model needs to know beside its embeddings, as tensors that stay where they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from vla_sd_ros.policy.transfer import staging

INT64_BYTES = 8


class StaticInputs:
    """Positions, slots and visibility of a number of queries, filled by the host in one copy.

    Fewer queries than there are rows stand at the end. The rows before them are padding: position 0, written to the
    spare slot, seeing nothing but that slot.

    Args:
        rows: queries.
        slots: of the cache.
        spare: a slot that no query attends to.
        device: where the cache is.

    Attributes:
        positions: int64 [rows], rotary positions.
        slots: int64 [rows], where keys and values go.
        visible: bool [rows, slots], what each query may attend.
    """

    def __init__(self, rows: int, slots: int, spare: int, device: torch.device) -> None:
        self._rows, self._count, self._spare, self._device = rows, slots, spare, device
        numbers = 2 * INT64_BYTES * rows
        self._block = torch.zeros(numbers + rows * slots, dtype=torch.uint8, device=device)
        self.positions, self.slots = self._block[:numbers].view(torch.int64).view(2, rows).unbind(0)
        self.visible = self._block[numbers:].view(torch.bool).view(rows, slots)
        self._causal = np.tri(slots, dtype=np.uint8)
        self.pad()

    def pad(self) -> None:
        """Makes every row padding, so that a forward leaves the cache as it is."""
        self.fill(0, 0)

    def fill(
        self,
        length: int,
        start: int,
        positions: npt.NDArray[np.int64] | None = None,
        mask: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Describes ``length`` queries; does not wait for the device.

        Args:
            length: up to the number of rows.
            start: slot of the first query; the others follow it.
            positions: int64 [length]; None: the slots.
            mask: bool [length, start + length], which slots each may attend; None: causal.
        """
        first, stop = self._rows - length, start + length
        host = staging(len(self._block), self._device)
        content = host.numpy()
        places = content[: 2 * INT64_BYTES * self._rows].view(np.int64).reshape(2, self._rows)
        places[0, :first] = 0
        places[1, :first] = self._spare
        places[1, first:] = np.arange(start, stop)
        places[0, first:] = places[1, first:] if positions is None else positions
        visible = content[2 * INT64_BYTES * self._rows :].reshape(self._rows, self._count)
        visible[:] = 0
        visible[:first, self._spare] = 1
        visible[first:, :stop] = self._causal[start:stop, :stop] if mask is None else mask
        self._block.copy_(host, non_blocking=True)


class SlotWriter:
    """A cache whose slots are named by a tensor, and of which all slots are seen; see ``LayerStore``.

    Args:
        layers: keys and values of each layer, [1, H, slots, d].
        slots: int64 [S], where the queries' keys and values go.
    """

    def __init__(self, layers: list[tuple[torch.Tensor, torch.Tensor]], slots: torch.Tensor) -> None:
        self._layers = layers
        self._slots = slots

    def update(
        self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes [1, H, S, d] of a layer and returns all its slots; ``start`` is not used."""
        all_keys, all_values = self._layers[layer]
        all_keys.index_copy_(2, self._slots, keys.to(all_keys.dtype))
        all_values.index_copy_(2, self._slots, values.to(all_values.dtype))
        return all_keys, all_values
