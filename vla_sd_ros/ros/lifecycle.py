"""A lifecycle node reduced to four hooks; a fault in one of them is a diagnosis and a refused transition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vla_sd_ros.ros.diagnostics import ERROR, Diagnostics


class ManagedNode(LifecycleNode):
    """Base of the nodes that move the arm or decide about it.

    Subclasses override ``set_up`` (read parameters, load, check), ``start`` (begin to work), ``halt`` (stop working and
    leave the arm at rest; safe to call at any time and twice) and ``tear_down`` (free what ``set_up`` made).
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.diagnostics = Diagnostics(self)
        self.diagnostics.hold("inactive", "the node is not active yet")
        # rclpy raises on a transition that the state does not have, and that would end the process.
        self._change_state = self._service_change_state.callback
        self._service_change_state.callback = self._change_state_if_legal

    def set_up(self) -> None:
        """Reads parameters and makes what the node needs; raises where that is not possible."""

    def start(self) -> None:
        """Begins to work; raises where that is not possible."""

    def halt(self) -> None:
        """Stops working and leaves the arm at rest."""

    def tear_down(self) -> None:
        """Frees what ``set_up`` made."""

    def stop(self) -> None:
        """Called before the process ends, while publishing still works."""
        self.halt()
        self.tear_down()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Runs ``set_up``; where it raises, frees what it had made and says why."""
        done = self._attempt("configure", self.set_up)
        if done is not TransitionCallbackReturn.SUCCESS:
            self.tear_down()
        return done

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Runs ``start``."""
        done = self._attempt("activate", self.start)
        if done is TransitionCallbackReturn.SUCCESS:
            self.diagnostics.clear("inactive")
            return super().on_activate(state)
        self.halt()
        return done

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Runs ``halt`` while the publishers still work."""
        self.halt()
        self.diagnostics.hold("inactive", "the node was deactivated")
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Runs ``tear_down``."""
        return self._attempt("clean up", self.tear_down)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Runs ``halt`` and ``tear_down``, whatever the state was."""
        return self._attempt("shut down", self.stop)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Leaves the arm at rest and goes back to unconfigured."""
        return self._attempt("recover", self.stop)

    def _change_state_if_legal(self, request: Any, response: Any) -> Any:
        legal = {transition[0]: transition[1] for transition in self._state_machine.available_transitions}
        if not request.transition.label and request.transition.id not in legal:
            state = self._state_machine.current_state[1]
            self.get_logger().warning(
                f"transition {request.transition.id} is refused while {state}; legal: {sorted(legal.values())}"
            )
            response.success = False
            return response
        return self._change_state(request, response)

    def _attempt(self, what: str, hook: Callable[[], None]) -> TransitionCallbackReturn:
        try:
            hook()
        except Exception as error:  # any fault here must refuse the transition and be told
            self.diagnostics.hold(f"cannot {what}", f"cannot {what}: {error}", ERROR)
            self.get_logger().error(f"cannot {what}: {type(error).__name__}: {error}")
            return TransitionCallbackReturn.FAILURE
        self.diagnostics.clear(f"cannot {what}")
        return TransitionCallbackReturn.SUCCESS
