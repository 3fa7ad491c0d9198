"""The page of the SDK, from the public names of `learnloop_sdk` and their docstrings."""

import inspect
from collections.abc import Iterator
from typing import Any

import learnloop_sdk
from reference.markdown import outside_code, page


def pages() -> Iterator[tuple[str, str]]:
    """The one page of the SDK."""
    parts = [outside_code(inspect.getdoc(learnloop_sdk) or "")]
    for name in sorted(learnloop_sdk.__all__, key=str.lower):
        thing = getattr(learnloop_sdk, name)
        parts += _class(name, thing) if inspect.isclass(thing) else _function("##", name, thing)
    yield "sdk.md", page("SDK", "the docstrings of `agent_sdk/learnloop_sdk`", *parts)


def _class(name: str, thing: type[Any]) -> list[str]:
    parts = [f"## `{name}`", _text(thing)]
    for own, member in vars(thing).items():
        if own.startswith("_"):
            continue
        if isinstance(member, property):
            parts += [f"### `{name}.{own}`", _text(member)]
        elif inspect.isfunction(inspect.unwrap(getattr(member, "__func__", member))):
            parts += _function("###", f"{name}.{own}", getattr(member, "__func__", member))
    if "__init__" in vars(thing) and inspect.getdoc(thing.__init__) != inspect.getdoc(object.__init__):
        parts[1:1] = [f"```python\n{name}{_signature(thing.__init__)}\n```"]
    return parts


def _function(level: str, name: str, thing: Any) -> list[str]:
    asynchronous = "async " if inspect.iscoroutinefunction(inspect.unwrap(thing)) else ""
    return [
        f"{level} `{name}`",
        f"```python\n{asynchronous}{name.rsplit('.', 1)[-1]}{_signature(thing)}\n```",
        _text(thing if inspect.isroutine(thing) else type(thing).__call__),
    ]


def _signature(thing: Any) -> str:
    signature = inspect.signature(thing)
    parameters = [item for name, item in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=parameters)).replace("learnloop_sdk.", "").replace("learnloop_api.", "")


def _text(thing: Any) -> str:
    return outside_code(inspect.getdoc(thing) or "")
