"""The words of LIBERO's instructions (suites spatial, object, goal and 10): the demo policy's vocabulary."""

from __future__ import annotations

from typing import Final

UNKNOWN_TOKEN: Final = "<unk>"
BOS_TOKEN: Final = "<s>"

_PROMPT: Final = "in what action should the robot take to ? out :"
_INSTRUCTIONS: Final = """
akita alphabet and back basket bbq between black book both bottle bottom bowl box butter cabinet caddy center cheese
chocolate close compartment cookie cookies cream drawer dressing from front inside it juice ketchup layer left
microwave middle milk moka mug next of on open orange pick place plate pot pots pudding push put rack ramekin right
salad sauce soup stove table tomato top turn up white wine wooden yellow
"""

DEMO_VOCABULARY: Final[tuple[str, ...]] = (UNKNOWN_TOKEN, BOS_TOKEN, *_PROMPT.split(), *_INSTRUCTIONS.split())
"""Text tokens of the demo policy in id order; the 256 action ids follow them."""
