"""What a client holds that has nothing but the frames."""

from __future__ import annotations

from typing import assert_never

from capsule_runtime import ArtifactFrame, Frame, StatusFrame, TextFrame, ThinkingFrame


class Client:
    """Join `text` frames until one is final, as every client must, and check what it can check."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        """The texts that were ended, in order."""
        self.open_text = ""
        """What was streamed since; a client shows it as still being written."""
        self.is_streaming = False
        self.thinking = ""
        self.working: list[str] = []
        self.artifacts: list[str] = []
        self.final: StatusFrame | None = None
        self._last = 0

    def receive(self, frame: Frame) -> None:
        """Take the next frame."""
        assert self.final is None, "a frame after the final status"
        assert frame.prev == self._last, "a frame was missed"
        assert frame.seq > frame.prev
        self._last = frame.seq
        match frame:
            case TextFrame(text=text, final=final):
                self._text(text, final)
            case ThinkingFrame(text=text, final=final):
                assert final is False
                self.thinking += text
            case ArtifactFrame(tool_call_id=id):
                self.artifacts.append(id)
            case StatusFrame(final=True):
                assert not self.is_streaming, "the final status leaves a text open"
                self.final = frame
            case StatusFrame(state=state, message=message):
                assert state == "working"
                self.working.append(message)
            case _:
                assert_never(frame)

    def _text(self, text: str, final: bool) -> None:
        self.open_text += text
        self.is_streaming = not final
        if final:
            self.texts.append(self.open_text)
            self.open_text = ""
