"""The `user` of a case in the native format: a simulated user and when it stops.

    user:
      persona: A customer who was charged twice and is in a hurry.
      goal: To know when the second charge is paid back.
      style: Short sentences, no greeting.
      model: main                                  # one of `models`; or `script`
      opening: I was charged twice!                # or `input` of the case; left out: the user thinks of it
      gives_up_after: 6
      stop_when: The assistant has named a day.    # or a check, as in `expect`

A claim `goal_reached` of such a case takes the goal from here and, where a check or a script decides when the user is done, is decided by
that by default.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proctor.checks.registry import Registry
from proctor.formats.text.located import Located, Reading
from proctor.model.case import MOST_USER_TURNS, Assertion, SimulatedUser, UserLine
from proctor.model.evidence import Json

USER_KEYS = ("persona", "goal", "style", "opening", "gives_up_after", "stop_when", "model", "script")
LINE_KEYS = ("say", "when", "done", "gives_up")
_TEXT: dict[str, Json] = {"type": "string"}

ReadAssertion = Callable[[Located, int | None], Assertion | None]
WriteAssertion = Callable[[Assertion], Json]


class UserReader:
    """Reads the users of one suite; `read_assertion` reads a check as `expect` writes it."""

    def __init__(self, reading: Reading, registry: Registry, read_assertion: ReadAssertion) -> None:
        self._reading = reading
        self._registry = registry
        self._read_assertion = read_assertion

    def read(self, case: Located) -> tuple[SimulatedUser | None, str | None]:
        """Return the user of a case and its first message, if `opening` has it."""
        node, reading = case.get("user"), self._reading
        if node is None or reading.require_object(node, "user") is None:
            return None, None
        reading.check_keys(node, USER_KEYS, "a user")
        for key in ("turns", "body"):
            if case.get(key) is not None:
                reading.error_at_key(
                    case, key, f"a case with a simulated user has no {key!r}: the user writes the messages", code="two_inputs"
                )
        if node.get("opening") is not None and case.get("input") is not None:
            reading.error_at_key(node, "opening", "two first messages, in 'input' and in 'opening'", code="two_inputs")
        texts = {key: reading.require_text(node.get(key), key) for key in ("persona", "goal", "style", "opening", "model")}
        user = SimulatedUser(
            persona=texts["persona"] or "",
            goal=texts["goal"] or "",
            style=texts["style"] or "",
            model=texts["model"],
            gives_up_after=reading.require_integer(node.get("gives_up_after"), "gives_up_after", at_least=1, at_most=MOST_USER_TURNS)
            or SimulatedUser().gives_up_after,
            stop_when=self._read_stop(node.get("stop_when")),
            script=tuple(filter(None, map(self._read_line, reading.list_items(node.get("script"), "script")))),
        )
        script = node.get("script")
        if script is not None and script.value == []:
            reading.error(script, "script: expected at least one line, found an empty list")
        self._check_player(node, user)
        if texts["opening"] == "":
            reading.error_at_key(node, "opening", "opening: expected a message, found empty text")
        return user, texts["opening"]

    def _check_player(self, node: Located, user: SimulatedUser) -> None:
        reading = self._reading
        scripted = node.get("script") is not None
        if scripted == (user.model is not None):
            reading.error(
                node,
                "a user is played by a model or by a script, and this one has " + ("both" if scripted else "neither"),
                hint="`model` names one of `models`; `script` lists the messages",
                code="user_without_player",
            )
        elif scripted and isinstance(user.stop_when, str):
            message = "a script cannot decide a condition in plain language"
            hint = "write a check, as in stop_when: {response_contains: refund}, or a line {when: ..., done: true}"
            reading.error_at_key(node, "stop_when", message, hint=hint, code="wrong_value")
        elif not scripted and not user.goal:
            reading.error(node, "a user that a model plays needs a 'goal'", code="missing_key")

    def _read_stop(self, node: Located | None) -> Assertion | str | None:
        if node is None:
            return None
        # The bare name of a check is a claim, as in `expect`; any other text is a condition in plain language.
        if isinstance(node.value, str) and node.value not in self._registry:
            if not node.value.strip():
                self._reading.error(node, "stop_when: expected a condition or a check, found empty text")
            return node.value
        return self._read_claim(node, "stop_when")

    def _read_claim(self, node: Located, what: str) -> Assertion | None:
        claim = self._read_assertion(node, None)
        if claim is not None and self._registry.get(claim.check).judged:
            self._reading.error(node, f"{what}: {claim.check!r} needs a judge, which only runs after the conversation", code="wrong_value")
            return None
        return claim

    def _read_line(self, node: Located) -> UserLine | None:
        reading = self._reading
        if isinstance(node.value, str):
            if not node.value.strip():
                reading.error(node, "a line of a script needs text, found an empty one")
            return UserLine(say=node.value)
        if reading.require_object(node, "a line of a script") is None:
            return None
        reading.check_keys(node, LINE_KEYS, "a line of a script")
        say = reading.require_text(node.get("say"), "say")
        done, gives_up = (reading.require_boolean(node.get(key), key) for key in ("done", "gives_up"))
        if [say is not None and bool(say.strip()), bool(done), bool(gives_up)].count(True) != 1:
            reading.error(node, "a line of a script has one of 'say', 'done: true' and 'gives_up: true'", code="wrong_value")
        when = node.get("when")
        return UserLine(
            say=say or "",
            when=self._read_claim(when, "when") if when is not None else None,
            ends="done" if done else "gave_up" if gives_up else None,
        )

    def complete_claim(self, assertion: Assertion, node: Located, user: SimulatedUser | None) -> Assertion:
        """Return a claim of a case, with defaults from its user."""
        if assertion.check != "goal_reached":
            return assertion
        from proctor.checks.judged.goal import NO_GOAL, GoalReached  # imports all judged checks, which few suites use

        spec = assertion.spec
        assert isinstance(spec, GoalReached)
        decided_by_claim = user is not None and is_decided_by_claim(user)
        if spec.by is None:
            spec = msgspec.structs.replace(spec, by="stop_when" if decided_by_claim else "judge")
        elif spec.by == "stop_when" and not decided_by_claim:
            problem = "goal_reached by stop_when needs a simulated user with a script, or with a check as stop_when"
            hint = "the opinion of the user's model proves nothing; `by: judge` shows a judge the whole conversation"
            self._reading.error(node, problem, hint=hint, code="wrong_value")
        if spec.by == "stop_when" and user is not None and user.stop_when is None and all(line.ends != "done" for line in user.script):
            message = "this can never hold: the script is never done, and there is no stop_when"
            self._reading.warn(node, message, hint="write stop_when, or a line {when: ..., done: true}", code="never_holds")
        if not spec.goal and user is not None:
            spec = msgspec.structs.replace(spec, goal=user.goal)
        if spec.by == "judge" and not spec.goal.strip():
            self._reading.error(
                node, NO_GOAL, hint="write goal_reached: the goal, or give the case a `user` with a goal", code="missing_key"
            )
        return msgspec.structs.replace(assertion, spec=spec)


def is_decided_by_claim(user: SimulatedUser) -> bool:
    """Return whether a check or a script, and not a model, decides when a user is done."""
    return isinstance(user.stop_when, Assertion) or bool(user.script)


def write_user(user: SimulatedUser, write_assertion: WriteAssertion) -> dict[str, Json]:
    """Return a user in the form of a suite."""
    out: dict[str, Json] = {key: getattr(user, key) for key in ("persona", "goal", "style", "model") if getattr(user, key)}
    if user.gives_up_after != SimulatedUser().gives_up_after:
        out["gives_up_after"] = user.gives_up_after
    if user.stop_when is not None:
        out["stop_when"] = user.stop_when if isinstance(user.stop_when, str) else write_assertion(user.stop_when)
    if user.script:
        lines: list[Json] = []
        for line in user.script:
            when = {} if line.when is None else {"when": write_assertion(line.when)}
            move = {"say": line.say} if line.ends is None else {"done" if line.ends == "done" else "gives_up": True}
            lines.append(line.say if line.when is None and line.ends is None else {**when, **move})
        out["script"] = lines
    return out


def build_user_schema() -> dict[str, Json]:
    """Return the JSON Schema of a user."""
    claim = {"$ref": "#/$defs/assertion"}
    line = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"say": _TEXT, "when": claim, "done": {"type": "boolean"}, "gives_up": {"type": "boolean"}},
    }
    properties: dict[str, Json] = {
        "persona": {**_TEXT, "description": "Who the user is."},
        "goal": {**_TEXT, "description": "What the user wants."},
        "style": {**_TEXT, "description": "How the user talks."},
        "opening": {**_TEXT, "description": "The first message; left out: the case's input, else the user thinks of it."},
        "gives_up_after": {"type": "integer", "minimum": 1, "maximum": MOST_USER_TURNS, "default": SimulatedUser().gives_up_after},
        "stop_when": {
            "anyOf": [_TEXT, claim],
            "description": "What ends the conversation as done: a check, or a condition in plain words.",
        },
        "model": {**_TEXT, "description": "The model that plays the user, one of `models`."},
        "script": {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [_TEXT, line]},
            "description": "The user's messages, without a model.",
        },
    }
    assert set(properties) == set(USER_KEYS)
    return {"type": "object", "additionalProperties": False, "properties": properties, "description": "A simulated user."}
