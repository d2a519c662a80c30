"""The process of the server: when it is told to stop, running questions finish and new ones are refused."""

from __future__ import annotations

import gc
import signal
import socket
from types import FrameType

import uvicorn

from epicrisis.server.questions import Questions


class GracefulServer(uvicorn.Server):
    """A server that refuses new questions from the signal on, while it finishes the running ones."""

    def __init__(self, config: uvicorn.Config, questions: Questions) -> None:
        super().__init__(config)
        self._questions = questions

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the sockets. What is loaded by now stays: its garbage collection would hold up all clients for 0.2 s."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse new questions, and stop when the running ones have ended. A second Ctrl-C stops at once.

        uvicorn would send itself the signal again when it has stopped, before libraries and models are closed.
        """
        self._questions.refuse_new()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
