"""The original's spelling of names."""


def to_camel(name: str) -> str:
    """Return a name in the original's spelling: `toolCalls` for `tool_calls`."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
