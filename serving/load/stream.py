"""Reads one streamed answer, chunk by chunk: counts tokens, notes when each came.

Pure: no clock, no network, no log; whoever feeds it says what time it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

_MAX_LINE_BYTES = 4 * 1024 * 1024
_LONGEST_WORDS = 300


@dataclass(slots=True)
class StreamedAnswer:
    """What came so far of a streamed /v1/completions answer.

    A token counts when its chunk is fed. Where chunks name token ids these are counted, else each
    chunk that carries a choice is one token (an engine that merges chunks is then undercounted).
    The tokens after the first of one chunk come with a gap of 0: a user gets them together.
    `whole`: the end mark came. `wrong`: the first thing that was not understood, or that the
    server said went wrong in the middle of its answer. `answer_id` is the server's own name of it,
    if that is printable text; a usage below 0 is none.
    """

    first_token_s: float | None = None
    last_token_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    usage_prompt_tokens: int | None = None
    usage_output_tokens: int | None = None
    answer_id: str | None = None
    whole: bool = False
    wrong: str | None = None
    _rest: bytes = b""

    def feed(self, data: bytes, now_s: float) -> None:
        """Take the next bytes, which may begin and end anywhere."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _MAX_LINE_BYTES:
            self._complain(f"a line of over {_MAX_LINE_BYTES:,} bytes")
            self._rest = b""
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_s)

    def _event(self, data: bytes, now_s: float) -> None:
        if data == b"[DONE]":
            self.whole = True
            return
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            self._complain(f"not JSON: {shortened(data)}")
            return
        if not isinstance(chunk, dict):
            self._complain(f"not an object: {shortened(data)}")
            return
        if chunk.get("error"):
            self._complain(f"the server said: {said_in(chunk)}")
            return
        name = chunk.get("id")
        if self.answer_id is None and isinstance(name, str) and name.isprintable():
            self.answer_id = name
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(choice, now_s)
        self._usage(chunk.get("usage"))

    def _choice(self, choice: dict[str, Any], now_s: float) -> None:
        text, ids = choice.get("text"), choice.get("token_ids")
        if isinstance(text, str):
            self.text.append(text)
        if isinstance(ids, list):
            named = [one for one in ids if type(one) is int]  # True is no token
            if len(named) < len(ids):
                self._complain("token ids that are no numbers")
            self.token_ids.extend(named)
            self._tokens(len(named), now_s)
        else:
            self._tokens(1, now_s)

    def _tokens(self, number: int, now_s: float) -> None:
        if number == 0:
            return
        if self.first_token_s is None or self.last_token_s is None:
            self.first_token_s = now_s
        else:
            self.gaps_s.append(now_s - self.last_token_s)
        self.gaps_s.extend([0.0] * (number - 1))
        self.last_token_s = now_s
        self.tokens += number

    def _usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if type(prompt) is int and prompt >= 0:
            self.usage_prompt_tokens = prompt
        if type(output) is int and output >= 0:
            self.usage_output_tokens = output

    def _complain(self, words: str) -> None:
        if self.wrong is None:
            self.wrong = words


def said_in(answer: object) -> str:
    """What an error answer of an engine or a router says, in its own words, on one line."""
    said: object = answer
    for key in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    try:
        text = said if isinstance(said, str) else json.dumps(said)
    except RecursionError:
        text = "something nested too deep"
    return shortened(text.encode("utf-8", "replace"))


def shortened(data: bytes) -> str:
    """Bytes as one line that fits into a sentence."""
    words = " ".join(data.decode("utf-8", "replace").split())
    return words if len(words) <= _LONGEST_WORDS else words[:_LONGEST_WORDS] + "…"
